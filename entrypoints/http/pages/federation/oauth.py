"""The authorization endpoint, and what answers its requests.

Sources: decisions 86, 87 and 88.
"""

from contextlib import nullcontext
from typing import Final
from urllib.parse import parse_qsl, urlencode

from quart import Blueprint, Response, request

from core.authentication.flow import flows
from core.authentication.flow.model import Flow
from core.authentication.model.identities import parse_provider
from core.federation import destination
from core.federation.connections import platform_requests
from core.federation.oauth import requests, target
from core.federation.oauth.model.authorization import (
    AUTHORIZE_PATH,
    Authorization,
    AuthorizationRefused,
    AuthorizationRequest,
    AuthorizationResponse,
    RequestUriInvalid,
    ResponseMode,
    refusal_response,
)
from core.federation.oauth.model.external_clients import ExternalRequestRefused, is_external
from core.federation.oauth.requests import WaitingRequest
from core.kernel import errors, uris
from core.kernel.callers import Visitor
from core.kernel.page_paths import HOME_PATH
from core.kernel.sign_in_policy.steps import Step
from core.kernel.values import digest
from core.programs.model.api_resources import NoAccessToResource
from entrypoints.http import kit
from entrypoints.http.base.context import requested_path
from entrypoints.http.pages.federation.unregistered import shows_unregistered_uri
from entrypoints.http.pages.flow.flows import connection_path, path_of, provider_path, require_tab, step_path
from entrypoints.http.pages.form_pages import no_access_page, refused_page
from entrypoints.http.pages.visitors import visitor_with_mfa

routes = Blueprint("oauth_pages", __name__)

REQUEST_PARAMETERS: Final = {
    "org": "The slug of the organization, together with `service`.",
    "service": "The slug of the application, together with `org`.",
    "client_id": "The client id of the application, instead of `org` and `service`. Or the https address of the metadata of an external "
    "client, together with the `resource` of an API that admits it.",
    "redirect_uri": "The registered redirect URI that receives the code. Optional if only one is registered.",
    "state": "Returned unchanged with the code. At most 4096 characters.",
    "code_challenge": "The PKCE challenge. Required for applications without a client secret.",
    "code_challenge_method": "`S256`, together with `code_challenge`.",
    "response_type": "`code`. Required with the scope `openid`.",
    "response_mode": "`query`, `fragment` or `form_post`: how the browser brings the answer. The default is `query`.",
    "scope": "The scopes, separated by spaces. With `openid`, the application gets an ID token (OpenID Connect).",
    "nonce": "Returned unchanged in the ID token. At most 1024 characters.",
    "prompt": "`none`: answer without asking the user. Or some of `login`, `consent`, `select_account`, and `create`, "
    "which opens the sign-up page.",
    "max_age": "The maximum age of the sign-in in seconds.",
    "login_hint": "The email address to fill in on the sign-in page. If its domain leads to a connection, the user signs in there.",
    "domain_hint": "A domain. If it leads to a connection, the user signs in there. It goes on to the identity provider.",
    "organization": "The slug or the id of an organization: the user signs in through its connection. With several active "
    "connections, the sign-in page offers them. It must be that of the application, if the request names one.",
    "connection": "The slug of the active connection at which the user signs in, instead of the sign-in page. Without `organization`, "
    "it is one of the application's organization.",
    "ui_locales": "Accepted and ignored: the pages are in English.",
    "acr_values": "`mfa` asks users who have a second factor to use it, and `phr` asks for a passkey.",
    "id_token_hint": "An ID token of the user who should be signed in.",
    "claims": "Single claims, as a JSON object (OpenID Connect Core section 5.5).",
    "resource": "The audience of the access token (RFC 8707): an API resource of the organization, our own API, or the userinfo endpoint, "
    "which is the default.",
    "request": "Not supported. It is refused with `request_not_supported`.",
    "registration": "Not supported. It is refused with `registration_not_supported`.",
    "request_uri": "The reference to a pushed request, together with its `client_id` (RFC 9126). Other parameters are then ignored.",
    "dpop_jkt": "The thumbprint of the key that may redeem the code (RFC 9449 section 10).",
}
# The parameters that a request can repeat. A second resource is refused with `invalid_target`, and not on our error page.
LISTED: Final = frozenset({"resource"})
PARAMETERS: Final = {
    **REQUEST_PARAMETERS,
    "provider": "`codehost`, `websuite` or `officesuite`: continue at this identity provider without the sign-in page.",
}


@routes.get(AUTHORIZE_PATH)
@kit.anyone(kit.PROTOCOL, limit=None)
@kit.refuses(400, 403, 404, 429)
@kit.describes_page(
    {
        200: "The page that brings the answer to the application.",
        303: "Redirect to the redirect URI with a code or an error, or to the next page of the sign-in.",
    },
    optional=PARAMETERS,
    changes_state=True,
)
@kit.repeatable(*LISTED)
@shows_unregistered_uri
async def authorize() -> Response:
    """Sign the user in to an application.

    The application opens this URL in the user's browser, with org and service or with its
    client_id. Without these, the user signs in to the platform itself. A signed-in user is
    redirected immediately. The first time they use an organization's application, they are asked to
    confirm. Exchange the code at `POST /auth/token` within 60 seconds. A request without a valid
    redirect URI is never redirected.
    """
    user = await visitor_with_mfa()
    async with kit.limited_if_refused() if user is None else nullcontext():
        request_of_application, browser = AuthorizationRequest.from_fields(kit.joined_query()), digest(kit.cookies.browser_id())
        if is_external(request_of_application.client_id):
            require_tab(or_frame=True)  # a page that is loaded ahead must not make us fetch
        try:
            waiting = await requests.check(kit.ports(), request_of_application, kit.app_context().base_url, user)
            return await _answer(waiting, user, request.args.get("provider"), browser)
        except NoAccessToResource as refusal:
            return no_access_page(refusal, user or errors.refuse(refusal), requested_path())
        except RequestUriInvalid:
            if (begun := await requests.find_begun(kit.ports(), request_of_application, browser)) is None:
                raise
            return kit.redirect(path_of(begun))


async def _answer(waiting: WaitingRequest, user: Visitor | None, provider: str | None, browser: bytes) -> Response:
    """Answer the request, or begin its sign-in. Only this, and an error, count against the limit."""
    _record(waiting.authorization)
    slug, step, wants_fresh = None, "", None
    if provider and waiting.refusal is None:
        slug = parse_provider(provider)
    else:
        outcome = await _advance(user, waiting, None, None)
        if not isinstance(outcome, destination.Asked):
            return outcome
        step, wants_fresh = step_path(outcome.step), outcome.wants_fresh
    require_tab()
    await kit.take_token(())
    kit.sign_in_goes_on(kit.cookies.browser_id())
    by = user or kit.caller()
    if slug is not None:
        return kit.redirect(provider_path(await platform_requests.begin_request(kit.ports(), by, user, waiting, slug, browser), slug))
    flow = await requests.begin(kit.ports(), by, user, waiting, browser)
    if step == step_path(Step.SIGN_IN) and waiting.connection is not None:
        flow = await flows.ask_for_fresh(kit.ports(), flow, wants_fresh)
        sent = waiting.authorization.request
        return kit.redirect(connection_path(flow, waiting.connection.id, login_hint=sent.login_hint, domain_hint=sent.domain_hint))
    return kit.redirect(path_of(flow, step))


async def resume(flow: Flow, user: Visitor | None, reply: destination.PageAnswer | None) -> destination.Asked | Response:
    """Return the next step in an authorization request's flow, or the response that ends the flow."""
    try:
        waiting = await requests.load(kit.ports(), flow, kit.app_context().base_url, user)
    except NoAccessToResource as refusal:
        return no_access_page(refusal, user or errors.refuse(refusal), path_of(flow))
    _record(waiting.authorization)
    outcome = await _advance(user, waiting, flow, reply)
    if reply is not None and reply.is_yes and not isinstance(outcome, destination.Asked):
        kit.proof_accepted(kit.cookies.DEVICE.read() or "")
    return outcome


async def _advance(
    user: Visitor | None, waiting: WaitingRequest, flow: Flow | None, reply: destination.PageAnswer | None
) -> destination.Asked | Response:
    try:
        outcome = await target.advance(kit.ports(), user, waiting, flow, kit.app_context().base_url, reply)
    except errors.SessionEnded:  # during this request
        return destination.Asked(Step.SIGN_IN, waiting.destination)
    except AuthorizationRefused as refusal:
        has_declined = reply is not None and not reply.is_yes
        return await _refused(waiting.authorization, flow, refusal, asks=not has_declined and _asks(waiting.authorization, user))
    if isinstance(outcome, destination.Asked):
        return outcome
    if user is not None:
        kit.request_record().caller = str(user.user_id)
    return kit.redirect(HOME_PATH) if outcome.response is None else to_application(outcome.response)


@routes.post(AUTHORIZE_PATH)
@kit.anyone(limit=None)
@kit.refuses(403, 404, 429)
@kit.describes_page({303: "Redirect to the same request with GET."}, optional=REQUEST_PARAMETERS, form=REQUEST_PARAMETERS)
@kit.repeatable(*LISTED)
@shows_unregistered_uri
async def authorize_by_form() -> Response:
    """Send an authorization request as a form.

    It is checked, and redirected to the same request with GET (OpenID Connect Core section 3.1.2.1).
    """
    user = await visitor_with_mfa()
    async with kit.limited_if_refused() if user is None else nullcontext():
        fields = await kit.read_request_of_application(LISTED)
        if fields is None:  # our page sends its answers elsewhere
            return kit.redirect(requested_path())
        waiting = await requests.check(kit.ports(), AuthorizationRequest.from_fields(fields), kit.app_context().base_url)
        _record(waiting.authorization)
        provider = {"provider": fields["provider"]} if fields.get("provider") else {}
        return kit.redirect(f"{AUTHORIZE_PATH}?{urlencode({**dict(parse_qsl(waiting.authorization.request.query)), **provider})}")


def _record(authorization: Authorization) -> None:
    if authorization.context is not None:
        kit.request_record().organization = authorization.context.org_slug


def _asks(authorization: Authorization, user: Visitor | None) -> bool:
    """Return whether a page asks the user before an error goes to the application.

    Anyone can register an external client, so no error may lead a stranger's browser there (RFC 9700 section 4.11.2). A program on
    the device may not show the reason.
    """
    if not is_external(authorization.request.client_id):
        return False
    return user is None or authorization.service is None or uris.is_on_device(authorization.redirect_uri or "")


async def _refused(authorization: Authorization, flow: Flow | None, refusal: AuthorizationRefused, *, asks: bool) -> Response:
    """Return the response that reports the refusal to the application, or the page that `asks` before.

    Raises: the refusal if there is no application; FlowEnded, RequestUriInvalid if the flow or a pushed request was used before.
    """
    if authorization.redirect_uri is None:
        raise refusal.refusal if isinstance(refusal, ExternalRequestRefused) else refusal
    await target.use_up(kit.ports(), authorization.request, flow)
    kit.request_record().error_code = refusal.code
    answer = refusal_response(authorization, refusal, kit.app_context().base_url)
    if not asks:
        return to_application(answer)
    shown = refusal.refusal if isinstance(refusal, ExternalRequestRefused) else refusal
    return refused_page(
        shown,
        "federation/client_refused.html",
        code=refusal.oauth_error,
        url=answer.url,
        is_local=uris.is_on_device(answer.redirect_uri),
        host=uris.host_of(answer.redirect_uri),
    )


def to_application(answer: AuthorizationResponse, status: int = 303) -> Response:
    """Return the redirect to the application, or the page that posts the answer to it."""
    if answer.mode is not ResponseMode.FORM_POST:
        return kit.redirect(answer.url, status)
    page = kit.render("federation/form_post.html", scripted=True, redirect_uri=answer.redirect_uri, parameters=answer.parameters)
    return kit.page_response(page)
