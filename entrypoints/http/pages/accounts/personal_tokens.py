"""The pages for personal access tokens: the user's tokens, and the tokens that act in an organization."""

from typing import Any, Final
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response

from core.authentication.model import tokens as model
from core.authentication.model.tokens import NewPersonalToken
from core.authentication.tokens import personal_tokens
from core.kernel.callers import OrganizationStatus
from core.kernel.roles import Capability
from core.tenancy import organizations
from entrypoints.http import kit
from entrypoints.http.api.authentication.personal_tokens import PersonalTokenRequest
from entrypoints.http.pages import console, console_forms, form_values
from entrypoints.http.pages.presets import PresetQuery, boxes_of, of_scopes

routes = Blueprint("personal_token_pages", __name__)

LIST: Final = "/app/account/personal-tokens"
IN_ORGANIZATION: Final = "/app/organizations/<org_slug>/personal-tokens"
API_IN_ORGANIZATION: Final = "/api/organizations/<org_slug>/personal-tokens"
LIFETIMES: Final = [("7", "After a week"), ("30", "After 30 days"), ("90", "After 90 days"), ("366", "After a year")]
SCOPE: Final = "scope:"  # the checkbox name for a scope begins with this
FIELDS: Final[console_forms.Fields] = {
    model.PersonalTokenWithoutScope: "scopes",
    model.PersonalTokenScopeRefused: "scopes",
    model.PersonalTokensOff: "org_slug",
}


@routes.get(LIST)
@kit.page_session
@console.shows("GET /api/user/personal-tokens", "DELETE /api/user/personal-tokens/<personal_token_id>")
async def show_tokens() -> Response:
    """List your personal access tokens."""
    return await console.console_page("accounts/personal_tokens.html", tokens=await personal_tokens.list_own(kit.ports(), kit.signed_in()))


class NewTokenQuery(PresetQuery):
    """The organization that the new token acts in, or none for the user's own account, and a preset for its scopes."""

    org_slug: str | None = Field(None, description="The organization that the form has selected.")


async def _form_values(typed: console_forms.Form, query_args: NewTokenQuery | None = None) -> dict[str, Any]:
    org_slug, preset = (typed.get("org_slug"), None) if query_args is None else (query_args.org_slug, query_args.preset)
    memberships = [
        (organization, membership)
        for organization, membership in await organizations.list_own(kit.ports(), kit.signed_in())
        if organization.status is OrganizationStatus.ACTIVE
    ]
    rights = next((membership.rights for organization, membership in memberships if organization.slug == org_slug), None)
    scopes = personal_tokens.available_scopes(rights)
    presets = of_scopes(scopes, SCOPE)
    return {
        "presets": presets,
        "typed": {**boxes_of(presets, preset), "expires_in_days": str(model.DEFAULT_DAYS), **typed},
        "org_slug": org_slug if rights is not None else None,
        "organizations": [(organization.slug, organization.name) for organization, _ in memberships],
        "scopes": {scope: scope.description for scope in scopes},
        "lifetimes": LIFETIMES,
    }


@console_forms.serves_form(routes, f"{LIST}/new", query=NewTokenQuery)
@kit.page_session(kit.ACTS_ON_ME)
@console_forms.accepts("POST /api/user/personal-tokens", answers=console_forms.answers_with("The token."), form=["form_token", "name"])
@console_forms.once(
    LIST, "Open personal access tokens", "It was shown once. If you didn't copy it, revoke it in the list and create another one."
)
@console_forms.on_refusal("accounts/new_personal_token.html", _form_values, FIELDS)
async def create(form: console_forms.Form) -> Response:
    """Create a personal access token."""
    data = form_values.to_model(
        PersonalTokenRequest, form, {"scopes": lambda _: form_values.checked(form, SCOPE), "expires_in_days": form_values.to_number}
    )
    request = NewPersonalToken(name=data.name, scopes=tuple(data.scopes), org_slug=data.org_slug, expires_in_days=data.expires_in_days)
    token, secret = await personal_tokens.create(console_forms.ports_once(), kit.signed_in(), request)
    return await console.secret_page(
        "Personal access token created",
        {token.name: secret},
        advice="Programs send it in the header Authorization, after the word Bearer.",
        done=("I've copied the token", LIST),
    )


@routes.post(f"{LIST}/<personal_token_id>/revoke")
@kit.page_session(kit.ACTS_ON_ME)
@console_forms.accepts("DELETE /api/user/personal-tokens/<personal_token_id>", answers=console_forms.ANSWERS_TO_BUTTON)
async def revoke(personal_token_id: UUID) -> Response:
    """Revoke a personal access token."""
    await personal_tokens.revoke_own(kit.ports(), kit.signed_in(), personal_token_id)
    return console.redirect_with_notice("personal-token-revoked", LIST)


# The tokens that an organization's members have


@routes.get(IN_ORGANIZATION)
@kit.member_page(Capability.MEMBERS_MANAGE)
@console.shows(f"GET {API_IN_ORGANIZATION}", f"DELETE {API_IN_ORGANIZATION}/<personal_token_id>")
async def show_tokens_of_members(org_slug: str, query_args: kit.PageQuery) -> Response:
    """List the personal access tokens that act in an organization."""
    result = await personal_tokens.list_in_organization(kit.ports(), kit.acting_member(), query_args.page_request())
    values = {"tokens": result.items, "path": console.organization_path("/personal-tokens"), **console.neighbors(query_args, result.total)}
    return await console.console_page("tenancy/personal_tokens.html", **values)


@routes.post(f"{IN_ORGANIZATION}/<personal_token_id>/revoke")
@kit.member_page(Capability.MEMBERS_MANAGE, kit.PROMOTES)
@console_forms.accepts(f"DELETE {API_IN_ORGANIZATION}/<personal_token_id>")
async def revoke_of_member(org_slug: str, personal_token_id: UUID) -> Response:
    """Revoke a member's personal access token."""
    await personal_tokens.revoke_in_organization(kit.ports(), kit.acting_member(), personal_token_id)
    return console.redirect_with_notice("personal-token-revoked", console.organization_path("/personal-tokens"))
