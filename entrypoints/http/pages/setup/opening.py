"""The page that a set-up link leads to. The reader has no session, and opens the link in a single browser."""

from typing import Final

from quart import Blueprint, Response

from core.kernel import errors, rate_limits
from core.kernel.page_paths import SETUP_PATH, SETUP_STEPS_PATH
from core.setup import opening
from core.setup.model import links
from entrypoints.http import kit
from entrypoints.http.pages import form_pages

routes = Blueprint("setup_opening_pages", __name__)

STEPS_PATH: Final = SETUP_STEPS_PATH
ENDED: Final = "The link was opened already, or it has ended."
FOREIGN: Final = "The form was not sent by our page."
OPENED: Final = "The link is open in this browser. Continue there."


@routes.get(SETUP_PATH)
@kit.anyone
@kit.describes_page({200: "The page that opens the link.", 400: ENDED}, query={"token": "The token of the link."})
async def show_setup_link() -> Response:
    """Show a set-up link's purpose.

    Opening this page does not use the link up.
    """
    token = kit.link_token()
    try:
        found = await opening.look_up(kit.ports(), token)
    except links.SetupLinkEnded as refusal:
        return await _ended_page(refusal)
    return form_pages.form_page("setup/open.html", token=token, link=found.link, design=found.design, asks_code=False, problem=None)


@routes.post(SETUP_PATH)
@kit.anyone(limit=rate_limits.EMAIL_SIGN_IN)
@kit.describes_page({200: "The code is sent. The page asks for it.", 303: OPENED, 400: ENDED, 403: FOREIGN}, form=["form_token", "token"])
async def open_setup_link() -> Response:
    """Open a set-up link.

    An embedded link is open in this browser then. The recipient of a mailed link gets a code.
    """
    form = await form_pages.read_own_form()
    token = form.get("token", "")
    try:
        found = await opening.look_up(kit.ports(), token)
        if found.link.recipient is None:
            return _opened(await opening.open_embedded(kit.ports(), kit.caller(), token))
        await opening.send_code(kit.ports(), kit.caller(), token)
    except links.SetupLinkEnded as refusal:
        return await _ended_page(refusal)
    except links.TooManyCodes as refusal:
        return await _code_page(token, refusal)
    return await _code_page(token, None)


@routes.post(f"{SETUP_PATH}/code")
@kit.anyone(limit=rate_limits.EMAIL_SIGN_IN_VERIFICATION)
@kit.describes_page({303: OPENED, 400: "The code is wrong, or the link has ended.", 403: FOREIGN}, form=["form_token", "token", "code"])
async def open_with_code() -> Response:
    """Open a mailed set-up link with its code, in this browser alone.

    The fifth wrong code ends the link.
    """
    form = await form_pages.read_own_form()
    token = form.get("token", "")
    try:
        return _opened(await opening.open_with_code(kit.ports(), kit.caller(), token, form.get("code", "")))
    except links.SetupLinkCodeWrong as refusal:
        return await _code_page(token, refusal)
    except links.SetupLinkEnded as refusal:
        return await _ended_page(refusal)


def _opened(secret: str) -> Response:
    response = kit.redirect(STEPS_PATH)
    kit.cookies.SETUP.set(response, secret)
    return response


async def _code_page(token: str, refusal: errors.Refusal | None) -> Response:
    try:
        found = await opening.look_up(kit.ports(), token)
    except links.SetupLinkEnded as ended:
        return await _ended_page(ended)
    values = {"token": token, "link": found.link, "design": found.design, "asks_code": True}
    if refusal is not None:
        return form_pages.refused_form_page(refusal, "setup/open.html", **values)
    return form_pages.form_page("setup/open.html", **values, problem=None)


async def _ended_page(refusal: links.SetupLinkEnded) -> Response:
    return form_pages.refused_page(refusal, "setup/ended.html", is_open=await _has_open_link(), path=STEPS_PATH)


async def _has_open_link() -> bool:
    """Return whether this browser has opened a link that it can continue."""
    try:
        await opening.authenticate(kit.ports(), kit.caller(), kit.cookies.SETUP.read() or errors.refuse(links.SetupSessionMissing))
    except errors.Unauthenticated:
        return False
    return True
