"""Home realm discovery: the identity provider for users at an email domain (decision 103).

The identity provider is a platform provider, or an organization's connection. Slugs name the providers and connections,
and no platform slug equals a connection's slug.
"""

from collections.abc import Callable, Mapping
from uuid import UUID

from core.kernel.callers import OrganizationCaller
from core.kernel.connections import PLATFORM_CONNECTIONS, ConnectionRef
from core.kernel.roles import Capability
from core.kernel.values import Domain
from core.tenancy import events, organizations
from core.tenancy.model.domains import MAX_ROUTES, DuplicateDomain, HomeRealmRoute, RouteNotFound, RouteTargetUnknown, TooManyRoutes
from ports import Ports
from ports.storage import Reading

Routes = Mapping[Domain, str]  # the identity providers' slugs


async def list_routes(ports: Ports, caller: OrganizationCaller) -> list[HomeRealmRoute]:
    """Return the routes of the caller's organization, ordered by domain."""
    async with ports.storage.reading() as read:
        return await read.home_realm.routes(caller.acts_in.id)


async def list_connections(ports: Ports, caller: OrganizationCaller) -> list[ConnectionRef]:
    """Return the connections that a domain of the caller's organization can lead to, ordered by slug."""
    async with ports.storage.reading() as read:
        return await read.home_realm.connections(caller.acts_in.id)


async def find_connection(read: Reading, domain: Domain, org_id: UUID | None) -> ConnectionRef | None:
    """Return the active connection to which this domain leads in an application of `org_id`, or None.

    A sign-in at a connection is good in its own organization only (security S-10), so another organization's application leads to none.
    """
    match = await read.home_realm.match(domain)
    connection = None if match is None else match.connection
    return connection if connection is not None and org_id in (None, connection.org_id) else None


async def replace_routes(ports: Ports, caller: OrganizationCaller, routes: list[tuple[Domain, str]]) -> list[HomeRealmRoute]:
    """Replace all the organization's routes, and return the new routes."""
    new: dict[Domain, str] = {}
    for domain, slug in routes:
        if domain in new:
            raise DuplicateDomain(domain)
        new[domain] = slug
    return await _change(ports, caller, lambda _: new)


async def set_route(ports: Ports, caller: OrganizationCaller, domain: Domain, slug: str) -> HomeRealmRoute:
    """Set the identity provider for a domain, and return its route. Other routes stay as they are."""

    def with_route(old: Routes) -> Routes:
        if domain not in old and len(old) >= MAX_ROUTES:
            raise TooManyRoutes
        return {**old, domain: slug}

    return next(route for route in await _change(ports, caller, with_route) if route.domain == domain)


async def remove_route(ports: Ports, caller: OrganizationCaller, domain: Domain) -> None:
    """Remove a domain's route. Other routes stay as they are."""

    def without_route(old: Routes) -> Routes:
        if domain not in old:
            raise RouteNotFound
        return {name: slug for name, slug in old.items() if name != domain}

    await _change(ports, caller, without_route)


async def _change(ports: Ports, caller: OrganizationCaller, to_new: Callable[[Routes], Routes]) -> list[HomeRealmRoute]:
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        old = {route.domain: route.slug for route in await tx.home_realm.routes(organization.id)}
        new = to_new(old)
        if new != old:
            known = {*PLATFORM_CONNECTIONS, *(each.slug for each in await tx.home_realm.connections(organization.id))}
            if not known.issuperset(new.values()):
                raise RouteTargetUnknown
            await tx.home_realm.replace(organization.id, new)
            tx.record(events.hrd_updated(organization.id, old, new))
        return await tx.home_realm.routes(organization.id)
