"""Emails about changed ways into an account (security A-13), and about program secrets that ended (security J-12).

They go at once to the verified address that the account has before the change. Their link undoes it (`undo`). The link
goes only to an address that an undo cannot remove. For 72 hours after an address change, that is the old address. The
new address gets an email without a link.

That person knows the secrets of the programs that they managed. When they may no longer manage a
program, its credentials that they made end, and who answers for the program gets an email.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from core.accounts import events
from core.accounts.model import email_queue, security_notices
from core.accounts.model.accounts import Account
from core.kernel import page_paths, roles, values
from ports.storage import Transaction


async def notify(
    tx: Transaction,
    account: Account,
    kind: email_queue.EmailKind,
    now: datetime,
    *,
    session_id: UUID | None,
    secret: email_queue.SecretNotice | None = None,
    detail: str | None = None,
) -> UUID | None:
    """Queue the emails about a change to a locked account, which the caller makes at `now`.

    Return the id of the notice with the undo link. If the address is not verified, return None: it may
    belong to another person, who has no right to the account (security A-9).
    """
    address, notice_id = await find_undo_address(tx, account, now), None
    if address is not None:
        notice_id = values.new_id()
        await tx.security_notices.add(
            security_notices.SecurityNotice(notice_id, account.id, session_id, kind, address, now, now + security_notices.UNDO_TTL, detail)
        )
        await tx.email_queue.add(email_queue.new_email(kind, address, now, secret=secret, notice_id=notice_id))
    if account.email != address:
        await tx.email_queue.add(email_queue.new_email(kind, account.email, now, secret=secret))
    return notice_id


async def find_undo_address(tx: Transaction, account: Account, now: datetime) -> values.Email | None:
    """Return the locked account's address that gets undo links, or None if it is not verified.

    It is the address before all changes that can still be undone: a thief may have made them.
    """
    if account.email_verified_at is None:
        return None
    change = await tx.email_changes.first_undoable(account.id, now)
    return account.email if change is None else change.old_email


async def notify_of_deletion(
    tx: Transaction, account: Account, live: Sequence[security_notices.SecurityNotice], session_id: UUID | None, now: datetime
) -> datetime:
    """Queue an email about a locked account's deletion to every address that can undo it.

    Return when the last link expires.

    The `live` notices have these addresses. A link works as long as the last link that went to its address before. If
    another person deletes the account, `session_id` is None, and the link to the address from `find_undo_address` works
    for UNDO_TTL.
    """
    last = {notice.address: notice.undo_until for notice in sorted(live, key=lambda notice: notice.undo_until)}
    if session_id is None and (undo_address := await find_undo_address(tx, account, now)) is not None:
        last[undo_address] = now + security_notices.UNDO_TTL
    for address, undo_until in last.items():
        notice = security_notices.SecurityNotice(
            values.new_id(), account.id, session_id, email_queue.EmailKind.ACCOUNT_DELETED, address, now, undo_until
        )
        await tx.security_notices.add(notice)
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.ACCOUNT_DELETED, address, now, notice_id=notice.id))
    if account.email not in last:
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.ACCOUNT_DELETED, account.email, now))
    return max(last.values())


async def end_credentials_in(
    tx: Transaction, org_id: UUID, user_id: UUID, now: datetime, *, of_roles: Collection[roles.RoleName] | None
) -> None:
    """End the credentials that a user made for an organization's service accounts with these roles.

    If `of_roles` is None, end the credentials that they made for any of its programs. The caller has changed the user's role.
    """
    await _report(tx, await tx.credentials.end_created_by(user_id, org_id, now, everywhere=False, of_roles=of_roles), now)


async def end_credentials_of_raised(tx: Transaction, org_id: UUID, account_id: UUID, rights: roles.Rights, now: datetime) -> None:
    """End the credentials of a service account that got more rights, unless their maker is an active member who has `rights`.

    So a former owner gets nothing through a credential that goes on (security #own-end).
    """
    await _report(tx, await tx.credentials.end_created_by_others(org_id, account_id, rights), now)


async def end_credentials_of_platform(tx: Transaction, user_id: UUID, now: datetime) -> None:
    """End the credentials of the platform's service accounts that a user made, who is no longer a platform owner."""
    await _report(tx, await tx.credentials.end_created_by(user_id, None, now, everywhere=False), now)


async def end_all_credentials(tx: Transaction, user_id: UUID, now: datetime) -> None:
    """End all program credentials that the user of a closed account made. The caller has ended the user's sessions."""
    await _report(tx, await tx.credentials.end_created_by(user_id, None, now, everywhere=True), now)


async def _report(tx: Transaction, credentials: list[email_queue.EndedCredential], now: datetime) -> None:
    for credential in credentials:
        tx.record(events.credential_ended(credential))
        if credential.recipient is not None:
            await tx.email_queue.add(
                email_queue.new_email(email_queue.EmailKind.SECRET_ENDED, credential.recipient, now, secret=_to_notice(credential, now))
            )


def _to_notice(credential: email_queue.EndedCredential, now: datetime) -> email_queue.SecretNotice:
    path = page_paths.RESOURCE_CREDENTIALS_PATH
    if credential.is_account:
        path = page_paths.PLATFORM_CREDENTIALS_PATH if credential.org_id is None else page_paths.SERVICE_ACCOUNT_CREDENTIALS_PATH
    return email_queue.SecretNotice(
        kind=email_queue.NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL
        if credential.is_account
        else email_queue.NoticedSecret.API_RESOURCE_CREDENTIAL,
        name=credential.name,
        label=credential.hint,
        holder=credential.holder,
        organization=credential.organization,
        expires_at=now,
        path=path.format(org_slug=credential.org_slug, holder=credential.client_id),
    )
