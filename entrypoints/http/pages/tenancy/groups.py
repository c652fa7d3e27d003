"""The pages for groups: the list, a group with its users, its role, the applications that it opens, and its settings."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.applications import access, role_assignments, services
from core.applications.model.services import ServiceNotFound
from core.kernel.access import require_view
from core.kernel.roles import Capability
from core.kernel.values import Email
from core.tenancy import groups
from core.tenancy.model import members
from core.tenancy.model.groups import (
    Group,
    GroupAboveOwn,
    GroupFull,
    GroupGivesMore,
    GroupNameTaken,
    GroupUserNotFound,
    RightsByGroupItself,
)
from entrypoints.http import kit
from entrypoints.http.api.tenancy import assignments
from entrypoints.http.api.tenancy.groups import GroupRequest, GroupRoleRequest, GroupsQuery, GroupUpdateRequest
from entrypoints.http.api.tenancy.roles import options
from entrypoints.http.pages import console, console_forms, form_values
from entrypoints.http.pages.applications.access import POLICIES

routes = Blueprint("group_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/groups"
ONE: Final = f"{LIST}/<group_id>"
API: Final = "/api/organizations/<org_slug>/groups"
API_OF_ONE: Final = f"{API}/<group_id>"
ASSIGNMENT: Final = "/api/organizations/<org_slug>/services/<service_slug>/groups/<group_id>"
FIELDS: Final[console_forms.Fields] = {GroupNameTaken: "name", GroupUserNotFound: "email", GroupFull: "email", ServiceNotFound: "service"}


def group_path(group_id: UUID, below: str = "") -> str:
    """Return the path to a group's page."""
    return console.organization_path(f"/groups/{group_id}{below}")


async def find_group(group_id: UUID) -> Group:
    """Return the group."""
    require_view(kit.acting_member(), Capability.MEMBERS_VIEW)
    return await groups.find(kit.ports(), kit.acting_member(), group_id)


def group_values(group: Group) -> dict[str, Any]:
    """Return the values that all pages about a group have."""
    return {
        "group": group,
        "path": group_path(group.id),
        "list_path": console.organization_path("/groups"),
        "may_change": console.may(Capability.GROUPS_MANAGE) and group.directory is None,
    }


@routes.get(LIST)
@kit.member_page(Capability.MEMBERS_VIEW)
@console.shows(f"GET {API}")
async def show_groups(org_slug: str, query_args: GroupsQuery) -> Response:
    """List an organization's groups."""
    listed = await groups.list_page(kit.ports(), kit.acting_member(), query_args.page_request(), search=query_args.search)
    return await console.console_page(
        "tenancy/groups.html",
        groups=listed.items,
        path=console.organization_path("/groups"),
        query=query_args,
        **console.neighbors(query_args, listed.total),
    )


async def _new_values(typed: console_forms.Form) -> dict[str, Any]:
    return {"typed": typed, "list_path": console.organization_path("/groups")}


@console_forms.serves_form(routes, f"{LIST}/new")
@kit.member_page(Capability.GROUPS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}")
@console_forms.once(LIST, "Open groups", "The group is in the list.")
@console_forms.on_refusal("tenancy/new_group.html", _new_values, FIELDS)
async def create(org_slug: str, form: console_forms.Form) -> Response:
    """Create a group."""
    data = form_values.to_model(GroupRequest, form, {"description": form_values.to_optional})
    group = await groups.create(console_forms.ports_once(), kit.acting_member(), data.name, data.description)
    return console.redirect_with_notice("group-created", group_path(group.id))


# The users in a group


async def _member_values(typed: console_forms.Form, group_id: UUID, query: assignments.AssignmentsQuery | None = None) -> dict[str, Any]:
    group, query = await find_group(group_id), query or assignments.AssignmentsQuery()
    listed = await groups.list_members(kit.ports(), kit.acting_member(), group.id, query.page_request(), search=query.search)
    return {**group_values(group), "typed": typed, "members": listed.items, "query": query, **console.neighbors(query, listed.total)}


@routes.get(ONE)
@kit.member_page(Capability.END_USERS_VIEW)
@console.shows(
    f"GET {API_OF_ONE}/members",
    f"GET {API_OF_ONE}",
    f"POST {API_OF_ONE}/members",
    f"PUT {API_OF_ONE}/members/<user_id>",
    f"DELETE {API_OF_ONE}/members/<user_id>",
)
async def show_group(org_slug: str, group_id: UUID, query_args: assignments.AssignmentsQuery) -> Response:
    """Show a group with its users."""
    return await console.console_page("tenancy/group.html", **await _member_values({}, group_id, query_args))


@routes.post(f"{ONE}/members")
@kit.member_page(Capability.GROUPS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API_OF_ONE}/members")
@console_forms.on_refusal("tenancy/group.html", _member_values, FIELDS, shown_to=Capability.END_USERS_VIEW)
async def add_member(org_slug: str, group_id: UUID, form: console_forms.Form) -> Response:
    """Add a user to a group."""
    await groups.add_member_by_email(
        kit.ports(), kit.acting_member(), group_id, Email(form_values.to_model(assignments.AssignmentRequest, form).email)
    )
    return console.redirect_with_notice("group-member-added", group_path(group_id))


@routes.post(f"{ONE}/members/<user_id>/remove")
@kit.member_page(Capability.GROUPS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API_OF_ONE}/members/<user_id>")
async def remove_member(org_slug: str, group_id: UUID, user_id: UUID) -> Response:
    """Remove a user from a group."""
    await groups.remove_member(kit.ports(), kit.acting_member(), group_id, user_id)
    return console.redirect_with_notice("group-member-removed", group_path(group_id))


# A group's applications


async def _application_values(typed: console_forms.Form, group_id: UUID) -> dict[str, Any]:
    group = await find_group(group_id)
    assigned = await access.list_services_of_group(kit.ports(), kit.acting_member(), group.id)
    batches, _ = await services.list_services(kit.ports(), kit.acting_member(), None, None, 0)
    slugs = {service.slug for service in assigned}
    others = [(str(each.service.slug), each.service.name) async for batch in batches for each in batch if each.service.slug not in slugs]
    return {
        **group_values(group),
        "typed": typed,
        "applications": [(service, dict(POLICIES)[service.access.policy.value]) for service in assigned],
        "others": sorted(others, key=lambda each: each[1].lower()),
        "applications_path": console.organization_path("/applications"),
        "roles": await role_assignments.list_of_group(kit.ports(), kit.acting_member(), group.id),
    }


@console_forms.serves_form(
    routes,
    f"{ONE}/applications",
    f"GET {API_OF_ONE}/services",
    f"GET {API_OF_ONE}/service-roles",
    f"PUT {ASSIGNMENT}",
    f"DELETE {ASSIGNMENT}",
    opens=kit.member_page(Capability.END_USERS_VIEW),
)
@kit.member_page(Capability.END_USERS_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {ASSIGNMENT}")
@console_forms.on_refusal("tenancy/group_applications.html", _application_values, FIELDS, shown_to=Capability.END_USERS_VIEW)
async def assign(org_slug: str, group_id: UUID, form: console_forms.Form) -> Response:
    """Assign a group to an application."""
    await access.assign_group(kit.ports(), kit.acting_member(), form.get("service", ""), group_id)
    return console.redirect_with_notice("group-assigned", group_path(group_id, "/applications"))


@routes.post(f"{ONE}/applications/<service_slug>/remove")
@kit.member_page(Capability.END_USERS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {ASSIGNMENT}")
async def unassign(org_slug: str, group_id: UUID, service_slug: str) -> Response:
    """End a group's assignment to an application."""
    await access.unassign_group(kit.ports(), kit.acting_member(), service_slug, group_id)
    return console.redirect_with_notice("group-unassigned", group_path(group_id, "/applications"))


# Settings


async def _setting_values(typed: console_forms.Form, group_id: UUID) -> dict[str, Any]:
    group = await find_group(group_id)
    stored = {"name": group.name, "description": group.description or ""}
    return {
        **group_values(group),
        "typed": {**stored, **typed},
        "has_power": await groups.has_power_over(kit.ports(), kit.acting_member(), group),
    }


@console_forms.serves_form(routes, f"{ONE}/settings", f"PATCH {API_OF_ONE}", f"GET {API_OF_ONE}", f"DELETE {API_OF_ONE}")
@kit.member_page(Capability.GROUPS_MANAGE, kit.GIVES)
@console_forms.accepts(f"PATCH {API_OF_ONE}")
@console_forms.on_refusal("tenancy/group_settings.html", _setting_values, FIELDS)
async def change(org_slug: str, group_id: UUID, form: console_forms.Form) -> Response:
    """Change a group's name and description."""
    data = form_values.to_model(GroupUpdateRequest, form, {"description": form_values.to_optional})
    await groups.update(kit.ports(), kit.acting_member(), group_id, **data.model_dump(exclude_unset=True))
    return console.redirect_with_notice("group-saved", group_path(group_id, "/settings"))


@routes.post(f"{ONE}/delete")
@kit.member_page(Capability.GROUPS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API_OF_ONE}", page=f"{ONE}/settings")
@console_forms.on_refusal("tenancy/group_settings.html", _setting_values, FIELDS)
async def delete(org_slug: str, group_id: UUID, form: console_forms.Form) -> Response:
    """Delete a group."""
    group = await find_group(group_id)
    console_forms.check_typed_name(form, group.name)
    await groups.delete(kit.ports(), kit.acting_member(), group.id)
    return console.redirect_with_notice("group-deleted", console.organization_path("/groups"))


ROLE_PAGE: Final = f"{ONE}/role"
ROLE_API: Final = f"{API_OF_ONE}/role"
ROLE_FIELDS: Final[console_forms.Fields] = dict.fromkeys(
    (GroupGivesMore, GroupAboveOwn, RightsByGroupItself, members.RoleUnknown, members.OwnershipNotAssignable), "role"
)


async def _role_values(typed: console_forms.Form, group_id: UUID) -> dict[str, Any]:
    group = await find_group(group_id)
    choices = await groups.load_role_choices(kit.ports(), kit.acting_member(), group)
    return {
        **group_values(group),
        "typed": typed or {"role": group.role or ""},
        "mapper": choices.mapper,
        # The narrowest role first, which the form has chosen: a click must not give a whole group all rights that an admin has.
        "choices": options(sorted(choices.roles, key=lambda role: len(role.rights))),
        "may_take": choices.may_take,
        "has_power": choices.has_power,
    }


@console_forms.serves_form(
    routes, ROLE_PAGE, f"GET {API_OF_ONE}", f"PUT {ROLE_API}", f"DELETE {ROLE_API}", opens=kit.member_page(Capability.MEMBERS_VIEW)
)
@kit.member_page(Capability.ROLES_MANAGE, kit.BY_PEOPLE)
@console_forms.accepts(f"PUT {ROLE_API}")
@console_forms.on_refusal("tenancy/group_role.html", _role_values, ROLE_FIELDS, shown_to=Capability.MEMBERS_VIEW)
async def give_role(org_slug: str, group_id: UUID, form: console_forms.Form) -> Response:
    """Give a group's members a role."""
    await groups.give_role(kit.ports(), kit.acting_member(), group_id, form_values.to_model(GroupRoleRequest, form).role)
    return console.redirect_with_notice("group-role-given", group_path(group_id, "/role"))


@routes.post(f"{ROLE_PAGE}/remove")
@kit.member_page(Capability.ROLES_MANAGE, kit.BY_PEOPLE)
@console_forms.accepts(f"DELETE {ROLE_API}")
@console_forms.on_refusal("tenancy/group_role.html", _role_values, ROLE_FIELDS, shown_to=Capability.MEMBERS_VIEW)
async def take_role(org_slug: str, group_id: UUID, form: console_forms.Form) -> Response:
    """Let a group give no role any longer."""
    await groups.take_role(kit.ports(), kit.acting_member(), group_id)
    return console.redirect_with_notice("group-role-taken", group_path(group_id, "/role"))
