"""The pages for sign-in and sign-out, and helpers that other pages use too (security A-3, G-2, G-4, S-5).

The module is longer than 400 lines because the names of its routes are part of the API description.
"""

import re
from typing import Any, Final
from urllib.parse import unquote, urlencode

from quart import Blueprint, Response, request

from core.accounts import accounts
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.mfa import CodeMalformed, CodeWrong
from core.authentication import browser
from core.authentication.browser import FormTokenInvalid
from core.authentication.model.login import EmailNotVerified, PreAuthInvalid, PreAuthToken
from core.authentication.tokens import signing_keys
from core.federation import sign_in as sign_in_flow
from core.federation.oauth import end_session
from core.federation.oauth.model.end_session import ApplicationReturn
from core.federation.saml import logout as saml_logout
from core.federation.saml.model.logout import LogoutCookies, LogoutFinished
from core.federation.sign_in import (
    BrowserSignIn,
    BrowserTarget,
    CodeCredentials,
    PasswordCredentials,
    SignInCredentials,
    SignInOptions,
)
from core.kernel.callers import Visitor
from core.kernel.errors import Invalid, Limited, Refusal, SessionEnded, Unauthenticated, refuse
from core.kernel.page_paths import ACCOUNT_PATH, FORGOT_PASSWORD_PATH, SIGN_IN_PATH, SIGN_UP_PATH
from core.kernel.rate_limits import FORGOT_PASSWORD, LOGIN, MFA_VERIFICATION
from core.kernel.values import Email
from entrypoints.http.edge import cookies
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.context import agent, caller, page_response, ports, request_record
from entrypoints.http.edge.errors import page_status_of
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.limits import give_back_taken, keep_taken
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.pages import render

routes = Blueprint("sign_in", __name__)

CODE: Final = "/app/sign-in/code"
SIGNED_OUT, JOINED = "signed-out", "organization-joined"  # values of the notice cookie
NOTICES: Final = {SIGNED_OUT: "You're signed out.", JOINED: "You've joined the organization. Sign in to continue."}

MAX_NEXT_LENGTH = 8192  # enough for an authorization request with its redirect URI and state
# A path with an optional query. It has only characters of URLs: no control characters, spaces or
# backslashes (security G-4).
_NEXT = re.compile(r"/(?!/)[A-Za-z0-9/._~!$&'()*+,;=:@%?-]*")
_DOT_SEGMENTS = (".", "..")


def safe_next(text: str) -> str:
    """Return `text` if it is a safe path on this server to continue at after the sign-in, or else the account page (security G-4).

    Browsers resolve dot segments before they check whether a path starts with two slashes, and they
    treat `%2e` as a dot. So a path with a dot segment or with two slashes anywhere is not safe.
    """
    path = text.partition("?")[0]
    if len(text) > MAX_NEXT_LENGTH or not _NEXT.fullmatch(text) or "//" in path or "\\" in unquote(path):
        return ACCOUNT_PATH
    return ACCOUNT_PATH if any(unquote(segment) in _DOT_SEGMENTS for segment in path.split("/")) else text


def with_next(path: str, next_path: str) -> str:
    """Return `path` with the parameter `next`, which is left out if `next_path` is the account page."""
    return path if next_path == ACCOUNT_PATH else f"{path}?{urlencode({'next': next_path})}"


def path_to_store(next_path: str) -> str | None:
    """Return the path for the link of an email, or None if it is the account page."""
    return None if next_path == ACCOUNT_PATH else next_path


def redirect(target: str, status: int = 303) -> Response:
    """Return a redirect to another page. Status 303 makes the browser use GET; some protocols require another status."""
    return Response(b"", status, {"Location": target, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})


def refused_page(refusal: Refusal, name: str, **values: Any) -> Response:
    """Return the page of a form again after a refusal, with its message and status."""
    status = page_status_of(refusal)
    response = page_response(render(name, status=status, problem=refusal.message, **values))
    match refusal:
        case Limited():
            response.headers["Retry-After"] = str(refusal.retry_after)
        case Unauthenticated() if status == 401:
            # 401 must name a scheme (RFC 9110 section 15.5.2), and no registered scheme describes a
            # form.
            response.headers["WWW-Authenticate"] = f'Cookie realm="gatehouse", form-action="{SIGN_IN_PATH}"'
    request_record().error_code = refusal.code
    return response


def no_access_page(refusal: Refusal, user: Visitor, next_path: str) -> Response:
    """Return the page that says why the signed-in user has no access, and offers to continue at this path as another user."""
    form_token = browser.form_token(cookies.session_cookie() or "")
    return refused_page(refusal, "federation/no_access.html", form_token=form_token, next=safe_next(next_path), email=user.email)


async def visitor() -> Visitor | None:
    """Return the user of this browser's session, or None."""
    cookie = cookies.session_cookie()
    if cookie is None:
        return None
    try:
        return await browser.authenticate(ports(), cookie, address=request_record().address, agent=agent())
    except SessionEnded:
        return None


async def visitor_with_mfa() -> Visitor | None:
    """Return the user of this browser's session, or None without a session or if the second factor is missing.

    It is missing if the user enabled a second factor after the session started, and has not verified it in this session.
    """
    user = await visitor()
    return None if user is None or user.mfa_missing else user


async def page_values(next_path: str) -> dict[str, Any]:
    """Return the values of the sign-in and sign-up pages that depend on the application that the user is signing in to."""
    return values_of(await sign_in_flow.load_options(ports(), next_path), next_path)


def links(next_path: str) -> dict[str, Any]:
    """Return the values of a page that continues at this path: the path itself, and links to the pages around the sign-in."""
    return {
        "next": next_path,
        "sign_in": with_next(SIGN_IN_PATH, next_path),
        "sign_up": with_next(SIGN_UP_PATH, next_path),
        "forgot_password": with_next(FORGOT_PASSWORD_PATH, next_path),
    }


def values_of(options: SignInOptions, next_path: str) -> dict[str, Any]:
    """Return the values of the sign-in and sign-up pages for these options."""
    return {
        **links(next_path),
        "providers": {ports().policy.provider_names[provider]: path for provider, path in options.providers.items()},
        "service": options.service.name if options.service else None,
        "organization_name": options.design.organization_name if options.design else None,
        "email_sign_in": options.email_sign_in,
        "needs_fresh_sign_in": options.needs_fresh_sign_in,
        "offers_sign_up": options.offers_sign_up,
        "design": options.design,
    }


def form_page(name: str, **values: Any) -> Response:
    """Return a page with a form for a browser without a session. The form token is bound to the browser's device cookie."""
    return page_response(render(name, form_token=browser.form_token(cookies.browser_id()), **values))


def refused_form_page(refusal: Refusal, name: str, **values: Any) -> Response:
    """Return a page with a form, for a browser without a session, that says why a request was refused."""
    return refused_page(refusal, name, form_token=browser.form_token(cookies.browser_id()), **values)


async def read_own_form() -> dict[str, str]:
    """Return the fields of a form that `form_page` made for this browser. Raises: FormTokenInvalid; the errors of `read_form`."""
    form = await read_form()
    check_browser_form(form)
    return form


def check_browser_form(form: dict[str, str]) -> None:
    """Check that `form_page` made this form for this browser. Raises: FormTokenInvalid."""
    device_id = cookies.device_cookie() or refuse(FormTokenInvalid)  # without a cookie, anyone could compute the token
    browser.check_form_token(device_id, form.get("form_token", ""))


@routes.get(SIGN_IN_PATH)
@anyone
@describes_page({200: "The sign-in form.", 303: "The user is signed in already. Continue at `next`."})
async def sign_in_page() -> Response:
    """Show the sign-in page.

    `next` is the path on this server to continue at after the sign-in. The default, also for a path
    that is not valid, is the account page.
    """
    next_path = safe_next(request.args.get("next", ACCOUNT_PATH))
    if await visitor_with_mfa() is not None:
        return redirect(next_path)
    return await sign_in_form(next_path)


async def sign_in_form(next_path: str) -> Response:
    """Return the sign-in page, with a notice if the user just signed out or joined an organization."""
    notice = NOTICES.get(cookies.notice_cookie() or "")
    options = await sign_in_flow.load_options(ports(), next_path)
    email = options.login_hint or ""
    values = {"email": email, "problem": None, "notice": notice, "is_unverified": False, **values_of(options, next_path)}
    response = form_page("authentication/sign_in.html", **values)
    if notice is not None:
        cookies.clear_notice_cookie(response)
    return response


async def sign_in_again(refusal: Refusal, form: dict[str, str], next_path: str, email: str = "") -> Response:
    """Return the sign-in page after a refused attempt, with the email address that the user typed."""
    # The password was right, so the page may say that the account exists (security B-1).
    is_unverified = isinstance(refusal, EmailNotVerified)
    values = {"email": email, "notice": None, "is_unverified": is_unverified, **await page_values(next_path)}
    return refused_page(refusal, "authentication/sign_in.html", form_token=form["form_token"], **values)


@routes.post(SIGN_IN_PATH)
@anyone(limit=LOGIN)
@describes_page(
    {
        303: "Signed in, or a code is required: continue at the next page.",
        400: "A field is missing or malformed.",
        401: "The email address or the password is wrong, or the address is not verified yet.",
        403: "The form was not sent by our page.",
    },
    form=["form_token", "email", "password"],
)
async def sign_in() -> Response:
    """Sign in with the form of the sign-in page.

    The response sets the session cookie, or redirects to the page for the second factor.
    """
    form = await read_own_form()
    next_path = safe_next(form.get("next", ACCOUNT_PATH))
    email = form.get("email", "")
    try:
        return await sign_in_browser(PasswordCredentials(Email.parse(email), form.get("password", "")), next_path)
    except (Invalid, Unauthenticated, Limited) as refusal:
        return await sign_in_again(refusal, form, next_path, email)


@routes.get(CODE)
@anyone
@describes_page({200: "The form for the code.", 303: "No sign-in is pending in this browser. Start at the sign-in page."})
async def code_page() -> Response:
    """Show the page for the second factor.

    `next` is the path on this server to continue at after the sign-in.
    """
    next_path = safe_next(request.args.get("next", ACCOUNT_PATH))
    if cookies.pre_auth_cookie() is None:
        return redirect(with_next(SIGN_IN_PATH, next_path))
    return form_page("authentication/sign_in_code.html", problem=None, **await page_values(next_path))


@routes.post(CODE)
@anyone(limit=MFA_VERIFICATION)
@describes_page(
    {
        303: "Signed in; or no sign-in is pending in this browser, so start at the sign-in page.",
        400: "The code is malformed.",
        401: "The code is wrong, or the sign-in cannot be continued.",
        403: "The form was not sent by our page.",
    },
    form=["form_token", "code"],
)
async def sign_in_with_code() -> Response:
    """Complete a sign-in with a code of the second factor.

    With `trust=yes`, this browser can skip the second factor for a while. Organizations set how long.
    """
    form = await read_own_form()
    next_path = safe_next(form.get("next", ACCOUNT_PATH))
    pre_auth = cookies.pre_auth_cookie()
    if pre_auth is None:
        return redirect(with_next(SIGN_IN_PATH, next_path))
    try:
        claims = await signing_keys.read_pre_auth(ports(), pre_auth)
        credentials = CodeCredentials(claims, form.get("code", ""), trust_device=form.get("trust") == "yes")
        return await sign_in_browser(credentials, next_path)
    except (CodeMalformed, CodeWrong, Limited) as refusal:
        return refused_page(refusal, "authentication/sign_in_code.html", form_token=form["form_token"], **await page_values(next_path))
    except Unauthenticated as refusal:  # the pending sign-in has expired, was used, or took too many wrong codes
        refused = refusal if isinstance(refusal, PreAuthInvalid) else PreAuthInvalid()
        response = await sign_in_again(refused, form, next_path)
        cookies.clear_pre_auth_cookie(response)
        return response


async def sign_in_browser(credentials: SignInCredentials, next_path: str) -> Response:
    """Verify one factor for this browser. Return a redirect to `next_path`, or to the page for the second factor.

    Raises: the errors of `core.federation.sign_in.sign_in`.
    """
    target = BrowserTarget(next_path, cookies.session_cookie())
    return await sign_in_response(await sign_in_flow.sign_in(ports(), caller(), credentials, target, presented_browser()), next_path)


def presented_browser() -> PresentedDevice:
    """Return the device information in the cookies of this browser."""
    return PresentedDevice(device_id=cookies.device_cookie(), token=cookies.trust_cookie())


async def sign_in_response(outcome: BrowserSignIn | PreAuthToken, next_path: str) -> Response:
    """Return a redirect to `next_path` with the session cookie, or to the page for the second factor.

    A completed sign-in gives back what its requests took from the rate limits.
    """
    if isinstance(outcome, PreAuthToken):
        await keep_taken(cookies.browser_id())
        response = redirect(with_next(CODE, next_path))
        cookies.set_pre_auth_cookie(response, outcome.token, outcome.expires_in)
        return response
    await give_back_taken(cookies.device_cookie())
    response = redirect(next_path)
    cookies.set_session_cookie(response, outcome.cookie, outcome.expires_at)
    cookies.clear_pre_auth_cookie(response)
    if outcome.device_token is not None:
        cookies.set_trust_cookie(response, outcome.device_token)
    return response


@routes.post("/app/sign-out")
@anyone
@describes_page(
    {
        200: "Signed out here. The page continues with the applications that sign out over SAML, unless another sign-out is in progress.",
        303: "Signed out. Continue at the sign-in page.",
        403: "The form was not sent by our page.",
    },
    form=["form_token"],
)
async def sign_out() -> Response:
    """End the session of this browser.

    Sessions at applications that used SAML single sign-on end too. A trusted browser stays trusted,
    unless `forget` is `yes`. `next` is the path to continue at after the next sign-in.
    """
    form, cookie = await read_form(), cookies.session_cookie()
    next_path = safe_next(form.get("next", ACCOUNT_PATH))
    user = await visitor()
    if cookie is not None and user is not None:
        browser.check_form_token(cookie, form.get("form_token", ""))
    signed_out = redirect(with_next(SIGN_IN_PATH, next_path))
    cookies.set_notice_cookie(signed_out, SIGNED_OUT)
    response = await sign_out_browser(user, next_path, signed_out)
    if form.get("forget") == "yes":
        cookies.clear_trust_cookie(response)
    return response


async def sign_out_browser(user: Visitor | None, after: str, signed_out: Response) -> Response:
    """End the session of this browser.

    Return `signed_out`, or the next page of a SAML logout, which ends at the path `after`.
    """
    logout_cookies = LogoutCookies(logout=cookies.logout_cookie(), session=cookies.session_cookie())
    logout = await saml_logout.sign_out(ports(), user, caller(), logout_cookies, after)
    if logout is None:
        response = signed_out
    elif isinstance(logout, LogoutFinished):
        response = await signed_out_page(logout)
    else:
        # A page instead of a redirect, because browsers apply the form-action policy to redirects,
        # and many pages have a button to sign out.
        assert logout.secret is not None, "a logout continues"
        response = page_response(render("federation/signing_out.html", next_path=logout.url))
        cookies.set_logout_cookie(response, logout.secret)
    cookies.clear_session_cookie(response)
    return response


async def signed_out_page(outcome: LogoutFinished) -> Response:
    """Return the page at the end of a logout, with a link to sign in again.

    If an application requested the logout, the browser returns there. If the logout is partial, the
    page says so first, and links to the application.
    """
    application = await end_session.find_return(ports(), outcome.after)
    if application is not None and not outcome.is_partial:
        return redirect(application.url)
    next_path = ACCOUNT_PATH if application is not None or outcome.after is None else outcome.after
    return end_page(application, is_partial=outcome.is_partial, next_path=next_path)


def end_page(
    application: ApplicationReturn | None, *, is_partial: bool = False, cannot_return: bool = False, next_path: str = ACCOUNT_PATH
) -> Response:
    """Return the page for a user who is signed out, with a link to this application or else to the sign-in page."""
    page = render(
        "federation/signed_out.html",
        is_partial=is_partial,
        cannot_return=cannot_return,
        sign_in_path=with_next(SIGN_IN_PATH, next_path),
        application=None if application is None else application.service_name,
        return_url=None if application is None else application.url,
    )
    return page_response(page)


@routes.get(FORGOT_PASSWORD_PATH)
@anyone
@describes_page({200: "The form for the email address."})
async def forgot_password_page() -> Response:
    """Show the page that requests a password reset link.

    It needs no session. `next` is the path to continue at after the next sign-in.
    """
    next_path = safe_next(request.args.get("next", ACCOUNT_PATH))
    options = await sign_in_flow.load_options(ports(), next_path)
    return form_page("accounts/forgot_password.html", design=options.design, **links(next_path))


@routes.post(FORGOT_PASSWORD_PATH)
@anyone(limit=FORGOT_PASSWORD)
@describes_page({200: "The same page for every email address.", 403: "The form was not sent by our page."}, form=["form_token", "email"])
async def forgot_password() -> Response:
    """Email a password reset link.

    The response does not tell whether an account has the email address. `next` is the path to
    continue at after the next sign-in.
    """
    form = await read_own_form()
    next_path = safe_next(form.get("next", ACCOUNT_PATH))
    options = await sign_in_flow.load_options(ports(), next_path)
    try:
        email = Email.parse(form.get("email", ""))
    except Invalid:
        pass  # the response is the same for a malformed address (security B-3)
    else:
        await accounts.forgot_password(ports(), caller(), email, options.org_slug, path_to_store(next_path))
    return page_response(render("accounts/forgot_password_done.html", design=options.design, **links(next_path)))
