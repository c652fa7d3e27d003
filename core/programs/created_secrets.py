"""API keys and SCIM tokens that a service account created.

The keys and tokens keep working without the service account, so the owner can end them (security J-12).
"""

from collections.abc import Sequence
from uuid import UUID

from core.accounts.model.email_queue import CreatedSecret
from core.kernel.callers import Member
from core.kernel.roles import Capability
from core.programs import events
from core.programs.model.service_accounts import ServiceAccountNotFound
from core.tenancy import organizations
from ports import Ports


async def list_created(ports: Ports, caller: Member, account_id: UUID) -> Sequence[CreatedSecret]:
    """Return the live API keys and SCIM tokens that this service account created, oldest first. The service account may be deleted."""
    async with ports.storage.reading() as read:
        secrets = await read.created_secrets.of_creator(caller.acts_in.id, account_id, ports.clock.now())
        if not secrets and not await read.created_secrets.has_creator(caller.acts_in.id, account_id):
            raise ServiceAccountNotFound
    return secrets


async def end_created(ports: Ports, caller: Member, account_id: UUID) -> Sequence[CreatedSecret]:
    """End all API keys and SCIM tokens that this service account created, and return them."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.ORGANIZATION_OWN)
        ended = await tx.created_secrets.end(organization.id, account_id)
        if not ended and not await tx.created_secrets.has_creator(organization.id, account_id):
            raise ServiceAccountNotFound
        for secret in ended:
            tx.record(events.created_secret_ended(organization.id, secret))
    return ended
