"""Organizations as their members see them, and selecting one (organizations.md section 4.4; decisions, points 204 to 207)."""

from uuid import UUID

from quart import Blueprint

from core.access import OrganizationStatus, Role
from core.organizations import Membership, Organization
from entrypoints.http.bodies import Shown, Timestamp

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
