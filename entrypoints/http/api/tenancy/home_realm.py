"""The API for home realm discovery: the identity provider for an email domain (decision 103)."""

from typing import Annotated

from pydantic import Field
from quart import Blueprint

from core.federation.connections.routing import find_sign_in
from core.kernel.connections import PLATFORM_CONNECTIONS
from core.kernel.roles import Capability
from core.kernel.values import Domain, Email
from core.tenancy import home_realm
from core.tenancy.model.domains import MAX_ROUTES, RouteTargetAmbiguous, RouteTargetUnknown
from entrypoints.http.api.authentication.connection_slugs import ProviderSlug
from entrypoints.http.api.tenancy.domains import domain_of_path
from entrypoints.http.base.context import acting, app_context, ports
from entrypoints.http.edge.access import GIVES, anyone, member
from entrypoints.http.edge.bodies import DomainName, EmailAddress, RequestModel, ResponseModel, Text
from entrypoints.http.edge.openapi import describes, refuses

routes = Blueprint("home_realm", __name__)

PATH = "/api/organizations/<org_slug>/hrd"


class HomeRealmProviderRequest(RequestModel):
    """A domain's identity provider: `provider` or `connection`."""

    provider: Annotated[ProviderSlug | None, Field(strict=False)] = Field(
        None, description="The identity provider of the platform for users at this domain."
    )
    connection: Text | None = Field(None, description="The slug of the organization's connection for users at this domain.")

    @property
    def target(self) -> str:
        """The identity provider's slug."""
        if (self.provider is None) == (self.connection is None):
            raise RouteTargetAmbiguous
        if self.connection in PLATFORM_CONNECTIONS:
            raise RouteTargetUnknown
        return self.provider or self.connection or ""


class HomeRealmRouteRequest(HomeRealmProviderRequest):
    """The identity provider for email addresses at a domain."""

    domain: DomainName = Field(description="The email addresses' domain. Every subdomain needs its own route.")


class HomeRealmRoutesRequest(RequestModel):
    """All the organization's routes."""

    domains: Annotated[list[HomeRealmRouteRequest], Field(max_length=MAX_ROUTES)] = Field(
        description="The routes. Routes that are not in the list are removed. A domain may appear only once."
    )


class ConnectionRefResponse(ResponseModel):
    """An organization's connection."""

    slug: str = Field(description="The slug of the connection.")
    name: str = Field(description="The name of the connection.")


class HomeRealmRouteResponse(ResponseModel):
    """The identity provider for email addresses at a domain."""

    domain: str = Field(description="The domain of the email addresses.")
    provider: ProviderSlug | None = Field(description="The identity provider of the platform, or null for a connection.")
    connection: ConnectionRefResponse | None = Field(
        description="The organization's connection, or null for a platform identity provider. An inactive connection is not used."
    )
    verified: bool = Field(
        description="Whether the organization has verified the domain or a parent domain, and no other organization has "
        "verified a closer domain. Otherwise the route is not used."
    )


class HomeRealmRouteListResponse(ResponseModel):
    """The organization's routes."""

    domains: list[HomeRealmRouteResponse] = Field(description="The routes, ordered by domain.")


@routes.get(PATH)
@member(Capability.INTEGRATIONS_MANAGE)
async def list_routes(org_slug: str) -> HomeRealmRouteListResponse:
    """List the organization's home realm routes.

    A route names the identity provider for users with an email address at a domain: a platform provider, or the organization's connection.
    The route is in use while `verified` is true, and the connection is active.
    """
    return HomeRealmRouteListResponse(domains=HomeRealmRouteResponse.list_of(await home_realm.list_routes(ports(), acting())))


@routes.put(PATH)
@member(Capability.INTEGRATIONS_MANAGE, GIVES)
async def replace_routes(org_slug: str, data: HomeRealmRoutesRequest) -> HomeRealmRouteListResponse:
    """Replace the organization's home realm routes.

    The list replaces all earlier routes; an empty list removes them. A route comes into use when
    the organization verifies its domain.
    """
    new_routes = [(Domain(route.domain), route.target) for route in data.domains]
    return HomeRealmRouteListResponse(
        domains=HomeRealmRouteResponse.list_of(await home_realm.replace_routes(ports(), acting(), new_routes))
    )


@routes.put(f"{PATH}/<domain>")
@member(Capability.INTEGRATIONS_MANAGE, GIVES)
@refuses(400)
async def set_route(org_slug: str, domain: str, data: HomeRealmProviderRequest) -> HomeRealmRouteResponse:
    """Set a domain's identity provider.

    All other routes stay as they are. The domain may be a subdomain of a domain that you have verified.
    """
    route = await home_realm.set_route(ports(), acting(), Domain.parse(domain), data.target)
    return HomeRealmRouteResponse.of(route)


@routes.delete(f"{PATH}/<domain>")
@member(Capability.INTEGRATIONS_MANAGE, GIVES)
@describes({204: "The domain no longer has an identity provider."})
async def remove_route(org_slug: str, domain: str) -> None:
    """Remove a domain's identity provider. All other routes stay as they are."""
    await home_realm.remove_route(ports(), acting(), domain_of_path(domain))


class EmailLookupRequest(RequestModel):
    """The email address of a user who wants to sign in."""

    email: EmailAddress = Field(description="The email address. Only its domain matters.")
    org: Text | None = Field(None, description="The slug of the organization that `service` belongs to.")
    service: Text | None = Field(
        None, description="The slug of the application to sign in to. Ignored if it is unknown, or may not use the provider."
    )


class EmailLookupResponse(ResponseModel):
    """The identity provider and the organization for the domain.

    All fields are null if no organization has a route for it.
    """

    provider: ProviderSlug | None = Field(description="The identity provider of the platform, or null for a connection.")
    connection: ConnectionRefResponse | None = Field(description="The organization's connection, or null for a platform identity provider.")
    org_slug: str | None = Field(description="The slug of the organization that has verified the domain.")
    authorization_url: str | None = Field(
        description="The URL at which the user starts to sign in with the identity provider. Its query names `org` and "
        "`service` from the request, or else the domain's organization. An application adds the parameters "
        "for `GET /auth/authorize`."
    )


@routes.post("/api/auth/lookup-email")
@anyone
async def look_up(data: EmailLookupRequest) -> EmailLookupResponse:
    """Find the identity provider for an email address.

    The result depends only on the address's domain and on the application, so it does not reveal whether there is an
    account.
    """
    sign_in = await find_sign_in(ports(), Email(data.email), data.org, data.service)
    if sign_in is None:
        return EmailLookupResponse(provider=None, connection=None, org_slug=None, authorization_url=None)
    match, path = sign_in
    return EmailLookupResponse.of(match, authorization_url=app_context().origin + path)
