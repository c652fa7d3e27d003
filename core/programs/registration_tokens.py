"""An organization's registration tokens: members manage them, and clients register with them (RFC 7591 section 3)."""

from datetime import datetime
from uuid import UUID

from core.applications import services
from core.applications.model.services import CreatedService
from core.applications.services import ServiceDraft
from core.kernel import callers, errors, values
from core.kernel.causes import Caller
from core.kernel.roles import Capability
from core.programs import events
from core.programs.model import organization_tokens, registration_tokens
from core.tenancy import organizations, sign_in_policies
from ports import Ports

# Members


async def create(
    ports: Ports, caller: callers.OrganizationCaller, name: str, uses: int, expires_at: datetime | None
) -> tuple[registration_tokens.RegistrationToken, str]:
    """Create a token. Return it with its secret, which is never returned again."""
    now = ports.clock.now()
    organization_tokens.check_expiry(expires_at, now)
    secret, prefix = registration_tokens.new_token()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.SERVICES_CREATE)
        tokens = await tx.registration_tokens.of_org(organization.id)
        if sum(not token.is_spent(now) for token in tokens) >= organization_tokens.MAX_TOKENS:
            raise organization_tokens.TooManyTokens
        token = registration_tokens.RegistrationToken(
            id=values.new_id(),
            org_id=organization.id,
            name=name,
            prefix=prefix,
            uses_left=uses,
            expires_at=expires_at,
            created_by=caller.actor_id,
            created_at=now,
        )
        await tx.registration_tokens.add(token, values.digest(secret))
        tx.record(events.registration_token_created(token))
    return token, secret


async def list_tokens(ports: Ports, caller: callers.OrganizationCaller) -> list[registration_tokens.RegistrationToken]:
    """Return all the organization's tokens, also tokens that no longer work, oldest first."""
    async with ports.storage.reading() as read:
        return await read.registration_tokens.of_org(caller.acts_in.id)


async def find(ports: Ports, caller: callers.OrganizationCaller, token_id: UUID) -> registration_tokens.RegistrationToken:
    """Return the organization's token with this id."""
    async with ports.storage.reading() as read:
        return await read.registration_tokens.by_id(caller.acts_in.id, token_id) or errors.refuse(
            registration_tokens.RegistrationTokenNotFound
        )


async def delete(ports: Ports, caller: callers.OrganizationCaller, token_id: UUID) -> None:
    """Delete a token. Applications that registered with it stay."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.SERVICES_CREATE)
        token = await tx.registration_tokens.by_id(organization.id, token_id) or errors.refuse(
            registration_tokens.RegistrationTokenNotFound
        )
        await tx.registration_tokens.remove(organization.id, token.id)
        tx.record(events.registration_token_deleted(token))


# Clients


async def authenticate(ports: Ports, caller: Caller, secret: str) -> callers.RegistrationClient:
    """Return the client that sent this token, if it works now. Raises: RegistrationTokenInvalid, OrganizationNotActive."""
    if not registration_tokens.is_well_formed(secret):
        raise registration_tokens.RegistrationTokenInvalid
    async with ports.storage.reading() as read:
        found = await read.registration_tokens.by_hash(values.digest(secret), ports.clock.now()) or errors.refuse(
            registration_tokens.RegistrationTokenInvalid
        )
    if found.status is not callers.OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive
    return callers.RegistrationClient(
        token_id=found.token.id,
        org_id=found.token.org_id,
        name=found.token.name,
        address=caller.address,
        agent=caller.agent,
        request_id=caller.request_id,
    )


async def use(ports: Ports, client: callers.RegistrationClient, new: ServiceDraft) -> CreatedService:
    """Store a client's application, and use its token once.

    The token works while its creator may create applications. The creator's right is checked again under the locks.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=client) as tx:
        # Lock order: the organization, which is also locked when the token is deleted or rights change.
        organization = await tx.organizations.lock(client.org_id) or errors.refuse(registration_tokens.RegistrationTokenInvalid)
        if organization.status is not callers.OrganizationStatus.ACTIVE:
            raise errors.OrganizationNotActive
        if not await tx.registration_tokens.use(organization.id, client.token_id, now):
            raise registration_tokens.RegistrationTokenInvalid
        created = await services.store(tx, organization, new)
        await sign_in_policies.require_compatible(ports, tx, organization.id, new.service.policy_application)
    return created
