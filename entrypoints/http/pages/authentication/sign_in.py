"""The pages for sign-in and sign-out (security A-3, G-2, G-4, S-5)."""

from contextlib import suppress
from typing import Any, Final

from quart import Blueprint, Response, request

from core.accounts import accounts
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.mfa import CodeMalformed, CodeWrong
from core.authentication.model.login import EmailNotVerified, PreAuthInvalid, PreAuthToken
from core.authentication.tokens import signing_keys
from core.federation import sign_in as sign_in_flow
from core.federation.saml import logout as saml_logout
from core.federation.saml.model.sign_on import LogoutCookies, LogoutFinished
from core.federation.sign_in import BrowserSignIn, BrowserTarget, CodeCredentials, PasswordCredentials, SignInCredentials, SignInOptions
from core.kernel.callers import Visitor
from core.kernel.errors import Invalid, Limited, Refusal, Unauthenticated
from core.kernel.page_paths import FORGOT_PASSWORD_PATH, SIGN_IN_PATH, SIGN_UP_PATH
from core.kernel.rate_limits import FORGOT_PASSWORD, LOGIN, MFA_VERIFICATION
from core.kernel.values import Email, EmailInvalid
from entrypoints.http.base import cookies
from entrypoints.http.base.context import caller, ports
from entrypoints.http.base.redirects import next_of, path_to_store, redirect, with_next
from entrypoints.http.base.rendering.templates import page_response, render
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.limits import give_back_taken, keep_taken
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.pages.federation.signed_out import signed_out_page
from entrypoints.http.pages.form_pages import check_session_form, form_page, read_own_form, refused_page
from entrypoints.http.pages.visitors import visitor, visitor_with_mfa

routes = Blueprint("sign_in", __name__)

CODE: Final = "/app/sign-in/code"
SIGNED_OUT, JOINED = "signed-out", "organization-joined"  # values of the notice cookie
NOTICES: Final = {SIGNED_OUT: "You're signed out.", JOINED: "You've joined the organization. Sign in to continue."}


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


@routes.get(SIGN_IN_PATH)
@anyone
@describes_page({200: "The sign-in form.", 303: "The user is signed in already. Continue at `next`."})
async def sign_in_page() -> Response:
    """Show the sign-in page.

    `next` is the path on this server to continue at after the sign-in. The default, also for a path
    that is not valid, is the account page.
    """
    next_path = next_of(request.args)
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
    next_path = next_of(form)
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
    next_path = next_of(request.args)
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
    form, pre_auth = await read_own_form(), cookies.pre_auth_cookie()
    next_path = next_of(form)
    if pre_auth is None:
        return redirect(with_next(SIGN_IN_PATH, next_path))
    try:
        claims = await signing_keys.read_pre_auth(ports(), pre_auth)
        credentials = CodeCredentials(claims, form.get("code", ""), trust_device=form.get("trust") == "yes")
        return await sign_in_browser(credentials, next_path)
    except (CodeMalformed, CodeWrong, Limited) as refusal:
        return refused_page(refusal, "authentication/sign_in_code.html", form_token=form["form_token"], **await page_values(next_path))
    except Unauthenticated as refusal:
        return await _sign_in_ended(refusal, form, next_path)


async def _sign_in_ended(refusal: Unauthenticated, form: dict[str, str], next_path: str) -> Response:
    """Return the sign-in page after a pending sign-in that has expired, was used, or took too many wrong codes."""
    response = await sign_in_again(refusal if isinstance(refusal, PreAuthInvalid) else PreAuthInvalid(), form, next_path)
    cookies.clear_pre_auth_cookie(response)
    return response


async def sign_in_browser(credentials: SignInCredentials, next_path: str) -> Response:
    """Verify one factor for this browser. Return a redirect to `next_path`, or to the page for the second factor."""
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
    form, user = await read_form(), await visitor()
    next_path = next_of(form)
    if user is not None:
        check_session_form(form)
    signed_out = redirect(with_next(SIGN_IN_PATH, next_path), notice=SIGNED_OUT)
    response = await sign_out_browser(user, next_path, signed_out)
    if form.get("forget") == "yes":
        cookies.clear_trust_cookie(response)
    return response


async def sign_out_browser(user: Visitor | None, after: str, signed_out: Response) -> Response:
    """End the session of this browser. Return `signed_out`, or the next page of a SAML logout, which ends at the path `after`."""
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


@routes.get(FORGOT_PASSWORD_PATH)
@anyone
@describes_page({200: "The form for the email address."})
async def forgot_password_page() -> Response:
    """Show the page that requests a password reset link.

    It needs no session. `next` is the path to continue at after the next sign-in.
    """
    next_path = next_of(request.args)
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
    next_path = next_of(form)
    options = await sign_in_flow.load_options(ports(), next_path)
    with suppress(EmailInvalid):  # the response is the same for a malformed address (security B-3)
        email = Email.parse(form.get("email", ""))
        await accounts.forgot_password(ports(), caller(), email, options.org_slug, path_to_store(next_path))
    return page_response(render("accounts/forgot_password_done.html", design=options.design, **links(next_path)))
