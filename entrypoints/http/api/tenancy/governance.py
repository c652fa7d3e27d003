"""The API for tiers and for organizations' lifecycle, for platform owners."""

from typing import Annotated
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.callers import OrganizationStatus
from core.kernel.roles import Capability
from core.tenancy import governance
from core.tenancy.model.organizations import ListedOrganization, Organization
from entrypoints.http import kit
from entrypoints.http.api.tenancy.organizations import OrganizationResponse, organization_to_response
from entrypoints.http.edge.queries import LARGEST

routes = Blueprint("governance", __name__)


@kit.before_body
async def existing_organization(org_id: UUID) -> None:
    """Answer 404 for an `<org_id>` that does not exist."""
    kit.request_record().organization = (await governance.get(kit.ports(), org_id)).slug


class TierResponse(kit.ResponseModel):
    """A tier: default limits for organizations, and a price."""

    id: UUID = Field(description="The tier's id.")
    name: str = Field(description="The tier's unique name.")
    display_name: str = Field(description="The tier's display name.")
    default_max_services: int = Field(description="How many services an organization without its own limit can have.")
    default_max_users: int = Field(description="How many members an organization without its own limit can have.")
    price_cents: int = Field(description="The price per month in cents.")


@routes.get("/api/platform/tiers")
@kit.platform_owner(Capability.PLATFORM_ORGANIZATIONS_VIEW)
@kit.refuses(400, 404)
async def list_tiers() -> list[TierResponse]:
    """List the tiers.

    The operator defines the tiers in the settings. The smallest tier comes first.
    """
    return TierResponse.list_of(await governance.list_tiers(kit.ports()))


class PlatformOrganizationResponse(OrganizationResponse):
    """An organization as platform owners see it."""

    rejected_reason: str | None = Field(description="Why the organization was rejected, or null.")
    suspended_reason: str | None = Field(description="Why the organization is suspended, or null.")


class OrganizationOwnerResponse(kit.ResponseModel):
    """An organization's owner."""

    id: str = Field(description="The owner's user id, or `unknown` if the account no longer exists.")
    email: str = Field(description="The owner's email address.")
    is_platform_owner: bool = Field(description="Whether the owner is a platform owner.")
    created_at: kit.Timestamp = Field(description="When the owner's account was created.")


class TierReferenceResponse(kit.ResponseModel):
    """A tier, by id and names."""

    id: UUID = Field(description="The tier's id.")
    name: str = Field(description="The tier's unique name.")
    display_name: str = Field(description="The tier's display name.")


class ListedOrganizationResponse(kit.ResponseModel):
    """An organization with its owner and its tier."""

    organization: PlatformOrganizationResponse = Field(description="The organization.")
    owner: OrganizationOwnerResponse = Field(description="The organization's owner.")
    tier: TierReferenceResponse | None = Field(description="The organization's tier, or null if it has none.")
    resembles: list[str] = Field(
        description="At most 5 names that its name or slug contains or resembles: the product's name, and names of other organizations.",
        examples=[["Gatehouse"]],
    )


class OrganizationListResponse(kit.ResponseModel):
    """A part of the organizations, newest first."""

    organizations: list[ListedOrganizationResponse] = Field(description="The organizations in this part of the list.")
    total: int = Field(description="The number of all organizations that match.")


class OrganizationsQuery(kit.PartQuery):
    """The part of the list to return, and filters."""

    status: OrganizationStatus | None = Field(None, description="Return only organizations with this status.")
    tier_id: kit.Text | None = Field(None, description="Return only organizations with this tier. An unknown id matches nothing.")
    search: kit.Text | None = Field(None, description="Return only organizations with this text in their name or slug. Case is ignored.")


@routes.get("/api/platform/organizations")
@kit.platform_owner(Capability.PLATFORM_ORGANIZATIONS_VIEW)
@kit.refuses(404)
async def list_organizations(query_args: OrganizationsQuery) -> OrganizationListResponse:
    """List all organizations.

    Returns organizations in any status, newest first, with their owners and tiers.
    """
    tier_id = None if query_args.tier_id is None else kit.path_id(query_args.tier_id)
    listed = await governance.list_organizations(
        kit.ports(), query_args.status, tier_id, limit=query_args.limit, offset=query_args.offset, search=query_args.search
    )
    return OrganizationListResponse(organizations=[_to_listed_response(item) for item in listed.items], total=listed.total)


def _to_listed_response(listed: ListedOrganization) -> ListedOrganizationResponse:
    tier = listed.organization.tier
    return ListedOrganizationResponse(
        organization=_to_response(listed.organization),
        owner=OrganizationOwnerResponse.of(listed.owner),
        tier=TierReferenceResponse.of(tier) if tier else None,
        resembles=list(listed.resembles),
    )


def _to_response(organization: Organization) -> PlatformOrganizationResponse:
    return PlatformOrganizationResponse(
        **dict(organization_to_response(organization)),
        rejected_reason=organization.rejected_reason,
        suspended_reason=organization.suspended_reason,
    )


class OrganizationDetailsResponse(ListedOrganizationResponse):
    """An organization with its owner, its tier, its size and its limits."""

    members: int = Field(description="The number of members.", examples=[12])
    services: int = Field(description="The number of services.", examples=[2])
    member_limit: int = Field(description="How many members are allowed: the organization's own limit, or its tier's limit.")
    admin_networks: list[str] = Field(
        description="The networks from which its owner and its admins may act. Empty: all.", examples=[["203.0.113.0/24"]]
    )
    service_limit: int = Field(description="How many services are allowed: the organization's own limit, or its tier's limit.")


@routes.get("/api/platform/organizations/<org_id>")
@kit.platform_owner(Capability.PLATFORM_ORGANIZATIONS_VIEW)
@kit.refuses(400)
async def get_organization(org_id: UUID) -> OrganizationDetailsResponse:
    """Return an organization in any status, with its owner, tier, size and limits.

    If the owner's account no longer exists, the owner fields have fallback values.
    """
    details = await governance.describe(kit.ports(), org_id)
    organization = details.organization
    kit.request_record().organization = organization.slug
    return OrganizationDetailsResponse(
        **dict(_to_listed_response(ListedOrganization(organization, details.owner, details.resembles))),
        members=organization.member_count,
        services=details.service_count,
        member_limit=organization.user_limit.value,
        service_limit=organization.service_limit.value,
        admin_networks=list(details.admin_networks),
    )


class ChangedOrganizationResponse(kit.ResponseModel):
    """The organization after the change."""

    organization: PlatformOrganizationResponse = Field(description="The organization.")


class ApprovalRequest(kit.RequestModel):
    """An organization's approval."""

    tier_id: kit.Id | None = Field(
        None, description="The organization's tier. By default it keeps its tier, which is the free tier unless it was changed."
    )


@routes.post("/api/platform/organizations/<org_id>/approve")
@kit.platform_owner(Capability.PLATFORM_ORGANIZATIONS_MANAGE, kit.GIVES)
@existing_organization
async def approve(org_id: UUID, data: ApprovalRequest) -> ChangedOrganizationResponse:
    """Approve a pending organization.

    The organization becomes active. 400 if it is not pending.
    """
    organization = await governance.approve(kit.ports(), kit.acting_on_platform(), org_id, data.tier_id)
    return ChangedOrganizationResponse(organization=_to_response(organization))


class RejectionRequest(kit.RequestModel):
    """An organization's rejection."""

    reason: kit.Reason = Field(description="Why the organization is rejected. Platform owners can see it.")


@routes.post("/api/platform/organizations/<org_id>/reject")
@kit.platform_owner(Capability.PLATFORM_ORGANIZATIONS_MANAGE, kit.GIVES)
@existing_organization
async def reject(org_id: UUID, data: RejectionRequest) -> ChangedOrganizationResponse:
    """Reject a pending organization.

    This is final: a rejected organization can only be deleted. 400 if it is not pending.
    """
    organization = await governance.reject(kit.ports(), kit.acting_on_platform(), org_id, data.reason)
    return ChangedOrganizationResponse(organization=_to_response(organization))


class SuspensionRequest(kit.RequestModel):
    """An organization's suspension."""

    reason: kit.Reason | None = Field(None, description="Why the organization is suspended. Platform owners can see it.")


@routes.post("/api/platform/organizations/<org_id>/suspend")
@kit.platform_owner(Capability.PLATFORM_ORGANIZATIONS_MANAGE, kit.GIVES)
@existing_organization
async def suspend(org_id: UUID, data: SuspensionRequest) -> ChangedOrganizationResponse:
    """Suspend an active organization.

    From the next request on, everything that needs an active organization is refused. Sessions do
    not end. 400 if the organization is not active.
    """
    organization = await governance.suspend(kit.ports(), kit.acting_on_platform(), org_id, data.reason)
    return ChangedOrganizationResponse(organization=_to_response(organization))


@routes.post("/api/platform/organizations/<org_id>/activate")
@kit.platform_owner(Capability.PLATFORM_ORGANIZATIONS_MANAGE, kit.GIVES)
@existing_organization
@kit.refuses(400)
async def activate(org_id: UUID) -> ChangedOrganizationResponse:
    """Activate a suspended organization.

    Sessions from before the suspension work again, unless they have expired. 400 if the
    organization is not suspended.
    """
    organization = await governance.activate(kit.ports(), kit.acting_on_platform(), org_id)
    return ChangedOrganizationResponse(organization=_to_response(organization))


OwnLimit = Annotated[int, Field(ge=0, le=LARGEST)]


class OrganizationTierRequest(kit.RequestModel):
    """An organization's tier and limits. A limit that is left out keeps its value."""

    tier_id: kit.Id = Field(description="The organization's tier.")
    max_services: OwnLimit | None = kit.optional(description="The organization's own service limit, or null for its tier's limit.")
    max_users: OwnLimit | None = kit.optional(description="The organization's own member limit, or null for its tier's limit.")


@routes.patch("/api/platform/organizations/<org_id>/tier")
@kit.platform_owner(Capability.PLATFORM_ORGANIZATIONS_MANAGE, kit.CHANGES)
@existing_organization
async def change_tier(org_id: UUID, data: OrganizationTierRequest) -> ChangedOrganizationResponse:
    """Change an organization's tier and limits.

    Nothing is removed if a limit is below the current number. New members or services are refused
    until the number is below the limit. 400 if the organization is rejected.
    """
    organization = await governance.change_tier(
        kit.ports(), kit.acting_on_platform(), org_id, data.tier_id, max_services=data.max_services, max_users=data.max_users
    )
    return ChangedOrganizationResponse(organization=_to_response(organization))


class RemoveNetworksRequest(kit.RequestModel):
    """The reason for removing the networks of an organization's admins."""

    reason: kit.Reason = Field(
        description="The reason, for the platform's log and for the email to its owner and admins.", examples=["A new office, ticket 4711"]
    )


@routes.delete("/api/platform/organizations/<org_id>/admin-networks")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.OWNS)
@existing_organization
@kit.describes({204: "The owner and the admins can act from any network."})
async def remove_admin_networks(org_id: UUID, data: RemoveNetworksRequest) -> None:
    """Remove the networks from which an organization's admins may act.

    Use it if they changed, so that no admin can act. The policy's other rules stay. 400 if there are no networks.
    """
    await governance.remove_admin_networks(kit.ports(), kit.signed_in(), org_id, data.reason)


@routes.delete("/api/platform/organizations/<org_id>")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.OWNS)
@existing_organization
@kit.refuses(400)
@kit.describes({204: "The organization and everything that belongs to it is deleted. The accounts of its members remain."})
async def delete(org_id: UUID) -> None:
    """Delete an organization permanently.

    Works in any status. Services, API keys, invitations, webhooks and the audit log are deleted, too. The members'
    accounts remain.
    """
    await governance.delete(kit.ports(), kit.signed_in(), org_id)
