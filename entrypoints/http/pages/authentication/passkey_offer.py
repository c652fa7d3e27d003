"""The page that offers to create a passkey, after a sign-in with a password and before its target."""

from typing import Any, Final

from quart import Blueprint, Response, request

from core.accounts import passkeys
from core.accounts.model.passkeys import Json, PasskeyNotAdded
from core.kernel import errors, sign_in_age
from core.kernel.page_paths import PASSKEY_OFFER_PATH
from core.kernel.rate_limits import PASSKEYS
from entrypoints.http import kit
from entrypoints.http.api.accounts.webauthn import RegistrationCredentialRequest
from entrypoints.http.pages import form_pages
from entrypoints.http.pages.console_forms import read_credential

routes = Blueprint("passkey_offer", __name__)

TEMPLATE: Final = "authentication/passkey_offer.html"


def _values(next_path: str, options: Json, background: Json | None) -> dict[str, Any]:
    return {
        "form_token": form_pages.session_form_token(),
        "next": next_path,
        "options": options,
        "background": background,
        "scripted": True,
    }


@routes.get(PASSKEY_OFFER_PATH)
@kit.sign_in_session(kit.PROTOCOL)
@kit.describes_page(
    {200: "The offer.", 303: "There is no offer now. Continue at `next`."},
    optional={"next": "The path on this server to continue at."},
    changes_state=True,
)
async def show() -> Response:
    """Offer to create a passkey.

    The page is shown once in 30 days to users without a passkey. The browser may also create a passkey by itself.
    """
    user, next_path = kit.signed_in(), kit.next_of(request.args)
    if not sign_in_age.is_enough(user.sign_in, sign_in_age.SignInAge.FRESH, kit.ports().policy, kit.ports().clock.now()):
        return kit.redirect(next_path)
    offer = await passkeys.show_offer(kit.ports(), user)
    if offer is None:
        return kit.redirect(next_path)
    background, options = offer
    return kit.page_response(kit.render(TEMPLATE, problem=None, **_values(next_path, options, background)))


@routes.post(PASSKEY_OFFER_PATH)
@kit.sign_in_session(kit.WAYS_IN, limit=PASSKEYS)
@kit.describes_page(
    {303: "Continue at `next`.", 400: "The passkey was not added.", 403: "The form was not sent by our page."},
    form=["form_token", "credential"],
)
async def create() -> Response:
    """Add the passkey that the browser created.

    The browser continues at `next`.
    """
    form = await kit.read_form()
    form_pages.check_session_form(form)
    if kit.KEPT_FORM in form:
        form = await kit.take_form(form[kit.KEPT_FORM])
    next_path, is_conditional = kit.next_of(form), form.get("conditional") == "yes"
    try:
        credential = read_credential(form, RegistrationCredentialRequest, PasskeyNotAdded)
        await passkeys.register(kit.ports(), kit.signed_in(), credential, None, conditional=is_conditional)
    except errors.Invalid as refusal:
        if is_conditional:  # the user has not asked for it
            return kit.redirect(next_path)
        return await _refused(refusal, next_path)
    return kit.redirect(next_path)


async def _refused(refusal: errors.Refusal, next_path: str) -> Response:
    options = await passkeys.offer_again(kit.ports(), kit.signed_in())
    if options is None:
        return kit.redirect(next_path)
    return form_pages.refused_page(refusal, TEMPLATE, **_values(next_path, options, None))
