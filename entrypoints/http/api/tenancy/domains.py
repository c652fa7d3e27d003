"""The API for an organization's domains."""

from typing import Literal
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.kernel.values import Domain, DomainInvalid
from core.tenancy import domains
from core.tenancy.model.domains import DomainClaim, DomainNotFound, ForeignAccount
from entrypoints.http.base.context import acting, ports
from entrypoints.http.edge.access import GIVES, member
from entrypoints.http.edge.bodies import DomainName, RequestModel, ResponseModel, Timestamp
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import PageQuery, Pagination

routes = Blueprint("domains", __name__)


PATH = "/api/organizations/<org_slug>/domains"


class DomainRequest(RequestModel):
    """An organization's domain."""

    domain: DomainName = Field(description="A domain such as `example.com`. It includes its subdomains.")


class TxtRecordResponse(ResponseModel):
    """The DNS record that verifies the domain. Publish it at your DNS provider."""

    type: Literal["TXT"] = Field(description="The type of the record.")
    name: str = Field(description="The full name of the record.", examples=["_gatehouse-challenge.example.com"])
    value: str = Field(description="The text of the record.")


class DomainResponse(ResponseModel):
    """An organization's domain, and the DNS record that verifies it."""

    domain: str = Field(description="The domain in ASCII form.")
    verified: bool = Field(description="Whether the organization has verified the domain.")
    verified_at: Timestamp | None = Field(description="When the domain was verified, or null.")
    created_at: Timestamp = Field(description="When the domain was added.")
    record: TxtRecordResponse = Field(description="The DNS record that verifies the domain.")


class DomainListResponse(ResponseModel):
    """An organization's domains."""

    domains: list[DomainResponse] = Field(description="The domains, ordered by name. There are at most 50.")


def _to_response(claim: DomainClaim) -> DomainResponse:
    return DomainResponse.of(
        claim,
        verified=claim.verified_at is not None,
        record=TxtRecordResponse(type="TXT", name=claim.record_name, value=claim.record_value),
    )


def domain_of_path(text: str) -> Domain:
    """Return the domain in a path."""
    try:
        return Domain.parse(text)
    except DomainInvalid:
        raise DomainNotFound from None


@routes.get(PATH)
@member(Capability.INTEGRATIONS_MANAGE)
async def list_domains(org_slug: str) -> DomainListResponse:
    """List the organization's domains.

    A domain has no effect until it is verified.
    """
    return DomainListResponse(domains=[_to_response(claim) for claim in await domains.list_own(ports(), acting())])


@routes.post(PATH)
@member(Capability.INTEGRATIONS_MANAGE, GIVES)
async def claim(org_slug: str, data: DomainRequest) -> DomainResponse:
    """Add a domain to the organization.

    The domain has no effect until it is verified: publish the returned TXT record in the DNS, then
    call the verify endpoint. If the organization already has this domain, nothing changes.
    """
    return _to_response(await domains.claim(ports(), acting(), Domain(data.domain)))


@routes.get(f"{PATH}/<domain>")
@member(Capability.INTEGRATIONS_MANAGE)
async def get_domain(org_slug: str, domain: str) -> DomainResponse:
    """Get a domain of the organization.

    The response contains the DNS record that verifies the domain, also after the verification.
    """
    return _to_response(await domains.get(ports(), acting(), domain_of_path(domain)))


@routes.post(f"{PATH}/<domain>/verify")
@member(Capability.INTEGRATIONS_MANAGE, GIVES)
@refuses(400, 409)
async def verify(org_slug: str, domain: str) -> DomainResponse:
    """Verify a domain for the organization.

    Looks up the TXT record in the DNS. 400 if it is not found: a new record can take a while to
    become visible. 409 if another organization has verified this domain.
    """
    return _to_response(await domains.verify(ports(), acting(), domain_of_path(domain)))


@routes.delete(f"{PATH}/<domain>")
@member(Capability.INTEGRATIONS_MANAGE, GIVES)
@refuses(409)
@describes({204: "The organization no longer has the domain."})
async def remove(org_slug: str, domain: str) -> None:
    """Remove a domain from the organization.

    Everything that depends on this verified domain stops working, for example its home realm routes. 409: the sign-in policy requires a
    connection for this domain.
    """
    await domains.remove(ports(), acting(), domain_of_path(domain))


class ForeignOrganizationResponse(ResponseModel):
    """Another organization."""

    slug: str = Field(description="The organization's slug.")
    name: str = Field(description="The organization's display name.")


class ForeignAccountResponse(ResponseModel):
    """An account at your domain that another organization created."""

    user_id: UUID = Field(description="The user's id.")
    email: str = Field(description="The email address of the account.")
    created_at: Timestamp = Field(description="When the account was created.")
    organization: ForeignOrganizationResponse | None = Field(
        description="The organization that created the account, or null if it was deleted."
    )


class ForeignAccountListResponse(ResponseModel):
    """A page of the accounts at your domain that other organizations created."""

    accounts: list[ForeignAccountResponse] = Field(description="The accounts, the newest first.")
    pagination: Pagination


@routes.get(f"{PATH}/<domain>/accounts")
@member(Capability.INTEGRATIONS_MANAGE)
async def list_foreign_accounts(org_slug: str, domain: str, query_args: PageQuery) -> ForeignAccountListResponse:
    """List the accounts at your verified domain that other organizations created.

    Your directory takes over such an account by creating a user with its address over SCIM. 404 if
    the domain is not verified.
    """
    listed = await domains.list_foreign_accounts(ports(), acting(), domain_of_path(domain), query_args.page_request())
    accounts = [_to_account_response(account) for account in listed.items]
    return ForeignAccountListResponse(accounts=accounts, pagination=query_args.pagination(listed.total))


def _to_account_response(account: ForeignAccount) -> ForeignAccountResponse:
    organization = None
    if account.org_slug is not None and account.org_name is not None:
        organization = ForeignOrganizationResponse(slug=account.org_slug, name=account.org_name)
    return ForeignAccountResponse.of(account, organization=organization)


class ForeignInvitationResponse(ResponseModel):
    """A pending invitation from another organization to an address at your domain."""

    email: str = Field(description="The invited email address.")
    created_at: Timestamp = Field(description="When the invitation was sent.")
    expires_at: Timestamp = Field(description="When the invitation expires.")
    organization: ForeignOrganizationResponse = Field(description="The organization that invites.")


class ForeignInvitationListResponse(ResponseModel):
    """A page of other organizations' invitations to your domain."""

    invitations: list[ForeignInvitationResponse] = Field(description="The invitations, the newest first.")
    pagination: Pagination


@routes.get(f"{PATH}/<domain>/invitations")
@member(Capability.INTEGRATIONS_MANAGE)
async def list_foreign_invitations(org_slug: str, domain: str, query_args: PageQuery) -> ForeignInvitationListResponse:
    """List other organizations' pending invitations to addresses at your verified domain.

    404 if the domain is not verified.
    """
    listed = await domains.list_foreign_invitations(ports(), acting(), domain_of_path(domain), query_args.page_request())
    invitations = [
        ForeignInvitationResponse.of(
            invitation, organization=ForeignOrganizationResponse(slug=invitation.org_slug, name=invitation.org_name)
        )
        for invitation in listed.items
    ]
    return ForeignInvitationListResponse(invitations=invitations, pagination=query_args.pagination(listed.total))
