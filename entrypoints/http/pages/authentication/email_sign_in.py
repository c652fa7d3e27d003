"""The pages of sign-in by email: request an email, enter its code, and confirm its link."""

from typing import Any, Final

from quart import Blueprint, Response, request

from core.accounts.model.accounts import LinkInvalid
from core.authentication import email_sign_in as requests
from core.authentication.model.login import EmailCodeMalformed, EmailCodeWrong, EmailSignIn, EmailSignInEnded, EmailSignInOff, PreAuthToken
from core.federation import email_sign_in
from core.federation.email_sign_in import OpenedLink
from core.federation.sign_in import BrowserSignIn, BrowserTarget
from core.kernel.display import format_utc
from core.kernel.errors import Invalid, Limited, NotFound, Refusal
from core.kernel.page_paths import EMAIL_SIGN_IN_LINK_PATH, SIGN_IN_PATH
from core.kernel.rate_limits import EMAIL_SIGN_IN, EMAIL_SIGN_IN_VERIFICATION
from core.kernel.values import Email
from entrypoints.http.base import cookies
from entrypoints.http.base.context import caller, ports
from entrypoints.http.base.redirects import next_of, redirect, with_next
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.limits import give_back_email, keep_taken
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.edge.typed_fields import link_token
from entrypoints.http.pages.authentication.sign_in import page_values, presented_browser, sign_in_again, sign_in_response
from entrypoints.http.pages.form_pages import form_page, read_own_form, refused_page

routes = Blueprint("email_sign_in_pages", __name__)

EMAIL_SIGN_IN_PATH: Final = "/app/sign-in/email"
EMAIL_CODE_PATH: Final = "/app/sign-in/email/code"
SENT_AGAIN: Final = "email-sent-again"  # the value of the notice cookie


@routes.post(EMAIL_SIGN_IN_PATH)
@anyone(limit=EMAIL_SIGN_IN)
@describes_page(
    {
        303: "The same page for every email address: enter the code of the email.",
        400: "The email address is malformed.",
        403: "The form was not sent by our page.",
        404: "Sign-in by email is off here.",
    },
    form=["form_token", "email"],
)
async def request_email() -> Response:
    """Send an email with a code and a link to sign in.

    The response does not tell whether an account has the email address. `next` is the path on this
    server to continue at after the sign-in.
    """
    form = await read_own_form()
    next_path, email = next_of(form), form.get("email", "")
    try:
        requested = await email_sign_in.request_in_browser(ports(), caller(), Email.parse(email), next_path)
    except (Invalid, NotFound) as refusal:
        return await sign_in_again(refusal, form, next_path, email)
    await keep_taken(requested.secret)
    response = redirect(with_next(EMAIL_CODE_PATH, next_path), notice=SENT_AGAIN if form.get("again") == "yes" else None)
    cookies.set_email_sign_in_cookie(response, requested.secret, requested.expires_in)
    return response


@routes.get(EMAIL_CODE_PATH)
@anyone
@describes_page({200: "The form for the code.", 303: "No sign-in by email is pending in this browser. Start at the sign-in page."})
async def code_page() -> Response:
    """Show the page for the code of the email.

    `next` is the path on this server to continue at after the sign-in.
    """
    next_path, pending = next_of(request.args), await _pending_here()
    if pending is None:
        return redirect(with_next(SIGN_IN_PATH, next_path))
    is_again = cookies.notice_cookie() == SENT_AGAIN
    response = form_page(
        "authentication/email_sign_in_code.html", problem=None, is_again=is_again, **await _code_values(pending, next_path)
    )
    if is_again:
        cookies.clear_notice_cookie(response)
    return response


@routes.post(EMAIL_CODE_PATH)
@anyone(limit=EMAIL_SIGN_IN_VERIFICATION)
@describes_page(
    {
        303: "Signed in, or a code of the second factor is required: continue at the next page. Without a pending sign-in, start again.",
        400: "The code is malformed.",
        401: "The code is wrong, or can no longer be used.",
        403: "The form was not sent by our page.",
        404: "Sign-in by email was switched off.",
    },
    form=["form_token", "code"],
)
async def sign_in_with_code() -> Response:
    """Sign in with the code of the email.

    It works only in the browser that asked for it. The code also verifies the email address.
    """
    form = await read_own_form()
    next_path, secret = next_of(form), cookies.email_sign_in_cookie()
    if secret is None:
        return redirect(with_next(SIGN_IN_PATH, next_path))
    target = BrowserTarget(next_path, cookies.session_cookie())
    try:
        outcome = await email_sign_in.sign_in_browser_with_code(
            ports(), caller(), secret, form.get("code", ""), target, presented_browser()
        )
    except (EmailCodeMalformed, EmailCodeWrong, EmailSignInEnded, EmailSignInOff, Limited) as refusal:
        return await _code_again(refusal, form, next_path)
    return await _signed_in(outcome, next_path, secret)


async def _code_again(refusal: Refusal, form: dict[str, str], next_path: str) -> Response:
    """Return the page for the code after a refused attempt, or the sign-in page if nothing is pending in this browser."""
    pending = await _pending_here()
    if pending is None or isinstance(refusal, EmailSignInOff):
        response = await sign_in_again(refusal, form, next_path)
        cookies.clear_email_sign_in_cookie(response)
        return response
    values = await _code_values(pending, next_path)
    return refused_page(refusal, "authentication/email_sign_in_code.html", form_token=form["form_token"], is_again=False, **values)


async def _code_values(pending: EmailSignIn, next_path: str) -> dict[str, Any]:
    sign_in_path = with_next(SIGN_IN_PATH, next_path)
    return {"next": next_path, "email": pending.email, "sign_in_path": sign_in_path, **await page_values(next_path)}


async def _pending_here() -> EmailSignIn | None:
    secret = cookies.email_sign_in_cookie()
    return None if secret is None else await requests.find_in_browser(ports(), secret)


async def _signed_in(outcome: BrowserSignIn | PreAuthToken, next_path: str, secret: str | None) -> Response:
    """Return the response to a right code or link. `secret` is that of the request, if this browser made it."""
    await give_back_email(secret)
    response = await sign_in_response(outcome, next_path)
    cookies.clear_email_sign_in_cookie(response)
    return response


@routes.get(EMAIL_SIGN_IN_LINK_PATH)
@anyone
@describes_page(
    {200: "The page that confirms the sign-in.", 400: "The link has expired or has been used."}, query={"token": "The token of the email."}
)
async def link_page() -> Response:
    """Show the page that confirms a sign-in.

    The link in the email leads here. Opening it changes nothing, because programs that check emails open
    links too. In another browser than the one that asked, the page shows where the request came from.
    """
    token = link_token()
    try:
        link = await email_sign_in.open_link(ports(), token, cookies.email_sign_in_cookie())
    except LinkInvalid as refusal:
        return _link_refused(refusal)
    await keep_taken(cookies.browser_id())
    return form_page("authentication/email_sign_in_link.html", token=token, **await _link_values(link))


async def _link_values(link: OpenedLink) -> dict[str, Any]:
    return {"email": link.sign_in.email, "origin": _origin_fields(link), **await page_values(link.sign_in.after)}


def _origin_fields(link: OpenedLink) -> dict[str, str | None] | None:
    """Return where the request came from, as texts, or None in the browser that asked."""
    origin = link.origin
    if origin is None:
        return None
    return {"browser": origin.browser, "location": origin.location, "address": origin.address, "time": format_utc(origin.at)}


@routes.post(EMAIL_SIGN_IN_LINK_PATH)
@anyone(limit=EMAIL_SIGN_IN_VERIFICATION)
@describes_page(
    {
        303: "This browser is signed in, or a code of the second factor is required: continue at the next page.",
        400: "The link has expired or has been used.",
        403: "The form was not sent by our page.",
        404: "Sign-in by email was switched off.",
    },
    form=["form_token", "token"],
)
async def sign_in_with_link() -> Response:
    """Sign in this browser with the link of the email.

    The link works once. It never signs in another browser, such as the one that asked.
    """
    form = await read_own_form()
    try:
        link = await email_sign_in.open_link(ports(), form.get("token", ""), cookies.email_sign_in_cookie())
        outcome = await email_sign_in.sign_in_browser_with_link(ports(), caller(), link, cookies.session_cookie(), presented_browser())
    except EmailSignInEnded:  # another request used the link up first
        return _link_refused(LinkInvalid())
    except (LinkInvalid, EmailSignInOff) as refusal:
        return _link_refused(refusal)
    return await _signed_in(outcome, link.after, cookies.email_sign_in_cookie() if link.origin is None else None)


def _link_refused(refusal: Refusal) -> Response:
    return refused_page(refusal, "authentication/email_sign_in_ended.html")
