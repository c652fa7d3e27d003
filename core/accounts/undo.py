"""The undo of changes to the security of an account, with the link in the email about one of them (security A-13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.accounts import email_changes, events, mfa
from core.accounts.email_queue_rules import EmailKind
from core.accounts.security_notices_rules import UndoLinkInvalid, UndoneChanges
from core.kernel.errors import refuse
from core.kernel.values import digest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from core.accounts.accounts_rules import Account
    from core.accounts.security_notices_rules import SecurityNotice
    from core.kernel.principals import Caller
    from ports import Ports
    from ports.storage import Transaction


async def find_undoable(ports: Ports, token: str) -> SecurityNotice:
    """Return the notice that an undo link belongs to, without using the link up. Raises: UndoLinkInvalid."""
    async with ports.storage.reading() as read:
        notice = await read.security_notices.by_token(digest(token)) or refuse(UndoLinkInvalid)
    return notice if notice.can_be_undone(ports.clock.now()) else refuse(UndoLinkInvalid)


async def undo(ports: Ports, caller: Caller, token: str) -> UndoneChanges:
    """Undo the change that a link is about, and everything since. The link works once, and signs no one in.

    If the same session made earlier changes that can still be undone, these are undone, too: a thief may
    have changed several things. Ends: identities that were linked, a second factor that was enabled,
    backup codes that were created, a password that was set, and a change of the address. All sessions,
    personal access tokens, pending sign-ins, trusted devices and links in emails end. A second factor
    that was switched off works again, without backup codes. An account that its user deleted opens again.

    Raises: UndoLinkInvalid; EmailNotFree.
    """
    token_hash, now = digest(token), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        # Read before the account is locked, because the notice names the account, and again after it.
        notice = await tx.security_notices.by_token(token_hash) or refuse(UndoLinkInvalid)
        account = await tx.accounts.lock(notice.user_id) or refuse(UndoLinkInvalid)
        notice = await tx.security_notices.by_token(token_hash) or refuse(UndoLinkInvalid)
        if not notice.can_be_undone(now):
            raise UndoLinkInvalid
        notices = await tx.security_notices.live(account.id, now)
        since = min(other.created_at for other in notices if other.id == notice.id or _is_of_same_session(other, notice))
        undone = [other for other in notices if other.created_at >= since]
        await tx.security_notices.use_up(account.id, since, now)
        await tx.identities.remove_linked_since(account.id, since)
        await _restore_second_factor(tx, account, undone, since, now)
        email = await email_changes.undo_since(tx, account, since, now)
        if email == notice.address:
            await tx.accounts.mark_verified(account.id, now)  # the link proves the mailbox
        await tx.sessions.end_all(account.id, now)
        await tx.devices.distrust(account.id, now)
        await tx.accounts.drop_password_set_since(account.id, since, now)
        is_reopened = await tx.accounts.cancel_erasure(account.id, now)
        if is_reopened:
            tx.record(events.account_reopened(account.id))
        tx.record(events.changes_undone(account.id, sorted({other.kind.value for other in undone})))
    return UndoneChanges(email, is_reopened)


def _is_of_same_session(other: SecurityNotice, notice: SecurityNotice) -> bool:
    return other.session_id is not None and other.session_id == notice.session_id


async def _restore_second_factor(
    tx: Transaction, account: Account, undone: Sequence[SecurityNotice], since: datetime, now: datetime
) -> None:
    """Give a locked account the second factor back that it had before `since`."""
    if account.mfa_enabled_at is not None and account.mfa_enabled_at >= since:
        await mfa.remove_factor(tx, account, now)
    elif any(notice.kind is EmailKind.BACKUP_CODES_REGENERATED for notice in undone):
        await tx.mfa.remove_codes(account.id)
    enabled_at = await tx.mfa.restore(account.id, since)
    if enabled_at is not None:
        await tx.accounts.set_mfa(account.id, enabled_at, now)
