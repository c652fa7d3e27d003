"""The users and groups that have a service's roles, managed by members."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.applications import role_assignments
from core.kernel.roles import Capability
from core.kernel.values import Email
from entrypoints.http import kit
from entrypoints.http.api.applications.authorization import SERVICE, existing_role
from entrypoints.http.api.tenancy import assignments

routes = Blueprint("role_assignments", __name__)

USERS = f"{SERVICE}/roles/<role_slug>/users"
GROUPS = f"{SERVICE}/roles/<role_slug>/groups"
SINCE = "The time at which the user got the role themselves, in UTC; null if only groups give it."
GIVING_GROUPS = "The groups that give the role to the user, by name."


class RoleHolderResponse(kit.ResponseModel):
    """A user who has the role."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")
    assigned_at: kit.Timestamp = Field(description="The time at which the user got the role, in UTC.")


class RoleHolderListResponse(kit.ResponseModel):
    """A page of the users who have the role."""

    users: list[RoleHolderResponse] = Field(description="The users, in the order in which they got the role.")
    pagination: kit.Pagination = Field(description="The position of this page in the list.")


@routes.get(USERS)
@kit.member(Capability.END_USERS_VIEW)
async def list_holders(
    org_slug: str, service_slug: str, role_slug: str, query_args: assignments.AssignmentsQuery
) -> RoleHolderListResponse:
    """List the users who have a service's role themselves.

    The users who got it first come first. Users who have the role only by a group are not in the list.
    """
    result = await role_assignments.list_holders(
        kit.ports(), kit.acting(), service_slug, role_slug, query_args.page_request(), search=query_args.search
    )
    return RoleHolderListResponse(users=RoleHolderResponse.list_of(result.items), pagination=query_args.pagination(result.total))


@routes.post(USERS)
@kit.member(Capability.SERVICE_ROLES_ASSIGN, kit.GIVES)
@existing_role
async def assign_by_email(org_slug: str, service_slug: str, role_slug: str, data: assignments.AssignmentRequest) -> RoleHolderResponse:
    """Give a user a service's role by email address.

    The rules for `PUT` apply. An address without an account is refused like a user who does not belong to the
    organization.
    """
    user_id = await role_assignments.assign_by_email(kit.ports(), kit.acting(), service_slug, role_slug, Email(data.email))
    return RoleHolderResponse.of(await role_assignments.find_holder(kit.ports(), kit.acting(), service_slug, role_slug, user_id))


@routes.get(f"{USERS}/<user_id>")
@kit.member(Capability.END_USERS_VIEW)
async def get(org_slug: str, service_slug: str, role_slug: str, user_id: UUID) -> RoleHolderResponse:
    """Get a user who has a service's role.

    The answer is 404 if the user does not have the role.
    """
    return RoleHolderResponse.of(await role_assignments.find_holder(kit.ports(), kit.acting(), service_slug, role_slug, user_id))


@routes.put(f"{USERS}/<user_id>")
@kit.member(Capability.SERVICE_ROLES_ASSIGN, kit.GIVES)
@kit.refuses(400)
@kit.describes({204: "The user has the role."})
async def assign(org_slug: str, service_slug: str, role_slug: str, user_id: UUID) -> None:
    """Give a user a service's role.

    The user must be an end user or a confirmed member of the organization. Giving a role again changes nothing. Users
    who leave the organization lose their roles. A user can have 500 application roles in an organization.
    """
    await role_assignments.assign(kit.ports(), kit.acting(), service_slug, role_slug, user_id)


@routes.delete(f"{USERS}/<user_id>")
@kit.member(Capability.SERVICE_ROLES_ASSIGN, kit.GIVES)
@kit.describes({204: "The user does not have the role any longer."})
async def unassign(org_slug: str, service_slug: str, role_slug: str, user_id: UUID) -> None:
    """Take a service's role from a user.

    The user can still use the service, as far as its access settings admit them. If a group gives the role,
    the user keeps it by the group.
    """
    await role_assignments.unassign(kit.ports(), kit.acting(), service_slug, role_slug, user_id)


@routes.get(GROUPS)
@kit.member(Capability.END_USERS_VIEW)
async def list_groups(org_slug: str, service_slug: str, role_slug: str) -> assignments.AssignedGroupListResponse:
    """List the groups that have a service's role.

    Their users have the role, too. They are not in the user list.
    """
    return assignments.to_group_list(await role_assignments.list_groups(kit.ports(), kit.acting(), service_slug, role_slug))


@routes.put(f"{GROUPS}/<group_id>")
@kit.member(Capability.SERVICE_ROLES_ASSIGN, kit.GIVES)
@kit.describes({204: "The group has the role."})
async def assign_to_group(org_slug: str, service_slug: str, role_slug: str, group_id: UUID) -> None:
    """Give a group a service's role.

    Every user in the group has the role as long as they are in the group. Members must have confirmed their membership.
    Giving a role again changes nothing. The role does not open a service with the policy `assigned`: assign the group
    to the service for that.
    """
    await role_assignments.assign_to_group(kit.ports(), kit.acting(), service_slug, role_slug, group_id)


@routes.delete(f"{GROUPS}/<group_id>")
@kit.member(Capability.SERVICE_ROLES_ASSIGN, kit.GIVES)
@kit.describes({204: "The group does not have the role any longer."})
async def unassign_from_group(org_slug: str, service_slug: str, role_slug: str, group_id: UUID) -> None:
    """Take a service's role from a group.

    Users keep the role if they have it themselves, or by another group.
    """
    await role_assignments.unassign_from_group(kit.ports(), kit.acting(), service_slug, role_slug, group_id)


class GivingGroupResponse(kit.ResponseModel):
    """A group that gives the role to the user."""

    id: UUID = Field(description="The id of the group.")
    name: str = Field(description="The name of the group.", examples=["Engineering"])


class ServiceUserRoleResponse(kit.ResponseModel):
    """A role of the user."""

    slug: str = Field(description="The slug of the role.")
    name: str = Field(description="The name of the role.")
    permissions: list[str] = Field(description="The permissions that the role gives.")
    assigned_at: kit.Timestamp | None = Field(description=SINCE)
    groups: list[GivingGroupResponse] = Field(description=GIVING_GROUPS)


class UserRoleResponse(ServiceUserRoleResponse):
    """A role that a user has in a service."""

    service_slug: str = Field(description="The slug of the service.")
    service_name: str = Field(description="The name of the service.")


class UserRoleListResponse(kit.ResponseModel):
    """The roles that a user has in the organization's services."""

    roles: list[UserRoleResponse] = Field(description="The roles, sorted by service and slug.")


@routes.get("/api/organizations/<org_slug>/users/<user_id>/roles")
@kit.member(Capability.END_USERS_VIEW)
async def list_of_user(org_slug: str, user_id: UUID) -> UserRoleListResponse:
    """List a user's roles in the organization's services.

    The user is an end user or a confirmed member of the organization. Roles that groups give are in the list.
    """
    return UserRoleListResponse(roles=UserRoleResponse.list_of(await role_assignments.list_of_user(kit.ports(), kit.acting(), user_id)))


class GroupRoleResponse(kit.ResponseModel):
    """A service role that the group has."""

    service_slug: str = Field(description="The slug of the service.")
    service_name: str = Field(description="The name of the service.")
    slug: str = Field(description="The slug of the role.")
    name: str = Field(description="The name of the role.")
    permissions: list[str] = Field(description="The permissions that the role gives.")
    assigned_at: kit.Timestamp = Field(description="The time at which the group got the role, in UTC.")


class GroupRoleListResponse(kit.ResponseModel):
    """The roles that a group has in the organization's services."""

    roles: list[GroupRoleResponse] = Field(description="The roles, sorted by service and slug.")


@routes.get("/api/organizations/<org_slug>/groups/<group_id>/service-roles")
@kit.member(Capability.END_USERS_VIEW)
async def list_of_group(org_slug: str, group_id: UUID) -> GroupRoleListResponse:
    """List the service roles that a group has.

    All users in the group have them.
    """
    return GroupRoleListResponse(roles=GroupRoleResponse.list_of(await role_assignments.list_of_group(kit.ports(), kit.acting(), group_id)))
