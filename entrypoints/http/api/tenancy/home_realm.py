"""Where the people of a domain sign in (decisions, points 103 and 212)."""

from typing import Annotated

from pydantic import Field
from quart import Blueprint
from quart_schema import validate_request, validate_response

from core.kernel.principals import Capability
from core.kernel.providers import Provider
from core.kernel.values import Domain, Email
from core.tenancy import home_realm
from core.tenancy.home_realm_rules import HomeRealmRoute
from entrypoints.http.edge.access import anyone, member
from entrypoints.http.edge.bodies import DomainName, EmailAddress, RequestModel, ResponseModel
from entrypoints.http.edge.context import acting_member, app_context, ports

routes = Blueprint("home_realm", __name__)

MAX_ROUTES = 100


class NewRoute(RequestModel):
    """Which identity provider signs in those whose addresses are in the domain. Each subdomain needs a route of its own."""

    domain: DomainName
    provider: Annotated[Provider, Field(strict=False)]


class NewRoutes(RequestModel):
    """All routes of the organization; those that are not among them are gone."""

    domains: Annotated[list[NewRoute], Field(max_length=MAX_ROUTES)]


class RouteShown(ResponseModel):
    """A route. It is followed while verified: the organization has proved the domain or one above it, and nobody else a nearer one."""

    domain: str
    provider: Provider
    verified: bool


class RoutesShown(ResponseModel):
    """The routes of the organization, by domain."""

    domains: list[RouteShown]


def _show(found: list[HomeRealmRoute]) -> RoutesShown:
    return RoutesShown(domains=[RouteShown(domain=one.domain, provider=one.provider, verified=one.verified) for one in found])


@routes.get("/api/organizations/<org_slug>/hrd")
@member(Capability.INTEGRATIONS_MANAGE)
@validate_response(RoutesShown)
async def listed(org_slug: str) -> RoutesShown:
    """Where the people of the organization's domains sign in."""
    return _show(await home_realm.list_routes(ports(), acting_member()))


@routes.put("/api/organizations/<org_slug>/hrd")
@member(Capability.INTEGRATIONS_MANAGE)
@validate_request(NewRoutes)
@validate_response(RoutesShown)
async def replace(org_slug: str, data: NewRoutes) -> RoutesShown:
    """Say where the people of the organization's domains sign in, in the place of all that was said before."""
    wanted = [(Domain(route.domain), route.provider) for route in data.domains]
    return _show(await home_realm.replace_routes(ports(), acting_member(), wanted))


class Address(RequestModel):
    """The address of whoever wants to sign in; only its domain is looked at."""

    email: EmailAddress


class RealmShown(ResponseModel):
    """Where to sign in: at a provider, for an organization; or all null, where nobody has said so for the domain."""

    provider: Provider | None
    org_slug: str | None
    authorization_url: str | None


@routes.post("/api/auth/lookup-email")
@anyone
@validate_request(Address)
@validate_response(RealmShown)
async def look_up(data: Address) -> RealmShown:
    """Find out where the people of a domain sign in. Whether anybody has the address makes no difference."""
    realm = await home_realm.find_match(ports(), Email(data.email))
    if realm is None:
        return RealmShown(provider=None, org_slug=None, authorization_url=None)
    return RealmShown(
        provider=realm.provider, org_slug=realm.org_slug, authorization_url=f"{app_context().origin}/auth/{realm.provider.value}"
    )
