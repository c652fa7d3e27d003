"""The pages for roles: all roles with their rights, a role with its holders, and its deletion."""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.roles import Capability
from core.kernel.values import NameUsedTooOften, SlugReserved
from core.tenancy import roles
from core.tenancy.model.members import OwnershipNotAssignable, RoleUnknown
from core.tenancy.model.roles import (
    ALL_SENTENCES,
    SENTENCES,
    CapabilityUnknown,
    NewRole,
    ReplacementMissing,
    RoleAboveOwn,
    RoleHolderHasMore,
    RoleInUse,
    RoleNameTaken,
    RoleSlugInvalid,
    RoleSlugOfApplication,
    RoleSlugTaken,
)
from entrypoints.http.api.tenancy.roles import OrganizationRoleRequest, giveable_options, role_choices
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import PROMOTES, member_page
from entrypoints.http.pages.consequences import Question, accepts_answer, asks, count
from entrypoints.http.pages.console import console_page, may, organization_path, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import ANSWERS_TO_FORM, Fields, Form, accepts, on_refusal, once, ports_once, serves_form
from entrypoints.http.pages.form_values import checked, to_model, to_version

routes = Blueprint("role_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/roles"
ONE: Final = f"{LIST}/<role_name>"
API: Final = "/api/organizations/<org_slug>/roles"
API_OF_ONE: Final = f"{API}/<role_name>"
ANSWERS: Final = {**ANSWERS_TO_FORM, 409: "The slug or the name is taken, the role has changed, or it has holders who would lose rights."}
RIGHT: Final = "right:"  # the checkbox name for a capability begins with this
FIELDS: Final[Fields] = {
    RoleSlugInvalid: "slug",
    RoleSlugTaken: "slug",
    RoleNameTaken: "name",
    RoleSlugOfApplication: "slug",
    SlugReserved: "slug",
    NameUsedTooOften: "name",
    CapabilityUnknown: "capabilities",
    RoleAboveOwn: "capabilities",
    RoleInUse: "confirm",
}
REPLACEMENT_FIELDS: Final[Fields] = {ReplacementMissing: "replacement", RoleUnknown: "replacement", OwnershipNotAssignable: "replacement"}


def roles_path(slug: str = "", below: str = "") -> str:
    """Return the path to the list, to a role's page, or to a page below it."""
    return organization_path(f"/roles/{slug}{below}" if slug else "/roles")


async def _form_values(typed: Form) -> dict[str, Any]:
    """Return the fields' values. The user can check only rights that they have."""
    own = acting_member().acts_in.rights
    return {
        "typed": typed,
        "chosen": frozenset(checked(typed, RIGHT)),
        "capabilities": SENTENCES,
        "own": own,
        "list_path": roles_path(),
    }


@routes.get(LIST)
@member_page(Capability.MEMBERS_VIEW)
@shows(f"GET {API}", "GET /api/capabilities")
async def show_roles(org_slug: str) -> Response:
    """List an organization's roles, with a table of their rights."""
    return await console_page(
        "tenancy/roles.html", roles=await roles.list_all(ports(), acting_member()), capabilities=ALL_SENTENCES, path=roles_path()
    )


@serves_form(routes, f"{LIST}/new")
@member_page(Capability.ROLES_MANAGE, PROMOTES)
@accepts(f"POST {API}", answers=ANSWERS)
@once(LIST, "Open roles", "The role is in the list.")
@on_refusal("tenancy/new_role.html", _form_values, FIELDS)
async def create(org_slug: str, form: Form) -> Response:
    """Create a role."""
    data = to_model(OrganizationRoleRequest, form, {"capabilities": lambda _: checked(form, RIGHT)})
    request = NewRole(name=data.name, slug=data.slug, description=data.description, capabilities=data.capabilities)
    role = await roles.create(ports_once(), acting_member(), request)
    return redirect_with_notice("role-of-members-created", roles_path(role.slug))


async def _values(typed: Form, role_name: str) -> dict[str, Any]:
    listed = await roles.find(ports(), acting_member(), role_name)
    own = listed.own
    can_change = own is not None and may(Capability.ROLES_MANAGE) and listed.role.rights <= acting_member().acts_in.rights
    stored = {"name": listed.role.label, "description": listed.description, "version": "" if own is None else str(own.version)}
    stored |= dict.fromkeys((f"{RIGHT}{capability}" for capability in listed.role.rights), "yes")
    return {
        **await _form_values(typed or stored),
        "role": listed,
        "rights": [sentence for capability, sentence in ALL_SENTENCES.items() if capability in listed.role.rights],
        "holders": None if own is None else (await roles.find_holders(ports(), acting_member(), role_name))[1],
        "can_change": can_change,
        "has_power": own is not None and can_change and await roles.has_power_over_holders(ports(), acting_member(), own),
        "path": roles_path(role_name),
    }


@serves_form(routes, ONE, f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}", f"DELETE {API_OF_ONE}", opens=member_page(Capability.MEMBERS_VIEW))
@member_page(Capability.ROLES_MANAGE, PROMOTES)
@accepts(f"PATCH {API_OF_ONE}", answers=ANSWERS)
@on_refusal("tenancy/role.html", _values, FIELDS)
async def change(org_slug: str, role_name: str, form: Form) -> Response:
    """Change a role."""
    data = to_model(OrganizationRoleRequest, form, {"capabilities": lambda _: checked(form, RIGHT)})
    changes = roles.RoleChanges(
        name=data.name,
        description=data.description,
        capabilities=data.capabilities,
        version=to_version(form),
        confirmed="confirm" in form,
    )
    await roles.update(ports(), acting_member(), role_name, changes)
    return redirect_with_notice("role-of-members-saved", roles_path(role_name))


async def _deletion(role_name: str) -> Question:
    role, holders = await roles.find_holders(ports(), acting_member(), role_name)
    if not role.capabilities <= acting_member().acts_in.rights:
        raise RoleAboveOwn
    if not await roles.has_power_over_holders(ports(), acting_member(), role):
        raise RoleHolderHasMore
    choices = [choice for choice in giveable_options(await role_choices()) if choice[0] != role.slug]
    consequences = ["The name of the role stays in the audit log, and in invitations that have ended."]
    if holders.total:
        consequences = [
            f"It has {count(holders.total, 'holder')}. They get another role from their next request on. Pending invitations and "
            "credentials that they gave end, if the other role does not allow them.",
            *consequences,
        ]
    if holders.first and holders.more:
        consequences = [*consequences, f"Below are the first {len(holders.first)} of them. {holders.more:,} more have it."]
    return Question(
        verb="Delete the role",
        target=role.name,
        consequences=consequences,
        button="Delete role",
        keep="Keep role",
        back=(role.name, roles_path(role.slug)),
        choice=("replacement", "New role of its holders", choices) if holders.total else None,
        people=[holder.name for holder in holders.first],
    )


@asks(routes, f"{ONE}/delete")
@member_page(Capability.ROLES_MANAGE, PROMOTES)
@accepts_answer(f"DELETE {API_OF_ONE}", _deletion, REPLACEMENT_FIELDS)
async def delete(org_slug: str, role_name: str, form: Form) -> Response:
    """Delete a role. Its holders get another role."""
    await roles.delete(ports(), acting_member(), role_name, replacement=form.get("replacement"), confirmed=True)
    return redirect_with_notice("role-of-members-deleted", roles_path())
