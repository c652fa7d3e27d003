"""The pages for an organization itself: its creation, its settings, its transfer to a new owner, and its deletion."""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.callers import OrganizationStatus
from core.kernel.roles import ADMIN, Capability
from core.kernel.values import NameUsedTooOften, Page, SlugInvalid, SlugReserved
from core.tenancy import governance, members, organizations
from core.tenancy.model.groups import SharedNameTaken
from core.tenancy.model.members import AlreadyOwner, NewOwnerNotActive, NewOwnerNotMember
from core.tenancy.model.organizations import SlugTaken
from entrypoints.http.api.tenancy.members import OwnershipTransferRequest
from entrypoints.http.api.tenancy.organizations import OrganizationRequest, OrganizationUpdateRequest
from entrypoints.http.base.context import acting_member, ports, signed_in
from entrypoints.http.edge.access import GIVES, OWNS, member_page, page_session
from entrypoints.http.pages.consequences import Question, accepts_answer, asks, count
from entrypoints.http.pages.console import organization_path, redirect_with_notice
from entrypoints.http.pages.console_forms import Fields, Form, accepts, check_typed_name, on_refusal, once, ports_once, serves_form
from entrypoints.http.pages.form_values import REASONS, FieldInvalid, is_checked, to_model, to_number

routes = Blueprint("organization_pages", __name__)

NEW: Final = "/app/organizations/new"
SETTINGS: Final = "/app/organizations/<org_slug>/settings"
API: Final = "/api/organizations"
API_OF_ONE: Final = f"{API}/<org_slug>"
SLUG_FIELDS: Final[Fields] = {SlugTaken: "slug", SlugInvalid: "slug", SlugReserved: "slug", NameUsedTooOften: "name"}
TRANSFER_FIELDS: Final[Fields] = {
    AlreadyOwner: "new_owner_user_id",
    NewOwnerNotMember: "new_owner_user_id",
    NewOwnerNotActive: "new_owner_user_id",
}
SETTINGS_READERS: Final = {"device_trust_days": to_number, "personal_tokens": is_checked, "members_see_end_users": is_checked}
ADMINS_SHOWN: Final = 100  # the candidates for new owner


async def _new_values(typed: Form) -> dict[str, Any]:
    return {"typed": typed}


@serves_form(routes, NEW)
@page_session(GIVES)
@accepts(f"POST {API}")
@once("/app/account/organizations", "Open your organizations", "The organization is in the list.")
@on_refusal("tenancy/new_organization.html", _new_values, SLUG_FIELDS)
async def create_organization(form: Form) -> Response:
    """Create an organization that you own. A platform owner's organization needs no approval."""
    data = to_model(OrganizationRequest, form, {"slug": str.strip})
    if signed_in().is_platform_owner:
        created = await governance.create_approved(ports_once(), signed_in(), data.slug, data.name)
    else:
        created, _ = await organizations.create_by_form(ports_once(), signed_in(), data.slug, data.name)
    if created.status is OrganizationStatus.ACTIVE:
        return redirect_with_notice("organization-created", f"/app/organizations/{created.slug}")
    return redirect_with_notice("organization-waits", "/app/account/organizations")


async def _values(typed: Form) -> dict[str, Any]:
    caller = acting_member()
    organization = await organizations.get(ports(), caller)
    stored = {
        "name": organization.name,
        "device_trust_days": str(organization.device_trust_days),
        "personal_tokens": "yes" if organization.personal_tokens else "",
        "members_see_end_users": "yes" if organization.members_see_end_users else "",
    }
    return {
        "organization": organization,
        "path": organization_path("/settings"),
        "typed": {**stored, "personal_tokens": "", "members_see_end_users": "", **typed} if typed else stored,
    }


@serves_form(routes, SETTINGS, f"PATCH {API_OF_ONE}", f"GET {API_OF_ONE}", f"POST {API_OF_ONE}/transfer-ownership", f"DELETE {API_OF_ONE}")
@member_page(Capability.ORGANIZATION_MANAGE, GIVES)
@accepts(f"PATCH {API_OF_ONE}")
@on_refusal("tenancy/settings.html", _values, {SharedNameTaken: "name"})
async def change_settings(org_slug: str, form: Form) -> Response:
    """Change an organization's settings."""
    data = to_model(OrganizationUpdateRequest, form, SETTINGS_READERS)
    await organizations.update(ports(), acting_member(), **data.model_dump(exclude_unset=True))
    return redirect_with_notice("organization-saved", organization_path("/settings"))


async def _transfer_values(typed: Form) -> dict[str, Any]:
    admins = await members.list_page(ports(), acting_member(), ADMIN, Page(1, ADMINS_SHOWN))
    confirmed = [(str(each.user_id), each.email) for each in admins.members if each.membership.confirmed_at is not None]
    return {"admins": confirmed, **await _values(typed)}


@serves_form(routes, f"{SETTINGS}/transfer")
@member_page(Capability.ORGANIZATION_OWN, OWNS)
@accepts(f"POST {API_OF_ONE}/transfer-ownership")
@on_refusal("tenancy/transfer.html", _transfer_values, TRANSFER_FIELDS)
async def transfer(org_slug: str, form: Form) -> Response:
    """Transfer an organization to a new owner."""
    check_typed_name(form, (await organizations.get(ports(), acting_member())).name)
    data = to_model(OwnershipTransferRequest, form)
    if data.reason is None:
        raise FieldInvalid(REASONS["missing"], "reason")
    await members.transfer_ownership(ports(), acting_member(), data.new_owner_user_id, data.reason)
    return redirect_with_notice("ownership-transferred", organization_path("/members"))


async def _deletion() -> Question:
    organization = await organizations.get(ports(), acting_member())
    size = count(organization.member_count, "member")
    return Question(
        verb="Delete",
        target=organization.name,
        consequences=(
            f"Its {size} can no longer sign in to its applications. Its applications, subscriptions, API keys, invitations, webhooks and "
            "audit log are deleted permanently. Its members' accounts remain.",
        ),
        button="Delete organization",
        keep="Keep organization",
        back=("Settings", organization_path("/settings")),
        typed_name=organization.name,
        name_label="Name of the organization",
    )


@asks(routes, f"{SETTINGS}/delete")
@member_page(Capability.ORGANIZATION_OWN, OWNS)
@accepts_answer(f"DELETE {API_OF_ONE}", _deletion)
async def delete(org_slug: str, form: Form) -> Response:
    """Delete an organization permanently."""
    check_typed_name(form, (await organizations.get(ports(), acting_member())).name)
    await organizations.delete(ports(), acting_member())
    return redirect_with_notice("organization-deleted", "/app/account/organizations")
