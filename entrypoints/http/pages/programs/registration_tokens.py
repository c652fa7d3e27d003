"""The page for registration tokens, with which clients register themselves as applications."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.roles import Capability
from core.programs import registration_tokens
from core.programs.model.organization_tokens import TokenExpiryPast
from entrypoints.http import kit
from entrypoints.http.api.programs.registration_tokens import RegistrationTokenRequest
from entrypoints.http.base.context import app_context
from entrypoints.http.pages import consequences, console, console_forms, form_values
from entrypoints.http.pages.organization_tokens import token_values

routes = Blueprint("registration_token_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/registration-tokens"
API: Final = "/api/organizations/<org_slug>/registration-tokens"
FIELDS: Final[console_forms.Fields] = {TokenExpiryPast: "expires_at"}


def _path() -> str:
    return console.organization_path("/registration-tokens")


async def _values(typed: console_forms.Form) -> dict[str, Any]:
    tokens = await registration_tokens.list_tokens(kit.ports(), kit.acting_member())
    return {"path": _path(), **await token_values(tokens, typed or {"uses": "1"})}


@console_forms.serves_form(routes, PAGE, f"GET {API}", f"POST {API}", f"DELETE {API}/<registration_token_id>")
@kit.member_page(Capability.SERVICES_CREATE, kit.GIVES)
@console_forms.accepts(f"POST {API}", answers=console_forms.answers_with("The token."))
@console_forms.once(
    PAGE, "Open registration tokens", "The token was shown once. If you didn't copy it, delete it in the list and create another one."
)
@console_forms.on_refusal("programs/registration_tokens.html", _values, FIELDS)
async def create(org_slug: str, form: console_forms.Form) -> Response:
    """Create a registration token."""
    data = form_values.to_model(RegistrationTokenRequest, form, {"uses": form_values.to_number, "expires_at": form_values.to_start_of_day})
    token, secret = await registration_tokens.create(console_forms.ports_once(), kit.acting_member(), data.name, data.uses, data.expires_at)
    return await console.secret_page(
        "Registration token created",
        {"Registration endpoint": f"{app_context().base_url}/auth/register", token.name: secret},
        advice="The program sends it as Bearer token (an initial access token of RFC 7591).",
        done=("I've copied the token", _path()),
    )


async def _deletion(registration_token_id: UUID) -> consequences.Question:
    token = await registration_tokens.find(kit.ports(), kit.acting_member(), registration_token_id)
    left = consequences.count(token.uses_left, "application")
    return consequences.Question(
        verb="Delete",
        target=token.name,
        consequences=(
            consequences.sentence("{} stops working at once: " + left + " can no longer register with it.", token.name),
            "Applications that registered with it stay.",
        ),
        button="Delete token",
        keep="Keep token",
        back=("Registration tokens", _path()),
    )


@consequences.asks(routes, f"{PAGE}/<registration_token_id>/delete")
@kit.member_page(Capability.SERVICES_CREATE, kit.GIVES)
@consequences.accepts_answer(f"DELETE {API}/<registration_token_id>", _deletion)
async def delete(org_slug: str, registration_token_id: UUID, form: console_forms.Form) -> Response:
    """Delete a registration token."""
    await registration_tokens.delete(kit.ports(), kit.acting_member(), registration_token_id)
    return console.redirect_with_notice("registration-token-deleted", _path())
