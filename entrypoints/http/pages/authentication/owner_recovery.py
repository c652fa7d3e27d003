"""The page behind the link from `gatehouse owner recover`."""

from typing import Any

from quart import Blueprint, Response

from core.accounts.model.profiles import NameInvalid
from core.authentication import owner_recovery
from core.authentication.owner_recovery import RecoveryLink
from core.kernel.page_paths import HOME_PATH, RECOVER_OWNER_PATH
from entrypoints.http.base import cookies
from entrypoints.http.base.context import ports
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.limits import sign_in_goes_on
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.edge.typed_fields import link_token
from entrypoints.http.pages.authentication.sign_in import sign_in_browser
from entrypoints.http.pages.flow.flows import page_flow
from entrypoints.http.pages.form_pages import form_page, read_own_form, refused_form_page

routes = Blueprint("owner_recovery", __name__)


@routes.get(RECOVER_OWNER_PATH)
@anyone
@describes_page(
    {200: "The button that signs in.", 400: "The link has expired or has been used."}, query={"token": "The token of the link."}
)
async def recover_owner_page() -> Response:
    """Show the button that signs a platform owner in.

    The link from `gatehouse owner recover` leads here. Opening it does not use it up.
    """
    token = link_token()
    values = await _values(token)
    sign_in_goes_on(cookies.browser_id())
    return form_page("authentication/recover_owner.html", problem=None, **values)


async def _values(token: str, name: str = "") -> dict[str, Any]:
    """Return the page's values."""
    asks_name = await owner_recovery.lacks_name(ports(), token)
    resets_factors = await owner_recovery.resets_factors(ports(), token)
    return {"token": token, "asks_name": asks_name, "typed_name": name, "resets_factors": resets_factors}


@routes.post(RECOVER_OWNER_PATH)
@anyone
@describes_page(
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
    form = await read_own_form()
    token, name = form.get("token", ""), form.get("name", "")
    try:
        return await sign_in_browser(RecoveryLink(token, name), page_flow(HOME_PATH))
    except NameInvalid as refusal:
        return refused_form_page(refusal, "authentication/recover_owner.html", **await _values(token, name))
