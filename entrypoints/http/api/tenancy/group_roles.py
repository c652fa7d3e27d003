"""The API for the roles that groups give to their members."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.tenancy import group_roles
from entrypoints.http.api.tenancy.groups import OrganizationGroupResponse, existing_group
from entrypoints.http.api.tenancy.role_choices import AssignableRole
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import BY_PEOPLE, member
from entrypoints.http.edge.bodies import RequestModel
from entrypoints.http.edge.openapi import describes, refuses

routes = Blueprint("group_roles", __name__)


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
    return OrganizationGroupResponse.of(await group_roles.give(ports(), acting_member(), group_id, data.role))


@routes.delete("/api/organizations/<org_slug>/groups/<group_id>/role")
@member(Capability.ROLES_MANAGE, BY_PEOPLE)
@describes({204: "The group gives no role."})
async def take_role(org_slug: str, group_id: UUID) -> None:
    """Let a group give no role any longer.

    Its members lose the rights that only the group gave, with their next request. Invitations and credentials end that they
    could not give any longer. 404: the group gives no role.
    """
    await group_roles.take(ports(), acting_member(), group_id)
