"""The page behind the link from `gatehouse owner recover`."""

from typing import Any

from quart import Blueprint, Response

from core.accounts.model.profiles import NameInvalid
from core.authentication import owner_recovery
from core.authentication.owner_recovery import RecoveryLink
from core.kernel import page_paths
from entrypoints.http import kit
from entrypoints.http.pages import form_pages
from entrypoints.http.pages.authentication.sign_in import sign_in_browser
from entrypoints.http.pages.flow.flows import page_flow

routes = Blueprint("owner_recovery", __name__)


@routes.get(page_paths.RECOVER_OWNER_PATH)
@kit.anyone
@kit.describes_page(
    {200: "The button that signs in.", 400: "The link has expired or has been used."}, query={"token": "The token of the link."}
)
async def recover_owner_page() -> Response:
    """Show the button that signs a platform owner in.

    The link from `gatehouse owner recover` leads here. Opening it does not use it up.
    """
    token = kit.link_token()
    values = await _values(token)
    kit.sign_in_goes_on(kit.cookies.browser_id())
    return form_pages.form_page("authentication/recover_owner.html", problem=None, **values)


async def _values(token: str, name: str = "") -> dict[str, Any]:
    """Return the page's values."""
    asks_name = await owner_recovery.lacks_name(kit.ports(), token)
    resets_factors = await owner_recovery.resets_factors(kit.ports(), token)
    return {"token": token, "asks_name": asks_name, "typed_name": name, "resets_factors": resets_factors}


@routes.post(page_paths.RECOVER_OWNER_PATH)
@kit.anyone
@kit.describes_page(
    {
        303: "Signed in, or a code is required: continue at the next page.",
        400: "The link has expired or has been used, or the name is not valid.",
        403: "The form was not sent by our page.",
    },
    form=["form_token", "token", "name"],
)
async def recover_owner() -> Response:
    """Sign a platform owner in, once.

    The page's form sends this. An account with a second factor also needs its code. `name` becomes the owner's name if
    they have no name.
    """
    form = await form_pages.read_own_form()
    token, name = form.get("token", ""), form.get("name", "")
    try:
        return await sign_in_browser(RecoveryLink(token, name), page_flow(page_paths.HOME_PATH))
    except NameInvalid as refusal:
        return form_pages.refused_form_page(refusal, "authentication/recover_owner.html", **await _values(token, name))
