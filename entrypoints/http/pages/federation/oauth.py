"""OAuth pages: the authorization endpoint and the consent page.

Sources: decisions 86, 87 and 88.
"""

from contextlib import nullcontext
from typing import Final
from urllib.parse import parse_qsl, urlencode

from quart import Blueprint, Response, request

from core.authentication.model.identities import parse_provider
from core.authentication.model.openid import in_order
from core.federation.oauth import authorization as oauth
from core.federation.oauth import authorization_steps, pushed_requests
from core.federation.oauth.authorization_steps import NextStep, Step
from core.federation.oauth.model import authorization as oauth_model
from core.federation.oauth.model import openid_requests
from core.federation.oauth.model.authorization import (
    AUTHORIZE_PATH,
    Authorization,
    AuthorizationRefused,
    AuthorizationRequest,
    AuthorizationResponse,
    ResponseMode,
    consent_scopes,
)
from core.federation.oauth.model.openid_requests import OpenIdRequest
from core.kernel.callers import Visitor
from core.kernel.errors import SessionEnded
from core.kernel.page_paths import ACCOUNT_PATH, SIGN_IN_PATH, SIGN_UP_PATH
from core.tenancy import branding
from entrypoints.http.base import cookies
from entrypoints.http.base.context import app_context, ports, request_record
from entrypoints.http.base.redirects import redirect
from entrypoints.http.base.rendering.templates import page_response, render
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.forms import read_form, read_request_of_application
from entrypoints.http.edge.limits import keep_taken, limited_if_refused, take_token
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.edge.queries import joined_query, repeatable
from entrypoints.http.pages.accounts.sign_up import sign_up_form
from entrypoints.http.pages.authentication.sign_in import sign_in_form
from entrypoints.http.pages.form_pages import check_session_form, session_form_token
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
    "asked": "Added by us: the signed time at which the user was first asked to sign in.",
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
        200: "The page that asks the user before the application gets a code, or that brings the answer to the application.",
        303: "Redirect to the redirect URI with a code or an error, or to the sign-in or sign-up page.",
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
        authorization = await _present(cookies.browser_id())
        try:
            return await _answer(authorization, user, request.args.get("provider"))
        except AuthorizationRefused as refusal:
            return await _refused(authorization, refusal)


async def _answer(authorization: Authorization, user: Visitor | None, provider: str | None) -> Response:
    openid = _parse(authorization)
    if provider:
        return redirect(f"/auth/{parse_provider(provider)}?{authorization.request.query}")
    return await _take_step(user, authorization, openid)


@routes.post(AUTHORIZE_PATH)
@anyone(limit=None)
@refuses(400, 403, 404, 429)
@describes_page(
    {
        200: "The page that brings the answer to the application.",
        303: "Redirect to the redirect URI with a code or an error, to the sign-in page, or to the same request with GET.",
        403: "The form was sent from another site.",
    },
    optional=REQUEST_PARAMETERS,
    form=["form_token", "answer"],
)
@repeatable(*LISTED)
async def answer_consent() -> Response:
    """Send the form of the consent page, or an authorization request as a form.

    With a `form_token` it is the form of our page: `answer` is `continue` to agree, `select` to
    continue with this account, and every other value cancels. A request of an application is
    checked, and redirected to the same request with GET (OpenID Connect Core section 3.1.2.1).
    """
    user = await visitor_with_mfa()
    async with limited_if_refused() if user is None else nullcontext():
        fields = await read_request_of_application(LISTED)
        if fields is not None:
            authorization = _recorded(await oauth.validate(ports(), AuthorizationRequest.from_fields(fields)))
            provider = {"provider": fields["provider"]} if fields.get("provider") else {}
            return redirect(f"{AUTHORIZE_PATH}?{urlencode({**dict(parse_qsl(authorization.request.query)), **provider})}")
        return await _answer_form(user)


async def _answer_form(user: Visitor | None) -> Response:
    form = await read_form()
    authorization = await _present(cookies.device_cookie())
    try:
        if user is None or authorization.redirect_uri is None:
            return await _to_sign_in(authorization)
        check_session_form(form)
        return await _take_step(user, authorization, _parse(authorization), form.get("answer", ""))
    except AuthorizationRefused as refusal:
        return await _refused(authorization, refusal)


async def _present(browser_id: str | None) -> Authorization:
    """Return the checked request of this URL."""
    return _recorded(await pushed_requests.present(ports(), AuthorizationRequest.from_fields(joined_query()), browser_id))


def _recorded(authorization: Authorization) -> Authorization:
    if authorization.context is not None:
        request_record().organization = authorization.context.org_slug
    return authorization


def _parse(authorization: Authorization) -> OpenIdRequest:
    return authorization_steps.parse(ports(), authorization, app_context().base_url)


async def _take_step(user: Visitor | None, authorization: Authorization, openid: OpenIdRequest, answer: str | None = None) -> Response:
    try:
        step = await authorization_steps.advance(ports(), user, authorization, openid, answer)
    except SessionEnded:  # during this request
        return await _to_sign_in(authorization)
    if step.step is Step.SIGN_UP:
        return await _to_sign_in(authorization, SIGN_UP_PATH) if user is None else await sign_up_form(_continued(authorization, user).path)
    if user is None:
        return await _to_sign_in(authorization)
    if step.step is Step.SIGN_IN:  # again: the sign-in page would lead a signed-in user back here
        return await sign_in_form(_continued(authorization, user).path)
    if authorization.redirect_uri is None:
        return redirect(ACCOUNT_PATH)
    if step.code is None:
        return await _question_page(user, authorization, step)
    request_record().caller = str(user.user_id)
    return to_application(oauth_model.respond(authorization, app_context().base_url, code=step.code))


async def _to_sign_in(authorization: Authorization, page: str = SIGN_IN_PATH) -> Response:
    """Return the redirect to this page. Only this answer, and an error, count for a browser without a session."""
    await take_token(())
    await keep_taken(cookies.browser_id())
    return redirect(f"{page}?{urlencode({'next': _continued(authorization, None).path})}")


def _continued(authorization: Authorization, user: Visitor | None) -> AuthorizationRequest:
    """Return the request that continues after the sign-in. `user` has the present session of the browser."""
    if not authorization_steps.asks_for_more(_parse(authorization)):
        return authorization.request
    return authorization_steps.add_stamp(ports(), authorization.request, user)


async def _refused(authorization: Authorization, refusal: AuthorizationRefused) -> Response:
    """Return the response that reports the refusal to the application.

    Raises: the refusal if there is no application; RequestUriInvalid if a pushed request was used before.
    """
    if authorization.redirect_uri is None:
        raise refusal
    await pushed_requests.finish(ports(), authorization.request)
    request_record().error_code = refusal.code
    return to_application(openid_requests.refusal_response(authorization, refusal, app_context().base_url))


def to_application(answer: AuthorizationResponse, status: int = 303) -> Response:
    """Return the redirect to the application, or the page that posts the answer to it."""
    if answer.mode is not ResponseMode.FORM_POST:
        return redirect(answer.url, status)
    page = render("federation/form_post.html", scripted=True, redirect_uri=answer.redirect_uri, parameters=answer.parameters)
    return page_response(page)


async def _question_page(user: Visitor, authorization: Authorization, step: NextStep) -> Response:
    service = authorization.service  # None for the platform's own frontend
    design = None if service is None else await branding.get_design(ports(), service.org_id)
    page = render(
        "federation/authorize.html",
        design=design,
        form_token=session_form_token(),
        action=authorization.request.path,
        service=None if service is None else service.name,
        organization=design.organization_name if design else "",
        email=user.email,
        scopes=[] if step.grant is None else list(in_order(consent_scopes(step.grant))),
        api=authorization.api.access(step.grant.api.scope) if authorization.api and step.grant and step.grant.api else None,
        selects_account=step.step is Step.SELECT_ACCOUNT,
    )
    return page_response(page)
