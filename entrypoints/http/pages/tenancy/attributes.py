"""The pages for the attributes of an organization's users, and for a member's or a group's values."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.access import require_view
from core.kernel.roles import Capability
from core.tenancy import attributes, groups, members
from core.tenancy.model import attributes as model
from core.tenancy.model.attributes import MAX_ATTRIBUTES, AttributeKind, AttributeMerge, AttributeWriter
from entrypoints.http.api.tenancy.attributes import ATTRIBUTES as API
from entrypoints.http.api.tenancy.attributes import AttributeRequest, AttributeUpdateRequest, to_attribute, to_changes_of
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.base.rendering.labels import label
from entrypoints.http.edge.access import GIVES, member_page
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.pages.attribute_forms import admin_values, to_changes, user_values, wrong_value
from entrypoints.http.pages.console import organization_path, redirect_with_notice
from entrypoints.http.pages.console_forms import Fields, Form, accepts, check_typed_name, on_refusal, once, ports_once, serves_form
from entrypoints.http.pages.form_values import checked, to_model, to_number

routes = Blueprint("attribute_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/attributes"
ONE: Final = f"{LIST}/<attribute_name>"
OF_MEMBER: Final = "/app/organizations/<org_slug>/members/<user_id>/attributes"
OF_GROUP: Final = "/app/organizations/<org_slug>/groups/<group_id>/attributes"
API_OF_GROUP: Final = "/api/organizations/<org_slug>/groups/<group_id>/attributes"
API_OF_MEMBER: Final = "/api/organizations/<org_slug>/members/<user_id>/attributes"
WRITER: Final = "writer:"  # begins the checkbox names for writers
KINDS: Final = [(kind.value, label(kind)) for kind in AttributeKind]
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
FIELDS: Final[Fields] = {
    model.UserAttributeNameInvalid: "name",
    model.AttributeNameTaken: "name",
    model.AttributeLabelInvalid: "label",
    model.AttributeMergeInvalid: "merge",
}


def _path(name: str = "") -> str:
    return organization_path(f"/attributes{name and '/'}{name}")


async def _list_values(form: Form) -> dict[str, Any]:
    return {
        "attributes": await attributes.list_declared(ports(), acting_member()),
        "path": _path(),
        "kinds": KINDS,
        "merges": MERGES,
        "writers": WRITERS,
        "typed": form or {WRITER + AttributeWriter.ADMIN: "yes"},
        "most": MAX_ATTRIBUTES,
    }


@serves_form(routes, LIST, f"GET {API}", f"POST {API}", opens=member_page(Capability.MEMBERS_VIEW))
@member_page(Capability.ORGANIZATION_MANAGE, GIVES)
@accepts(f"POST {API}")
@refuses(409)
@once(LIST, "Open attributes", "The attribute is in the list.")
@on_refusal("tenancy/attributes.html", _list_values, FIELDS)
async def create(org_slug: str, form: Form) -> Response:
    """Declare an attribute for the organization's users."""
    data = to_model(AttributeRequest, form, {"writers": lambda _: checked(form, WRITER)})
    await attributes.create(ports_once(), acting_member(), to_attribute(data))
    return redirect_with_notice("attribute-declared", _path())


async def _values(form: Form, attribute_name: str) -> dict[str, Any]:
    attribute = await attributes.find(ports(), acting_member(), attribute_name)
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


@serves_form(routes, ONE, f"PATCH {API}/<attribute_name>", f"DELETE {API}/<attribute_name>")
@member_page(Capability.ORGANIZATION_MANAGE, GIVES)
@accepts(f"PATCH {API}/<attribute_name>")
@on_refusal("tenancy/attribute.html", _values, FIELDS)
async def update(org_slug: str, attribute_name: str, form: Form) -> Response:
    """Change an attribute."""
    data = to_model(AttributeUpdateRequest, form, {"writers": lambda _: checked(form, WRITER), "position": to_number})
    await attributes.update(ports(), acting_member(), attribute_name, to_changes_of(data))
    return redirect_with_notice("attribute-saved", _path(attribute_name))


@routes.post(f"{ONE}/delete")
@member_page(Capability.ORGANIZATION_MANAGE, GIVES)
@accepts(f"DELETE {API}/<attribute_name>")
@refuses(409)
@on_refusal("tenancy/attribute.html", _values)
async def delete(org_slug: str, attribute_name: str, form: Form) -> Response:
    """Delete an attribute with all its values."""
    attribute = await attributes.find(ports(), acting_member(), attribute_name)
    check_typed_name(form, attribute.name)
    await attributes.delete(ports(), acting_member(), attribute.name)
    return redirect_with_notice("attribute-deleted", _path())


# A member's values


async def _member_values(form: Form, user_id: UUID) -> dict[str, Any]:
    await members.require_power(ports(), acting_member(), user_id)
    values = await attributes.of_member(ports(), acting_member(), user_id)
    member = (await members.find(ports(), acting_member(), user_id)).account.member
    path = organization_path(f"/members/{user_id}")
    return user_values(values, form, Capability.MEMBERS_MANAGE, member.name or member.email, path)


@serves_form(routes, OF_MEMBER, f"GET {API_OF_MEMBER}", f"PATCH {API_OF_MEMBER}")
@member_page(Capability.MEMBERS_MANAGE, GIVES)
@accepts(f"PATCH {API_OF_MEMBER}")
@on_refusal("tenancy/user_attributes.html", _member_values, wrong_value)
async def change_of_member(org_slug: str, user_id: UUID, form: Form) -> Response:
    """Change a member's attributes."""
    values = await attributes.of_member(ports(), acting_member(), user_id)
    changes = to_changes(form, values, AttributeWriter.ADMIN)
    await attributes.change_of_member(ports(), acting_member(), user_id, changes)
    return redirect_with_notice("attributes-saved", organization_path(f"/members/{user_id}/attributes"))


# A group's values


async def _group_values(form: Form, group_id: UUID) -> dict[str, Any]:
    require_view(acting_member(), Capability.MEMBERS_VIEW)
    group, values = await attributes.of_group(ports(), acting_member(), group_id)
    has_power = await groups.has_power_over(ports(), acting_member(), group)
    return {
        "group": group,
        "path": organization_path(f"/groups/{group_id}"),
        "list_path": organization_path("/groups"),
        **admin_values(values, form, Capability.GROUPS_MANAGE),
        "can_save": has_power,
        "has_power": has_power,
    }


@serves_form(routes, OF_GROUP, f"GET {API_OF_GROUP}", f"PATCH {API_OF_GROUP}")
@member_page(Capability.GROUPS_MANAGE, GIVES)
@accepts(f"PATCH {API_OF_GROUP}")
@on_refusal("tenancy/group_attributes.html", _group_values, wrong_value)
async def change_of_group(org_slug: str, group_id: UUID, form: Form) -> Response:
    """Change a group's attributes."""
    _, values = await attributes.of_group(ports(), acting_member(), group_id)
    changes = to_changes(form, values, AttributeWriter.ADMIN)
    await attributes.change_of_group(ports(), acting_member(), group_id, changes)
    return redirect_with_notice("attributes-saved", organization_path(f"/groups/{group_id}/attributes"))
