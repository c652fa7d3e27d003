"""Organizations as their members see them, and selecting one (organizations.md section 4.4; decisions, points 204 to 207)."""

from uuid import UUID

from quart import Blueprint, Response
from quart_schema import validate_request, validate_response

from core.authentication import sessions
from core.kernel.principals import Capability, OrganizationStatus, Role
from core.tenancy import organizations
from core.tenancy.organizations_rules import LimitSource, Membership, Organization
from entrypoints.http.edge.access import member, person_anywhere, verified_person
from entrypoints.http.edge.bodies import Body, Name, Shown, Text, Timestamp, maybe
from entrypoints.http.edge.context import acting_member, no_content, ports, signed_in
from entrypoints.http.edge.openapi import describes, refuses

routes = Blueprint("organizations", __name__)


class OrganizationShown(Shown):
    """An organization (decisions, point 207); `max_services` and `max_users` are its own, null where its tier decides."""

    id: UUID
    slug: str
    name: str
    status: OrganizationStatus
    tier_id: UUID | None
    max_services: int | None
    max_users: int | None
    device_trust_days: int
    created_at: Timestamp
    updated_at: Timestamp
    approved_at: Timestamp | None


class UserShown(Shown):
    """Whose membership it is."""

    id: UUID
    email: str
    is_platform_owner: bool


class MembershipShown(Shown):
    """A person in an organization (organizations.md section 2.4)."""

    id: UUID
    org_id: UUID
    user_id: UUID
    role: Role
    created_at: Timestamp


def show_organization(organization: Organization) -> OrganizationShown:
    return OrganizationShown(
        id=organization.id,
        slug=organization.slug,
        name=organization.name,
        status=organization.status,
        tier_id=organization.tier.id if organization.tier else None,
        max_services=organization.max_services,
        max_users=organization.max_users,
        device_trust_days=organization.device_trust_days,
        created_at=organization.created_at,
        updated_at=organization.updated_at,
        approved_at=organization.approved_at,
    )


def show_membership(membership: Membership) -> MembershipShown:
    return MembershipShown(
        id=membership.id,
        org_id=membership.org_id,
        user_id=membership.user_id,
        role=membership.role,
        created_at=membership.created_at,
    )


class NewOrganization(Body):
    """The slug is the organization's name in addresses: 1 to 63 lower-case letters and digits with single hyphens between them."""

    slug: Text
    name: Name


class OwnOrganization(Shown):
    """An organization, and what the caller is in it."""

    organization: OrganizationShown
    membership: MembershipShown


def _own(found: tuple[Organization, Membership]) -> OwnOrganization:
    organization, membership = found
    return OwnOrganization(organization=show_organization(organization), membership=show_membership(membership))


@routes.post("/api/organizations")
@verified_person
@validate_request(NewOrganization)
@validate_response(OwnOrganization)
async def create(data: NewOrganization) -> OwnOrganization:
    """Create an organization and own it. It is of use once a platform owner has approved it."""
    return _own(await organizations.create(ports(), signed_in(), data.slug, data.name))


@routes.get("/api/organizations")
@person_anywhere
@validate_response(list[OwnOrganization])
async def own_organizations() -> list[OwnOrganization]:
    """The organizations that you are a member of."""
    return [_own(found) for found in await organizations.list_own(ports(), signed_in())]


class LimitsShown(Shown):
    """How much there may be, whether the organization itself, its tier or the built-in default says so."""

    max_users: int
    max_users_source: LimitSource
    max_services: int
    max_services_source: LimitSource


class OrganizationDetail(OrganizationShown):
    """An organization with the limits that hold for it."""

    limits: LimitsShown


def _detail(organization: Organization) -> OrganizationDetail:
    users, services = organization.user_limit, organization.service_limit
    return OrganizationDetail(
        **dict(show_organization(organization)),
        limits=LimitsShown(
            max_users=users.value, max_users_source=users.source, max_services=services.value, max_services_source=services.source
        ),
    )


@routes.get("/api/organizations/<org_slug>")
@member(Capability.ORGANIZATION_VIEW, inactive=True)
@validate_response(OrganizationDetail)
async def organization(org_slug: str) -> OrganizationDetail:
    """One of your organizations, whatever its status."""
    return _detail(await organizations.get(ports(), acting_member()))


class OrganizationChange(Body):
    """What to change, at least one of them. `device_trust_days` is how long a trusted device skips the second factor."""

    name: Name = maybe()
    device_trust_days: int = maybe(ge=1, le=90)


@routes.patch("/api/organizations/<org_slug>")
@member(Capability.ORGANIZATION_MANAGE)
@validate_request(OrganizationChange)
@validate_response(OrganizationDetail)
async def update(org_slug: str, data: OrganizationChange) -> OrganizationDetail:
    """Change the organization's name, or for how long it trusts devices."""
    changed = await organizations.update(ports(), acting_member(), name=data.name, device_trust_days=data.device_trust_days)
    return _detail(changed)


@routes.delete("/api/organizations/<org_slug>")
@member(Capability.ORGANIZATION_OWN, impersonated=False)
@describes({204: "The organization and all that belonged to it is gone; the accounts of its members stay."})
async def delete(org_slug: str) -> Response:
    """Delete the organization for good."""
    await organizations.delete(ports(), acting_member())
    return no_content()


class Selected(Shown):
    """A new pair of tokens, which say in which organization their holder acts."""

    user: UserShown
    membership: MembershipShown
    access_token: str
    refresh_token: str
    expires_in: int


@routes.post("/api/organizations/<org_slug>/select")
@member(Capability.ORGANIZATION_VIEW)
@refuses(429)
@validate_response(Selected)
async def select(org_slug: str) -> Selected:
    """Make this organization the one that your session acts in. The refresh token before this one is used up."""
    me = acting_member()
    membership, pair = await sessions.select_organization(ports(), me)
    return Selected(
        user=UserShown(id=me.user_id, email=me.email, is_platform_owner=me.is_platform_owner),
        membership=show_membership(membership),
        access_token=pair.access_token,
        refresh_token=pair.refresh_token,
        expires_in=pair.expires_in,
    )
