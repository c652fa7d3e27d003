"""The pages for the attributes of an organization's users, and for a member's or a group's values."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.access import require_view
from core.kernel.roles import Capability
from core.tenancy import attributes, groups, members
from core.tenancy.model import attributes as model
from core.tenancy.model.attributes import MAX_ATTRIBUTES, AttributeKind, AttributeMerge, AttributeWriter
from entrypoints.http import kit
from entrypoints.http.api.tenancy.attributes import ATTRIBUTES as API
from entrypoints.http.api.tenancy.attributes import AttributeRequest, AttributeUpdateRequest, to_attribute, to_changes_of
from entrypoints.http.pages import attribute_forms, console, console_forms, form_values

routes = Blueprint("attribute_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/attributes"
ONE: Final = f"{LIST}/<attribute_name>"
OF_MEMBER: Final = "/app/organizations/<org_slug>/members/<user_id>/attributes"
OF_GROUP: Final = "/app/organizations/<org_slug>/groups/<group_id>/attributes"
API_OF_GROUP: Final = "/api/organizations/<org_slug>/groups/<group_id>/attributes"
API_OF_MEMBER: Final = "/api/organizations/<org_slug>/members/<user_id>/attributes"
WRITER: Final = "writer:"  # begins the checkbox names for writers
KINDS: Final = [(kind.value, kit.label(kind)) for kind in AttributeKind]
WRITERS: Final = [
    (WRITER + AttributeWriter.ADMIN, "Admins"),
    (WRITER + AttributeWriter.USER, "The user"),
    (WRITER + AttributeWriter.DIRECTORY, "Your directory, by SCIM"),
    (WRITER + AttributeWriter.APPLICATION, "Applications, with an API key"),
]
MERGES: Final = [
    (AttributeMerge.FIRST.value, "The value of the first group by name"),
    (AttributeMerge.UNION.value, "All items of the lists together"),
    (AttributeMerge.LEAST.value, "The least number or date"),
    (AttributeMerge.GREATEST.value, "The greatest number or date"),
]
FIELDS: Final[console_forms.Fields] = {
    model.UserAttributeNameInvalid: "name",
    model.AttributeNameTaken: "name",
    model.AttributeLabelInvalid: "label",
    model.AttributeMergeInvalid: "merge",
}


def _path(name: str = "") -> str:
    return console.organization_path(f"/attributes{name and '/'}{name}")


async def _list_values(form: console_forms.Form) -> dict[str, Any]:
    return {
        "attributes": await attributes.list_declared(kit.ports(), kit.acting_member()),
        "path": _path(),
        "kinds": KINDS,
        "merges": MERGES,
        "writers": WRITERS,
        "typed": form or {WRITER + AttributeWriter.ADMIN: "yes"},
        "most": MAX_ATTRIBUTES,
    }


@console_forms.serves_form(routes, LIST, f"GET {API}", f"POST {API}", opens=kit.member_page(Capability.MEMBERS_VIEW))
@kit.member_page(Capability.ORGANIZATION_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}")
@kit.refuses(409)
@console_forms.once(LIST, "Open attributes", "The attribute is in the list.")
@console_forms.on_refusal("tenancy/attributes.html", _list_values, FIELDS)
async def create(org_slug: str, form: console_forms.Form) -> Response:
    """Declare an attribute for the organization's users."""
    data = form_values.to_model(AttributeRequest, form, {"writers": lambda _: form_values.checked(form, WRITER)})
    await attributes.create(console_forms.ports_once(), kit.acting_member(), to_attribute(data))
    return console.redirect_with_notice("attribute-declared", _path())


async def _values(form: console_forms.Form, attribute_name: str) -> dict[str, Any]:
    attribute = await attributes.find(kit.ports(), kit.acting_member(), attribute_name)
    typed = {
        "label": attribute.label,
        "merge": attribute.merge.value,
        "position": str(attribute.position),
        **{WRITER + writer: "yes" for writer in attribute.writers},
    }
    return {
        "attribute": attribute,
        "list_path": _path(),
        "path": _path(attribute.name),
        "merges": MERGES,
        "writers": WRITERS,
        "typed": form if "label" in form else typed,
    }


@console_forms.serves_form(routes, ONE, f"PATCH {API}/<attribute_name>", f"DELETE {API}/<attribute_name>")
@kit.member_page(Capability.ORGANIZATION_MANAGE, kit.GIVES)
@console_forms.accepts(f"PATCH {API}/<attribute_name>")
@console_forms.on_refusal("tenancy/attribute.html", _values, FIELDS)
async def update(org_slug: str, attribute_name: str, form: console_forms.Form) -> Response:
    """Change an attribute."""
    data = form_values.to_model(
        AttributeUpdateRequest, form, {"writers": lambda _: form_values.checked(form, WRITER), "position": form_values.to_number}
    )
    await attributes.update(kit.ports(), kit.acting_member(), attribute_name, to_changes_of(data))
    return console.redirect_with_notice("attribute-saved", _path(attribute_name))


@routes.post(f"{ONE}/delete")
@kit.member_page(Capability.ORGANIZATION_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API}/<attribute_name>")
@kit.refuses(409)
@console_forms.on_refusal("tenancy/attribute.html", _values)
async def delete(org_slug: str, attribute_name: str, form: console_forms.Form) -> Response:
    """Delete an attribute with all its values."""
    attribute = await attributes.find(kit.ports(), kit.acting_member(), attribute_name)
    console_forms.check_typed_name(form, attribute.name)
    await attributes.delete(kit.ports(), kit.acting_member(), attribute.name)
    return console.redirect_with_notice("attribute-deleted", _path())


# A member's values


async def _member_values(form: console_forms.Form, user_id: UUID) -> dict[str, Any]:
    await members.require_power(kit.ports(), kit.acting_member(), user_id)
    values = await attributes.of_member(kit.ports(), kit.acting_member(), user_id)
    member = (await members.find(kit.ports(), kit.acting_member(), user_id)).account.member
    path = console.organization_path(f"/members/{user_id}")
    return attribute_forms.user_values(values, form, Capability.MEMBERS_MANAGE, member.name or member.email, path)


@console_forms.serves_form(routes, OF_MEMBER, f"GET {API_OF_MEMBER}", f"PATCH {API_OF_MEMBER}")
@kit.member_page(Capability.MEMBERS_MANAGE, kit.GIVES)
@console_forms.accepts(f"PATCH {API_OF_MEMBER}")
@console_forms.on_refusal("tenancy/user_attributes.html", _member_values, attribute_forms.wrong_value)
async def change_of_member(org_slug: str, user_id: UUID, form: console_forms.Form) -> Response:
    """Change a member's attributes."""
    values = await attributes.of_member(kit.ports(), kit.acting_member(), user_id)
    changes = attribute_forms.to_changes(form, values, AttributeWriter.ADMIN)
    await attributes.change_of_member(kit.ports(), kit.acting_member(), user_id, changes)
    return console.redirect_with_notice("attributes-saved", console.organization_path(f"/members/{user_id}/attributes"))


# A group's values


async def _group_values(form: console_forms.Form, group_id: UUID) -> dict[str, Any]:
    require_view(kit.acting_member(), Capability.MEMBERS_VIEW)
    group, values = await attributes.of_group(kit.ports(), kit.acting_member(), group_id)
    has_power = await groups.has_power_over(kit.ports(), kit.acting_member(), group)
    return {
        "group": group,
        "path": console.organization_path(f"/groups/{group_id}"),
        "list_path": console.organization_path("/groups"),
        **attribute_forms.admin_values(values, form, Capability.GROUPS_MANAGE),
        "can_save": has_power,
        "has_power": has_power,
    }


@console_forms.serves_form(routes, OF_GROUP, f"GET {API_OF_GROUP}", f"PATCH {API_OF_GROUP}")
@kit.member_page(Capability.GROUPS_MANAGE, kit.GIVES)
@console_forms.accepts(f"PATCH {API_OF_GROUP}")
@console_forms.on_refusal("tenancy/group_attributes.html", _group_values, attribute_forms.wrong_value)
async def change_of_group(org_slug: str, group_id: UUID, form: console_forms.Form) -> Response:
    """Change a group's attributes."""
    _, values = await attributes.of_group(kit.ports(), kit.acting_member(), group_id)
    changes = attribute_forms.to_changes(form, values, AttributeWriter.ADMIN)
    await attributes.change_of_group(kit.ports(), kit.acting_member(), group_id, changes)
    return console.redirect_with_notice("attributes-saved", console.organization_path(f"/groups/{group_id}/attributes"))
