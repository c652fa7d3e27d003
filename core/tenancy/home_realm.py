"""Home realm discovery: the identity provider for users of an email domain (decision 103)."""

from core.kernel.callers import OrganizationCaller
from core.kernel.connections import ConnectionSlug
from core.kernel.roles import Capability
from core.kernel.values import Domain
from core.tenancy import events, organizations
from core.tenancy.model.domains import DuplicateDomain, HomeRealmRoute
from ports import Ports


async def list_routes(ports: Ports, caller: OrganizationCaller) -> list[HomeRealmRoute]:
    """Return the routes of the caller's organization, ordered by domain."""
    async with ports.storage.reading() as read:
        return await read.home_realm.routes(caller.acts_in.id)


async def replace_routes(ports: Ports, caller: OrganizationCaller, routes: list[tuple[Domain, ConnectionSlug]]) -> list[HomeRealmRoute]:
    """Replace all routes of the organization, and return the new ones. Raises: DuplicateDomain."""
    new: dict[Domain, ConnectionSlug] = {}
    for domain, provider in routes:
        if domain in new:
            raise DuplicateDomain(domain)
        new[domain] = provider
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        old = {route.domain: route.provider for route in await tx.home_realm.routes(organization.id)}
        if new != old:
            await tx.home_realm.replace(organization.id, new)
            tx.record(events.hrd_updated(organization.id, old, new))
        return await tx.home_realm.routes(organization.id)
