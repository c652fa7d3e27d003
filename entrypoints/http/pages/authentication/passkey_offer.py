"""The page that offers to create a passkey, after a sign-in with a password and before its target."""

from typing import Any, Final

from quart import Blueprint, Response, request

from core.accounts import passkeys
from core.accounts.model.passkeys import Json, PasskeyNotAdded
from core.kernel.errors import Invalid, Refusal
from core.kernel.page_paths import PASSKEY_OFFER_PATH
from core.kernel.rate_limits import PASSKEYS
from core.kernel.sign_in_age import SignInAge, is_enough
from entrypoints.http.api.accounts.webauthn import RegistrationCredentialRequest
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.base.redirects import next_of, redirect
from entrypoints.http.base.rendering.templates import page_response, render
from entrypoints.http.edge.access import PROTOCOL, WAYS_IN, sign_in_session
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.edge.reauthentication import KEPT_FORM, take_form
from entrypoints.http.pages.console_forms import read_credential
from entrypoints.http.pages.form_pages import check_session_form, refused_page, session_form_token

routes = Blueprint("passkey_offer", __name__)

TEMPLATE: Final = "authentication/passkey_offer.html"


def _values(next_path: str, options: Json, background: Json | None) -> dict[str, Any]:
    return {"form_token": session_form_token(), "next": next_path, "options": options, "background": background, "scripted": True}


@routes.get(PASSKEY_OFFER_PATH)
@sign_in_session(PROTOCOL)
@describes_page(
    {200: "The offer.", 303: "There is no offer now. Continue at `next`."},
    optional={"next": "The path on this server to continue at."},
    changes_state=True,
)
async def show() -> Response:
    """Offer to create a passkey.

    The page is shown once in 30 days to users without a passkey. The browser may also create a passkey by itself.
    """
    user, next_path = signed_in(), next_of(request.args)
    if not is_enough(user.sign_in, SignInAge.FRESH, ports().policy, ports().clock.now()):
        return redirect(next_path)
    offer = await passkeys.show_offer(ports(), user)
    if offer is None:
        return redirect(next_path)
    background, options = offer
    return page_response(render(TEMPLATE, problem=None, **_values(next_path, options, background)))


@routes.post(PASSKEY_OFFER_PATH)
@sign_in_session(WAYS_IN, limit=PASSKEYS)
@describes_page(
    {303: "Continue at `next`.", 400: "The passkey was not added.", 403: "The form was not sent by our page."},
    form=["form_token", "credential"],
)
async def create() -> Response:
    """Add the passkey that the browser created.

    The browser continues at `next`.
    """
    form = await read_form()
    check_session_form(form)
    if KEPT_FORM in form:
        form = await take_form(form[KEPT_FORM])
    next_path, is_conditional = next_of(form), form.get("conditional") == "yes"
    try:
        credential = read_credential(form, RegistrationCredentialRequest, PasskeyNotAdded)
        await passkeys.register(ports(), signed_in(), credential, None, conditional=is_conditional)
    except Invalid as refusal:
        if is_conditional:  # the user has not asked for it
            return redirect(next_path)
        return await _refused(refusal, next_path)
    return redirect(next_path)


async def _refused(refusal: Refusal, next_path: str) -> Response:
    options = await passkeys.offer_again(ports(), signed_in())
    if options is None:
        return redirect(next_path)
    return refused_page(refusal, TEMPLATE, **_values(next_path, options, None))
