"""How a browser gets to the sign-out at an organization's identity provider, and back."""

from quart import Blueprint, Response, request

from core.federation.connections import sign_out
from core.federation.connections.model.connections import OrganizationConnectionNotFound
from core.federation.connections.model.logins import BACK_FROM_LOGOUT, START_LOGOUT
from core.federation.saml.model.sign_on import LogoutFinished
from core.kernel.errors import refuse
from core.kernel.page_paths import HOME_PATH
from core.kernel.values import parse_id
from entrypoints.http.base import cookies
from entrypoints.http.base.context import app_context, caller, ports
from entrypoints.http.base.redirects import redirect
from entrypoints.http.edge.access import PROTOCOL, anyone
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.pages.federation.signed_out import signed_out_page

routes = Blueprint("connection_sign_out_pages", __name__)


@routes.get(f"/auth/connections/<connection_id>/{START_LOGOUT}")
@anyone
@refuses(404)
@describes_page({303: "Redirect to the sign-out at the identity provider. If this browser has none to do: to the console."})
async def start(connection_id: str) -> Response:
    """Go on with a sign-out at an organization's identity provider.

    The user is signed out here. Only the browser that signed out is redirected.
    """
    known_id = parse_id(connection_id) or refuse(OrganizationConnectionNotFound)
    url = await sign_out.find_url(ports(), known_id, cookies.PROVIDER_LOGOUT.read(), app_context().base_url)
    return redirect(HOME_PATH if url is None else url)


@routes.get(f"/auth/connections/<connection_id>/{BACK_FROM_LOGOUT}")
@anyone(PROTOCOL)
@refuses(404)
@describes_page(
    {
        200: "The page for a user who is signed out.",
        303: "Redirect to the application that requested the sign-out. If this browser began none: to the console.",
    },
    optional={"state": "The state from the redirect to the identity provider."},
    changes_state=True,
)
async def finish(connection_id: str) -> Response:
    """Return from the sign-out at an organization's identity provider.

    Register this URL there as the post-logout redirect URI.
    """
    known_id = parse_id(connection_id) or refuse(OrganizationConnectionNotFound)
    after = await sign_out.finish(ports(), caller(), known_id, cookies.PROVIDER_LOGOUT.read(), request.args.get("state"))
    if after is None:
        return redirect(HOME_PATH)
    response = await signed_out_page(LogoutFinished(is_partial=False, after=after), at_provider=True)
    cookies.PROVIDER_LOGOUT.clear(response)
    return response
