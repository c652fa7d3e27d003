"""What a service is known by at the identity providers, in the place of what the platform is known by (decisions, point 211)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.applications import services, services_rules
from core.authentication import events
from core.kernel.errors import refuse
from core.kernel.principals import Capability
from core.kernel.providers import Provider

if TYPE_CHECKING:
    from uuid import UUID

    from core.kernel.principals import Member
    from core.kernel.providers import ProviderClient
    from ports import Ports
from core.authentication.oauth_credentials_rules import Credentials, CredentialsNotSet, ProviderUnknown


def platform_providers(ports: Ports) -> frozenset[Provider]:
    """The providers that the platform itself is a client of: people can sign in through them without a service, and link accounts there."""
    return frozenset(each for each in Provider if ports.providers.platform_client(each) is not None)


async def load_client(ports: Ports, provider: Provider, org_id: UUID | None, service_id: UUID | None) -> ProviderClient:
    """By what the provider knows a service: by its own credentials, or else by those of the platform, as which also those sign in who come
    for no service. Raises ProviderUnknown."""
    if org_id is not None and service_id is not None:
        async with ports.storage.reading() as read:
            own = await read.oauth_credentials.load_client(org_id, service_id, provider)
        if own is not None:
            return own
    return ports.providers.platform_client(provider) or refuse(ProviderUnknown)


async def load(ports: Ports, caller: Member, service_slug: str, provider: Provider) -> Credentials:
    """What the service has at this provider. Raises ServiceNotFound, CredentialsNotSet."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, service_slug) or refuse(services_rules.ServiceNotFound)
        return await read.oauth_credentials.find(service.org_id, service.id, provider) or refuse(CredentialsNotSet)


async def put(ports: Ports, caller: Member, service_slug: str, provider: Provider, client_id: str, client_secret: str) -> Credentials:
    """Have the service use these at the provider. Whether the secret is another one is not looked at, so this counts as a change.

    Raises what services.lock_organization_for raises.
    """
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.SERVICES_MANAGE)
        credentials = Credentials(provider, client_id, ports.clock.now())
        await tx.oauth_credentials.put(service.org_id, service.id, credentials, client_secret)
        tx.record(events.oauth_credentials_updated(service, provider, client_id))
    return credentials


async def remove(ports: Ports, caller: Member, service_slug: str, provider: Provider) -> None:
    """Have the service use the platform's credentials again. Raises CredentialsNotSet, and what services.lock_organization_for raises."""
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.SERVICES_MANAGE)
        if not await tx.oauth_credentials.remove(service.org_id, service.id, provider):
            raise CredentialsNotSet
        tx.record(events.oauth_credentials_updated(service, provider, None))
