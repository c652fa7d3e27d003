"""The domain of an organization (decisions, point 210)."""

from typing import Literal

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


class NewDomain(RequestModel):
    """A domain such as `example.com`; its subdomains count with it."""

    domain: DomainName


class TxtRecord(ResponseModel):
    """The record of the DNS that proves who owns the domain."""

    type: Literal["TXT"]
    name: str
    value: str


class DomainShown(ResponseModel):
    """The domain of the organization, whether it is proved, and what proves it."""

    domain: str
    verified: bool
    verified_at: Timestamp | None
    created_at: Timestamp
    record: TxtRecord


def _show(claim: DomainClaim) -> DomainShown:
    return DomainShown(
        domain=claim.domain,
        verified=claim.verified_at is not None,
        verified_at=claim.verified_at,
        created_at=claim.created_at,
        record=TxtRecord(type="TXT", name=claim.record_name, value=claim.record_value),
    )


@routes.post("/api/organizations/<org_slug>/domain")
@member(Capability.INTEGRATIONS_MANAGE)
@validate_request(NewDomain)
@validate_response(DomainShown)
async def claim(org_slug: str, data: NewDomain) -> DomainShown:
    """Set the organization's domain. It counts once the record has been published in the DNS, and verified."""
    return _show(await domains.claim(ports(), acting_member(), Domain(data.domain)))


@routes.get("/api/organizations/<org_slug>/domain")
@member(Capability.INTEGRATIONS_MANAGE)
@validate_response(DomainShown)
async def current(org_slug: str) -> DomainShown:
    """The organization's domain."""
    return _show(await domains.get(ports(), acting_member()))


@routes.post("/api/organizations/<org_slug>/domain/verify")
@member(Capability.INTEGRATIONS_MANAGE)
@refuses(400, 409)
@validate_response(DomainShown)
async def verify(org_slug: str) -> DomainShown:
    """Look for the record in the DNS, and have the domain count from then on. 409 where another organization has proved it before."""
    return _show(await domains.verify(ports(), acting_member()))


@routes.delete("/api/organizations/<org_slug>/domain")
@member(Capability.INTEGRATIONS_MANAGE)
@describes({204: "The organization has no domain any more."})
async def remove(org_slug: str) -> Response:
    """Have no domain. What followed from its proof ends."""
    await domains.remove(ports(), acting_member())
    return no_content()
