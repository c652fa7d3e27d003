"""The pages for the attributes of an end user, and of the signed-in user."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.applications import attributes, end_users
from core.kernel.access import OrganizationNotFound
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.tenancy.model.attributes import AttributeWriter
from entrypoints.http.base.context import acting_member, ports, signed_in
from entrypoints.http.edge.access import GIVES, MINE, member_page, page_session
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.pages.attribute_forms import attribute_values, to_changes, user_values, wrong_value
from entrypoints.http.pages.console import organization_path, redirect_with_notice
from entrypoints.http.pages.console_forms import Form, accepts, on_refusal, serves_form

routes = Blueprint("user_attribute_pages", __name__)

OF_USER: Final = "/app/organizations/<org_slug>/users/<user_id>/attributes"
API_OF_USER: Final = "/api/organizations/<org_slug>/users/<user_id>/attributes"
OWN: Final = "/app/account/attributes"


async def _user_values(form: Form, user_id: UUID) -> dict[str, Any]:
    values = await attributes.of_end_user(ports(), acting_member(), user_id)
    email = await end_users.find_address(ports(), acting_member(), user_id)
    return user_values(values, form, Capability.END_USERS_MANAGE, email, organization_path(f"/users/{user_id}"))


@serves_form(routes, OF_USER, f"GET {API_OF_USER}", f"PATCH {API_OF_USER}", opens=member_page(Capability.END_USERS_VIEW))
@member_page(Capability.END_USERS_MANAGE, GIVES)
@accepts(f"PATCH {API_OF_USER}")
@on_refusal("tenancy/user_attributes.html", _user_values, wrong_value)
async def change_of_end_user(org_slug: str, user_id: UUID, form: Form) -> Response:
    """Change a user's attributes in the organization's applications."""
    values = await attributes.of_end_user(ports(), acting_member(), user_id)
    changes = to_changes(form, values, AttributeWriter.ADMIN)
    await attributes.change_of_end_user(ports(), acting_member(), user_id, changes)
    return redirect_with_notice("attributes-saved", organization_path(f"/users/{user_id}/attributes"))


async def _own_values(form: Form) -> dict[str, Any]:
    own = await attributes.list_own(ports(), signed_in())
    changed = form.get("organization")
    fields = [attribute_values(each.values, AttributeWriter.USER, form if each.org_slug == changed else {}) for each in own]
    return {"organizations": [{"slug": each.org_slug, "name": each.organization, **of} for each, of in zip(own, fields, strict=True)]}


@serves_form(routes, OWN, "GET /api/user/attributes", "PATCH /api/user/attributes")
@page_session(MINE)
@accepts("PATCH /api/user/attributes")
@refuses(404)
@on_refusal("accounts/attributes.html", _own_values, wrong_value)
async def change_own(form: Form) -> Response:
    """Change your attributes in an organization."""
    slug = form.get("organization", "")
    own = next((each for each in await attributes.list_own(ports(), signed_in()) if each.org_slug == slug), None)
    own = own or refuse(OrganizationNotFound)
    await attributes.change_own(ports(), signed_in(), slug, to_changes(form, own.values, AttributeWriter.USER))
    return redirect_with_notice("attributes-saved", OWN)
