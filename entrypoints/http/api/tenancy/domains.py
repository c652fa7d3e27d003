"""The API for an organization's domains, and for home realm discovery by email domain (decision 103)."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.federation.connections.routing import find_sign_in
from core.kernel import values
from core.kernel.connections import PLATFORM_CONNECTIONS
from core.kernel.roles import Capability
from core.tenancy import domains
from core.tenancy.model.domains import MAX_ROUTES, DomainClaim, DomainNotFound, ForeignAccount, RouteTargetAmbiguous, RouteTargetUnknown
from entrypoints.http import kit
from entrypoints.http.api.authentication.connections import ProviderSlug
from entrypoints.http.edge.bodies import DomainName

routes = Blueprint("domains", __name__)


PATH = "/api/organizations/<org_slug>/domains"


class DomainRequest(kit.RequestModel):
    """An organization's domain."""

    domain: DomainName = Field(description="A domain such as `example.com`. It includes its subdomains.")


class TxtRecordResponse(kit.ResponseModel):
    """The DNS record that verifies the domain. Publish it at your DNS provider."""

    type: Literal["TXT"] = Field(description="The type of the record.")
    name: str = Field(description="The full name of the record.", examples=["_gatehouse-challenge.example.com"])
    value: str = Field(description="The text of the record.")


class DomainResponse(kit.ResponseModel):
    """An organization's domain, and the DNS record that verifies it."""

    domain: str = Field(description="The domain in ASCII form.")
    verified: bool = Field(description="Whether the organization has verified the domain.")
    verified_at: kit.Timestamp | None = Field(description="When the domain was verified, or null.")
    created_at: kit.Timestamp = Field(description="When the domain was added.")
    record: TxtRecordResponse = Field(description="The DNS record that verifies the domain.")


class DomainListResponse(kit.ResponseModel):
    """An organization's domains."""

    domains: list[DomainResponse] = Field(description="The domains, ordered by name. There are at most 50.")


def _to_response(claim: DomainClaim) -> DomainResponse:
    return DomainResponse.of(
        claim,
        verified=claim.verified_at is not None,
        record=TxtRecordResponse(type="TXT", name=claim.record_name, value=claim.record_value),
    )


def domain_of_path(text: str) -> values.Domain:
    """Return the domain in a path."""
    try:
        return values.Domain.parse(text)
    except values.DomainInvalid:
        raise DomainNotFound from None


@routes.get(PATH)
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def list_domains(org_slug: str) -> DomainListResponse:
    """List the organization's domains.

    A domain has no effect until it is verified.
    """
    return DomainListResponse(domains=[_to_response(claim) for claim in await domains.list_own(kit.ports(), kit.acting())])


@routes.post(PATH)
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
async def claim(org_slug: str, data: DomainRequest) -> DomainResponse:
    """Add a domain to the organization.

    The domain has no effect until it is verified: publish the returned TXT record in the DNS, then
    call the verify endpoint. If the organization already has this domain, nothing changes.
    """
    return _to_response(await domains.claim(kit.ports(), kit.acting(), values.Domain(data.domain)))


@routes.get(f"{PATH}/<domain>")
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def get_domain(org_slug: str, domain: str) -> DomainResponse:
    """Get a domain of the organization.

    The response contains the DNS record that verifies the domain, also after the verification.
    """
    return _to_response(await domains.get(kit.ports(), kit.acting(), domain_of_path(domain)))


@routes.post(f"{PATH}/<domain>/verify")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(400, 409)
async def verify(org_slug: str, domain: str) -> DomainResponse:
    """Verify a domain for the organization.

    Looks up the TXT record in the DNS. 400 if it is not found: a new record can take a while to
    become visible. 409 if another organization has verified this domain.
    """
    return _to_response(await domains.verify(kit.ports(), kit.acting(), domain_of_path(domain)))


@routes.delete(f"{PATH}/<domain>")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(409)
@kit.describes({204: "The organization no longer has the domain."})
async def remove(org_slug: str, domain: str) -> None:
    """Remove a domain from the organization.

    Everything that depends on this verified domain stops working, for example its home realm routes. 409: the sign-in policy requires a
    connection for this domain.
    """
    await domains.remove(kit.ports(), kit.acting(), domain_of_path(domain))


class ForeignOrganizationResponse(kit.ResponseModel):
    """Another organization."""

    slug: str = Field(description="The organization's slug.")
    name: str = Field(description="The organization's display name.")


class ForeignAccountResponse(kit.ResponseModel):
    """An account at your domain that another organization created."""

    user_id: UUID = Field(description="The user's id.")
    email: str = Field(description="The email address of the account.")
    created_at: kit.Timestamp = Field(description="When the account was created.")
    organization: ForeignOrganizationResponse | None = Field(
        description="The organization that created the account, or null if it was deleted."
    )


class ForeignAccountListResponse(kit.ResponseModel):
    """A page of the accounts at your domain that other organizations created."""

    accounts: list[ForeignAccountResponse] = Field(description="The accounts, the newest first.")
    pagination: kit.Pagination


@routes.get(f"{PATH}/<domain>/accounts")
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def list_foreign_accounts(org_slug: str, domain: str, query_args: kit.PageQuery) -> ForeignAccountListResponse:
    """List the accounts at your verified domain that other organizations created.

    Your directory takes over such an account by creating a user with its address over SCIM. 404 if
    the domain is not verified.
    """
    listed = await domains.list_foreign_accounts(kit.ports(), kit.acting(), domain_of_path(domain), query_args.page_request())
    accounts = [_to_account_response(account) for account in listed.items]
    return ForeignAccountListResponse(accounts=accounts, pagination=query_args.pagination(listed.total))


def _to_account_response(account: ForeignAccount) -> ForeignAccountResponse:
    organization = None
    if account.org_slug is not None and account.org_name is not None:
        organization = ForeignOrganizationResponse(slug=account.org_slug, name=account.org_name)
    return ForeignAccountResponse.of(account, organization=organization)


class ForeignInvitationResponse(kit.ResponseModel):
    """A pending invitation from another organization to an address at your domain."""

    email: str = Field(description="The invited email address.")
    created_at: kit.Timestamp = Field(description="When the invitation was sent.")
    expires_at: kit.Timestamp = Field(description="When the invitation expires.")
    organization: ForeignOrganizationResponse = Field(description="The organization that invites.")


class ForeignInvitationListResponse(kit.ResponseModel):
    """A page of other organizations' invitations to your domain."""

    invitations: list[ForeignInvitationResponse] = Field(description="The invitations, the newest first.")
    pagination: kit.Pagination


@routes.get(f"{PATH}/<domain>/invitations")
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def list_foreign_invitations(org_slug: str, domain: str, query_args: kit.PageQuery) -> ForeignInvitationListResponse:
    """List other organizations' pending invitations to addresses at your verified domain.

    404 if the domain is not verified.
    """
    listed = await domains.list_foreign_invitations(kit.ports(), kit.acting(), domain_of_path(domain), query_args.page_request())
    invitations = [
        ForeignInvitationResponse.of(
            invitation, organization=ForeignOrganizationResponse(slug=invitation.org_slug, name=invitation.org_name)
        )
        for invitation in listed.items
    ]
    return ForeignInvitationListResponse(invitations=invitations, pagination=query_args.pagination(listed.total))


ROUTES_PATH = "/api/organizations/<org_slug>/hrd"


class HomeRealmProviderRequest(kit.RequestModel):
    """A domain's identity provider: `provider` or `connection`."""

    provider: Annotated[ProviderSlug | None, Field(strict=False)] = Field(
        None, description="The identity provider of the platform for users at this domain."
    )
    connection: kit.Text | None = Field(None, description="The slug of the organization's connection for users at this domain.")

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


class HomeRealmRoutesRequest(kit.RequestModel):
    """All the organization's routes."""

    domains: Annotated[list[HomeRealmRouteRequest], Field(max_length=MAX_ROUTES)] = Field(
        description="The routes. Routes that are not in the list are removed. A domain may appear only once."
    )


class ConnectionRefResponse(kit.ResponseModel):
    """An organization's connection."""

    slug: str = Field(description="The slug of the connection.")
    name: str = Field(description="The name of the connection.")


class HomeRealmRouteResponse(kit.ResponseModel):
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


class HomeRealmRouteListResponse(kit.ResponseModel):
    """The organization's routes."""

    domains: list[HomeRealmRouteResponse] = Field(description="The routes, ordered by domain.")


@routes.get(ROUTES_PATH)
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def list_routes(org_slug: str) -> HomeRealmRouteListResponse:
    """List the organization's home realm routes.

    A route names the identity provider for users with an email address at a domain: a platform provider, or the organization's connection.
    The route is in use while `verified` is true, and the connection is active.
    """
    return HomeRealmRouteListResponse(domains=HomeRealmRouteResponse.list_of(await domains.list_routes(kit.ports(), kit.acting())))


@routes.put(ROUTES_PATH)
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
async def replace_routes(org_slug: str, data: HomeRealmRoutesRequest) -> HomeRealmRouteListResponse:
    """Replace the organization's home realm routes.

    The list replaces all earlier routes; an empty list removes them. A route comes into use when
    the organization verifies its domain.
    """
    new_routes = [(values.Domain(route.domain), route.target) for route in data.domains]
    return HomeRealmRouteListResponse(
        domains=HomeRealmRouteResponse.list_of(await domains.replace_routes(kit.ports(), kit.acting(), new_routes))
    )


@routes.put(f"{ROUTES_PATH}/<domain>")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(400)
async def set_route(org_slug: str, domain: str, data: HomeRealmProviderRequest) -> HomeRealmRouteResponse:
    """Set a domain's identity provider.

    All other routes stay as they are. The domain may be a subdomain of a domain that you have verified.
    """
    route = await domains.set_route(kit.ports(), kit.acting(), values.Domain.parse(domain), data.target)
    return HomeRealmRouteResponse.of(route)


@routes.delete(f"{ROUTES_PATH}/<domain>")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.describes({204: "The domain no longer has an identity provider."})
async def remove_route(org_slug: str, domain: str) -> None:
    """Remove a domain's identity provider. All other routes stay as they are."""
    await domains.remove_route(kit.ports(), kit.acting(), domain_of_path(domain))


class EmailLookupRequest(kit.RequestModel):
    """The email address of a user who wants to sign in."""

    email: kit.EmailAddress = Field(description="The email address. Only its domain matters.")
    org: kit.Text | None = Field(None, description="The slug of the organization that `service` belongs to.")
    service: kit.Text | None = Field(
        None, description="The slug of the application to sign in to. Ignored if it is unknown, or may not use the provider."
    )


class EmailLookupResponse(kit.ResponseModel):
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
@kit.anyone
async def look_up(data: EmailLookupRequest) -> EmailLookupResponse:
    """Find the identity provider for an email address.

    The result depends only on the address's domain and on the application, so it does not reveal whether there is an
    account.
    """
    sign_in = await find_sign_in(kit.ports(), values.Email(data.email), data.org, data.service)
    if sign_in is None:
        return EmailLookupResponse(provider=None, connection=None, org_slug=None, authorization_url=None)
    match, path = sign_in
    return EmailLookupResponse.of(match, authorization_url=kit.app_context().origin + path)
