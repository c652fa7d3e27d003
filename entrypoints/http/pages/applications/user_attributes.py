"""The pages for the attributes of an end user, and of the signed-in user."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.applications import attributes, end_users
from core.kernel.access import OrganizationNotFound
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.tenancy.model.attributes import AttributeWriter
from entrypoints.http import kit
from entrypoints.http.pages import attribute_forms, console, console_forms

routes = Blueprint("user_attribute_pages", __name__)

OF_USER: Final = "/app/organizations/<org_slug>/users/<user_id>/attributes"
API_OF_USER: Final = "/api/organizations/<org_slug>/users/<user_id>/attributes"
OWN: Final = "/app/account/attributes"


async def _user_values(form: console_forms.Form, user_id: UUID) -> dict[str, Any]:
    values = await attributes.of_end_user(kit.ports(), kit.acting_member(), user_id)
    email = await end_users.find_address(kit.ports(), kit.acting_member(), user_id)
    return attribute_forms.user_values(values, form, Capability.END_USERS_MANAGE, email, console.organization_path(f"/users/{user_id}"))


@console_forms.serves_form(routes, OF_USER, f"GET {API_OF_USER}", f"PATCH {API_OF_USER}", opens=kit.member_page(Capability.END_USERS_VIEW))
@kit.member_page(Capability.END_USERS_MANAGE, kit.GIVES)
@console_forms.accepts(f"PATCH {API_OF_USER}")
@console_forms.on_refusal("tenancy/user_attributes.html", _user_values, attribute_forms.wrong_value)
async def change_of_end_user(org_slug: str, user_id: UUID, form: console_forms.Form) -> Response:
    """Change a user's attributes in the organization's applications."""
    values = await attributes.of_end_user(kit.ports(), kit.acting_member(), user_id)
    changes = attribute_forms.to_changes(form, values, AttributeWriter.ADMIN)
    await attributes.change_of_end_user(kit.ports(), kit.acting_member(), user_id, changes)
    return console.redirect_with_notice("attributes-saved", console.organization_path(f"/users/{user_id}/attributes"))


async def _own_values(form: console_forms.Form) -> dict[str, Any]:
    own = await attributes.list_own(kit.ports(), kit.signed_in())
    changed = form.get("organization")
    fields = [attribute_forms.attribute_values(each.values, AttributeWriter.USER, form if each.org_slug == changed else {}) for each in own]
    return {"organizations": [{"slug": each.org_slug, "name": each.organization, **of} for each, of in zip(own, fields, strict=True)]}


@console_forms.serves_form(routes, OWN, "GET /api/user/attributes", "PATCH /api/user/attributes")
@kit.page_session(kit.MINE)
@console_forms.accepts("PATCH /api/user/attributes")
@kit.refuses(404)
@console_forms.on_refusal("accounts/attributes.html", _own_values, attribute_forms.wrong_value)
async def change_own(form: console_forms.Form) -> Response:
    """Change your attributes in an organization."""
    slug = form.get("organization", "")
    own = next((each for each in await attributes.list_own(kit.ports(), kit.signed_in()) if each.org_slug == slug), None)
    own = own or refuse(OrganizationNotFound)
    await attributes.change_own(kit.ports(), kit.signed_in(), slug, attribute_forms.to_changes(form, own.values, AttributeWriter.USER))
    return console.redirect_with_notice("attributes-saved", OWN)
