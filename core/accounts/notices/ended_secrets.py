"""Ending secrets that have the rights of the person who made them (security J-12).

That person knows the secrets of the programs that they managed. When they may no longer manage a
program, its credentials that they made end, and who answers for the program gets an email.
"""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from core.accounts import events
from core.accounts.model.email_queue import EmailKind, new_email
from core.accounts.model.secret_notices import EndedCredential, NoticedSecret, SecretNotice
from core.kernel.page_paths import PLATFORM_CREDENTIALS_PATH, RESOURCE_CREDENTIALS_PATH, SERVICE_ACCOUNT_CREDENTIALS_PATH
from core.kernel.roles import Rights, RoleName
from ports.storage import Transaction


async def end_credentials_in(tx: Transaction, org_id: UUID, user_id: UUID, now: datetime, *, of_roles: Collection[RoleName] | None) -> None:
    """End the credentials that a user made for an organization's service accounts with these roles.

    If `of_roles` is None, end the credentials that they made for any of its programs. The caller has changed the user's role.
    """
    await _report(tx, await tx.credentials.end_created_by(user_id, org_id, now, everywhere=False, of_roles=of_roles), now)


async def end_credentials_of_raised(tx: Transaction, org_id: UUID, account_id: UUID, rights: Rights, now: datetime) -> None:
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


async def _report(tx: Transaction, credentials: list[EndedCredential], now: datetime) -> None:
    for credential in credentials:
        tx.record(events.credential_ended(credential))
        if credential.recipient is not None:
            await tx.email_queue.add(new_email(EmailKind.SECRET_ENDED, credential.recipient, now, secret=_to_notice(credential, now)))


def _to_notice(credential: EndedCredential, now: datetime) -> SecretNotice:
    path = RESOURCE_CREDENTIALS_PATH
    if credential.is_account:
        path = PLATFORM_CREDENTIALS_PATH if credential.org_id is None else SERVICE_ACCOUNT_CREDENTIALS_PATH
    return SecretNotice(
        kind=NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL if credential.is_account else NoticedSecret.API_RESOURCE_CREDENTIAL,
        name=credential.name,
        label=credential.hint,
        holder=credential.holder,
        organization=credential.organization,
        expires_at=now,
        path=path.format(org_slug=credential.org_slug, holder=credential.client_id),
    )
