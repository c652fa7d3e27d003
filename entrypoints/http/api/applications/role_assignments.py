"""The users who have roles of a service, managed by members."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.applications import role_assignments
from core.kernel.roles import Capability
from core.kernel.values import Email
from entrypoints.http.api.applications.authorization import SERVICE, existing_role
from entrypoints.http.base.context import acting, ports
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import EmailAddress, RequestModel, ResponseModel, Text, Timestamp
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import PageQuery, Pagination

routes = Blueprint("role_assignments", __name__)

USERS = f"{SERVICE}/roles/<role_slug>/users"


class RoleHolderResponse(ResponseModel):
    """A user who has the role."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")
    assigned_at: Timestamp = Field(description="The time at which the user got the role, in UTC.")


class RoleHolderListResponse(ResponseModel):
    """A page of the users who have the role."""

    users: list[RoleHolderResponse] = Field(description="The users, in the order in which they got the role.")
    pagination: Pagination = Field(description="The position of this page in the list.")


class RoleHoldersQuery(PageQuery):
    """A filter for the users of a role."""

    search: Text | None = Field(default=None, description="Return only users with this text in their email address. Case is ignored.")


@routes.get(USERS)
@member(Capability.END_USERS_VIEW)
async def list_holders(org_slug: str, service_slug: str, role_slug: str, query_args: RoleHoldersQuery) -> RoleHolderListResponse:
    """List the users who have a role of a service.

    The first ones to get it come first.
    """
    result = await role_assignments.list_holders(
        ports(), acting(), service_slug, role_slug, query_args.page_request(), search=query_args.search
    )
    return RoleHolderListResponse(users=RoleHolderResponse.list_of(result.items), pagination=query_args.pagination(result.total))


class RoleHolderRequest(RequestModel):
    """The user who gets the role."""

    email: EmailAddress = Field(description="The email address of an end user or a confirmed member of the organization.")


@routes.post(USERS)
@member(Capability.SERVICE_ROLES_ASSIGN, outlives=True)
@existing_role
async def assign_by_email(org_slug: str, service_slug: str, role_slug: str, data: RoleHolderRequest) -> RoleHolderResponse:
    """Give a user a role of a service by email address.

    The rules of `PUT` apply. An address without an account is refused like a user who does not belong
    to the organization.
    """
    user_id = await role_assignments.assign_by_email(ports(), acting(), service_slug, role_slug, Email(data.email))
    return RoleHolderResponse.of(await role_assignments.find_holder(ports(), acting(), service_slug, role_slug, user_id))


@routes.get(f"{USERS}/<user_id>")
@member(Capability.END_USERS_VIEW)
async def get(org_slug: str, service_slug: str, role_slug: str, user_id: UUID) -> RoleHolderResponse:
    """Get a user who has a role of a service.

    The answer is 404 if the user does not have the role.
    """
    return RoleHolderResponse.of(await role_assignments.find_holder(ports(), acting(), service_slug, role_slug, user_id))


@routes.put(f"{USERS}/<user_id>")
@member(Capability.SERVICE_ROLES_ASSIGN, outlives=True)
@refuses(400)
@describes({204: "The user has the role."})
async def assign(org_slug: str, service_slug: str, role_slug: str, user_id: UUID) -> None:
    """Give a user a role of a service.

    The user must be an end user or a confirmed member of the organization. Giving a role again
    changes nothing. A user who leaves the organization loses its roles. A user can have 500 roles of
    applications in an organization.
    """
    await role_assignments.assign(ports(), acting(), service_slug, role_slug, user_id)


@routes.delete(f"{USERS}/<user_id>")
@member(Capability.SERVICE_ROLES_ASSIGN, outlives=True)
@describes({204: "The user does not have the role any longer."})
async def unassign(org_slug: str, service_slug: str, role_slug: str, user_id: UUID) -> None:
    """Take a role of a service from a user.

    The user can still use the service, as far as its access settings admit them.
    """
    await role_assignments.unassign(ports(), acting(), service_slug, role_slug, user_id)


class UserRoleResponse(ResponseModel):
    """A role that a user has in a service."""

    service_slug: str = Field(description="The slug of the service.")
    service_name: str = Field(description="The name of the service.")
    slug: str = Field(description="The slug of the role.")
    name: str = Field(description="The name of the role.")
    permissions: list[str] = Field(description="The permissions that the role gives.")
    assigned_at: Timestamp = Field(description="The time at which the user got the role, in UTC.")


class UserRoleListResponse(ResponseModel):
    """The roles that a user has in the services of the organization."""

    roles: list[UserRoleResponse] = Field(description="The roles, sorted by service and slug.")


@routes.get("/api/organizations/<org_slug>/users/<user_id>/roles")
@member(Capability.END_USERS_VIEW)
async def list_of_user(org_slug: str, user_id: UUID) -> UserRoleListResponse:
    """List the roles of a user in the services of the organization.

    The user is an end user or a confirmed member of the organization.
    """
    return UserRoleListResponse(roles=UserRoleResponse.list_of(await role_assignments.list_of_user(ports(), acting(), user_id)))
