"""Service API: the permissions and roles in an API key's service, and the roles that its users and groups have."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.applications import role_assignments
from core.applications.authorization import OWN_SERVICE
from core.kernel.roles import Permission
from entrypoints.http import kit
from entrypoints.http.api.applications import authorization
from entrypoints.http.api.applications.role_assignments import ServiceUserRoleResponse

routes = Blueprint("service_authorization", __name__)


@routes.get("/api/service/authorization")
@kit.service_key(Permission.READ_SERVICE)
@kit.has_version
async def get() -> tuple[authorization.AuthorizationResponse, int, dict[str, str]]:
    """Get the service's permissions and roles.

    The response can be changed and sent back with `PUT`, with its `ETag` in `If-Match`.
    """
    return await authorization.get_authorization(kit.acting_key(), OWN_SERVICE)


@routes.put("/api/service/authorization")
@kit.service_key(Permission.WRITE_SERVICE)
@kit.takes_version
@kit.refuses(409)
async def replace(
    query_args: authorization.AuthorizationQuery, data: authorization.AuthorizationRequest
) -> tuple[authorization.AuthorizationResultResponse, int, dict[str, str]]:
    """Replace the service's permissions and roles.

    A build pipeline can always send the same document: without a difference, nothing changes. With `dry_run=true`,
    nothing changes, and the answer has the changes. To delete a role that users or groups have, send `confirm=true`.
    """
    return await authorization.replace_authorization(kit.acting_key(), OWN_SERVICE, query_args, data)


class ServiceUserRoleListResponse(kit.ResponseModel):
    """The roles that a user has in the service, and the permissions that they give together."""

    roles: list[ServiceUserRoleResponse] = Field(description="The roles, sorted by slug.")
    permissions: list[str] = Field(description="The permissions of all these roles, sorted.")


@routes.get("/api/service/users/<user_id>/roles")
@kit.service_key(Permission.READ_USERS)
async def list_of_user(user_id: UUID) -> ServiceUserRoleListResponse:
    """List a service user's roles.

    Roles that groups give are in the list. The response has the permissions from all roles, too.
    """
    roles = await role_assignments.list_of_service_user(kit.ports(), kit.acting_key(), user_id)
    permissions = sorted({permission for role in roles for permission in role.permissions})
    return ServiceUserRoleListResponse(roles=ServiceUserRoleResponse.list_of(roles), permissions=permissions)


@routes.put("/api/service/roles/<role_slug>/users/<user_id>")
@kit.service_key(Permission.WRITE_ROLES)
@kit.refuses(400)
@kit.describes({204: "The user has the role."})
async def assign(role_slug: str, user_id: UUID) -> None:
    """Give a service user a role.

    Giving a role again changes nothing.
    """
    await role_assignments.assign(kit.ports(), kit.acting_key(), OWN_SERVICE, role_slug, user_id)


@routes.delete("/api/service/roles/<role_slug>/users/<user_id>")
@kit.service_key(Permission.WRITE_ROLES)
@kit.describes({204: "The user does not have the role any longer."})
async def unassign(role_slug: str, user_id: UUID) -> None:
    """Take a role from a service user.

    The user can still use the service, as far as its access settings admit them.
    """
    await role_assignments.unassign(kit.ports(), kit.acting_key(), OWN_SERVICE, role_slug, user_id)


@routes.put("/api/service/roles/<role_slug>/groups/<group_id>")
@kit.service_key(Permission.WRITE_ROLES)
@kit.describes({204: "The group has the role."})
async def assign_to_group(role_slug: str, group_id: UUID) -> None:
    """Give a group a role.

    The group must be assigned to the service. Every user in the group has the role as long as they are in the group.
    Giving a role again changes nothing.
    """
    await role_assignments.assign_to_group(kit.ports(), kit.acting_key(), OWN_SERVICE, role_slug, group_id)


@routes.delete("/api/service/roles/<role_slug>/groups/<group_id>")
@kit.service_key(Permission.WRITE_ROLES)
@kit.describes({204: "The group does not have the role any longer."})
async def unassign_from_group(role_slug: str, group_id: UUID) -> None:
    """Take a role from a group.

    Users keep the role if they have it themselves, or by another group.
    """
    await role_assignments.unassign_from_group(kit.ports(), kit.acting_key(), OWN_SERVICE, role_slug, group_id)
