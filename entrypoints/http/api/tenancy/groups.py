"""The API for an organization's groups, their members, and the roles that groups give."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.kernel.values import Email
from core.tenancy import groups
from entrypoints.http.api.tenancy.assignments import AssignedUserResponse, AssignmentRequest, AssignmentsQuery
from entrypoints.http.api.tenancy.roles import AssignableRole, Role
from entrypoints.http.base.context import acting, acting_member, ports
from entrypoints.http.edge.access import BY_PEOPLE, GIVES, member
from entrypoints.http.edge.bodies import Description, Name, RequestModel, ResponseModel, Text, Timestamp, optional
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import PageQuery, Pagination
from entrypoints.http.edge.signatures import before_body, returns

routes = Blueprint("groups", __name__)


@before_body
async def existing_group(org_slug: str, group_id: UUID) -> None:
    await groups.find(ports(), acting(), group_id)


class GroupRequest(RequestModel):
    """A new group."""

    name: Name = Field(
        description="The name of the group. The organization, its groups, and its applications with the policy `assigned` have different "
        "names, also without regard to case.",
        examples=["Engineering"],
    )
    description: Description | None = Field(default=None, description="A description of the group for admins, or null.")


class GroupUpdateRequest(RequestModel):
    """The changes to a group. Fields that are left out stay as they are."""

    name: Name = optional(description="The new name of the group.", examples=["Engineering"])
    description: Description | None = optional(description="The new description of the group, or null for none.")


class OrganizationGroupResponse(ResponseModel):
    """A group in the organization."""

    id: UUID = Field(description="The id of the group.")
    name: str = Field(description="The name of the group.", examples=["Engineering"])
    description: str | None = Field(description="The description of the group, or null.")
    external_id: str | None = Field(description="The id of the group in the directory, or null.")
    directory: str | None = Field(
        description="The name of the directory's SCIM token if a directory manages the group, or null if admins manage "
        "it. Nothing else can change a group that a directory manages."
    )
    member_count: int = Field(description="The number of users in the group.")
    role: Role | None = Field(
        description="The role that the group gives to its confirmed members, or null. It stands here, too, if it has stopped."
    )
    mapped_by: UUID | None = Field(description="The id of the member who gave the group this role, or null without a role.")
    mapped_at: Timestamp | None = Field(description="When they did, or null without a role.")
    mapping_stopped_at: Timestamp | None = Field(
        description="When this member lost the right to give the role, or null. Since then, the group gives it no longer."
    )
    created_at: Timestamp = Field(description="When the group was created.")
    updated_at: Timestamp = Field(description="When the group itself was last changed.")
    members_changed_at: Timestamp = Field(description="When users were last added or removed.")


class OrganizationGroupListResponse(ResponseModel):
    """A page of the groups."""

    groups: list[OrganizationGroupResponse] = Field(description="The groups on this page, by name.")
    pagination: Pagination = Field(description="The position of this page in the list.")


class GroupsQuery(PageQuery):
    """A filter for the groups."""

    search: Text | None = Field(default=None, description="Return only groups with this text in their name. Case is ignored.")


@routes.get("/api/organizations/<org_slug>/groups")
@member(Capability.MEMBERS_VIEW)
async def list_groups(org_slug: str, query_args: GroupsQuery) -> OrganizationGroupListResponse:
    """List the organization's groups.

    They are the groups that admins created, and the groups that a directory created with *directory groups*.
    """
    result = await groups.list_page(ports(), acting(), query_args.page_request(), search=query_args.search)
    return OrganizationGroupListResponse(
        groups=OrganizationGroupResponse.list_of(result.items), pagination=query_args.pagination(result.total)
    )


@routes.post("/api/organizations/<org_slug>/groups")
@member(Capability.GROUPS_MANAGE, GIVES)
@refuses(409)
@returns(201)
async def create(org_slug: str, data: GroupRequest) -> OrganizationGroupResponse:
    """Create a group without members.

    An organization can have 1,000 groups. The name must be free: 409 says which thing has it.
    """
    return OrganizationGroupResponse.of(await groups.create(ports(), acting(), data.name, data.description))


@routes.get("/api/organizations/<org_slug>/groups/<group_id>")
@member(Capability.MEMBERS_VIEW)
async def get(org_slug: str, group_id: UUID) -> OrganizationGroupResponse:
    """Get a group in the organization.

    `GET .../members` has its users, and `GET .../services` the services that it is assigned to.
    """
    return OrganizationGroupResponse.of(await groups.find(ports(), acting(), group_id))


@routes.patch("/api/organizations/<org_slug>/groups/<group_id>")
@member(Capability.GROUPS_MANAGE, GIVES)
@refuses(409)
@existing_group
async def update(org_slug: str, group_id: UUID, data: GroupUpdateRequest) -> OrganizationGroupResponse:
    """Change a group's name or description.

    409: another thing has the name, or a directory manages the group.
    """
    return OrganizationGroupResponse.of(await groups.update(ports(), acting(), group_id, **data.model_dump(exclude_unset=True)))


@routes.delete("/api/organizations/<org_slug>/groups/<group_id>")
@member(Capability.GROUPS_MANAGE, GIVES)
@refuses(409)
@describes({204: "The group is deleted."})
async def delete(org_slug: str, group_id: UUID) -> None:
    """Delete a group.

    Its users stay in the organization. They lose the access to applications and the rights that only the group gave, at once. You need
    every right that the group's members have. If the group gives a role, you need the right to manage roles, and every right in the role.
    409: a directory manages the group.
    """
    await groups.delete(ports(), acting(), group_id)


class GroupMemberResponse(ResponseModel):
    """A user in a group."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")
    added_at: Timestamp = Field(description="When the user was added to the group.")


class GroupMemberListResponse(ResponseModel):
    """A page of the users in a group."""

    members: list[GroupMemberResponse] = Field(description="The users on this page, ordered by id.")
    pagination: Pagination = Field(description="The position of this page in the list.")


@routes.get("/api/organizations/<org_slug>/groups/<group_id>/members")
@member(Capability.END_USERS_VIEW)
async def list_members(org_slug: str, group_id: UUID, query_args: AssignmentsQuery) -> GroupMemberListResponse:
    """List the users in a group.

    This needs the right to see end users, because they can be in groups.
    """
    result = await groups.list_members(ports(), acting(), group_id, query_args.page_request(), search=query_args.search)
    return GroupMemberListResponse(members=GroupMemberResponse.list_of(result.items), pagination=query_args.pagination(result.total))


@routes.post("/api/organizations/<org_slug>/groups/<group_id>/members")
@member(Capability.GROUPS_MANAGE, GIVES)
@refuses(409)
@existing_group
async def add_member_by_email(org_slug: str, group_id: UUID, data: AssignmentRequest) -> AssignedUserResponse:
    """Add a user to a group by email address.

    The rules for `PUT` apply. An address without an account is refused like a user who does not belong to the
    organization.
    """
    return AssignedUserResponse(user_id=await groups.add_member_by_email(ports(), acting(), group_id, Email(data.email)))


@routes.put("/api/organizations/<org_slug>/groups/<group_id>/members/<user_id>")
@member(Capability.GROUPS_MANAGE, GIVES)
@refuses(400, 409)
@describes({204: "The user is in the group."})
async def add_member(org_slug: str, group_id: UUID, user_id: UUID) -> None:
    """Add a user to a group.

    The user must be an end user or a confirmed member of the organization. Adding a user again changes nothing. A user leaves the groups
    when their membership ends. If the group gives a role, you need the right to manage roles, and every right in the role. 409: a directory
    manages the group.
    """
    await groups.add_member(ports(), acting(), group_id, user_id)


@routes.delete("/api/organizations/<org_slug>/groups/<group_id>/members/<user_id>")
@member(Capability.GROUPS_MANAGE, GIVES)
@refuses(409)
@describes({204: "The user is no longer in the group."})
async def remove_member(org_slug: str, group_id: UUID, user_id: UUID) -> None:
    """Remove a user from a group.

    They lose the access to applications and the rights that only the group gave. Their sessions at these applications
    end. If the group gives a role, the rules for `PUT` apply. 409: a directory manages the group.
    """
    await groups.remove_member(ports(), acting(), group_id, user_id)


class GroupRoleRequest(RequestModel):
    """The role that a group gives."""

    role: AssignableRole = Field(description="`admin`, `member`, or the slug of an organization's role. No group gives `owner`.")


@routes.put("/api/organizations/<org_slug>/groups/<group_id>/role")
@member(Capability.ROLES_MANAGE, BY_PEOPLE)
@existing_group
@refuses(409)
async def give_role(org_slug: str, group_id: UUID, data: GroupRoleRequest) -> OrganizationGroupResponse:
    """Give a group's members a role.

    Confirmed members in the group have its rights beside the rights from their own role, from their next request on. Platform owners get
    none. You need every right in the role, and in the role that the group gave before. The group stops giving the role if you lose such a
    right, or the right to manage roles. This request starts it again. 409: a directory fills the group, and the creator of one of its SCIM
    tokens does not have every right in the role.
    """
    return OrganizationGroupResponse.of(await groups.give_role(ports(), acting_member(), group_id, data.role))


@routes.delete("/api/organizations/<org_slug>/groups/<group_id>/role")
@member(Capability.ROLES_MANAGE, BY_PEOPLE)
@describes({204: "The group gives no role."})
async def take_role(org_slug: str, group_id: UUID) -> None:
    """Let a group give no role any longer.

    Its members lose the rights that only the group gave, with their next request. Invitations and credentials end that they
    could not give any longer. 404: the group gives no role.
    """
    await groups.take_role(ports(), acting_member(), group_id)
