"""Signing in and out on our own pages, with the second factor and without (decisions, point 176; security.md G-2, G-4, S-5, A-3)."""

import re
from typing import Any, Final
from urllib.parse import unquote, urlencode

from quart import Blueprint, Response, request

from core.accounts import accounts
from core.accounts.devices_rules import Client
from core.accounts.mfa_rules import CodeMalformed, CodeWrong
from core.applications.services_rules import Service
from core.authentication import browser, login, login_rules, signing_keys
from core.authentication.browser import FormTokenWrong
from core.authentication.login_rules import PreAuthInvalid, PreAuthToken, SignedIn
from core.federation.oauth import authorization as oauth
from core.federation.oauth.authorization_rules import Authorization
from core.federation.saml import logout as saml_logout
from core.federation.saml import pending as saml_pending
from core.federation.saml.logout_rules import LogoutCookies
from core.federation.upstream import social
from core.kernel import uris
from core.kernel.errors import Invalid, Limited, Refusal, SessionEnded, Unauthenticated, refuse
from core.kernel.principals import Visitor
from core.kernel.rate_limits import FORGOT_PASSWORD, LOGIN, MFA_VERIFICATION
from core.kernel.values import Email
from core.tenancy import branding
from entrypoints.http.edge import cookies
from entrypoints.http.edge.access import ACCOUNT, SIGN_IN, anyone
from entrypoints.http.edge.context import agent, caller, page_response, ports, request_record
from entrypoints.http.edge.errors import status_of
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.pages import render

routes = Blueprint("sign_in", __name__)

CODE: Final = "/app/sign-in/code"
SIGNED_OUT: Final = "signed-out"  # what the notice's cookie calls it

NEXT_LENGTH = 8192  # a request of an application, with its redirect URI and its state
# A path and perhaps a query, in the characters that addresses are made of; so no controls, no blanks, no backslash (security.md G-4).
_NEXT = re.compile(r"/(?!/)[A-Za-z0-9/._~!$&'()*+,;=:@%?-]*")
_DOTS = (".", "..")


def safe_next(text: str) -> str:
    """Where to go on after signing in: a path of ours, or where `text` is anything else the account page (security.md G-4).

    Browsers resolve dot segments before they look whether a path begins with two slashes, and take `%2e` for a dot there; so such a
    path is refused, and with it one that has two slashes anywhere.
    """
    path = text.partition("?")[0]
    if len(text) > NEXT_LENGTH or not _NEXT.fullmatch(text) or "//" in path or "\\" in unquote(path):
        return ACCOUNT
    return ACCOUNT if any(unquote(part) in _DOTS for part in path.split("/")) else text


def redirect(target: str, status: int = 303) -> Response:
    """On to another page, by GET; where a protocol wants another status, with that."""
    return Response(b"", status, {"Location": target, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})


def refused_page(refusal: Refusal, name: str, *, form_action: str = "'self'", **values: Any) -> Response:
    """A form again that was not accepted, with the reason."""
    response = page_response(render(name, status=status_of(refusal), form_action=form_action, problem=refusal.message, **values))
    match refusal:
        case Limited():
            response.headers["Retry-After"] = str(refusal.retry_after)
        case Unauthenticated():
            # 401 has to name a scheme (RFC 9110 section 15.5.2), and no registered one is that of a form.
            response.headers["WWW-Authenticate"] = f'Cookie realm="gatehouse", form-action="{SIGN_IN}"'
    request_record().error_code = refusal.code
    return response


async def visitor() -> Visitor | None:
    """Who is signed in in this browser."""
    cookie = cookies.session_cookie()
    if cookie is None:
        return None
    try:
        return await browser.authenticate(ports(), cookie, address=request_record().address, agent=agent())
    except SessionEnded:
        return None


async def visitor_with_mfa() -> Visitor | None:
    """The same, for signing in elsewhere: not whoever has switched a second factor on since, and has not shown it here."""
    found = await visitor()
    return None if found is None or found.mfa_missing else found


def form_targets(redirect_uri: str | None) -> str:
    """Where the forms of a page may lead, as its policy says it. Browsers hold the policy against where an answer sends them on to as well,
    which is an application's redirect URI in the end."""
    return "'self'" if redirect_uri is None else f"'self' {uris.csp_source(redirect_uri)}"


async def purpose(after: str) -> dict[str, Any]:
    """What the pages to sign in on show, and let through, of the application that the person is on the way to."""
    authorization = await oauth.authorization_at(ports(), after)
    is_anew = await saml_pending.fresh_login_since(ports(), after) is not None
    offered = await social.available_providers(ports(), after, authorization, anew=is_anew)
    service = await _service_at(after, authorization)
    return {
        "providers": {provider.value.title(): address for provider, address in offered.items()},
        "service": service.name if service else None,
        "is_anew": is_anew,
        "design": await branding.get_design(ports(), service.org_id) if service else None,
        "form_action": form_targets(authorization.redirect_uri if authorization else None),
    }


async def _service_at(after: str, authorization: Authorization | None) -> Service | None:
    return authorization.service if authorization else await saml_pending.service_at(ports(), after)


def form_page(name: str, *, form_action: str = "'self'", **values: Any) -> Response:
    """A page with a form for somebody who is not signed in. Its token belongs to the browser, which keeps an id of its own from now on."""
    device_id = cookies.device_cookie() or cookies.new_device_id()
    page = render(name, form_action=form_action, form_token=browser.form_token(device_id), **values)
    response = page_response(page)
    cookies.keep_device_cookie(response, device_id)
    return response


async def read_own_form() -> dict[str, str]:
    """A form of such a page, sent by the browser that the page was made for. Raises ForeignOrigin, FormTokenWrong, FormInvalid."""
    form = await read_form()
    device_id = cookies.device_cookie() or refuse(FormTokenWrong)  # what has no cookie has a token that anybody can make
    browser.check_form_token(device_id, form.get("form_token", ""))
    return form


@routes.get(SIGN_IN)
@anyone
@describes_page({200: "The form.", 303: "Signed in already: on to where `next` says."})
async def sign_in_page() -> Response:
    """The page to sign in on; `next` is a path of ours to go to afterwards."""
    after = safe_next(request.args.get("next", ACCOUNT))
    if await visitor_with_mfa() is not None:
        return redirect(after)
    return await sign_in_form(after)


async def sign_in_form(after: str) -> Response:
    """The form to sign in with, and to go on to this path of ours afterwards; it says so where somebody has just signed out."""
    is_out = cookies.notice_cookie() == SIGNED_OUT
    response = form_page("sign_in.html", next=after, email="", problem=None, is_signed_out=is_out, **await purpose(after))
    if is_out:
        cookies.clear_notice_cookie(response)
    return response


async def _sign_in_again(refusal: Refusal, form: dict[str, str], after: str, typed: str = "") -> Response:
    """That form after a try that was refused; `typed` is the address that stood in it."""
    values = {"form_token": form["form_token"], "next": after, "email": typed, "is_signed_out": False, **await purpose(after)}
    return refused_page(refusal, "sign_in.html", **values)


@routes.post(SIGN_IN)
@anyone(limit=LOGIN)
@describes_page(
    {
        303: "Signed in, or on to the page that asks for a code.",
        400: "The form is not complete.",
        401: "The email address or the password is wrong, or the address is not verified yet.",
        403: "The form was not sent by our page.",
    },
    form=["form_token", "email", "password"],
)
async def sign_in() -> Response:
    """What the sign-in page sends."""
    form = await read_own_form()
    after = safe_next(form.get("next", ACCOUNT))
    typed = form.get("email", "")
    try:
        found = await login.sign_in_with_password(
            ports(), caller(), Email.parse(typed), form.get("password", ""), _client(), in_browser=True
        )
    except (Invalid, Unauthenticated, Limited) as refusal:
        return await _sign_in_again(refusal, form, after, typed)
    return await go_on(found, after)


@routes.get(CODE)
@anyone
@describes_page({200: "The form.", 303: "No sign-in waits for a code: back to the beginning."})
async def code_page() -> Response:
    """The page that asks for the second factor."""
    after = safe_next(request.args.get("next", ACCOUNT))
    if cookies.pre_auth_cookie() is None:
        return redirect(with_next(SIGN_IN, after))
    return form_page("sign_in_code.html", next=after, problem=None, **await purpose(after))


@routes.post(CODE)
@anyone(limit=MFA_VERIFICATION)
@describes_page(
    {
        303: "Signed in; or the sign-in cannot be continued: back to the beginning.",
        400: "That can be no code.",
        401: "The code is wrong.",
        403: "The form was not sent by our page.",
    },
    form=["form_token", "code"],
)
async def sign_in_with_code() -> Response:
    """What that page sends. A device that shall be trusted is not asked for a code again for a while."""
    form = await read_own_form()
    after = safe_next(form.get("next", ACCOUNT))
    pre_auth, trust = cookies.pre_auth_cookie(), form.get("trust") == "yes"
    if pre_auth is None:
        return redirect(with_next(SIGN_IN, after))
    try:
        claims = await signing_keys.read_pre_auth(ports(), pre_auth)
        found = await login.sign_in_with_code(ports(), caller(), claims, form.get("code", ""), _client(), trust=trust, in_browser=True)
    except (CodeMalformed, CodeWrong, Limited) as refusal:
        return refused_page(refusal, "sign_in_code.html", form_token=form["form_token"], next=after, **await purpose(after))
    except Unauthenticated as refusal:  # it has lapsed, was used, or took too many wrong codes
        refused = refusal if isinstance(refusal, PreAuthInvalid) else PreAuthInvalid()
        response = await _sign_in_again(refused, form, after)
        cookies.clear_pre_auth_cookie(response)
        return response
    return await go_on(found, after)


async def go_on(found: SignedIn | PreAuthToken, after: str) -> Response:
    """On to the page that asks for the second factor; or to `after`, with the session that has begun, which takes the place of another one
    that this browser may have."""
    if isinstance(found, PreAuthToken):
        response = redirect(with_next(CODE, after))
        cookies.set_pre_auth_cookie(response, found.token, found.expires_in)
        return response
    if found.session.provider == login_rules.PASSWORD:
        service = await _service_at(after, await oauth.authorization_at(ports(), after))
        if service is not None:
            await login.take_part(ports(), found, service.org_id)
    if (cookie := cookies.session_cookie()) is not None:
        await saml_logout.replace_session(ports(), caller(), cookie, found.session.id)
    response = redirect(after)
    cookies.set_session_cookie(response, found.secret, found.session.expires_at)
    cookies.clear_pre_auth_cookie(response)
    if found.device_token is not None:
        cookies.set_trust_cookie(response, found.device_token)
    return response


@routes.post("/app/sign-out")
@anyone
@describes_page(
    {
        200: "Signed out here, and on to the applications that have to be told.",
        303: "Signed out: on to the sign-in page.",
        403: "The form was not sent by our page.",
    },
    form=["form_token"],
)
async def sign_out() -> Response:
    """End the session of this browser, which stays trusted if it is.

    What it has signed in to with SAML is signed out as well. `next` is where to go once somebody has signed in again.
    """
    form, cookie = await read_form(), cookies.session_cookie()
    after = safe_next(form.get("next", ACCOUNT))
    found, shown = await visitor(), LogoutCookies(logout=cookies.logout_cookie(), session=cookie)
    if cookie is not None and found is not None:
        browser.check_form_token(cookie, form.get("form_token", ""))
    started = await saml_logout.sign_out(ports(), found, caller(), shown, after)
    if started is None:
        response = redirect(with_next(SIGN_IN, after))
        cookies.set_notice_cookie(response, SIGNED_OUT)
    else:
        # A page, and no redirect: browsers would not let one that follows a form lead to applications, where our forms do not go.
        response = page_response(render("signing_out.html", onward=started.path))
        cookies.set_logout_cookie(response, started.secret)
    cookies.clear_session_cookie(response)
    return response


@routes.get("/app/forgot-password")
@anyone
@describes_page({200: "The form."})
async def forgot_password_page() -> Response:
    """The page to ask for a link to reset a forgotten password on."""
    return form_page("forgot_password.html")


@routes.post("/app/forgot-password")
@anyone(limit=FORGOT_PASSWORD)
@describes_page({200: "Always the same.", 403: "The form was not sent by our page."}, form=["form_token", "email"])
async def forgot_password() -> Response:
    """What that page sends. The answer never tells whether there is an account."""
    form = await read_own_form()
    try:
        email = Email.parse(form.get("email", ""))
    except Invalid:
        pass  # the same answer for what cannot be an address (security.md B-3)
    else:
        await accounts.forgot_password(ports(), caller(), email)
    return page_response(render("forgot_password_done.html"))


def _client() -> Client:
    return Client(device_id=cookies.device_cookie(), token=cookies.trust_cookie())


def with_next(path: str, after: str) -> str:
    return path if after == ACCOUNT else f"{path}?{urlencode({'next': after})}"
