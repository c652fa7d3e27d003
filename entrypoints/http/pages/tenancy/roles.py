"""The pages for roles: all roles with their rights, a role with its holders, and its deletion."""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel import values
from core.kernel.roles import Capability
from core.tenancy import roles
from core.tenancy.model import members
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
from entrypoints.http import kit
from entrypoints.http.api.tenancy.roles import OrganizationRoleRequest, giveable_options, role_choices
from entrypoints.http.pages import console, console_forms, form_values
from entrypoints.http.pages.consequences import Question, accepts_answer, asks, count

routes = Blueprint("role_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/roles"
ONE: Final = f"{LIST}/<role_name>"
API: Final = "/api/organizations/<org_slug>/roles"
API_OF_ONE: Final = f"{API}/<role_name>"
ANSWERS: Final = {
    **console_forms.ANSWERS_TO_FORM,
    409: "The slug or the name is taken, the role has changed, or it has holders who would lose rights.",
}
RIGHT: Final = "right:"  # the checkbox name for a capability begins with this
FIELDS: Final[console_forms.Fields] = {
    RoleSlugInvalid: "slug",
    RoleSlugTaken: "slug",
    RoleNameTaken: "name",
    RoleSlugOfApplication: "slug",
    values.SlugReserved: "slug",
    values.NameUsedTooOften: "name",
    CapabilityUnknown: "capabilities",
    RoleAboveOwn: "capabilities",
    RoleInUse: "confirm",
}
REPLACEMENT_FIELDS: Final[console_forms.Fields] = {
    ReplacementMissing: "replacement",
    members.RoleUnknown: "replacement",
    members.OwnershipNotAssignable: "replacement",
}


def roles_path(slug: str = "") -> str:
    """Return the path to the list or to a role's page."""
    return console.organization_path(f"/roles/{slug}" if slug else "/roles")


async def _form_values(typed: console_forms.Form) -> dict[str, Any]:
    """Return the fields' values. The user can check only rights that they have."""
    own = kit.acting_member().acts_in.rights
    return {
        "typed": typed,
        "chosen": frozenset(form_values.checked(typed, RIGHT)),
        "capabilities": SENTENCES,
        "own": own,
        "list_path": roles_path(),
    }


@routes.get(LIST)
@kit.member_page(Capability.MEMBERS_VIEW)
@console.shows(f"GET {API}", "GET /api/capabilities")
async def show_roles(org_slug: str) -> Response:
    """List an organization's roles, with a table of their rights."""
    return await console.console_page(
        "tenancy/roles.html", roles=await roles.list_all(kit.ports(), kit.acting_member()), capabilities=ALL_SENTENCES, path=roles_path()
    )


@console_forms.serves_form(routes, f"{LIST}/new")
@kit.member_page(Capability.ROLES_MANAGE, kit.PROMOTES)
@console_forms.accepts(f"POST {API}", answers=ANSWERS)
@console_forms.once(LIST, "Open roles", "The role is in the list.")
@console_forms.on_refusal("tenancy/new_role.html", _form_values, FIELDS)
async def create(org_slug: str, form: console_forms.Form) -> Response:
    """Create a role."""
    data = form_values.to_model(OrganizationRoleRequest, form, {"capabilities": lambda _: form_values.checked(form, RIGHT)})
    request = NewRole(name=data.name, slug=data.slug, description=data.description, capabilities=data.capabilities)
    role = await roles.create(console_forms.ports_once(), kit.acting_member(), request)
    return console.redirect_with_notice("role-of-members-created", roles_path(role.slug))


async def _values(typed: console_forms.Form, role_name: str) -> dict[str, Any]:
    listed = await roles.find(kit.ports(), kit.acting_member(), role_name)
    own = listed.own
    can_change = own is not None and console.may(Capability.ROLES_MANAGE) and listed.role.rights <= kit.acting_member().acts_in.rights
    stored = {"name": listed.role.label, "description": listed.description, "version": "" if own is None else str(own.version)}
    stored |= dict.fromkeys((f"{RIGHT}{capability}" for capability in listed.role.rights), "yes")
    return {
        **await _form_values(typed or stored),
        "role": listed,
        "rights": [sentence for capability, sentence in ALL_SENTENCES.items() if capability in listed.role.rights],
        "holders": None if own is None else (await roles.find_holders(kit.ports(), kit.acting_member(), role_name))[1],
        "can_change": can_change,
        "has_power": own is not None and can_change and await roles.has_power_over_holders(kit.ports(), kit.acting_member(), own),
        "path": roles_path(role_name),
    }


@console_forms.serves_form(
    routes, ONE, f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}", f"DELETE {API_OF_ONE}", opens=kit.member_page(Capability.MEMBERS_VIEW)
)
@kit.member_page(Capability.ROLES_MANAGE, kit.PROMOTES)
@console_forms.accepts(f"PATCH {API_OF_ONE}", answers=ANSWERS)
@console_forms.on_refusal("tenancy/role.html", _values, FIELDS)
async def change(org_slug: str, role_name: str, form: console_forms.Form) -> Response:
    """Change a role."""
    data = form_values.to_model(OrganizationRoleRequest, form, {"capabilities": lambda _: form_values.checked(form, RIGHT)})
    changes = roles.RoleChanges(
        name=data.name,
        description=data.description,
        capabilities=data.capabilities,
        version=form_values.to_version(form),
        confirmed="confirm" in form,
    )
    await roles.update(kit.ports(), kit.acting_member(), role_name, changes)
    return console.redirect_with_notice("role-of-members-saved", roles_path(role_name))


async def _deletion(role_name: str) -> Question:
    role, holders = await roles.find_holders(kit.ports(), kit.acting_member(), role_name)
    if not role.capabilities <= kit.acting_member().acts_in.rights:
        raise RoleAboveOwn
    if not await roles.has_power_over_holders(kit.ports(), kit.acting_member(), role):
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
@kit.member_page(Capability.ROLES_MANAGE, kit.PROMOTES)
@accepts_answer(f"DELETE {API_OF_ONE}", _deletion, REPLACEMENT_FIELDS)
async def delete(org_slug: str, role_name: str, form: console_forms.Form) -> Response:
    """Delete a role. Its holders get another role."""
    await roles.delete(kit.ports(), kit.acting_member(), role_name, replacement=form.get("replacement"), confirmed=True)
    return console.redirect_with_notice("role-of-members-deleted", roles_path())
