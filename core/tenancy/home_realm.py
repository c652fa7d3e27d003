"""Home realm discovery: the identity provider for users of an email domain (decision 103)."""

from collections.abc import Callable, Mapping

from core.kernel.callers import OrganizationCaller
from core.kernel.connections import ConnectionSlug
from core.kernel.roles import Capability
from core.kernel.values import Domain
from core.tenancy import events, organizations
from core.tenancy.model.domains import MAX_ROUTES, DuplicateDomain, HomeRealmRoute, RouteNotFound, TooManyRoutes
from ports import Ports

Routes = Mapping[Domain, ConnectionSlug]


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
    return await _change(ports, caller, lambda _: new)


async def set_route(ports: Ports, caller: OrganizationCaller, domain: Domain, provider: ConnectionSlug) -> HomeRealmRoute:
    """Set the identity provider of a domain, and return its route. Other routes stay as they are. Raises: TooManyRoutes."""

    def with_route(old: Routes) -> Routes:
        if domain not in old and len(old) >= MAX_ROUTES:
            raise TooManyRoutes
        return {**old, domain: provider}

    return next(route for route in await _change(ports, caller, with_route) if route.domain == domain)


async def remove_route(ports: Ports, caller: OrganizationCaller, domain: Domain) -> None:
    """Remove the route of a domain. Other routes stay as they are. Raises: RouteNotFound."""

    def without_route(old: Routes) -> Routes:
        if domain not in old:
            raise RouteNotFound
        return {name: provider for name, provider in old.items() if name != domain}

    await _change(ports, caller, without_route)


async def _change(ports: Ports, caller: OrganizationCaller, to_new: Callable[[Routes], Routes]) -> list[HomeRealmRoute]:
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        old = {route.domain: route.provider for route in await tx.home_realm.routes(organization.id)}
        new = to_new(old)
        if new != old:
            await tx.home_realm.replace(organization.id, new)
            tx.record(events.hrd_updated(organization.id, old, new))
        return await tx.home_realm.routes(organization.id)
