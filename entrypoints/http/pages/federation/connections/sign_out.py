"""Sign-outs at an organization's identity provider: how a browser gets there and back, and SAML single logout.

Sources: SAML profiles section 4.4; security X-17.
"""

from typing import Final
from urllib.parse import urlencode

from quart import Blueprint, Response, request

from core.federation.connections import saml_logout, sign_out
from core.federation.connections.model import saml_responses
from core.federation.connections.model.connections import OrganizationConnectionNotFound
from core.federation.connections.model.logins import BACK_FROM_LOGOUT, START_LOGOUT
from core.federation.saml.model import messages
from core.federation.saml.model.sign_on import LogoutFinished
from core.kernel.errors import refuse
from core.kernel.page_paths import HOME_PATH, connection_endpoint_path
from core.kernel.values import parse_id
from entrypoints.http import kit
from entrypoints.http.pages.federation import signed_out
from entrypoints.http.pages.federation.saml.messages import continue_at, read_parameters

routes = Blueprint("connection_sign_out_pages", __name__)


@routes.get(f"/auth/connections/<connection_id>/{START_LOGOUT}")
@kit.anyone
@kit.refuses(404)
@kit.describes_page({303: "Redirect to the sign-out at the identity provider. If this browser has none to do: to the console."})
async def start(connection_id: str) -> Response:
    """Go on with a sign-out at an organization's identity provider.

    The user is signed out here. Only the browser that signed out is redirected.
    """
    known_id = parse_id(connection_id) or refuse(OrganizationConnectionNotFound)
    url = await sign_out.find_url(kit.ports(), known_id, kit.cookies.PROVIDER_LOGOUT.read(), kit.app_context().base_url)
    return kit.redirect(HOME_PATH if url is None else url)


@routes.get(f"/auth/connections/<connection_id>/{BACK_FROM_LOGOUT}")
@kit.anyone(kit.PROTOCOL)
@kit.refuses(404)
@kit.describes_page(
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
    after = await sign_out.finish(kit.ports(), kit.caller(), known_id, kit.cookies.PROVIDER_LOGOUT.read(), request.args.get("state"))
    if after is None:
        return kit.redirect(HOME_PATH)
    response = await signed_out.signed_out_page(LogoutFinished(is_partial=False, after=after), at_provider=True)
    kit.cookies.PROVIDER_LOGOUT.clear(response)
    return response


SIGNED_OUT: Final = "The page for a user who is signed out, if the identity provider has no address for our response."


@routes.get("/auth/connections/<connection_id>/slo")
@kit.anyone(kit.PROTOCOL)
@kit.refuses(400, 404, 429)
@kit.describes_page(
    {200: SIGNED_OUT, 302: "Redirect to the identity provider with our response, or to the next page of a sign-out that began here."},
    optional={
        "SAMLRequest": "A LogoutRequest, deflated and in base64.",
        "SAMLResponse": "A LogoutResponse, deflated and in base64.",
        "RelayState": "Returned with the response to a LogoutRequest.",
        "SigAlg": "The algorithm of the signature: RSA with SHA-256, SHA-384 or SHA-512.",
        "Signature": "The signature, which a LogoutRequest needs.",
    },
    changes_state=True,
)
async def slo_by_redirect(connection_id: str) -> Response:
    """Take part in single logout with an organization's identity provider, with HTTP-Redirect.

    A signed LogoutRequest ends the sign-ins that it names. With a SessionIndex, it ends that sign-in. Without a SessionIndex, it ends all
    sessions that the user has through the connection. The user's own sign-ins stay.
    """
    return await _receive(connection_id)


@routes.post("/auth/connections/<connection_id>/slo")
@kit.anyone
@kit.refuses(400, 404, 415, 429)
@kit.describes_page(
    {200: SIGNED_OUT, 303: "Redirect to the identity provider with our response, or to the next page of a sign-out that began here."},
    form=["SAMLRequest"],
)
async def slo_by_post(connection_id: str) -> Response:
    """Take part in single logout with an organization's identity provider, with HTTP-POST.

    The form has a `SAMLRequest` or a `SAMLResponse` in base64, and optionally a `RelayState`. A LogoutRequest is signed in the document.
    """
    return await _receive(connection_id)


async def _receive(connection_id: str) -> Response:
    id_ = parse_id(connection_id) or refuse(OrganizationConnectionNotFound)
    try:
        parameters = await read_parameters()
        logout_request, logout_response = parameters.document("SAMLRequest"), parameters.document("SAMLResponse")
        if logout_request is None:
            # It is found by the sign-out's cookie, which a form on another site does not bring.
            answered = await saml_logout.find_answered(kit.ports(), logout_response or refuse(messages.SamlMessageInvalid))
            return continue_at(f"{connection_endpoint_path(id_, BACK_FROM_LOGOUT)}?{urlencode({'state': answered})}")
        signature = None if request.method == "POST" else messages.query_signature(request.query_string.decode("latin-1"))
        base_url, relay_state = kit.app_context().base_url, parameters.relay_state
        url = await saml_logout.receive_request(kit.ports(), kit.caller(), id_, logout_request, signature, relay_state, base_url)
    except messages.SamlMessageInvalid:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.MALFORMED) from None
    return signed_out.end_page(None) if url is None else continue_at(url)
