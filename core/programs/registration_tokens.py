"""An organization's registration tokens: members manage them, and clients register with them (RFC 7591 section 3)."""

from datetime import datetime
from uuid import UUID

from core.applications import services
from core.applications.model.services import CreatedService
from core.applications.services import ServiceDraft
from core.kernel.callers import OrganizationCaller, OrganizationStatus, RegistrationClient
from core.kernel.causes import Caller
from core.kernel.errors import OrganizationNotActive, refuse
from core.kernel.roles import Capability
from core.kernel.values import digest, new_id
from core.programs import events
from core.programs.model.organization_tokens import MAX_TOKENS, TooManyTokens, check_expiry
from core.programs.model.registration_tokens import (
    RegistrationToken,
    RegistrationTokenInvalid,
    RegistrationTokenNotFound,
    is_well_formed,
    new_token,
)
from core.tenancy import organizations, sign_in_policies
from ports import Ports

# Members


async def create(
    ports: Ports, caller: OrganizationCaller, name: str, uses: int, expires_at: datetime | None
) -> tuple[RegistrationToken, str]:
    """Create a token. Return it with its secret, which is never returned again."""
    now = ports.clock.now()
    check_expiry(expires_at, now)
    secret, prefix = new_token()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.SERVICES_CREATE)
        tokens = await tx.registration_tokens.of_org(organization.id)
        if sum(not token.is_spent(now) for token in tokens) >= MAX_TOKENS:
            raise TooManyTokens
        token = RegistrationToken(
            id=new_id(),
            org_id=organization.id,
            name=name,
            prefix=prefix,
            uses_left=uses,
            expires_at=expires_at,
            created_by=caller.actor_id,
            created_at=now,
        )
        await tx.registration_tokens.add(token, digest(secret))
        tx.record(events.registration_token_created(token))
    return token, secret


async def list_tokens(ports: Ports, caller: OrganizationCaller) -> list[RegistrationToken]:
    """Return all the organization's tokens, also tokens that no longer work, oldest first."""
    async with ports.storage.reading() as read:
        return await read.registration_tokens.of_org(caller.acts_in.id)


async def find(ports: Ports, caller: OrganizationCaller, token_id: UUID) -> RegistrationToken:
    """Return the organization's token with this id."""
    async with ports.storage.reading() as read:
        return await read.registration_tokens.by_id(caller.acts_in.id, token_id) or refuse(RegistrationTokenNotFound)


async def delete(ports: Ports, caller: OrganizationCaller, token_id: UUID) -> None:
    """Delete a token. Applications that registered with it stay."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.SERVICES_CREATE)
        token = await tx.registration_tokens.by_id(organization.id, token_id) or refuse(RegistrationTokenNotFound)
        await tx.registration_tokens.remove(organization.id, token.id)
        tx.record(events.registration_token_deleted(token))


# Clients


async def authenticate(ports: Ports, caller: Caller, secret: str) -> RegistrationClient:
    """Return the client that sent this token, if it works now. Raises: RegistrationTokenInvalid, OrganizationNotActive."""
    if not is_well_formed(secret):
        raise RegistrationTokenInvalid
    async with ports.storage.reading() as read:
        found = await read.registration_tokens.by_hash(digest(secret), ports.clock.now()) or refuse(RegistrationTokenInvalid)
    if found.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    return RegistrationClient(
        token_id=found.token.id,
        org_id=found.token.org_id,
        name=found.token.name,
        address=caller.address,
        agent=caller.agent,
        request_id=caller.request_id,
    )


async def use(ports: Ports, client: RegistrationClient, new: ServiceDraft) -> CreatedService:
    """Store a client's application, and use its token once.

    The token works while its creator may create applications. The creator's right is checked again under the locks.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=client) as tx:
        # Lock order: the organization, which is also locked when the token is deleted or rights change.
        organization = await tx.organizations.lock(client.org_id) or refuse(RegistrationTokenInvalid)
        if organization.status is not OrganizationStatus.ACTIVE:
            raise OrganizationNotActive
        if not await tx.registration_tokens.use(organization.id, client.token_id, now):
            raise RegistrationTokenInvalid
        created = await services.store(tx, organization, new)
        await sign_in_policies.require_compatible(ports, tx, organization.id, new.service.policy_application)
    return created
