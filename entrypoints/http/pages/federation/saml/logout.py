"""SAML single logout: the endpoint for applications' messages.

Sources: security X-9.
"""

from typing import Final
from urllib.parse import urlencode

from quart import Blueprint, Response, request

from core.federation.saml import configuration as saml
from core.federation.saml import logout as saml_logout
from core.federation.saml.model import configuration as saml_model
from core.federation.saml.model import messages, sign_on
from core.federation.saml.model import messages as saml_bindings
from core.kernel import errors
from entrypoints.http import kit
from entrypoints.http.api.federation.saml.configuration import PROVIDER
from entrypoints.http.pages.federation.saml.messages import REFUSALS, SamlParameters, continue_at, read_parameters
from entrypoints.http.pages.federation.signed_out import signed_out_page
from entrypoints.http.pages.form_pages import refused_page
from entrypoints.http.pages.visitors import visitor

routes = Blueprint("saml_logout", __name__)

# The longest path with a message from a form. It must fit into the request header together with
# cookies.
MAX_PATH_LENGTH: Final = 14 * 1024


async def _logout(org_slug: str, service_slug: str) -> Response:
    try:
        return await _receive(org_slug, service_slug)
    except (errors.NotFound, errors.OrganizationNotActive) as refusal:
        # The service may be disabled or deleted at any time until its message is stored.
        return await _skip_service(org_slug, service_slug) or errors.refuse(refusal)
    except (messages.SamlMessageInvalid, sign_on.LogoutNotFound) as refusal:
        if not _can_continue():
            raise
        path = saml_model.endpoint_path(org_slug, service_slug, "slo")  # continues the logout
        return refused_page(refusal, "federation/logout_error.html", next_path=path)


def _can_continue() -> bool:
    """Return whether the request is a LogoutResponse, delivered by a browser with a logout in progress."""
    return kit.cookies.LOGOUT.read() is not None and "SAMLResponse" in request.args and kit.wants_page()


async def _receive(org_slug: str, service_slug: str) -> Response:
    await saml.load_provider(kit.ports(), org_slug, service_slug)  # raises if it is not active
    parameters = await read_parameters()
    logout_request, logout_response = parameters.document("SAMLRequest"), parameters.document("SAMLResponse")
    if request.method == "POST":
        return _repeat_with_get(org_slug, service_slug, parameters, logout_request, logout_response)
    if logout_request is not None:
        received = messages.ReceivedDocument(
            org_slug=org_slug,
            service_slug=service_slug,
            document=logout_request,
            relay_state=parameters.relay_state,
            signature=saml_bindings.query_signature(request.query_string.decode("latin-1")),
        )
        return await _receive_request(received)
    if logout_response is not None:
        received = messages.ReceivedDocument(org_slug=org_slug, service_slug=service_slug, document=logout_response)
        secret = kit.cookies.LOGOUT.read()
        step = await saml_logout.receive_response(kit.ports(), kit.app_context().base_url, kit.caller(), received, secret)
        return continue_at(step) if isinstance(step, str) else await _respond(step)
    return await _resume()


def _repeat_with_get(
    org_slug: str, service_slug: str, parameters: SamlParameters, logout_request: bytes | None, logout_response: bytes | None
) -> Response:
    """Make the browser deliver a form's message again, with HTTP-Redirect.

    A cross-site POST carries no SameSite=Lax cookies, and a message counts only with the cookie of session or
    logout.
    """
    if logout_request is not None:
        saml_bindings.check_relay_state(parameters.relay_state)
        relay_state = {} if parameters.relay_state is None else {"RelayState": parameters.relay_state}
        fields = {"SAMLRequest": saml_bindings.encode_redirect(logout_request), **relay_state}
    else:
        fields = {"SAMLResponse": saml_bindings.encode_redirect(logout_response or errors.refuse(messages.SamlMessageInvalid))}
    path = f"{saml_model.endpoint_path(org_slug, service_slug, 'slo')}?{urlencode(fields)}"
    return continue_at(path if len(path) <= MAX_PATH_LENGTH else errors.refuse(messages.SamlMessageTooLong))


async def _skip_service(org_slug: str, service_slug: str) -> Response | None:
    """Continue the logout when the browser returns from a disabled or deleted service.

    That service's message is ignored, but the other services must still be notified. Return None if no logout is in
    progress.
    """
    if request.method == "POST":  # it carries no cookies, so the logout cannot be found here
        try:
            is_response = request.mimetype == kit.FORM and "SAMLResponse" in await kit.read_fields()
        except errors.Invalid:
            return None
        return continue_at(saml_model.endpoint_path(org_slug, service_slug, "slo")) if is_response else None
    if "SAMLRequest" in request.args:
        return None
    try:
        return await _resume()
    except sign_on.LogoutNotFound:
        return None


async def _receive_request(received: messages.ReceivedDocument) -> Response:
    secrets = sign_on.LogoutCookies(logout=kit.cookies.LOGOUT.read(), session=kit.cookies.SESSION.read())
    user = await visitor()
    step = await saml_logout.receive_request(kit.ports(), kit.app_context().base_url, user, kit.caller(), secrets, received)
    if not isinstance(step, sign_on.LogoutAnswered):
        return await _respond(step)
    response = continue_at(step.url)
    if user is not None and await visitor() is None:
        kit.cookies.SESSION.clear(response)
    return response


async def _resume() -> Response:
    """Take the next step in this browser's logout. Raises: LogoutNotFound."""
    return await _respond(await saml_logout.resume(kit.ports(), kit.cookies.LOGOUT.read(), kit.caller()))


async def _respond(step: sign_on.Redirect | sign_on.LogoutFinished) -> Response:
    response = continue_at(step.url) if isinstance(step, sign_on.Redirect) else await signed_out_page(step)
    if isinstance(step, sign_on.Redirect) and step.secret is not None:
        kit.cookies.LOGOUT.set(response, step.secret)
    else:
        kit.cookies.LOGOUT.clear(response)
    if await visitor() is None:
        kit.cookies.SESSION.clear(response)
    return response


@routes.get(f"{PROVIDER}/slo")
@kit.anyone(kit.PROTOCOL)
@kit.refuses(403, 429)
@kit.describes_page(
    {
        200: "The page that says that the user is signed out.",
        302: "Redirect to the next application or to the first one.",
        303: "Redirect to the application that asked to sign the user out.",
        **REFUSALS,
    },
    optional={
        "SAMLRequest": "A LogoutRequest, deflated and in base64.",
        "SAMLResponse": "A LogoutResponse, deflated and in base64.",
        "RelayState": "Returned with the response to a LogoutRequest.",
    },
    changes_state=True,
)
async def slo_by_redirect(org_slug: str, service_slug: str) -> Response:
    """Take part in SAML single logout with HTTP-Redirect.

    The application sends the browser here with a LogoutRequest, or with the LogoutResponse to ours.
    Without a message, the logout in progress in this browser continues.
    """
    return await _logout(org_slug, service_slug)


@routes.post(f"{PROVIDER}/slo")
@kit.anyone
@kit.refuses(403, 429)
@kit.describes_page({303: "Redirect to the same endpoint with HTTP-Redirect.", **REFUSALS}, form=["SAMLRequest"])
async def slo_by_post(org_slug: str, service_slug: str) -> Response:
    """Take part in SAML single logout with HTTP-POST.

    The application sends a form with a `SAMLRequest` or a `SAMLResponse` in base64, and optionally
    a `RelayState`.
    """
    return await _logout(org_slug, service_slug)
