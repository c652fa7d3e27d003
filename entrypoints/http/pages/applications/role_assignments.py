"""The page for the users and groups that have an application's role."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.applications import authorization, role_assignments, services
from core.applications.model.authorization import TooManyRoleAssignments
from core.applications.model.users import AssigneeNotFound
from core.kernel.roles import Capability
from core.kernel.values import Email
from core.tenancy.model.groups import OrganizationGroupNotFound
from entrypoints.http import kit
from entrypoints.http.api.tenancy import assignments
from entrypoints.http.pages import console, console_forms
from entrypoints.http.pages.applications.applications import application_values
from entrypoints.http.pages.applications.authorization import ROLE, ROLE_API, authorization_path
from entrypoints.http.pages.assigned_groups import assigned_group_values
from entrypoints.http.pages.form_values import to_model

routes = Blueprint("role_assignment_pages", __name__)

USERS: Final = f"{ROLE}/users"
GROUPS: Final = f"{ROLE}/groups"
GROUPS_API: Final = f"{ROLE_API}/groups"
API: Final = f"{ROLE_API}/users"
FIELDS: Final[console_forms.Fields] = {
    **dict.fromkeys((AssigneeNotFound, TooManyRoleAssignments), "email"),
    OrganizationGroupNotFound: "group",
}


async def _values(
    typed: console_forms.Form, service_slug: str, role_slug: str, query_args: assignments.AssignmentsQuery | None = None
) -> dict[str, Any]:
    query = query_args or assignments.AssignmentsQuery()
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    stored = await authorization.find_role(kit.ports(), kit.acting_member(), service_slug, role_slug)
    listed = await role_assignments.list_holders(
        kit.ports(), kit.acting_member(), service_slug, role_slug, query.page_request(), search=query.search
    )
    having = await role_assignments.list_groups(kit.ports(), kit.acting_member(), service_slug, role_slug)
    return {
        "typed": typed,
        "role": stored.definition,
        "holders": listed.items,
        **await assigned_group_values(having),
        "query": query,
        **application_values(service),
        **console.neighbors(query, listed.total),
    }


@console_forms.serves_form(
    routes,
    USERS,
    f"GET {API}",
    f"POST {API}",
    f"DELETE {API}/<user_id>",
    f"GET {GROUPS_API}",
    f"PUT {GROUPS_API}/<group_id>",
    f"DELETE {GROUPS_API}/<group_id>",
    opens=kit.member_page(Capability.END_USERS_VIEW),
    query=assignments.AssignmentsQuery,
)
@kit.member_page(Capability.SERVICE_ROLES_ASSIGN, kit.GIVES)
@console_forms.accepts(f"POST {API}")
@console_forms.on_refusal("applications/role_users.html", _values, FIELDS, shown_to=Capability.END_USERS_VIEW)
async def assign(org_slug: str, service_slug: str, role_slug: str, form: console_forms.Form) -> Response:
    """Give a user a role."""
    email = Email(to_model(assignments.AssignmentRequest, form).email)
    await role_assignments.assign_by_email(kit.ports(), kit.acting_member(), service_slug, role_slug, email)
    return console.redirect_with_notice("role-assigned", authorization_path(service_slug, f"/roles/{role_slug}/users"))


@routes.post(f"{USERS}/<user_id>/remove")
@kit.member_page(Capability.SERVICE_ROLES_ASSIGN, kit.GIVES)
@console_forms.accepts(f"DELETE {API}/<user_id>")
async def unassign(org_slug: str, service_slug: str, role_slug: str, user_id: UUID) -> Response:
    """Take a role from a user."""
    await role_assignments.unassign(kit.ports(), kit.acting_member(), service_slug, role_slug, user_id)
    return console.redirect_with_notice("role-unassigned", authorization_path(service_slug, f"/roles/{role_slug}/users"))


@routes.post(GROUPS)
@kit.member_page(Capability.SERVICE_ROLES_ASSIGN, kit.GIVES)
@console_forms.accepts(f"PUT {GROUPS_API}/<group_id>", page=USERS)
@console_forms.on_refusal("applications/role_users.html", _values, FIELDS, shown_to=Capability.END_USERS_VIEW)
async def assign_to_group(org_slug: str, service_slug: str, role_slug: str, form: console_forms.Form) -> Response:
    """Give a group a role."""
    await role_assignments.assign_to_group(kit.ports(), kit.acting_member(), service_slug, role_slug, kit.path_id(form.get("group", "")))
    return console.redirect_with_notice("role-given-to-group", authorization_path(service_slug, f"/roles/{role_slug}/users"))


@routes.post(f"{GROUPS}/<group_id>/remove")
@kit.member_page(Capability.SERVICE_ROLES_ASSIGN, kit.GIVES)
@console_forms.accepts(f"DELETE {GROUPS_API}/<group_id>", page=USERS)
async def unassign_from_group(org_slug: str, service_slug: str, role_slug: str, group_id: UUID) -> Response:
    """Take a role from a group."""
    await role_assignments.unassign_from_group(kit.ports(), kit.acting_member(), service_slug, role_slug, group_id)
    return console.redirect_with_notice("role-taken-from-group", authorization_path(service_slug, f"/roles/{role_slug}/users"))
