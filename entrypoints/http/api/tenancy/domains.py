"""API of an organization's domain (decision 210)."""

from typing import Literal

from pydantic import Field
from quart import Blueprint, Response
from quart_schema import validate_request, validate_response

from core.kernel.principals import Capability
from core.kernel.values import Domain
from core.tenancy import domains
from core.tenancy.domains_rules import DomainClaim
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import DomainName, RequestModel, ResponseModel, Timestamp
from entrypoints.http.edge.context import acting_member, no_content, ports
from entrypoints.http.edge.openapi import describes, refuses

routes = Blueprint("domains", __name__)


class DomainRequest(RequestModel):
    """The domain of an organization."""

    domain: DomainName = Field(description="A domain such as `example.com`. It includes its subdomains.")


class TxtRecordResponse(ResponseModel):
    """The DNS record that verifies the domain. Publish it at your DNS provider."""

    type: Literal["TXT"] = Field(description="The type of the record.")
    name: str = Field(description="The full name of the record.", examples=["_gatehouse-challenge.example.com"])
    value: str = Field(description="The text of the record.")


class DomainResponse(ResponseModel):
    """The domain of an organization, and the DNS record that verifies it."""

    domain: str = Field(description="The domain in ASCII form.")
    verified: bool = Field(description="Whether the organization has verified the domain.")
    verified_at: Timestamp | None = Field(description="When the domain was verified, or null.")
    created_at: Timestamp = Field(description="When the domain was set.")
    record: TxtRecordResponse = Field(description="The DNS record that verifies the domain.")


def _to_response(claim: DomainClaim) -> DomainResponse:
    return DomainResponse(
        domain=claim.domain,
        verified=claim.verified_at is not None,
        verified_at=claim.verified_at,
        created_at=claim.created_at,
        record=TxtRecordResponse(type="TXT", name=claim.record_name, value=claim.record_value),
    )


@routes.post("/api/organizations/<org_slug>/domain")
@member(Capability.INTEGRATIONS_MANAGE, outlives=True)
@validate_request(DomainRequest)
@validate_response(DomainResponse)
async def claim(org_slug: str, data: DomainRequest) -> DomainResponse:
    """Set the organization's domain.

    The domain has no effect until it is verified: publish the returned TXT record in the DNS, then
    call the verify endpoint. Another domain replaces the current one, and must be verified again.
    If you set the same domain, nothing changes.
    """
    return _to_response(await domains.claim(ports(), acting_member(), Domain(data.domain)))


@routes.get("/api/organizations/<org_slug>/domain")
@member(Capability.INTEGRATIONS_MANAGE)
@validate_response(DomainResponse)
async def get_domain(org_slug: str) -> DomainResponse:
    """Get the organization's domain.

    The response contains the DNS record that verifies the domain, also after the verification. 404
    if no domain is set.
    """
    return _to_response(await domains.get(ports(), acting_member()))


@routes.post("/api/organizations/<org_slug>/domain/verify")
@member(Capability.INTEGRATIONS_MANAGE, outlives=True)
@refuses(400, 409)
@validate_response(DomainResponse)
async def verify(org_slug: str) -> DomainResponse:
    """Verify the organization's domain.

    Looks up the TXT record in the DNS. 400 if it is not found: a new record can take a while to
    become visible. 409 if another organization has verified this domain.
    """
    return _to_response(await domains.verify(ports(), acting_member()))


@routes.delete("/api/organizations/<org_slug>/domain")
@member(Capability.INTEGRATIONS_MANAGE, outlives=True)
@describes({204: "The organization no longer has a domain."})
async def remove(org_slug: str) -> Response:
    """Remove the organization's domain.

    Everything that depends on the verified domain stops working, for example home realm routes.
    """
    await domains.remove(ports(), acting_member())
    return no_content()
