"""Members, their roles, and the transfer of ownership (organizations.md section 4.4)."""

from functools import wraps
from typing import Annotated, Any
from uuid import UUID

from pydantic import WithJsonSchema
from quart import Blueprint
from quart_schema import validate_querystring, validate_request, validate_response

from core.kernel.principals import Capability, Role
from core.tenancy import members
from core.tenancy.members_rules import ListedMember
from core.tenancy.organizations_rules import LimitSource
from entrypoints.http.api.tenancy.organizations import MembershipShown, UserShown, show_membership
from entrypoints.http.edge.access import View, member
from entrypoints.http.edge.bodies import Id, Message, RequestModel, ResponseModel, Text, Timestamp
from entrypoints.http.edge.context import acting_member, ports
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.queries import PageQuery, Pagination, pagination, path_id

routes = Blueprint("members", __name__)


class MembersQuery(PageQuery):
    """Which page of the members, and of which role; all of them unless it is given."""

    role: Role | None = None


class MemberRole(ResponseModel):
    """What the person is in the organization, and since when."""

    id: UUID
    role: Role
    created_at: Timestamp


class MemberShown(ResponseModel):
    """A member."""

    user: UserShown
    membership: MemberRole


class MemberLimits(ResponseModel):
    """How many members there may be, and whether the organization itself, its tier, or neither of them says so."""

    max_users: int
    source: LimitSource


class MembersPage(ResponseModel):
    """Members, the oldest first."""

    members: list[MemberShown]
    pagination: Pagination
    limits: MemberLimits


@routes.get("/api/organizations/<org_slug>/members")
@member(Capability.MEMBERS_VIEW)
@refuses(400)
@validate_querystring(MembersQuery)
@validate_response(MembersPage)
async def page(org_slug: str, query_args: MembersQuery) -> MembersPage:
    """List the members of the organization."""
    wanted = query_args.wanted()
    found, limit = await members.list_page(ports(), acting_member(), query_args.role, wanted)
    return MembersPage(
        members=[_show(one) for one in found.items],
        pagination=pagination(wanted, found.total),
        limits=MemberLimits(max_users=limit.value, source=limit.source),
    )


def _show(listed: ListedMember) -> MemberShown:
    membership = listed.membership
    return MemberShown(
        user=UserShown(id=listed.user_id, email=listed.email, is_platform_owner=listed.is_platform_owner),
        membership=MemberRole(id=membership.id, role=membership.role, created_at=membership.created_at),
    )


def of_a_member(view: View) -> View:
    """For routes of `<user_id>`: that somebody is no member is told before the body is looked at (decisions, point 16)."""

    @wraps(view)
    async def found(org_slug: str, user_id: str) -> Any:
        member_id = path_id(user_id)
        await members.require_member(ports(), acting_member(), member_id)
        return await view(org_slug=org_slug, user_id=member_id)

    return found


class RoleChange(RequestModel):
    """The role that the member is to have."""

    # Judged by the use case, which knows why somebody cannot be the owner.
    role: Annotated[Text, WithJsonSchema({"type": "string", "enum": [Role.ADMIN.value, Role.MEMBER.value]})]


class MemberName(ResponseModel):
    """A person, as the organization knows them."""

    id: UUID
    email: str


class MemberChanged(ResponseModel):
    """The member as they are now."""

    user: MemberName
    membership: MembershipShown


@routes.patch("/api/organizations/<org_slug>/members/<user_id>")
@member(Capability.ROLES_MANAGE)
@of_a_member
@validate_request(RoleChange)
@validate_response(MemberChanged)
async def change_role(org_slug: str, user_id: UUID, data: RoleChange) -> MemberChanged:
    """Make a member an admin, or an admin a member. What they may not invite to any more is revoked."""
    changed = await members.change_role(ports(), acting_member(), user_id, data.role)
    return MemberChanged(user=MemberName(id=changed.user_id, email=changed.email), membership=show_membership(changed.membership))


@routes.post("/api/organizations/<org_slug>/members/<user_id>")
@member(Capability.MEMBERS_MANAGE)
@refuses(400)
@validate_response(Message)
async def remove(org_slug: str, user_id: str) -> Message:
    """Remove a member. Their sessions in the organization end, and their pending invitations are revoked."""
    await members.remove(ports(), acting_member(), path_id(user_id))
    return Message(message="The member was removed.")


class Transfer(RequestModel):
    """The member who is to own the organization."""

    new_owner_user_id: Id


class OldOwner(ResponseModel):
    """Who owned the organization, and what they are in it now."""

    user_id: UUID
    new_role: Role


class NewOwner(ResponseModel):
    """Who owns the organization now."""

    user_id: UUID
    role: Role


class Transferred(ResponseModel):
    """Who was and who is the owner."""

    message: str
    old_owner: OldOwner
    new_owner: NewOwner


@routes.post("/api/organizations/<org_slug>/transfer-ownership")
@member(Capability.ORGANIZATION_OWN, impersonated=False)
@validate_request(Transfer)
@validate_response(Transferred)
async def transfer_ownership(org_slug: str, data: Transfer) -> Transferred:
    """Give the organization to another member. You stay in it as an admin."""
    old_owner = acting_member()
    await members.transfer_ownership(ports(), old_owner, data.new_owner_user_id)
    return Transferred(
        message="The ownership was transferred.",
        old_owner=OldOwner(user_id=old_owner.user_id, new_role=Role.ADMIN),
        new_owner=NewOwner(user_id=data.new_owner_user_id, role=Role.OWNER),
    )
