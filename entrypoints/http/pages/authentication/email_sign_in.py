"""The pages of sign-in by email: request an email, enter its code, and confirm its link."""

from typing import Any, Final

from quart import Blueprint, Response

from core.accounts.model.accounts import LinkInvalid
from core.authentication import email_sign_in as requests
from core.authentication.flow.model import Flow
from core.authentication.model.login import EmailCodeMalformed, EmailCodeWrong, EmailSignIn, EmailSignInEnded, EmailSignInOff
from core.federation import email_sign_in
from core.federation.email_sign_in import OpenedLink
from core.federation.sign_in import BrowserSignIn
from core.kernel.display import format_utc
from core.kernel.errors import Invalid, Limited, NotFound, Refusal
from core.kernel.page_paths import EMAIL_SIGN_IN_LINK_PATH
from core.kernel.rate_limits import EMAIL_SIGN_IN, EMAIL_SIGN_IN_VERIFICATION
from core.kernel.values import Email
from entrypoints.http.base import cookies
from entrypoints.http.base.context import caller, ports
from entrypoints.http.base.redirects import redirect
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.limits import give_back_email, keep_taken
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.edge.typed_fields import link_token
from entrypoints.http.pages.authentication.sign_in import presented_browser, sign_in_response
from entrypoints.http.pages.flow.flows import flow_at, flow_route, in_flow, link_to, load_options, page_values, path_of
from entrypoints.http.pages.flow.forms import sign_in_again
from entrypoints.http.pages.form_pages import form_page, read_own_form, refused_form_page, refused_page

routes = Blueprint("email_sign_in_pages", __name__)

SENT_AGAIN: Final = "email-sent-again"  # the value of the notice cookie


@flow_route(routes, "/sign-in/email", "POST")
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
@in_flow
async def request_email(flow: Flow) -> Response:
    """Send an email with a code and a link to sign in.

    The response does not tell whether an account has the email address.
    """
    form = await read_own_form()
    email = form.get("email", "")
    try:
        service = (await load_options(flow)).destination.service
        requested = await email_sign_in.request_in_browser(ports(), caller(), Email.parse(email), service, path_of(flow))
    except (Invalid, NotFound) as refusal:
        return await sign_in_again(refusal, flow, email)
    await keep_taken(requested.secret)
    response = redirect(link_to(flow, "/sign-in/email/code"), notice=SENT_AGAIN if form.get("again") == "yes" else None)
    cookies.set_email_sign_in_cookie(response, requested.secret, requested.expires_in)
    return response


@flow_route(routes, "/sign-in/email/code", "GET")
@anyone
@describes_page({200: "The form for the code.", 303: "No sign-in by email is pending in this browser. Start at the sign-in page."})
@in_flow
async def code_page(flow: Flow) -> Response:
    """Show the page for the code of the email."""
    pending = await _pending_here()
    if pending is None:
        return redirect(link_to(flow, "/sign-in"))
    is_again = cookies.notice_cookie() == SENT_AGAIN
    response = form_page("authentication/email_sign_in_code.html", problem=None, is_again=is_again, **await _code_values(pending, flow))
    if is_again:
        cookies.clear_notice_cookie(response)
    return response


@flow_route(routes, "/sign-in/email/code", "POST")
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
@in_flow
async def sign_in_with_code(flow: Flow) -> Response:
    """Sign in with the code of the email.

    It works only in the browser that asked for it. The code also verifies the email address.
    """
    form, secret = await read_own_form(), cookies.email_sign_in_cookie()
    if secret is None:
        return redirect(link_to(flow, "/sign-in"))
    try:
        outcome = await email_sign_in.sign_in_browser_with_code(
            ports(), caller(), flow, secret, form.get("code", ""), cookies.session_cookie(), presented_browser()
        )
    except (EmailCodeMalformed, EmailCodeWrong, EmailSignInEnded, EmailSignInOff, Limited) as refusal:
        return await _code_again(refusal, flow)
    return await _signed_in(outcome, flow, secret)


async def _code_again(refusal: Refusal, flow: Flow) -> Response:
    """Return the page for the code after a refused attempt, or the sign-in page if nothing is pending in this browser."""
    pending = await _pending_here()
    if pending is None or isinstance(refusal, EmailSignInOff):
        response = await sign_in_again(refusal, flow)
        cookies.clear_email_sign_in_cookie(response)
        return response
    values = await _code_values(pending, flow)
    return refused_form_page(refusal, "authentication/email_sign_in_code.html", is_again=False, **values)


async def _code_values(pending: EmailSignIn, flow: Flow) -> dict[str, Any]:
    return {"email": pending.email, "sign_in_path": link_to(flow, "/sign-in"), **await page_values(flow)}


async def _pending_here() -> EmailSignIn | None:
    secret = cookies.email_sign_in_cookie()
    return None if secret is None else await requests.find_in_browser(ports(), secret)


async def _signed_in(outcome: BrowserSignIn | Flow, flow: Flow, secret: str | None) -> Response:
    """Return the response to a right code or link. `secret` is that of the request, if this browser made it."""
    await give_back_email(secret)
    response = await sign_in_response(outcome, flow)
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
    return {"email": link.sign_in.email, "origin": _origin_fields(link), **await page_values(await flow_at(link.sign_in.after))}


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
        flow, cookie = await flow_at(link.after), cookies.session_cookie()
        outcome = await email_sign_in.sign_in_browser_with_link(ports(), caller(), flow, link, cookie, presented_browser())
    except EmailSignInEnded:  # another request used the link up first
        return _link_refused(LinkInvalid())
    except (LinkInvalid, EmailSignInOff) as refusal:
        return _link_refused(refusal)
    return await _signed_in(outcome, flow, cookies.email_sign_in_cookie() if link.origin is None else None)


def _link_refused(refusal: Refusal) -> Response:
    return refused_page(refusal, "authentication/email_sign_in_ended.html")
