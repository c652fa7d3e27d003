"""OAuth pages: the authorization endpoint and the consent page.

Sources: decisions 86, 87 and 88.
"""

from typing import Final
from urllib.parse import urlencode

from quart import Blueprint, Response, request

from core.authentication import browser
from core.authentication.oauth_credentials_rules import parse_provider
from core.federation.oauth import authorization as oauth
from core.federation.oauth import authorization_rules as oauth_rules
from core.federation.oauth.authorization_rules import AUTHORIZE_PATH, Authorization, AuthorizationRequest
from core.kernel.errors import Forbidden, Invalid, SessionEnded
from core.kernel.page_paths import ACCOUNT_PATH, SIGN_IN_PATH
from core.kernel.principals import Visitor
from core.tenancy import branding
from entrypoints.http.edge import cookies
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.context import app_context, page_response, ports, request_record
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.pages import render
from entrypoints.http.pages.sign_in import form_targets, redirect, visitor_with_mfa

routes = Blueprint("oauth_pages", __name__)

REQUEST_PARAMETERS: Final = {
    "org": "The slug of the organization, together with `service`.",
    "service": "The slug of the application, together with `org`.",
    "client_id": "The client id of the application, instead of `org` and `service`.",
    "redirect_uri": "The registered redirect URI that receives the code. Optional if only one is registered.",
    "state": "Returned unchanged with the code. At most 1024 characters.",
    "code_challenge": "The PKCE challenge. Required for applications without a client secret.",
    "code_challenge_method": "`S256`, together with `code_challenge`.",
}
PARAMETERS: Final = {
    **REQUEST_PARAMETERS,
    "response_type": "`code`. Optional.",
    "provider": "`codehost`, `websuite` or `officesuite`: continue at this identity provider without the sign-in page.",
}


class NotOurForm(Forbidden):
    """Only our own page may send a form here. Applications must open this URL with GET, with the parameters in the query."""


class ResponseTypeUnsupported(Invalid):
    """This response_type is not supported. Send response_type=code, or leave it out."""


@routes.get(AUTHORIZE_PATH)
@anyone
@refuses(400, 403, 404)
@describes_page(
    {
        200: "The page that asks the user before the application gets a code.",
        303: "Redirect to the redirect URI with a code or an error, or to the sign-in page.",
    },
    optional=PARAMETERS,
    changes_state=True,
)
async def authorize() -> Response:
    """Sign the user in to an application.

    The application opens this URL in the user's browser, with org and service or with its
    client_id. Without these, the user signs in to the platform itself. A signed-in user is
    redirected immediately. The first time they use an organization's application, they are asked to
    confirm. Exchange the code at `POST /auth/token` within 60 seconds. A request that is not valid
    is never redirected.
    """
    authorization = await _authorization()
    if request.args.get("response_type", "code") != "code":
        if authorization.redirect_uri is None:
            raise ResponseTypeUnsupported
        return redirect(oauth_rules.error_uri(authorization, "unsupported_response_type", app_context().base_url))
    provider = request.args.get("provider")
    if provider:
        return redirect(f"/auth/{parse_provider(provider).value}?{authorization.request.query}")
    user = await visitor_with_mfa()
    if user is None:
        return _to_sign_in(authorization)
    if authorization.redirect_uri is None:
        return redirect(ACCOUNT_PATH)
    if not await oauth.is_allowed(ports(), user, authorization):
        return _access_denied(authorization)
    if await oauth.needs_consent(ports(), user, authorization):
        return await _consent_page(user, authorization)
    return await _redirect_with_code(user, authorization)


@routes.post(AUTHORIZE_PATH)
@anyone
@refuses(400, 403, 404)
@describes_page(
    {
        303: "Redirect to the redirect URI with a code or with the error access_denied, or to the sign-in page.",
        403: "The form was not sent by our page.",
    },
    optional=REQUEST_PARAMETERS,
    form=["form_token", "answer"],
)
async def answer_consent() -> Response:
    """Send the form of the consent page.

    Applications cannot use this: only the form of our page is accepted. `answer` is `continue`;
    every other value cancels.
    """
    form = await read_form()
    if "form_token" not in form:  # RFC 6749 section 3.1: POST by applications is optional, and we do not support it
        raise NotOurForm
    authorization = await _authorization()
    user = await visitor_with_mfa()
    if user is None or authorization.redirect_uri is None:
        return _to_sign_in(authorization)
    browser.check_form_token(cookies.session_cookie() or "", form.get("form_token", ""))
    if form.get("answer") != "continue" or not await oauth.is_allowed(ports(), user, authorization):
        return _access_denied(authorization)
    return await _redirect_with_code(user, authorization)


async def _authorization() -> Authorization:
    authorization = await oauth.validate(ports(), AuthorizationRequest.from_fields(request.args))
    if authorization.context is not None:
        request_record().organization = authorization.context.org_slug
    return authorization


def _to_sign_in(authorization: Authorization) -> Response:
    return redirect(f"{SIGN_IN_PATH}?{urlencode({'next': authorization.request.path})}")


def _access_denied(authorization: Authorization) -> Response:
    return redirect(oauth_rules.error_uri(authorization, "access_denied", app_context().base_url))


async def _consent_page(user: Visitor, authorization: Authorization) -> Response:
    assert authorization.service is not None, "the platform's own frontend needs no consent"
    design = await branding.get_design(ports(), authorization.service.org_id)
    page = render(
        "authorize.html",
        form_action=form_targets(authorization.redirect_uri),
        design=design,
        form_token=browser.form_token(cookies.session_cookie() or ""),
        action=authorization.request.path,
        service=authorization.service.name,
        organization=design.organization_name if design else "",
        email=user.email,
    )
    return page_response(page)


async def _redirect_with_code(user: Visitor, authorization: Authorization) -> Response:
    request_record().caller = str(user.user_id)
    try:
        return redirect(await oauth.issue_code(ports(), user, authorization, app_context().base_url))
    except SessionEnded:  # during this request
        return _to_sign_in(authorization)
