"""The page for registration tokens, with which clients register themselves as applications."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.roles import Capability
from core.programs import registration_tokens
from core.programs.model.organization_tokens import TokenExpiryPast
from entrypoints.http.api.programs.registration_tokens import RegistrationTokenRequest
from entrypoints.http.base.context import acting_member, app_context, ports
from entrypoints.http.edge.access import GIVES, member_page
from entrypoints.http.pages.consequences import Question, accepts_answer, asks, count, sentence
from entrypoints.http.pages.console import organization_path, redirect_with_notice, secret_page
from entrypoints.http.pages.console_forms import Fields, Form, accepts, answers_with, on_refusal, once, ports_once, serves_form
from entrypoints.http.pages.form_values import to_model, to_number, to_start_of_day
from entrypoints.http.pages.organization_tokens import token_values

routes = Blueprint("registration_token_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/registration-tokens"
API: Final = "/api/organizations/<org_slug>/registration-tokens"
FIELDS: Final[Fields] = {TokenExpiryPast: "expires_at"}


def _path() -> str:
    return organization_path("/registration-tokens")


async def _values(typed: Form) -> dict[str, Any]:
    tokens = await registration_tokens.list_tokens(ports(), acting_member())
    return {"path": _path(), **await token_values(tokens, typed or {"uses": "1"})}


@serves_form(routes, PAGE, f"GET {API}", f"POST {API}", f"DELETE {API}/<registration_token_id>")
@member_page(Capability.SERVICES_CREATE, GIVES)
@accepts(f"POST {API}", answers=answers_with("The token."))
@once(PAGE, "Open registration tokens", "The token was shown once. If you didn't copy it, delete it in the list and create another one.")
@on_refusal("programs/registration_tokens.html", _values, FIELDS)
async def create(org_slug: str, form: Form) -> Response:
    """Create a registration token.

    It is shown only once.
    """
    data = to_model(RegistrationTokenRequest, form, {"uses": to_number, "expires_at": to_start_of_day})
    token, secret = await registration_tokens.create(ports_once(), acting_member(), data.name, data.uses, data.expires_at)
    return await secret_page(
        "Registration token created",
        {"Registration endpoint": f"{app_context().base_url}/auth/register", token.name: secret},
        advice="The program sends it as Bearer token (an initial access token of RFC 7591).",
        done=("I've copied the token", _path()),
    )


async def _deletion(registration_token_id: UUID) -> Question:
    token = await registration_tokens.find(ports(), acting_member(), registration_token_id)
    left = count(token.uses_left, "application")
    return Question(
        verb="Delete",
        target=token.name,
        consequences=(
            sentence("{} stops working at once: " + left + " can no longer register with it.", token.name),
            "Applications that registered with it stay.",
        ),
        button="Delete token",
        keep="Keep token",
        back=("Registration tokens", _path()),
    )


@asks(routes, f"{PAGE}/<registration_token_id>/delete")
@member_page(Capability.SERVICES_CREATE, GIVES)
@accepts_answer(f"DELETE {API}/<registration_token_id>", _deletion)
async def delete(org_slug: str, registration_token_id: UUID, form: Form) -> Response:
    """Delete a registration token."""
    await registration_tokens.delete(ports(), acting_member(), registration_token_id)
    return redirect_with_notice("registration-token-deleted", _path())
