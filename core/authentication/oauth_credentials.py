"""OAuth credentials that services use at identity providers, instead of the platform's own credentials."""

from collections.abc import Mapping
from uuid import UUID

from core.applications import services
from core.applications.model import services as services_model
from core.authentication import events
from core.authentication.model.identities import CredentialsNotSet, ProviderUnknown, ServiceOAuthCredentials
from core.kernel.callers import OrganizationCaller
from core.kernel.connections import ConnectionSlug
from core.kernel.errors import refuse
from core.kernel.providers import ProviderClient
from core.kernel.roles import Capability
from ports import Ports


def platform_providers(ports: Ports) -> frozenset[ConnectionSlug]:
    """Return the providers where the platform itself is a client. Users can sign in through them without a service, and link accounts."""
    return frozenset(connection.slug for connection in ports.providers.connections.values() if connection.settings.client is not None)


async def load_client(ports: Ports, provider: ConnectionSlug, org_id: UUID | None, service_id: UUID | None) -> ProviderClient:
    """Return the OAuth client to use at this provider: the service's own, or else the platform's.

    Raises: ProviderUnknown if neither exists.
    """
    if org_id is not None and service_id is not None:
        async with ports.storage.reading() as read:
            own = await read.oauth_credentials.load_client(org_id, service_id, provider)
        if own is not None:
            return own
    connection = ports.providers.connections.get(provider)
    return (connection and connection.settings.client) or refuse(ProviderUnknown)


async def list_own(ports: Ports, caller: OrganizationCaller, service_slug: str) -> Mapping[ConnectionSlug, ServiceOAuthCredentials]:
    """Return the service's own credentials by provider."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, service_slug) or refuse(services_model.ServiceNotFound)
        return await read.oauth_credentials.list_of_service(service.org_id, service.id)


async def load(ports: Ports, caller: OrganizationCaller, service_slug: str, provider: ConnectionSlug) -> ServiceOAuthCredentials:
    """Return the service's own credentials at this provider. Raises: ServiceNotFound, CredentialsNotSet."""
    return (await list_own(ports, caller, service_slug)).get(provider) or refuse(CredentialsNotSet)


async def put(
    ports: Ports, caller: OrganizationCaller, service_slug: str, provider: ConnectionSlug, client_id: str, client_secret: str
) -> ServiceOAuthCredentials:
    """Set the service's own credentials at this provider.

    This records an event even if nothing changes, because the stored secret is not compared with the new secret.
    """
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.SERVICES_MANAGE)
        credentials = ServiceOAuthCredentials(provider, client_id, ports.clock.now())
        await tx.oauth_credentials.put(service.org_id, service.id, credentials, client_secret)
        tx.record(events.oauth_credentials_updated(service, provider, client_id))
    return credentials


async def remove(ports: Ports, caller: OrganizationCaller, service_slug: str, provider: ConnectionSlug) -> None:
    """Remove the service's own credentials at this provider, so that it uses the platform's again."""
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.SERVICES_MANAGE)
        if not await tx.oauth_credentials.remove(service.org_id, service.id, provider):
            raise CredentialsNotSet
        tx.record(events.oauth_credentials_updated(service, provider, None))
