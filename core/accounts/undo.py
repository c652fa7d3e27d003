"""The undo of changes to an account's security, with the link from a notice email (security A-13)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from core.accounts import email_changes, events, factor_changes, mfa, passkey_waits, passkeys, relying_party
from core.accounts.factors import history as factor_history
from core.accounts.model import security_notices
from core.accounts.model.accounts import Account
from core.accounts.model.email_queue import EmailKind
from core.accounts.model.mfa import ENABLED
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.kernel.proofs import FactorKind
from core.kernel.values import digest
from ports import Ports
from ports.storage import Transaction


async def find_undoable(ports: Ports, token: str) -> security_notices.UndoableChanges:
    """Return what an undo link can undo, without using the link up."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        notice = await read.security_notices.by_token(digest(token)) or refuse(security_notices.UndoLinkInvalid)
        live = await read.security_notices.live(notice.user_id, now)
    changes = security_notices.UndoableChanges(notice, live)
    return changes if changes.starts else refuse(security_notices.UndoLinkInvalid)  # an undo may have come between the two statements


async def undo(ports: Ports, caller: Caller, token: str, start_id: UUID | None = None) -> security_notices.UndoneChanges:
    """Undo a change and everything since.

    The link works once, and does not sign the user in.

    `start_id` is the first change to undo, from `UndoableChanges.starts`. None: the default. A thief may have changed several things. The
    undo ends linked identities, added passkeys, enabled second factors, new backup codes, a new password and an address change. All
    sessions, personal access tokens, pending sign-ins, trusted devices and links in emails end. Identities that were unlinked are linked
    again, unless another account has them. Second factors that were switched off work again, without backup codes. Passkeys that were
    deleted work again. An account that was deleted opens again, unless the platform or a directory has closed it, too. If the account then
    lacks a factor that a sign-in policy asks for, only a recovery gives it such a factor. An account that had a second factor 72 hours ago
    keeps a second factor: an earlier factor works again, or the oldest present factor stays.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        notice = await tx.security_notices.by_token(digest(token)) or refuse(security_notices.UndoLinkInvalid)
        account = await tx.accounts.lock(notice.user_id) or refuse(security_notices.UndoLinkInvalid)
        before = await relying_party.load_without_lost_keys(ports, tx, account)
        met = (await factor_changes.load_demands(ports, tx, account.id, now)).met_by(before)
        # Read under the lock: a link that was used or has expired by then is not in it.
        live = await tx.security_notices.live(account.id, now)
        changes = security_notices.UndoableChanges(notice, live)
        first = changes.default.id if start_id is None and changes.starts else start_id
        since = next((each.created_at for each in changes.starts if each.id == first), None) or refuse(security_notices.UndoLinkInvalid)
        undone = tuple(other for other in live if other.created_at >= since)
        await tx.security_notices.use_up(account.id, notice.id, since, now)
        await passkey_waits.end(tx, account, "undo")
        for provider in sorted(set(await tx.identities.remove_linked_since(account.id, since))):
            tx.record(events.identity_unlinked(account.id, provider, None))
        for provider in sorted(set(await tx.identities.link_again(account.id, since))):
            tx.record(events.identity_linked(account.id, provider))
        history = await factor_history.load(ports, tx, account, now)
        start = history.find_undo_start(since, now)
        kept = history.oldest[1] if start is None and history.oldest is not None else None
        await _restore_app(tx, caller, account, undone, start or since, now, is_kept=kept is FactorKind.TOTP)
        second_at = history.second_keys_at(start or since)
        keys_since = since if kept is not FactorKind.PASSKEY else max(since, history.first_key_at + timedelta(microseconds=1))
        await passkeys.undo_since(tx, caller, account, keys_since, now, restored_since=start if start and second_at else since)
        if kept is not FactorKind.PASSKEY:
            await _restore_second_passkeys(tx, caller, account.id, second_at, start or since, now)
        email = await email_changes.undo_since(tx, account, since, now)
        if any(other.address == email for other in live):  # the address was verified when the notice went to it
            await tx.accounts.mark_verified(account.id, now)
        after = await relying_party.load_without_lost_keys(
            ports, tx, await tx.accounts.lock(account.id) or refuse(security_notices.UndoLinkInvalid)
        )
        needs_recovery = not met <= (await factor_changes.load_demands(ports, tx, account.id, now)).met_by(after)
        if needs_recovery:  # otherwise the mailbox alone would give the account another factor
            await tx.accounts.set_recovery_required(account.id, now)
        await tx.sessions.end_all(account.id, now)
        await tx.devices.distrust(account.id, now)
        await tx.accounts.drop_password_set_since(account.id, since, now)
        if account.closed_at is not None:
            await tx.accounts.reopen(account.id, now)
            for organization, _ in await tx.organizations.by_member(account.id):  # the user can own service accounts there again
                await tx.service_accounts.end_going_on(account.id, organization.id, now)
            tx.record(events.account_reopened(account.id))
        tx.record(events.changes_undone(account.id, sorted({str(other.kind) for other in undone})))
    return security_notices.UndoneChanges(email, account.closed_at is not None, undone, needs_recovery, start != since, kept is not None)


async def _restore_app(
    tx: Transaction,
    caller: Caller,
    account: Account,
    undone: Sequence[security_notices.SecurityNotice],
    since: datetime,
    now: datetime,
    *,
    is_kept: bool,
) -> None:
    """Restore the authenticator app that a locked account had before `since`. Backup codes that were created since then end.

    `is_kept`: the present app stays in any case.
    """
    if not is_kept and (account.mfa_enabled_at is None or account.mfa_enabled_at >= since):
        await mfa.end_factors(tx, caller, account, [FactorKind.TOTP], now)
    if any(notice.kind in (EmailKind.BACKUP_CODES_REGENERATED, EmailKind.MFA_ENABLED) for notice in undone):
        await tx.mfa.remove_codes(account.id)
    enabled_at = await tx.mfa.restore(account.id, since)
    if enabled_at is not None:
        await tx.accounts.set_mfa(account.id, enabled_at, now)
        await _record_restored(tx, caller, account.id, FactorKind.TOTP, now)


async def _restore_second_passkeys(
    tx: Transaction, caller: Caller, user_id: UUID, second_at: datetime | None, since: datetime, now: datetime
) -> None:
    """Make a locked account's passkeys its second factor, as before `since`. `second_at` None: they were no second factor then."""
    account = await tx.accounts.lock(user_id) or refuse(security_notices.UndoLinkInvalid)
    has_keys, at = account.key_count > 0, account.passkey_second_at
    if at is not None and (at >= since or not has_keys):
        await mfa.end_factors(tx, caller, account, [FactorKind.PASSKEY], now)
        at = None
    if at is None and has_keys and second_at is not None:
        await tx.passkeys.set_second(user_id, second_at, now)
        await _record_restored(tx, caller, user_id, FactorKind.PASSKEY, now)


async def _record_restored(tx: Transaction, caller: Caller, user_id: UUID, factor: FactorKind, now: datetime) -> None:
    await tx.mfa.log(user_id, [ENABLED[factor]], caller, now)
    tx.record(*events.mfa_enabled(user_id, factor))
