"""The checks before a user changes the factors of their account: no way in becomes weaker than the sign-in policies that they must meet."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from core.accounts import relying_party
from core.accounts.model.accounts import Account, FactorRequired, RecoveryRequired
from core.accounts.own_account import lock_own_account
from core.kernel.callers import Person
from core.kernel.proofs import Strength, reachable_strength
from core.kernel.sign_in_age import SignInNotRecent
from core.kernel.sign_in_policy.decision import strictest, strictest_beyond_mailbox
from ports import Ports
from ports.storage import Reading, Transaction


async def lock_account(ports: Ports, tx: Transaction, caller: Person, now: datetime) -> Account:
    """Lock the caller's account before a change of its factors. Raises: the errors of `lock_own_account` and `require_strength`."""
    account = await lock_own_account(tx, caller, now)
    await require_strength(ports, tx, caller, account)
    return account


async def require_strength(ports: Ports, tx: Transaction, caller: Person, account: Account) -> None:
    """Check the sign-in of the caller before a change of the factors of their locked account. The edge has checked that it is fresh.

    Where a sign-in policy asks the user for more than the factors of the account do, the sign-in needs that
    too, as far as the account can reach it: an account without such a factor sets it up with its present ones.
    Passkeys of an earlier RP ID do not count, so that their user can add new ones.

    Raises: SignInNotRecent.
    """
    present = await relying_party.load_without_lost_keys(ports, tx, account)
    needed = await load_floor(tx, present)
    strength = Strength.ONE if caller.sign_in is None else caller.sign_in.strength
    if strength < needed:
        raise SignInNotRecent(ports.policy.fresh_sign_in_ttl, needed)


async def _strictest_beyond_mailbox(read: Reading | Transaction, user_id: UUID) -> Strength:
    policies = await read.sign_in_policies.anywhere(user_id, None)
    return max((strictest_beyond_mailbox(each.policy, is_admin=each.is_admin) for each in policies), default=Strength.ONE)


async def strictest_anywhere(read: Reading | Transaction, user_id: UUID, now: datetime, org_id: UUID | None) -> Strength:
    """Return the strength that policies in force ask of the user at a high risk. `org_id`: as in `sign_in_policies.anywhere`."""
    policies = await read.sign_in_policies.anywhere(user_id, org_id)
    return max((strictest(each.policy, is_admin=each.is_admin, now=now, risk_is_high=True) for each in policies), default=Strength.ONE)


async def lock_account_to_add(ports: Ports, tx: Transaction, caller: Person, now: datetime) -> Account:
    """Lock the caller's account before it gets another way to sign in.

    A recovery is needed no longer once the policies ask for no more than the account has.

    Raises: RecoveryRequired; the errors of `lock_account`.
    """
    account = await lock_account(ports, tx, caller, now)
    if await tx.accounts.is_recovery_required(account.id):
        if await needs_recovery(ports, tx, account):
            raise RecoveryRequired
        await tx.accounts.set_recovery_required(account.id, None)
    return account


async def needs_recovery(ports: Ports, read: Reading | Transaction, account: Account) -> bool:
    """Return whether only a recovery can give the account the factor that a policy asks for now or later (security A-13)."""
    if not await read.accounts.is_recovery_required(account.id):
        return False
    present = await relying_party.load_without_lost_keys(ports, read, account)
    return reachable_strength(present.factors) < await _strictest_beyond_mailbox(read, account.id)


async def load_floor(read: Reading | Transaction, account: Account) -> Strength:
    """Return the strength that an account without lost keys must keep: that of its policies, as far as it reaches it.

    The owner of the mailbox alone must not get below it, by a password reset or by an undo (security A-6, A-13).
    """
    return min(await _strictest_beyond_mailbox(read, account.id), reachable_strength(account.factors))


@dataclass(frozen=True, slots=True)
class LostAccess:
    """An organization or application that then asks the user to set up another factor."""

    name: str
    always: bool  # otherwise only for sign-ins with a high risk


async def list_losses(ports: Ports, before: Account, left: Account, *, removed: UUID | None = None) -> Sequence[LostAccess]:
    """Return the organizations and applications of the user that need more than the factors which are left, ordered by name.

    The user may do without: only policies of `require_left` refuse the change. `removed` is the key that goes, if any.
    """
    now, losses = ports.clock.now(), dict[str, bool]()
    async with ports.storage.reading() as read:
        policies = await read.sign_in_policies.anywhere(before.id, None)
        before = await relying_party.load_without_lost_keys(ports, read, before)
        left = await relying_party.load_without_lost_keys(ports, read, left, removed=removed)
    reached, reachable = reachable_strength(before.factors), reachable_strength(left.factors)
    for each in policies:
        always, at_most = (strictest(each.policy, is_admin=each.is_admin, now=now, risk_is_high=is_high) for is_high in (False, True))
        if reachable < min(at_most, reached):
            losses[each.policy.name] = losses.get(each.policy.name, False) or reachable < always
    return [LostAccess(name, always) for name, always in sorted(losses.items())]


async def require_left(
    ports: Ports, tx: Transaction, before: Account, left: Account, now: datetime, *, removed: UUID | None = None
) -> None:
    """Refuse a change of a locked account after which it can no longer meet a sign-in policy. `removed` is the key that goes, if any.

    Passkeys of an earlier RP ID do not count. Raises: FactorRequired.
    """
    before = await relying_party.load_without_lost_keys(ports, tx, before)
    left = await relying_party.load_without_lost_keys(ports, tx, left, removed=removed)
    reached, reachable = reachable_strength(before.factors), reachable_strength(left.factors)
    if reachable == reached:
        return
    for each in await tx.sign_in_policies.of_user(left.id):
        needed = strictest(each.policy, is_admin=each.is_admin, now=now)
        if reachable < min(needed, reached):
            raise FactorRequired(each.policy.name, needed)
