"""The API for organizations, for their members (decision 207)."""

from typing import Final
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.authentication import sessions
from core.kernel.api_scopes import Area
from core.kernel.callers import OrganizationStatus
from core.kernel.roles import Capability
from core.tenancy import organizations
from core.tenancy.model.organizations import LimitSource, Membership, Organization
from entrypoints.http import kit
from entrypoints.http.api.tenancy.roles import Role
from entrypoints.http.edge.access.effects import SELECTS

routes = Blueprint("organizations", __name__)

MEMBERS_SEE_END_USERS: Final = (
    "Whether the role `member` sees the users of the organization's services, with their assignments and subscriptions."
)


class OrganizationResponse(kit.ResponseModel):
    """An organization.

    `max_services` and `max_users` are its own limits; null means that the tier's limit applies.
    """

    id: UUID = Field(description="The organization's id.")
    slug: str = Field(description="The organization's unique name in URLs.")
    name: str = Field(description="The organization's display name.")
    status: OrganizationStatus = Field(description="The organization's status. Most operations need an active organization.")
    tier_id: UUID | None = Field(description="The id of the organization's tier, or null if it has none.")
    max_services: int | None = Field(description="The organization's own service limit, or null for its tier's limit.")
    max_users: int | None = Field(description="The organization's own member limit, or null for its tier's limit.")
    device_trust_days: int = Field(description="The number of days during which a trusted device skips the second factor.")
    personal_tokens: bool = Field(description="Whether members can use personal access tokens in the organization.")
    members_see_end_users: bool = Field(description=MEMBERS_SEE_END_USERS)
    created_at: kit.Timestamp = Field(description="When the organization was created.")
    updated_at: kit.Timestamp = Field(description="When the organization was last changed.")
    approved_at: kit.Timestamp | None = Field(description="When a platform owner approved the organization, or null.")


class MemberUserResponse(kit.ResponseModel):
    """A membership's user."""

    id: UUID = Field(description="The user's id.")
    email: str = Field(description="The user's email address.")
    is_platform_owner: bool = Field(description="Whether the user is a platform owner.")


class MembershipResponse(kit.ResponseModel):
    """A user's membership in an organization."""

    id: UUID = Field(description="The membership's id.")
    org_id: UUID = Field(description="The organization's id.")
    user_id: UUID = Field(description="The user's id.")
    role: Role = Field(description="The member's own role.")
    roles: list[Role] = Field(description="All the member's roles: their own role first, then the roles that groups give.")
    created_at: kit.Timestamp = Field(description="When the user became a member.")


def organization_to_response(organization: Organization) -> OrganizationResponse:
    return OrganizationResponse.of(organization, tier_id=organization.tier.id if organization.tier else None)


class OrganizationRequest(kit.RequestModel):
    """A new organization."""

    slug: kit.Text = Field(
        description="The organization's unique name in URLs: 1 to 63 lower-case letters and digits, with single hyphens between them. "
        "Some words are reserved. The slug cannot be changed later.",
        json_schema_extra={"minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9](?:-?[a-z0-9])*$"},
    )
    name: kit.Name = Field(description="The display name.")


class OwnOrganizationResponse(kit.ResponseModel):
    """An organization, and the caller's membership in it."""

    organization: OrganizationResponse = Field(description="The organization.")
    membership: MembershipResponse = Field(description="Your membership.")


def _to_own_response(organization: Organization, membership: Membership) -> OwnOrganizationResponse:
    return OwnOrganizationResponse(organization=organization_to_response(organization), membership=MembershipResponse.of(membership))


@routes.post("/api/organizations")
@kit.verified_person(kit.GIVES)
async def create(data: OrganizationRequest) -> OwnOrganizationResponse:
    """Create an organization.

    You become its owner. Unless the operator turned approval off, the organization is pending until
    a platform owner approves it, and most operations are refused until then. Your email address
    must be verified.
    """
    return _to_own_response(*await organizations.create(kit.ports(), kit.signed_in(), data.slug, data.name))


@routes.get("/api/organizations")
@kit.person_anywhere(area=Area.ACCOUNT, restricted=kit.Restricted.YES)
async def list_own_organizations() -> list[OwnOrganizationResponse]:
    """List your organizations.

    Returns all organizations that you belong to, in any status, with your membership, ordered by slug.
    """
    return [_to_own_response(*own) for own in await organizations.list_own(kit.ports(), kit.signed_in())]


class OrganizationLimitsResponse(kit.ResponseModel):
    """The limits that apply to an organization, and where they come from."""

    max_users: int = Field(description="The maximum number of members.")
    max_users_source: LimitSource = Field(description="Whether the organization, its tier or the platform's default sets `max_users`.")
    max_services: int = Field(description="The maximum number of services.")
    max_services_source: LimitSource = Field(
        description="Whether the organization, its tier or the platform's default sets `max_services`."
    )


class OrganizationDetailResponse(OrganizationResponse):
    """An organization with the limits that apply to it."""

    limits: OrganizationLimitsResponse = Field(description="The limits that apply.")


def _to_detail_response(organization: Organization) -> OrganizationDetailResponse:
    users, services = organization.user_limit, organization.service_limit
    return OrganizationDetailResponse(
        **dict(organization_to_response(organization)),
        limits=OrganizationLimitsResponse(
            max_users=users.value, max_users_source=users.source, max_services=services.value, max_services_source=services.source
        ),
    )


@routes.get("/api/organizations/<org_slug>")
@kit.member(Capability.ORGANIZATION_VIEW, inactive=True)
async def get_organization(org_slug: str) -> OrganizationDetailResponse:
    """Get an organization that you belong to.

    This also works if the organization is not active. The response contains the limits that apply
    to the organization.
    """
    return _to_detail_response(await organizations.get(kit.ports(), kit.acting()))


class OrganizationUpdateRequest(kit.RequestModel):
    """The changes to an organization. At least one field is required."""

    model_config = kit.AT_LEAST_ONE_FIELD

    name: kit.Name = kit.optional(description="The new display name.")
    device_trust_days: int = kit.optional(
        ge=1, le=90, description="The number of days during which a trusted device skips the second factor."
    )
    personal_tokens: bool = kit.optional(description="Whether members can use personal access tokens in the organization.")
    members_see_end_users: bool = kit.optional(description=MEMBERS_SEE_END_USERS)


@routes.patch("/api/organizations/<org_slug>")
@kit.member(Capability.ORGANIZATION_MANAGE, kit.GIVES)
@kit.refuses(409)
async def update(org_slug: str, data: OrganizationUpdateRequest) -> OrganizationDetailResponse:
    """Change an organization's name or settings.

    Fields that you leave out keep their value. A new trust period also applies to devices that are already trusted.
    While `personal_tokens` is false, the organization's personal access tokens are refused from the next request on.
    While `members_see_end_users` is false, the role `member` gets 403 for end users. To change this, the caller needs
    `end_users.view`, too. 409: a group has the new name.
    """
    return _to_detail_response(await organizations.update(kit.ports(), kit.acting(), **data.model_dump(exclude_unset=True)))


@routes.delete("/api/organizations/<org_slug>")
@kit.member(Capability.ORGANIZATION_OWN, kit.OWNS)
@kit.describes({204: "The organization and everything that belongs to it is deleted. The accounts of its members remain."})
async def delete(org_slug: str) -> None:
    """Delete an organization permanently.

    Only the owner can do this. Services, API keys, invitations, webhooks and the audit log are deleted, too. The
    members' accounts remain.
    """
    await organizations.delete(kit.ports(), kit.acting_member())


class SelectedOrganizationResponse(kit.ResponseModel):
    """New tokens for the selected organization."""

    user: MemberUserResponse = Field(description="You.")
    membership: MembershipResponse = Field(description="Your membership.")
    access_token: str = Field(description="The new access token, which names the organization.")
    refresh_token: str = Field(description="The new refresh token. The session's earlier refresh token no longer works.")
    expires_in: int = Field(description="The lifetime of the access token in seconds.")


@routes.post("/api/organizations/<org_slug>/select")
@kit.member(Capability.ORGANIZATION_VIEW, SELECTS)
@kit.refuses(429)
async def select(org_slug: str) -> SelectedOrganizationResponse:
    """Select the organization that your session acts in.

    Returns new tokens for this organization. The session's earlier refresh token no longer works.
    429 means that another request refreshed the same session at the same time. Try again.
    """
    caller = kit.acting_member()
    membership, tokens = await sessions.select_organization(kit.ports(), caller)
    return SelectedOrganizationResponse.of(
        tokens,
        user=MemberUserResponse(id=caller.user_id, email=caller.email, is_platform_owner=caller.is_platform_owner),
        membership=MembershipResponse.of(membership),
    )
