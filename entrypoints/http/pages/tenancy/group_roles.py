"""The page for the role that a group gives to its members."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.roles import Capability
from core.tenancy import group_roles
from core.tenancy.model.group_roles import GroupGivesMore, RightsByGroupItself
from core.tenancy.model.groups import GroupAboveOwn
from core.tenancy.model.members import OwnershipNotAssignable, RoleUnknown
from entrypoints.http.api.tenancy.group_roles import GroupRoleRequest
from entrypoints.http.api.tenancy.role_choices import options
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import BY_PEOPLE, member_page
from entrypoints.http.pages.console import redirect_with_notice
from entrypoints.http.pages.console_forms import Fields, Form, accepts, on_refusal, serves_form
from entrypoints.http.pages.form_values import to_model
from entrypoints.http.pages.tenancy.groups import API_OF_ONE, ONE, find_group, group_path, group_values

routes = Blueprint("group_role_pages", __name__)

PAGE: Final = f"{ONE}/role"
API: Final = f"{API_OF_ONE}/role"
FIELDS: Final[Fields] = dict.fromkeys((GroupGivesMore, GroupAboveOwn, RightsByGroupItself, RoleUnknown, OwnershipNotAssignable), "role")


async def _role_values(typed: Form, group_id: UUID) -> dict[str, Any]:
    group = await find_group(group_id)
    choices = await group_roles.load_choices(ports(), acting_member(), group)
    return {
        **group_values(group),
        "typed": typed or {"role": group.role or ""},
        "mapper": choices.mapper,
        # The narrowest role first, which the form has chosen: a click must not give a whole group all rights that an admin has.
        "choices": options(sorted(choices.roles, key=lambda role: len(role.rights))),
        "may_take": choices.may_take,
        "has_power": choices.has_power,
    }


@serves_form(routes, PAGE, f"GET {API_OF_ONE}", f"PUT {API}", f"DELETE {API}", opens=member_page(Capability.MEMBERS_VIEW))
@member_page(Capability.ROLES_MANAGE, BY_PEOPLE)
@accepts(f"PUT {API}")
@on_refusal("tenancy/group_role.html", _role_values, FIELDS, shown_to=Capability.MEMBERS_VIEW)
async def give(org_slug: str, group_id: UUID, form: Form) -> Response:
    """Give a group's members a role."""
    await group_roles.give(ports(), acting_member(), group_id, to_model(GroupRoleRequest, form).role)
    return redirect_with_notice("group-role-given", group_path(group_id, "/role"))


@routes.post(f"{PAGE}/remove")
@member_page(Capability.ROLES_MANAGE, BY_PEOPLE)
@accepts(f"DELETE {API}")
@on_refusal("tenancy/group_role.html", _role_values, FIELDS, shown_to=Capability.MEMBERS_VIEW)
async def take(org_slug: str, group_id: UUID, form: Form) -> Response:
    """Let a group give no role any longer."""
    await group_roles.take(ports(), acting_member(), group_id)
    return redirect_with_notice("group-role-taken", group_path(group_id, "/role"))
