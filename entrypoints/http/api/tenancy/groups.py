"""The API for an organization's groups, their members, and the roles that groups give."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.kernel.values import Email
from core.tenancy import groups
from entrypoints.http import kit
from entrypoints.http.api.tenancy import assignments, roles

routes = Blueprint("groups", __name__)


@kit.before_body
async def existing_group(org_slug: str, group_id: UUID) -> None:
    await groups.find(kit.ports(), kit.acting(), group_id)


class GroupRequest(kit.RequestModel):
    """A new group."""

    name: kit.Name = Field(
        description="The name of the group. The organization, its groups, and its applications with the policy `assigned` have different "
        "names, also without regard to case.",
        examples=["Engineering"],
    )
    description: kit.Description | None = Field(default=None, description="A description of the group for admins, or null.")


class GroupUpdateRequest(kit.RequestModel):
    """The changes to a group. Fields that are left out stay as they are."""

    name: kit.Name = kit.optional(description="The new name of the group.", examples=["Engineering"])
    description: kit.Description | None = kit.optional(description="The new description of the group, or null for none.")


class OrganizationGroupResponse(kit.ResponseModel):
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
    role: roles.Role | None = Field(
        description="The role that the group gives to its confirmed members, or null. It stands here, too, if it has stopped."
    )
    mapped_by: UUID | None = Field(description="The id of the member who gave the group this role, or null without a role.")
    mapped_at: kit.Timestamp | None = Field(description="When they did, or null without a role.")
    mapping_stopped_at: kit.Timestamp | None = Field(
        description="When this member lost the right to give the role, or null. Since then, the group gives it no longer."
    )
    created_at: kit.Timestamp = Field(description="When the group was created.")
    updated_at: kit.Timestamp = Field(description="When the group itself was last changed.")
    members_changed_at: kit.Timestamp = Field(description="When users were last added or removed.")


class OrganizationGroupListResponse(kit.ResponseModel):
    """A page of the groups."""

    groups: list[OrganizationGroupResponse] = Field(description="The groups on this page, by name.")
    pagination: kit.Pagination = Field(description="The position of this page in the list.")


class GroupsQuery(kit.PageQuery):
    """A filter for the groups."""

    search: kit.Text | None = Field(default=None, description="Return only groups with this text in their name. Case is ignored.")


@routes.get("/api/organizations/<org_slug>/groups")
@kit.member(Capability.MEMBERS_VIEW)
async def list_groups(org_slug: str, query_args: GroupsQuery) -> OrganizationGroupListResponse:
    """List the organization's groups.

    They are the groups that admins created, and the groups that a directory created with *directory groups*.
    """
    result = await groups.list_page(kit.ports(), kit.acting(), query_args.page_request(), search=query_args.search)
    return OrganizationGroupListResponse(
        groups=OrganizationGroupResponse.list_of(result.items), pagination=query_args.pagination(result.total)
    )


@routes.post("/api/organizations/<org_slug>/groups")
@kit.member(Capability.GROUPS_MANAGE, kit.GIVES)
@kit.refuses(409)
@kit.returns(201)
async def create(org_slug: str, data: GroupRequest) -> OrganizationGroupResponse:
    """Create a group without members.

    An organization can have 1,000 groups. The name must be free: 409 says which thing has it.
    """
    return OrganizationGroupResponse.of(await groups.create(kit.ports(), kit.acting(), data.name, data.description))


@routes.get("/api/organizations/<org_slug>/groups/<group_id>")
@kit.member(Capability.MEMBERS_VIEW)
async def get(org_slug: str, group_id: UUID) -> OrganizationGroupResponse:
    """Get a group in the organization.

    `GET .../members` has its users, and `GET .../services` the services that it is assigned to.
    """
    return OrganizationGroupResponse.of(await groups.find(kit.ports(), kit.acting(), group_id))


@routes.patch("/api/organizations/<org_slug>/groups/<group_id>")
@kit.member(Capability.GROUPS_MANAGE, kit.GIVES)
@kit.refuses(409)
@existing_group
async def update(org_slug: str, group_id: UUID, data: GroupUpdateRequest) -> OrganizationGroupResponse:
    """Change a group's name or description.

    409: another thing has the name, or a directory manages the group.
    """
    return OrganizationGroupResponse.of(await groups.update(kit.ports(), kit.acting(), group_id, **data.model_dump(exclude_unset=True)))


@routes.delete("/api/organizations/<org_slug>/groups/<group_id>")
@kit.member(Capability.GROUPS_MANAGE, kit.GIVES)
@kit.refuses(409)
@kit.describes({204: "The group is deleted."})
async def delete(org_slug: str, group_id: UUID) -> None:
    """Delete a group.

    Its users stay in the organization. They lose the access to applications and the rights that only the group gave, at once. You need
    every right that the group's members have. If the group gives a role, you need the right to manage roles, and every right in the role.
    409: a directory manages the group.
    """
    await groups.delete(kit.ports(), kit.acting(), group_id)


class GroupMemberResponse(kit.ResponseModel):
    """A user in a group."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")
    added_at: kit.Timestamp = Field(description="When the user was added to the group.")


class GroupMemberListResponse(kit.ResponseModel):
    """A page of the users in a group."""

    members: list[GroupMemberResponse] = Field(description="The users on this page, ordered by id.")
    pagination: kit.Pagination = Field(description="The position of this page in the list.")


@routes.get("/api/organizations/<org_slug>/groups/<group_id>/members")
@kit.member(Capability.END_USERS_VIEW)
async def list_members(org_slug: str, group_id: UUID, query_args: assignments.AssignmentsQuery) -> GroupMemberListResponse:
    """List the users in a group.

    This needs the right to see end users, because they can be in groups.
    """
    result = await groups.list_members(kit.ports(), kit.acting(), group_id, query_args.page_request(), search=query_args.search)
    return GroupMemberListResponse(members=GroupMemberResponse.list_of(result.items), pagination=query_args.pagination(result.total))


@routes.post("/api/organizations/<org_slug>/groups/<group_id>/members")
@kit.member(Capability.GROUPS_MANAGE, kit.GIVES)
@kit.refuses(409)
@existing_group
async def add_member_by_email(org_slug: str, group_id: UUID, data: assignments.AssignmentRequest) -> assignments.AssignedUserResponse:
    """Add a user to a group by email address.

    The rules for `PUT` apply. An address without an account is refused like a user who does not belong to the
    organization.
    """
    return assignments.AssignedUserResponse(
        user_id=await groups.add_member_by_email(kit.ports(), kit.acting(), group_id, Email(data.email))
    )


@routes.put("/api/organizations/<org_slug>/groups/<group_id>/members/<user_id>")
@kit.member(Capability.GROUPS_MANAGE, kit.GIVES)
@kit.refuses(400, 409)
@kit.describes({204: "The user is in the group."})
async def add_member(org_slug: str, group_id: UUID, user_id: UUID) -> None:
    """Add a user to a group.

    The user must be an end user or a confirmed member of the organization. Adding a user again changes nothing. A user leaves the groups
    when their membership ends. If the group gives a role, you need the right to manage roles, and every right in the role. 409: a directory
    manages the group.
    """
    await groups.add_member(kit.ports(), kit.acting(), group_id, user_id)


@routes.delete("/api/organizations/<org_slug>/groups/<group_id>/members/<user_id>")
@kit.member(Capability.GROUPS_MANAGE, kit.GIVES)
@kit.refuses(409)
@kit.describes({204: "The user is no longer in the group."})
async def remove_member(org_slug: str, group_id: UUID, user_id: UUID) -> None:
    """Remove a user from a group.

    They lose the access to applications and the rights that only the group gave. Their sessions at these applications
    end. If the group gives a role, the rules for `PUT` apply. 409: a directory manages the group.
    """
    await groups.remove_member(kit.ports(), kit.acting(), group_id, user_id)


class GroupRoleRequest(kit.RequestModel):
    """The role that a group gives."""

    role: roles.AssignableRole = Field(description="`admin`, `member`, or the slug of an organization's role. No group gives `owner`.")


@routes.put("/api/organizations/<org_slug>/groups/<group_id>/role")
@kit.member(Capability.ROLES_MANAGE, kit.BY_PEOPLE)
@existing_group
@kit.refuses(409)
async def give_role(org_slug: str, group_id: UUID, data: GroupRoleRequest) -> OrganizationGroupResponse:
    """Give a group's members a role.

    Confirmed members in the group have its rights beside the rights from their own role, from their next request on. Platform owners get
    none. You need every right in the role, and in the role that the group gave before. The group stops giving the role if you lose such a
    right, or the right to manage roles. This request starts it again. 409: a directory fills the group, and the creator of one of its SCIM
    tokens does not have every right in the role.
    """
    return OrganizationGroupResponse.of(await groups.give_role(kit.ports(), kit.acting_member(), group_id, data.role))


@routes.delete("/api/organizations/<org_slug>/groups/<group_id>/role")
@kit.member(Capability.ROLES_MANAGE, kit.BY_PEOPLE)
@kit.describes({204: "The group gives no role."})
async def take_role(org_slug: str, group_id: UUID) -> None:
    """Let a group give no role any longer.

    Its members lose the rights that only the group gave, with their next request. Invitations and credentials end that they
    could not give any longer. 404: the group gives no role.
    """
    await groups.take_role(kit.ports(), kit.acting_member(), group_id)
