"""The pages for an organization itself: its creation, its settings, its transfer to a new owner, and its deletion."""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel import roles, values
from core.kernel.callers import OrganizationStatus
from core.tenancy import governance, members, organizations
from core.tenancy.model.groups import SharedNameTaken
from core.tenancy.model.members import AlreadyOwner, NewOwnerNotActive, NewOwnerNotMember
from core.tenancy.model.organizations import SlugTaken
from entrypoints.http import kit
from entrypoints.http.api.tenancy.members import OwnershipTransferRequest
from entrypoints.http.api.tenancy.organizations import OrganizationRequest, OrganizationUpdateRequest
from entrypoints.http.pages import consequences, console, console_forms, form_values

routes = Blueprint("organization_pages", __name__)

NEW: Final = "/app/organizations/new"
SETTINGS: Final = "/app/organizations/<org_slug>/settings"
API: Final = "/api/organizations"
API_OF_ONE: Final = f"{API}/<org_slug>"
SLUG_FIELDS: Final[console_forms.Fields] = {
    SlugTaken: "slug",
    values.SlugInvalid: "slug",
    values.SlugReserved: "slug",
    values.NameUsedTooOften: "name",
}
TRANSFER_FIELDS: Final[console_forms.Fields] = {
    AlreadyOwner: "new_owner_user_id",
    NewOwnerNotMember: "new_owner_user_id",
    NewOwnerNotActive: "new_owner_user_id",
}
SETTINGS_READERS: Final = {
    "device_trust_days": form_values.to_number,
    "personal_tokens": form_values.is_checked,
    "members_see_end_users": form_values.is_checked,
}
ADMINS_SHOWN: Final = 100  # the candidates for new owner


async def _new_values(typed: console_forms.Form) -> dict[str, Any]:
    return {"typed": typed}


@console_forms.serves_form(routes, NEW)
@kit.page_session(kit.GIVES)
@console_forms.accepts(f"POST {API}")
@console_forms.once("/app/account/organizations", "Open your organizations", "The organization is in the list.")
@console_forms.on_refusal("tenancy/new_organization.html", _new_values, SLUG_FIELDS)
async def create_organization(form: console_forms.Form) -> Response:
    """Create an organization that you own. A platform owner's organization needs no approval."""
    data = form_values.to_model(OrganizationRequest, form, {"slug": str.strip})
    if kit.signed_in().is_platform_owner:
        created = await governance.create_approved(console_forms.ports_once(), kit.signed_in(), data.slug, data.name)
    else:
        created, _ = await organizations.create_by_form(console_forms.ports_once(), kit.signed_in(), data.slug, data.name)
    if created.status is OrganizationStatus.ACTIVE:
        return console.redirect_with_notice("organization-created", f"/app/organizations/{created.slug}")
    return console.redirect_with_notice("organization-waits", "/app/account/organizations")


async def _values(typed: console_forms.Form) -> dict[str, Any]:
    caller = kit.acting_member()
    organization = await organizations.get(kit.ports(), caller)
    stored = {
        "name": organization.name,
        "device_trust_days": str(organization.device_trust_days),
        "personal_tokens": "yes" if organization.personal_tokens else "",
        "members_see_end_users": "yes" if organization.members_see_end_users else "",
    }
    return {
        "organization": organization,
        "path": console.organization_path("/settings"),
        "typed": {**stored, "personal_tokens": "", "members_see_end_users": "", **typed} if typed else stored,
    }


@console_forms.serves_form(
    routes, SETTINGS, f"PATCH {API_OF_ONE}", f"GET {API_OF_ONE}", f"POST {API_OF_ONE}/transfer-ownership", f"DELETE {API_OF_ONE}"
)
@kit.member_page(roles.Capability.ORGANIZATION_MANAGE, kit.GIVES)
@console_forms.accepts(f"PATCH {API_OF_ONE}")
@console_forms.on_refusal("tenancy/settings.html", _values, {SharedNameTaken: "name"})
async def change_settings(org_slug: str, form: console_forms.Form) -> Response:
    """Change an organization's settings."""
    data = form_values.to_model(OrganizationUpdateRequest, form, SETTINGS_READERS)
    await organizations.update(kit.ports(), kit.acting_member(), **data.model_dump(exclude_unset=True))
    return console.redirect_with_notice("organization-saved", console.organization_path("/settings"))


async def _transfer_values(typed: console_forms.Form) -> dict[str, Any]:
    admins = await members.list_page(kit.ports(), kit.acting_member(), roles.ADMIN, values.Page(1, ADMINS_SHOWN))
    confirmed = [(str(each.user_id), each.email) for each in admins.members if each.membership.confirmed_at is not None]
    return {"admins": confirmed, **await _values(typed)}


@console_forms.serves_form(routes, f"{SETTINGS}/transfer")
@kit.member_page(roles.Capability.ORGANIZATION_OWN, kit.OWNS)
@console_forms.accepts(f"POST {API_OF_ONE}/transfer-ownership")
@console_forms.on_refusal("tenancy/transfer.html", _transfer_values, TRANSFER_FIELDS)
async def transfer(org_slug: str, form: console_forms.Form) -> Response:
    """Transfer an organization to a new owner."""
    console_forms.check_typed_name(form, (await organizations.get(kit.ports(), kit.acting_member())).name)
    data = form_values.to_model(OwnershipTransferRequest, form)
    if data.reason is None:
        raise form_values.FieldInvalid(form_values.REASONS["missing"], "reason")
    await members.transfer_ownership(kit.ports(), kit.acting_member(), data.new_owner_user_id, data.reason)
    return console.redirect_with_notice("ownership-transferred", console.organization_path("/members"))


async def _deletion() -> consequences.Question:
    organization = await organizations.get(kit.ports(), kit.acting_member())
    size = consequences.count(organization.member_count, "member")
    return consequences.Question(
        verb="Delete",
        target=organization.name,
        consequences=(
            f"Its {size} can no longer sign in to its applications. Its applications, subscriptions, API keys, invitations, webhooks and "
            "audit log are deleted permanently. Its members' accounts remain.",
        ),
        button="Delete organization",
        keep="Keep organization",
        back=("Settings", console.organization_path("/settings")),
        typed_name=organization.name,
        name_label="Name of the organization",
    )


@consequences.asks(routes, f"{SETTINGS}/delete")
@kit.member_page(roles.Capability.ORGANIZATION_OWN, kit.OWNS)
@consequences.accepts_answer(f"DELETE {API_OF_ONE}", _deletion)
async def delete(org_slug: str, form: console_forms.Form) -> Response:
    """Delete an organization permanently."""
    console_forms.check_typed_name(form, (await organizations.get(kit.ports(), kit.acting_member())).name)
    await organizations.delete(kit.ports(), kit.acting_member())
    return console.redirect_with_notice("organization-deleted", "/app/account/organizations")
