"""OAuth credentials that services use at identity providers, instead of the platform's own credentials."""

from collections.abc import Mapping
from uuid import UUID

from core.applications import services
from core.applications.model import services as services_model
from core.authentication import events
from core.authentication.model import identities
from core.kernel import connections
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from ports import Ports, storage


async def list_platform_providers(ports: Ports) -> frozenset[connections.ConnectionSlug]:
    """Return the providers where the platform itself is a client."""
    async with ports.storage.reading() as read:
        return await find_platform_providers(read)


async def find_platform_providers(read: storage.Reading | storage.Transaction) -> frozenset[connections.ConnectionSlug]:
    """Return the providers where the platform itself is a client. Users can sign in through them without a service, and link accounts."""
    return frozenset(each.slug for each in await read.oauth_credentials.list_connections() if each.settings.client_id is not None)


async def load_client(
    ports: Ports, provider: connections.ConnectionSlug, org_id: UUID | None, service_id: UUID | None
) -> tuple[connections.Connection, connections.ProviderClient]:
    """Return the connection, and the OAuth client to use at this provider: the service's own, or else the platform's.

    Raises: ProviderUnknown if neither exists.
    """
    async with ports.storage.reading() as read:
        credentials = await read.oauth_credentials.load(provider, org_id, service_id) or refuse(identities.ProviderUnknown)
    return credentials.connection, credentials.client or refuse(identities.ProviderUnknown)


async def list_own(
    ports: Ports, caller: OrganizationCaller, service_slug: str
) -> Mapping[connections.ConnectionSlug, identities.ServiceOAuthCredentials]:
    """Return the service's own credentials by provider."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, service_slug) or refuse(services_model.ServiceNotFound)
        return await read.oauth_credentials.list_of_service(service.org_id, service.id)


async def load(
    ports: Ports, caller: OrganizationCaller, service_slug: str, provider: connections.ConnectionSlug
) -> identities.ServiceOAuthCredentials:
    """Return the service's own credentials at this provider. Raises: ServiceNotFound, CredentialsNotSet."""
    return (await list_own(ports, caller, service_slug)).get(provider) or refuse(identities.CredentialsNotSet)


async def put(
    ports: Ports, caller: OrganizationCaller, service_slug: str, provider: connections.ConnectionSlug, client_id: str, client_secret: str
) -> identities.ServiceOAuthCredentials:
    """Set the service's own credentials at this provider.

    This records an event even if nothing changes, because the stored secret is not compared with the new secret.
    """
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.SERVICES_MANAGE)
        credentials = identities.ServiceOAuthCredentials(provider, client_id, ports.clock.now())
        await tx.oauth_credentials.put(service.org_id, service.id, credentials, client_secret)
        tx.record(events.oauth_credentials_updated(service, provider, client_id))
    return credentials


async def remove(ports: Ports, caller: OrganizationCaller, service_slug: str, provider: connections.ConnectionSlug) -> None:
    """Remove the service's own credentials at this provider, so that it uses the platform's again."""
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.SERVICES_MANAGE)
        if not await tx.oauth_credentials.remove(service.org_id, service.id, provider):
            raise identities.CredentialsNotSet
        tx.record(events.oauth_credentials_updated(service, provider, None))
