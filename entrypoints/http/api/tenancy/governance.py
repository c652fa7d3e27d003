"""Tiers and the lifecycle of organizations, for platform owners (organizations.md section 4.6)."""

from functools import wraps
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response
from quart_schema import validate_querystring, validate_request, validate_response

from core.accounts.accounts_rules import AccountSummary
from core.kernel.principals import OrganizationStatus
from core.kernel.values import parse_id
from core.tenancy import governance
from core.tenancy.governance_rules import ListedOrganization
from core.tenancy.organizations_rules import Organization, Tier
from entrypoints.http.api.tenancy.organizations import OrganizationShown, show_organization
from entrypoints.http.edge.access import View, platform_owner
from entrypoints.http.edge.bodies import Id, Reason, RequestModel, ResponseModel, Text, Timestamp, maybe
from entrypoints.http.edge.context import no_content, ports, request_record, signed_in
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import LARGEST, PartQuery, path_id

routes = Blueprint("governance", __name__)


def of_an_organization(view: View) -> View:
    """For routes of `<org_id>`: an organization that does not exist is told of before the body is looked at (decisions, point 16)."""

    @wraps(view)
    async def found(org_id: str, **arguments: Any) -> Any:
        organization = await governance.get(ports(), path_id(org_id))
        request_record().organization = organization.slug
        return await view(org_id=organization.id, **arguments)

    return found


class TierShown(ResponseModel):
    """What an organization may have unless it has limits of its own (organizations.md section 2.3). The price is per month."""

    id: UUID
    name: str
    display_name: str
    default_max_services: int
    default_max_users: int
    price_cents: int


@routes.get("/api/platform/tiers")
@platform_owner
@refuses(400, 404)
@validate_response(list[TierShown])
async def tiers() -> list[TierShown]:
    """Every tier, the smallest first."""
    return [_tier(tier) for tier in await governance.list_tiers(ports())]


def _tier(tier: Tier) -> TierShown:
    return TierShown(
        id=tier.id,
        name=tier.name,
        display_name=tier.display_name,
        default_max_services=tier.default_max_services,
        default_max_users=tier.default_max_users,
        price_cents=tier.price_cents,
    )


class GovernedOrganization(OrganizationShown):
    """An organization as platform owners see it; `max_services` and `max_users` are its own, null where its tier decides."""

    rejected_reason: str | None
    suspended_reason: str | None


class OwnerShown(ResponseModel):
    """The owner of an organization; `unknown` where the account exists no more."""

    id: str
    email: str
    is_platform_owner: bool
    created_at: Timestamp


class TierName(ResponseModel):
    """A tier, by its names."""

    id: UUID
    name: str
    display_name: str


class OrganizationListed(ResponseModel):
    """An organization with its owner and its tier."""

    organization: GovernedOrganization
    owner: OwnerShown
    tier: TierName | None


class OrganizationsListed(ResponseModel):
    """Part of the list of organizations, and how many match altogether."""

    organizations: list[OrganizationListed]
    total: int


class OrganizationsQuery(PartQuery):
    """Which organizations. A `tier_id` that no tier has matches nothing."""

    status: OrganizationStatus | None = None
    tier_id: Text | None = None


@routes.get("/api/platform/organizations")
@platform_owner
@refuses(400, 404)
@validate_querystring(OrganizationsQuery)
@validate_response(OrganizationsListed)
async def organizations(query_args: OrganizationsQuery) -> OrganizationsListed:
    """Organizations of all statuses, the newest first."""
    tier_id = None
    if query_args.tier_id is not None:
        tier_id = parse_id(query_args.tier_id)
        if tier_id is None:
            return OrganizationsListed(organizations=[], total=0)
    listed = await governance.list_organizations(ports(), query_args.status, tier_id, limit=query_args.limit, offset=query_args.offset)
    return OrganizationsListed(organizations=[_listed(one) for one in listed.items], total=listed.total)


def _listed(listed: ListedOrganization) -> OrganizationListed:
    tier = listed.organization.tier
    return OrganizationListed(
        organization=_organization(listed.organization),
        owner=_owner(listed.owner),
        tier=TierName(id=tier.id, name=tier.name, display_name=tier.display_name) if tier else None,
    )


def _owner(owner: AccountSummary) -> OwnerShown:
    return OwnerShown(id=owner.id, email=owner.email, is_platform_owner=owner.is_platform_owner, created_at=owner.created_at)


def _organization(organization: Organization) -> GovernedOrganization:
    return GovernedOrganization(
        **dict(show_organization(organization)),
        rejected_reason=organization.rejected_reason,
        suspended_reason=organization.suspended_reason,
    )


class Changed(ResponseModel):
    """The organization as it is now (decisions, point 237)."""

    organization: GovernedOrganization


class Approval(RequestModel):
    """The tier to begin on; where none is named the one that it has, which is the free one unless it was changed."""

    tier_id: Id | None = None


@routes.post("/api/platform/organizations/<org_id>/approve")
@platform_owner
@of_an_organization
@validate_request(Approval)
@validate_response(Changed)
async def approve(org_id: UUID, data: Approval) -> Changed:
    """Approve a pending organization: it is active from now on."""
    return Changed(organization=_organization(await governance.approve(ports(), signed_in(), org_id, data.tier_id)))


class Rejection(RequestModel):
    """Why."""

    reason: Reason


@routes.post("/api/platform/organizations/<org_id>/reject")
@platform_owner
@of_an_organization
@validate_request(Rejection)
@validate_response(Changed)
async def reject(org_id: UUID, data: Rejection) -> Changed:
    """Reject a pending organization. This is final: it can only be deleted after that."""
    return Changed(organization=_organization(await governance.reject(ports(), signed_in(), org_id, data.reason)))


class Suspension(RequestModel):
    """Why, if it is to be said."""

    reason: Reason | None = None


@routes.post("/api/platform/organizations/<org_id>/suspend")
@platform_owner
@of_an_organization
@validate_request(Suspension)
@validate_response(Changed)
async def suspend(org_id: UUID, data: Suspension) -> Changed:
    """Suspend an active organization: whatever needs an active one is refused from the next request on."""
    return Changed(organization=_organization(await governance.suspend(ports(), signed_in(), org_id, data.reason)))


@routes.post("/api/platform/organizations/<org_id>/activate")
@platform_owner
@of_an_organization
@refuses(400)
@validate_response(Changed)
async def activate(org_id: UUID) -> Changed:
    """Activate a suspended organization. The sessions that its members had go on."""
    return Changed(organization=_organization(await governance.activate(ports(), signed_in(), org_id)))


Maximum = Annotated[int, Field(ge=0, le=LARGEST)]


class TierChange(RequestModel):
    """The tier; and limits of the organization's own, null for those of the tier. A limit that is left out stays as it is."""

    tier_id: Id
    max_services: Maximum | None = maybe()
    max_users: Maximum | None = maybe()


@routes.patch("/api/platform/organizations/<org_id>/tier")
@platform_owner
@of_an_organization
@validate_request(TierChange)
@validate_response(Changed)
async def change_tier(org_id: UUID, data: TierChange) -> Changed:
    """Give an organization another tier, or limits of its own. What it has beyond them stays; more is refused."""
    changed = await governance.change_tier(
        ports(), signed_in(), org_id, data.tier_id, max_services=data.max_services, max_users=data.max_users
    )
    return Changed(organization=_organization(changed))


@routes.delete("/api/platform/organizations/<org_id>")
@platform_owner
@of_an_organization
@refuses(400)
@describes({204: "The organization and all that belonged to it is gone; the accounts of its members stay."})
async def delete(org_id: UUID) -> Response:
    """Delete an organization for good, whatever its status."""
    await governance.delete(ports(), signed_in(), org_id)
    return no_content()
