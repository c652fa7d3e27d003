"""The email about the secrets that a service account leaves behind when it ends (security J-12)."""

from datetime import datetime
from uuid import UUID

from core.accounts.model.email_queue import EmailKind, new_email
from core.accounts.model.secret_notices import NoticedSecret, SecretNotice
from core.kernel.page_paths import CREATED_SECRETS_PATH
from ports.storage import Transaction


async def report_created_secrets(tx: Transaction, org_id: UUID, account_id: UUID, name: str, now: datetime) -> None:
    """Email the organization's owner which secrets a service account leaves behind that has ended. Without any, nothing is sent."""
    secrets = await tx.created_secrets.of_creator(org_id, account_id, now)
    organization, address = await tx.organizations.by_id(org_id), await tx.organizations.owner_address(org_id)
    if not secrets or organization is None or address is None:
        return
    notice = SecretNotice(
        kind=NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL,
        name=name,
        label=None,
        holder=", ".join(f"{secret.name} ({secret.prefix})" for secret in secrets),
        organization=organization.name,
        expires_at=now,
        path=CREATED_SECRETS_PATH.format(org_slug=organization.slug, holder=account_id),
    )
    await tx.email_queue.add(new_email(EmailKind.PROGRAM_ENDED, address, now, secret=notice))
