"""Emails about a way into an account that was added, changed or removed (security A-13).

They go at once to the verified address that the account has before the change. Their link undoes it (`undo`). The link
goes only to an address that an undo cannot remove. For 72 hours after an address change, that is the old address. The
new address gets an email without a link.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from core.accounts.model.accounts import Account
from core.accounts.model.email_queue import EmailKind, new_email
from core.accounts.model.secret_notices import SecretNotice
from core.accounts.model.security_notices import UNDO_TTL, SecurityNotice
from core.kernel.values import Email, new_id
from ports.storage import Transaction


async def notify(
    tx: Transaction,
    account: Account,
    kind: EmailKind,
    now: datetime,
    *,
    session_id: UUID | None,
    secret: SecretNotice | None = None,
    detail: str | None = None,
) -> UUID | None:
    """Queue the emails about a change to a locked account, which the caller makes at `now`.

    Return the id of the notice with the undo link. If the address is not verified, return None: it may
    belong to another person, who has no right to the account (security A-9).
    """
    address, notice_id = await find_undo_address(tx, account, now), None
    if address is not None:
        notice_id = new_id()
        await tx.security_notices.add(SecurityNotice(notice_id, account.id, session_id, kind, address, now, now + UNDO_TTL, detail))
        await tx.email_queue.add(new_email(kind, address, now, secret=secret, notice_id=notice_id))
    if account.email != address:
        await tx.email_queue.add(new_email(kind, account.email, now, secret=secret))
    return notice_id


async def find_undo_address(tx: Transaction, account: Account, now: datetime) -> Email | None:
    """Return the locked account's address that gets undo links, or None if it is not verified.

    It is the address before all changes that can still be undone: a thief may have made them.
    """
    if account.email_verified_at is None:
        return None
    change = await tx.email_changes.first_undoable(account.id, now)
    return account.email if change is None else change.old_email


async def notify_of_deletion(
    tx: Transaction, account: Account, live: Sequence[SecurityNotice], session_id: UUID | None, now: datetime
) -> datetime:
    """Queue an email about a locked account's deletion to every address that can undo it.

    Return when the last link expires.

    The `live` notices have these addresses. A link works as long as the last link that went to its address before. If
    another person deletes the account, `session_id` is None, and the link to the address from `find_undo_address` works
    for UNDO_TTL.
    """
    last = {notice.address: notice.undo_until for notice in sorted(live, key=lambda notice: notice.undo_until)}
    if session_id is None and (undo_address := await find_undo_address(tx, account, now)) is not None:
        last[undo_address] = now + UNDO_TTL
    for address, undo_until in last.items():
        notice = SecurityNotice(new_id(), account.id, session_id, EmailKind.ACCOUNT_DELETED, address, now, undo_until)
        await tx.security_notices.add(notice)
        await tx.email_queue.add(new_email(EmailKind.ACCOUNT_DELETED, address, now, notice_id=notice.id))
    if account.email not in last:
        await tx.email_queue.add(new_email(EmailKind.ACCOUNT_DELETED, account.email, now))
    return max(last.values())
