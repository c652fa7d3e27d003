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
from entrypoints.http.api.tenancy.assignments import AssignmentRequest, AssignmentsQuery
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import GIVES, member_page
from entrypoints.http.edge.queries import path_id
from entrypoints.http.pages.applications.applications import application_values
from entrypoints.http.pages.applications.authorization import ROLE, ROLE_API, authorization_path
from entrypoints.http.pages.assigned_groups import assigned_group_values
from entrypoints.http.pages.console import neighbors, redirect_with_notice
from entrypoints.http.pages.console_forms import Fields, Form, accepts, on_refusal, serves_form
from entrypoints.http.pages.form_values import to_model

routes = Blueprint("role_assignment_pages", __name__)

USERS: Final = f"{ROLE}/users"
GROUPS: Final = f"{ROLE}/groups"
GROUPS_API: Final = f"{ROLE_API}/groups"
API: Final = f"{ROLE_API}/users"
FIELDS: Final[Fields] = {**dict.fromkeys((AssigneeNotFound, TooManyRoleAssignments), "email"), OrganizationGroupNotFound: "group"}


async def _values(typed: Form, service_slug: str, role_slug: str, query_args: AssignmentsQuery | None = None) -> dict[str, Any]:
    query = query_args or AssignmentsQuery()
    service = await services.find(ports(), acting_member(), service_slug)
    stored = await authorization.find_role(ports(), acting_member(), service_slug, role_slug)
    listed = await role_assignments.list_holders(
        ports(), acting_member(), service_slug, role_slug, query.page_request(), search=query.search
    )
    having = await role_assignments.list_groups(ports(), acting_member(), service_slug, role_slug)
    return {
        "typed": typed,
        "role": stored.definition,
        "holders": listed.items,
        **await assigned_group_values(having),
        "query": query,
        **application_values(service),
        **neighbors(query, listed.total),
    }


@serves_form(
    routes,
    USERS,
    f"GET {API}",
    f"POST {API}",
    f"DELETE {API}/<user_id>",
    f"GET {GROUPS_API}",
    f"PUT {GROUPS_API}/<group_id>",
    f"DELETE {GROUPS_API}/<group_id>",
    opens=member_page(Capability.END_USERS_VIEW),
    query=AssignmentsQuery,
)
@member_page(Capability.SERVICE_ROLES_ASSIGN, GIVES)
@accepts(f"POST {API}")
@on_refusal("applications/role_users.html", _values, FIELDS, shown_to=Capability.END_USERS_VIEW)
async def assign(org_slug: str, service_slug: str, role_slug: str, form: Form) -> Response:
    """Give a user a role."""
    email = Email(to_model(AssignmentRequest, form).email)
    await role_assignments.assign_by_email(ports(), acting_member(), service_slug, role_slug, email)
    return redirect_with_notice("role-assigned", authorization_path(service_slug, f"/roles/{role_slug}/users"))


@routes.post(f"{USERS}/<user_id>/remove")
@member_page(Capability.SERVICE_ROLES_ASSIGN, GIVES)
@accepts(f"DELETE {API}/<user_id>")
async def unassign(org_slug: str, service_slug: str, role_slug: str, user_id: UUID) -> Response:
    """Take a role from a user."""
    await role_assignments.unassign(ports(), acting_member(), service_slug, role_slug, user_id)
    return redirect_with_notice("role-unassigned", authorization_path(service_slug, f"/roles/{role_slug}/users"))


@routes.post(GROUPS)
@member_page(Capability.SERVICE_ROLES_ASSIGN, GIVES)
@accepts(f"PUT {GROUPS_API}/<group_id>", page=USERS)
@on_refusal("applications/role_users.html", _values, FIELDS, shown_to=Capability.END_USERS_VIEW)
async def assign_to_group(org_slug: str, service_slug: str, role_slug: str, form: Form) -> Response:
    """Give a group a role."""
    await role_assignments.assign_to_group(ports(), acting_member(), service_slug, role_slug, path_id(form.get("group", "")))
    return redirect_with_notice("role-given-to-group", authorization_path(service_slug, f"/roles/{role_slug}/users"))


@routes.post(f"{GROUPS}/<group_id>/remove")
@member_page(Capability.SERVICE_ROLES_ASSIGN, GIVES)
@accepts(f"DELETE {GROUPS_API}/<group_id>", page=USERS)
async def unassign_from_group(org_slug: str, service_slug: str, role_slug: str, group_id: UUID) -> Response:
    """Take a role from a group."""
    await role_assignments.unassign_from_group(ports(), acting_member(), service_slug, role_slug, group_id)
    return redirect_with_notice("role-taken-from-group", authorization_path(service_slug, f"/roles/{role_slug}/users"))
