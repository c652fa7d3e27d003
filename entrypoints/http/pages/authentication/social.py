"""The redirects to identity providers and back, for signing in and for linking accounts.

Source: security O-1, O-5, O-6 and G-2; decisions 86, 87.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from quart import Blueprint, Response, request
from werkzeug.routing import BaseConverter

from core.authentication.flow.model import Flow, FlowEnded, FlowTarget
from core.authentication.model.identities import parse_provider
from core.federation.connections import platform_requests, provider_requests
from core.federation.connections.model.saml import ProviderRedirect
from core.federation.model import sign_in
from core.federation.oauth.model.authorization import AuthorizationRequest
from core.kernel import connections
from core.kernel.callers import Visitor
from core.kernel.errors import Refusal
from core.kernel.page_paths import IDENTITIES_PATH, REAUTHENTICATION_PATH
from core.kernel.sign_in_age import SignInNotRecent
from core.kernel.values import digest
from entrypoints.http import kit
from entrypoints.http.edge.limits import sign_in_failed
from entrypoints.http.pages.authentication.sign_in import sign_in_at_provider
from entrypoints.http.pages.federation import oauth
from entrypoints.http.pages.federation.connections.provider_redirects import redirect_response
from entrypoints.http.pages.flow import flows
from entrypoints.http.pages.form_pages import refused_page
from entrypoints.http.pages.visitors import visitor

routes = Blueprint("social", __name__)

PARAMETERS: Final = {
    **oauth.REQUEST_PARAMETERS,
    "user_code": "The user code of a device. The browser continues to the page that approves it.",
    "next": "The path on this server where the browser continues.",
    "flow": "The id of a sign-in in progress.",
    "link": "The ticket from `POST /api/user/identities/{provider}/link`, to link an account.",
}
CALLBACK_PARAMETERS: Final = {
    "code": "The code of the identity provider.",
    "state": "The state from the redirect to the identity provider.",
    "error": "The error, instead of a code.",
    "iss": "The issuer of the response (RFC 9207).",
}


def read_return(connection_id: UUID) -> provider_requests.ConnectionReturn:
    """Return the browser's return from this connection, with the identity provider's answer in the query."""
    arguments, browser = request.args, kit.cookies.DEVICE.read()
    answer = sign_in.ProviderAnswer(code=arguments.get("code"), error=arguments.get("error"), issuer=arguments.get("iss"))
    return provider_requests.ConnectionReturn(connection_id=connection_id, browser=browser, state=arguments.get("state"), answer=answer)


class ProviderConverter(BaseConverter):
    """An identity provider's name in a route, as `<provider:...>`. Other paths below /auth/ do not match it."""

    regex = "|".join(connections.PLATFORM_CONNECTIONS)


@routes.get("/auth/<provider:provider>")
@kit.anyone(kit.PROTOCOL)
@kit.refuses(400, 403, 404)
@kit.describes_page(
    {
        200: "The sign-in has ended. The page goes on.",
        302: "Redirect to the identity provider, or to a sign-in in this browser, which a link that was started over the API needs.",
    },
    optional=PARAMETERS,
    changes_state=True,
)
@kit.repeatable(*oauth.LISTED)
async def start(provider: str) -> Response:
    """Sign in through an identity provider, or link an account there.

    The application opens this URL in the user's browser, with the parameters for `GET /auth/authorize`. After the
    sign-in the browser continues there. Without parameters, or with `org` alone as in the answer from `POST
    /api/auth/lookup-email`, the user signs in to their own account.
    """
    flows.require_tab()
    browser, arguments = kit.cookies.browser_id(), kit.joined_query()
    if ticket := arguments.get("link"):
        return await _start_with_ticket(provider, browser, ticket)
    slug = parse_provider(provider)
    begin = partial(platform_requests.begin, kit.ports(), kit.caller(), slug, browser, kit.app_context().base_url)
    return await begin_provider_request(arguments, slug, browser, begin)


async def begin_provider_request(
    arguments: Mapping[str, str],
    slug: connections.ConnectionSlug | None,
    browser: str,
    begin: Callable[[Flow], Awaitable[ProviderRedirect]],
) -> Response:
    """Return the redirect to this provider, or to an organization's connection. `begin` starts the provider request for a flow."""
    try:
        flow = await _open_start(arguments, slug, browser)
        if isinstance(flow, Response):
            return flow
        redirect = await begin(flow)
    except FlowEnded:  # the user went back to an earlier page
        return await flows.ended_page(arguments.get("flow"))
    kit.sign_in_goes_on(browser)
    return redirect_response(redirect, 302)


async def _open_start(arguments: Mapping[str, str], slug: connections.ConnectionSlug | None, browser: str) -> Flow | Response:
    """Return the flow for a sign-in that starts at this provider, or at an organization's connection.

    If the authorization endpoint answers the request instead, return the redirect there. Raises: FlowEnded; the errors of `begin_flow`.
    """
    user_code, after, flow_id = arguments.get("user_code") or None, arguments.get("next"), arguments.get("flow")
    if flow_id:
        flow = await flows.open_flow(flow_id)
        flows.remember_way_back(flow, "/sign-in")
        return flow
    if after and user_code is None:
        return flows.page_flow(kit.safe_next(after))
    of_application, user, base_url = AuthorizationRequest.from_fields(arguments), await visitor(), kit.app_context().base_url
    begun = await platform_requests.begin_flow(kit.ports(), kit.caller(), user, of_application, slug, user_code, digest(browser), base_url)
    return kit.redirect(of_application.path, 302) if begun is None else begun


async def _start_with_ticket(provider: str, browser: str, ticket: str) -> Response:
    user, base_url = await visitor(), kit.app_context().base_url
    try:
        return redirect_response(
            await platform_requests.begin_with_ticket(kit.ports(), kit.caller(), provider, browser, base_url, ticket, user), 302
        )
    except sign_in.BrowserSignInNeeded:
        return kit.redirect(kit.to_sign_in().headers["Location"], 302)
    except SignInNotRecent:
        return kit.redirect((await kit.to_reauthentication()).headers["Location"], 302)


@routes.get("/auth/<provider:provider>/callback")
@kit.anyone(kit.PROTOCOL, taking=kit.Taking.IF_REFUSED)
@kit.refuses(400, 401, 403, 404, 409)
@kit.describes_page(
    {
        200: "The sign-in has ended, and the page goes on. Or another user is signed in in this browser, and the page asks first.",
        302: "Redirect to the application with an error, because the user refused or the identity provider failed.",
        303: "Redirect to the target of the sign-in, to a page that asks for a factor, or to the linked accounts.",
    },
    optional=CALLBACK_PARAMETERS,
    changes_state=True,
)
async def callback(provider: str) -> Response:
    """Return from an identity provider.

    The identity provider redirects the browser here. Register this URL there.
    """
    slug = parse_provider(provider)
    try:
        user, returned = await visitor(), read_return(platform_requests.id_of(slug))
        return await to_response(
            await platform_requests.finish(kit.ports(), kit.caller(), user, slug, returned, kit.app_context().base_url), user
        )
    except FlowEnded:
        return await flows.ended_page(None)
    except SignInNotRecent:  # the user turned on a second factor while they were at the provider
        return kit.redirect(f"{REAUTHENTICATION_PATH}?{urlencode({'next': IDENTITIES_PATH})}")


async def to_response(result: platform_requests.PlatformRequestResult, user: Visitor | None) -> Response:
    """Return the response to a browser after its provider request."""
    if isinstance(result, platform_requests.ErrorReported | provider_requests.ProviderRequestFailed):
        sign_in_failed()
    match result:
        case platform_requests.ErrorReported(answer, code):
            kit.request_record().error_code = code
            return oauth.to_application(answer, 302)
        case platform_requests.Authenticated(flow, method):
            flows.remember_way_back(flow, "/sign-in")
            try:
                start = flows.provider_path(flow, method.identity.provider)
                return await sign_in_at_provider(method, flow, user, start, method.identity.email)
            except FlowEnded:  # in another tab
                return await flows.ended_page(str(flow.id))
        case platform_requests.IdentityLinked():
            return kit.redirect(IDENTITIES_PATH, notice="account-linked")
        case sign_in.SignedInAgain(next_path):
            return kit.redirect(next_path)
        case provider_requests.ProviderRequestFailed(problem, flow):
            if flow.target is FlowTarget.REAUTHENTICATION and isinstance(problem, Refusal):
                return refused_page(problem, "authentication/not_confirmed.html", next_path=flow.request)
            if flow.target is FlowTarget.LINK:
                kit.request_record().way_back = ("Back to linked accounts", IDENTITIES_PATH)
            elif flow.target is FlowTarget.REAUTHENTICATION:
                kit.request_record().way_back = ("Try again", flow.request)
            else:
                flows.remember_way_back(flow, "/sign-in")
            raise problem
