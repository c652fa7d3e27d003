"""The authorization endpoint, and what answers its requests.

Sources: decisions 86, 87 and 88.
"""

from contextlib import nullcontext
from typing import Final
from urllib.parse import parse_qsl, urlencode

from quart import Blueprint, Response, request

from core.authentication.flow.model import Flow, FlowEnded
from core.authentication.flow.steps import Step
from core.authentication.model.identities import parse_provider
from core.federation.destination import Asked
from core.federation.oauth import authorization as oauth
from core.federation.oauth import target
from core.federation.oauth.model import openid_requests
from core.federation.oauth.model.authorization import (
    AUTHORIZE_PATH,
    Authorization,
    AuthorizationRefused,
    AuthorizationRequest,
    AuthorizationResponse,
    ResponseMode,
)
from core.federation.oauth.model.pushed_requests import RequestUriInvalid
from core.federation.oauth.target import WaitingRequest
from core.kernel.callers import Visitor
from core.kernel.errors import Refusal, SessionEnded
from core.kernel.page_paths import ACCOUNT_PATH
from core.kernel.values import digest
from entrypoints.http.base import cookies
from entrypoints.http.base.context import app_context, caller, ports, request_record, requested_path
from entrypoints.http.base.redirects import redirect
from entrypoints.http.base.rendering.templates import page_response, render
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.forms import read_request_of_application
from entrypoints.http.edge.limits import keep_taken, limited_if_refused, take_token
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.edge.queries import joined_query, repeatable
from entrypoints.http.pages.flow.flows import path_of, require_tab
from entrypoints.http.pages.visitors import visitor_with_mfa

routes = Blueprint("oauth_pages", __name__)

REQUEST_PARAMETERS: Final = {
    "org": "The slug of the organization, together with `service`.",
    "service": "The slug of the application, together with `org`.",
    "client_id": "The client id of the application, instead of `org` and `service`.",
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
    "login_hint": "The email address to fill in on the sign-in page.",
    "ui_locales": "Accepted and ignored: the pages are in English.",
    "acr_values": "`mfa` asks users who have a second factor to use it.",
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
@anyone(limit=None)
@refuses(400, 403, 404, 429)
@describes_page(
    {
        200: "The page that brings the answer to the application.",
        303: "Redirect to the redirect URI with a code or an error, or to the next page of the sign-in.",
    },
    optional=PARAMETERS,
    changes_state=True,
)
@repeatable(*LISTED)
async def authorize() -> Response:
    """Sign the user in to an application.

    The application opens this URL in the user's browser, with org and service or with its
    client_id. Without these, the user signs in to the platform itself. A signed-in user is
    redirected immediately. The first time they use an organization's application, they are asked to
    confirm. Exchange the code at `POST /auth/token` within 60 seconds. A request without a valid
    redirect URI is never redirected.
    """
    user = await visitor_with_mfa()
    async with limited_if_refused() if user is None else nullcontext():
        request_of_application, browser = AuthorizationRequest.from_fields(joined_query()), digest(cookies.browser_id())
        try:
            authorization = _recorded(await oauth.validate(ports(), request_of_application))
        except RequestUriInvalid:
            if (begun := await target.find_pushed(ports(), request_of_application, browser)) is None:
                raise
            return redirect(path_of(begun))
        try:
            return await _answer(authorization, user, request.args.get("provider"), browser)
        except AuthorizationRefused as refusal:
            return await _refused(authorization, None, refusal)


async def _answer(authorization: Authorization, user: Visitor | None, provider: str | None, browser: bytes) -> Response:
    waiting = target.check(ports(), authorization, app_context().base_url)
    if provider:
        slug = parse_provider(provider)
        flow = await target.begin(ports(), user or caller(), user, waiting, browser)
        return redirect(f"/auth/{slug}?flow={flow.id}")
    outcome = await _advance(user, waiting, None, None)
    if not isinstance(outcome, Asked):
        return outcome
    if user is None:  # only this answer, and an error, count for a browser without a session
        await take_token(())
        await keep_taken(cookies.browser_id())
    require_tab()
    flow = await target.begin(ports(), user or caller(), user, waiting, browser)
    return redirect(path_of(flow, f"/{outcome.step.value}"))


async def resume(flow: Flow, user: Visitor | None, answer: str | None) -> Asked | Response:
    """Return the next step of the flow of an authorization request, or the response that ends it. Raises: FlowEnded."""
    try:
        waiting = await target.load(ports(), flow, app_context().base_url)
    except Refusal:
        raise FlowEnded from None
    _recorded(waiting.authorization)
    try:
        return await _advance(user, waiting, flow, answer)
    except AuthorizationRefused as refusal:
        return await _refused(waiting.authorization, flow, refusal)


async def _advance(user: Visitor | None, waiting: WaitingRequest, flow: Flow | None, answer: str | None) -> Asked | Response:
    try:
        outcome = await target.advance(ports(), user, waiting, flow, app_context().base_url, answer)
    except SessionEnded:  # during this request
        return Asked(Step.SIGN_IN)
    if isinstance(outcome, Asked):
        return outcome
    if user is not None:
        request_record().caller = str(user.user_id)
    return redirect(ACCOUNT_PATH) if outcome.response is None else to_application(outcome.response)


@routes.post(AUTHORIZE_PATH)
@anyone(limit=None)
@refuses(403, 404, 429)
@describes_page({303: "Redirect to the same request with GET."}, optional=REQUEST_PARAMETERS, form=REQUEST_PARAMETERS)
@repeatable(*LISTED)
async def authorize_by_form() -> Response:
    """Send an authorization request as a form.

    It is checked, and redirected to the same request with GET (OpenID Connect Core section 3.1.2.1).
    """
    user = await visitor_with_mfa()
    async with limited_if_refused() if user is None else nullcontext():
        fields = await read_request_of_application(LISTED)
        if fields is None:  # the form of a page of the previous release
            return redirect(requested_path())
        authorization = _recorded(await oauth.validate(ports(), AuthorizationRequest.from_fields(fields)))
        provider = {"provider": fields["provider"]} if fields.get("provider") else {}
        return redirect(f"{AUTHORIZE_PATH}?{urlencode({**dict(parse_qsl(authorization.request.query)), **provider})}")


def _recorded(authorization: Authorization) -> Authorization:
    if authorization.context is not None:
        request_record().organization = authorization.context.org_slug
    return authorization


async def _refused(authorization: Authorization, flow: Flow | None, refusal: AuthorizationRefused) -> Response:
    """Return the response that reports the refusal to the application.

    Raises: the refusal if there is no application; FlowEnded, RequestUriInvalid if the flow or a pushed request was used before.
    """
    if authorization.redirect_uri is None:
        raise refusal
    await target.finish(ports(), authorization.request, flow)
    request_record().error_code = refusal.code
    return to_application(openid_requests.refusal_response(authorization, refusal, app_context().base_url))


def to_application(answer: AuthorizationResponse, status: int = 303) -> Response:
    """Return the redirect to the application, or the page that posts the answer to it."""
    if answer.mode is not ResponseMode.FORM_POST:
        return redirect(answer.url, status)
    page = render("federation/form_post.html", scripted=True, redirect_uri=answer.redirect_uri, parameters=answer.parameters)
    return page_response(page)
