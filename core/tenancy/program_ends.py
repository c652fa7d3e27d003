"""Ending service accounts whose owner has gone.

If the owner left or deleted their account, the service accounts go on for a while (security #own-end). At their end,
service accounts can leave
secrets behind (security J-12).
"""

from datetime import datetime, timedelta
from itertools import groupby
from typing import Final
from uuid import UUID

from core.accounts.model.email_queue import EmailKind, new_email
from core.accounts.model.secret_notices import NoticedSecret, SecretNotice
from core.kernel.page_paths import CREATED_SECRETS_PATH, SERVICE_ACCOUNTS_PATH
from core.kernel.roles import Capability
from core.kernel.values import Email
from core.tenancy import events
from ports import Ports
from ports.storage import Transaction

GOES_ON_FOR: Final = timedelta(hours=72)  # as long as an undo link works
NAMED: Final = 10  # the accounts that an email names


async def list_going_on(ports: Ports, user_id: UUID, org_id: UUID | None = None) -> list[str]:
    """Return the names of the service accounts that `let_programs_go_on` would let go on."""
    async with ports.storage.reading() as read:
        return await read.service_accounts.of_owner(user_id, org_id)


async def let_programs_go_on(tx: Transaction, user_id: UUID, address: Email, org_id: UUID | None, now: datetime) -> None:
    """Let the service accounts go on for GOES_ON_FOR when their owner leaves, in one organization or in all if None (security #own-end).

    The owner and the admins get an email. The caller has locked the organizations, and ends the membership or the account next.
    """
    until = now + GOES_ON_FOR
    going_on = await tx.service_accounts.go_on(user_id, org_id, until)
    for of_org, accounts in groupby(going_on, key=lambda account: account[0]):
        organization, names = await tx.organizations.by_id(of_org), list[str]()
        for _, account_id, name in accounts:
            tx.record(events.service_account_ends(of_org, account_id, name, until))
            names.append(name)
        if organization is None:
            continue
        notice = SecretNotice(
            kind=NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL,
            name=names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more",
            label=None,
            holder=", ".join(names[:NAMED] + (["…"] if len(names) > NAMED else [])),
            organization=organization.name,
            expires_at=until,
            path=SERVICE_ACCOUNTS_PATH.format(org_slug=organization.slug),
        )
        for recipient in await tx.members.admin_addresses(of_org, Capability.SERVICE_ACCOUNTS_MANAGE):
            if recipient != address:
                await tx.email_queue.add(new_email(EmailKind.PROGRAMS_END, recipient, now, secret=notice))


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
