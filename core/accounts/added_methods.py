"""Ways to sign in that were added to an account, and their end by a password reset (security A-6)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID, uuid5

from core.accounts import events, factor_changes, mfa, passkeys, relying_party
from core.accounts.factor_changes import Demands
from core.accounts.factors import history as factor_history
from core.accounts.model import security_notices
from core.accounts.model.accounts import Account
from core.accounts.model.mfa import MfaEvent
from core.accounts.model.passkeys import Passkey, PasskeyKind
from core.kernel.causes import Caller
from core.kernel.proofs import FactorKind
from ports import Ports, storage


def _id_of(factor: FactorKind, account: Account) -> UUID:
    """Return the id with which a form names a second factor of the account."""
    return account.id if factor is FactorKind.TOTP else uuid5(account.id, factor)


@dataclass(frozen=True, slots=True)
class AccountFactors:
    """The factors of an account that work here, its linked accounts, and the sign-in policies that it must still meet."""

    account: Account
    keys: Sequence[Passkey]
    linked: Sequence[security_notices.AddedSignInMethod]
    demands: Demands
    is_replaced: bool  # as in `FactorHistory`

    def find_needing(self, lost: Collection[UUID]) -> tuple[str, ...] | None:
        """Return the names of the policies that the account no longer meets without these methods.

        None: the account would lose its last second factor, which replaced an earlier factor.
        """
        providers = {method.provider for method in self.linked if method.provider is not None and method.id in lost}
        left = [key.kind for key in self.keys if key.id not in lost]
        account = replace(
            self.account,
            mfa_enabled_at=None if _id_of(FactorKind.TOTP, self.account) in lost else self.account.mfa_enabled_at,
            passkey_second_at=None if _id_of(FactorKind.PASSKEY, self.account) in lost else self.account.passkey_second_at,
            passkey_count=left.count(PasskeyKind.PASSKEY),
            security_key_count=left.count(PasskeyKind.SECURITY_KEY),
        )
        if self.is_replaced and self.account.second_factors and not account.second_factors:
            return None
        demands = ((policy.name, replace(self.demands, policies=[policy])) for policy in self.demands.policies)
        return tuple(sorted({name for name, demand in demands if demand.met_by(self.account) - demand.met_by(account, without=providers)}))


async def find(
    ports: Ports, read: storage.Reading | storage.Transaction, account: Account, now: datetime, *, keys_stay: bool = False
) -> tuple[Sequence[security_notices.AddedSignInMethod], AccountFactors]:
    """Return the sign-in methods that a user added, and all factors of the account.

    The methods are linked accounts, and factors that were added in the last 72 hours. A reset must not end an older second factor: the
    mailbox alone would be enough to sign in (security A-6). Factors from a recovery are missing, too. So is the only second factor, if it
    replaced an earlier factor in the last 72 hours. `keys_stay`: the reset ends no keys.
    """
    since = now - security_notices.UNDO_TTL
    # Another address was verified before: a reset removes all linked accounts.
    linked = [] if account.is_unproven else await read.identities.list_added(account.id, since)
    keys = [] if account.is_unproven else await read.passkeys.of_user(account.id)
    added = [security_notices.AddedSignInMethod(key.id, None, key.created_at, is_recent=True, passkey=key.name) for key in keys]
    later = max(since, await read.mfa.newest_at(account.id, MfaEvent.RECOVERED) or since)
    recent = [method for method in added if method.added_at > later]
    seconds_at = {FactorKind.TOTP: account.mfa_enabled_at}
    second_at = account.passkey_second_at
    # Keys that were added as the second factor end it with the last key.
    if second_at is not None and keys and (keys_stay or any(key.created_at < second_at for key in keys)):
        seconds_at[FactorKind.PASSKEY] = second_at
    for factor, at in seconds_at.items():
        if at is not None and at > later:
            recent.append(security_notices.AddedSignInMethod(_id_of(factor, account), None, at, is_recent=True, second=factor))
    present = await relying_party.load_without_lost_keys(ports, read, account)
    _, usable = await relying_party.load_usable(ports, read, account.id)
    demands = await factor_changes.load_demands(ports, read, account.id, now)
    history = await factor_history.load(ports, read, account, now)
    factors = AccountFactors(present, usable, linked, demands, history.is_replaced(now))
    needed = ((method, factors.find_needing({method.id})) for method in (*linked, *recent))
    return [replace(method, needed_by=by) for method, by in needed if by is not None], factors


async def end_unrecognized(
    ports: Ports, tx: storage.Transaction, caller: Caller, account: Account, kept: Collection[UUID] | None, now: datetime
) -> bool:
    """End the added methods that the user of a locked account does not keep. `kept` is as in `accounts.reset_password`.

    The newest methods end first, until the account needs the rest. If the user chose, recent methods end even if a policy needs them:
    a thief may have added the method and the policy. Then only a recovery adds a factor for the policy, because the mailbox alone must
    not meet it. Return whether the account needs this recovery.
    """
    added, factors = await find(ports, tx, account, now, keys_stay=kept is None)
    ended, seconds = set[UUID](), list[FactorKind]()
    for method in sorted(added, key=lambda each: each.added_at, reverse=True):
        is_kept = not method.is_recent or method.passkey is not None if kept is None else method.id in kept
        needed_by = None if is_kept else factors.find_needing({*ended, method.id})
        if needed_by is None or (needed_by and (kept is None or method.is_kept_by_policy)):
            continue
        ended.add(method.id)
        if method.provider is not None:
            await tx.identities.remove_added(account.id, method.id)
            tx.record(events.identity_unlinked(account.id, method.provider, None))
        elif method.passkey is not None:
            await passkeys.end_added(tx, caller, account.id, method.id, now)
        elif method.second is not None:
            seconds.append(method.second)
    if not ended:
        return False
    account = await tx.accounts.lock(account.id) or account
    await mfa.end_factors(tx, caller, account, seconds, now)  # together: the backup codes end with the last factor
    left = await relying_party.load_without_lost_keys(ports, tx, await tx.accounts.lock(account.id) or account)
    demands = await factor_changes.load_demands(ports, tx, account.id, now)  # a second account at the same provider can be left
    needs_recovery = not factors.demands.met_by(factors.account) <= demands.met_by(left)
    if needs_recovery:
        await tx.accounts.set_recovery_required(account.id, now)
    return needs_recovery
