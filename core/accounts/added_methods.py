"""The ways to sign in that a user, or a thief of a session, added to an account, and their end by a password reset (security A-6)."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.accounts import events, factor_changes, mfa, passkeys, relying_party
from core.accounts.model.accounts import Account
from core.accounts.model.email_queue import UNDO_TTL, AddedSignInMethod
from core.accounts.model.passkeys import Passkey, PasskeyKind
from core.kernel.causes import Caller
from core.kernel.proofs import FactorKind
from ports import Ports
from ports.storage import Reading, Transaction


async def find(ports: Ports, read: Reading | Transaction, account: Account, now: datetime) -> list[AddedSignInMethod]:
    """Return the linked accounts that a user added after the sign-up, the oldest first, and an app and passkeys of the last 72 hours.

    A reset must not end an older second factor: the mailbox alone would be enough to sign in (security A-6). So passkeys are missing
    if they have been one for longer. For the same reason, factors are missing without which the account no longer met a sign-in
    policy, and those of a recovery.
    """
    since = now - UNDO_TTL
    # Another address was verified before: a reset removes all linked accounts.
    added = [] if account.is_unproven else await read.identities.list_added(account.id, since)
    recovered_at = await read.mfa.recovered_at(account.id)
    later = since if recovered_at is None else max(since, recovered_at)
    app_at = account.mfa_enabled_at if account.mfa_enabled_at is not None and account.mfa_enabled_at > later else None
    keys = list[Passkey]()
    if not account.is_unproven and (account.passkey_second_at is None or account.passkey_second_at > later):
        keys = [passkey for passkey in await read.passkeys.of_user(account.id) if passkey.created_at > later]
    if (app_at is None and not keys) or not await _may_lose(ports, read, account, keys, now, loses_app=app_at is not None):
        return added
    if app_at is not None:
        added.append(AddedSignInMethod(account.id, None, app_at, is_recent=True))
    return [*added, *(AddedSignInMethod(each.id, None, each.created_at, is_recent=True, passkey=each.name) for each in keys)]


async def _may_lose(
    ports: Ports, read: Reading | Transaction, account: Account, keys: Collection[Passkey], now: datetime, *, loses_app: bool
) -> bool:
    """Return whether the account meets the sign-in policies in force as far as it does now, without an app and these keys.

    Passkeys of an earlier RP ID do not count.
    """
    before = await relying_party.load_without_lost_keys(ports, read, account)
    _, usable = await relying_party.load_usable(ports, read, account.id)
    lost = {key.id for key in keys}
    left = [key.kind for key in usable if key.id not in lost]
    after = replace(
        before,
        mfa_enabled_at=None if loses_app else before.mfa_enabled_at,
        passkey_count=left.count(PasskeyKind.PASSKEY),
        security_key_count=left.count(PasskeyKind.SECURITY_KEY),
    )
    return await factor_changes.still_meets_policies(read, before, after, now)


async def end_unrecognized(
    ports: Ports, tx: Transaction, caller: Caller, account: Account, kept: Collection[UUID] | None, now: datetime
) -> None:
    """End those that the user of a locked account does not recognize. Without `kept`, the recent linked accounts and a recent app end."""
    for method in await find(ports, tx, account, now):
        is_kept = not method.is_recent or method.passkey is not None if kept is None else method.id in kept
        if is_kept:
            continue
        if method.passkey is not None:
            await passkeys.end_added(tx, caller, account.id, method.id, now)
        elif method.provider is None:
            await mfa.end_factor(tx, caller, account, FactorKind.TOTP, now)
        else:
            await tx.identities.remove_added(account.id, method.id)
            tx.record(events.identity_unlinked(account.id, method.provider, None))
