"""The pages for sign-in by email: request an email, enter its code, and confirm its link."""

from datetime import datetime
from typing import Final

from quart import Blueprint, Response

from core.accounts.model.accounts import LinkInvalid
from core.authentication.flow.model import Flow, FlowEnded
from core.authentication.methods import email as email_method
from core.authentication.methods.email import EmailCode, EmailLink
from core.authentication.model import login
from core.federation import email_sign_in
from core.federation.email_sign_in import OpenedLink
from core.kernel import errors, page_paths, rate_limits
from core.kernel.values import Email
from entrypoints.http import kit
from entrypoints.http.pages import form_pages
from entrypoints.http.pages.authentication.sign_in import sign_in_browser
from entrypoints.http.pages.flow import flows
from entrypoints.http.pages.flow.flows import FLOW_PATH
from entrypoints.http.pages.flow.forms import sign_in_again
from entrypoints.http.pages.flow.steps import step_page

routes = Blueprint("email_sign_in_pages", __name__)

SENT_AGAIN: Final = "email-sent-again"  # the notice cookie's value


@flows.flow_route(routes, "/sign-in/email", "POST", ("Email me a code", lambda options: options.email_sign_in))
@kit.anyone(limit=rate_limits.EMAIL_SIGN_IN)
@kit.describes_page(
    {
        200: "The sign-in has ended. The page goes on.",
        303: "The same page for every email address: enter the code of the email.",
        400: "The email address is malformed.",
        403: "The form was not sent by our page.",
        404: "Sign-in by email is off here.",
    },
    form=["form_token", "email"],
)
@flows.in_flow
async def request_email(flow: Flow) -> Response:
    """Send an email with a code and a link to sign in.

    The response does not tell whether an account has the email address.
    """
    form = await form_pages.read_own_form()
    email = form.get("email", "")
    try:
        service = (await flows.load_options(flow)).destination.service
        challenge = await email_method.start(kit.ports(), kit.caller(), flow, Email.parse(email), service)
    except (errors.Invalid, errors.NotFound) as refusal:
        return await sign_in_again(refusal, flow, email)
    kit.sign_in_goes_on(str(challenge.id))
    return kit.redirect(flows.path_of(challenge.flow, "/email"), notice=SENT_AGAIN if form.get("again") == "yes" else None)


@routes.get(f"{FLOW_PATH}/email")
@kit.anyone(kit.PROTOCOL)
@kit.describes_page(
    {200: "The form for the code, or the sign-in has ended and the page goes on.", 303: "Continue at the next step."}, changes_state=True
)
@flows.in_flow
async def code_page(flow: Flow) -> Response:
    """Show the page for the code in the email.

    If no email was sent, or its code can no longer be used, the browser continues at another step.
    """
    challenge = await email_method.find_of_flow(kit.ports(), flow)
    if challenge is None:
        return await step_page(flow)
    is_again = kit.cookies.NOTICE.read() == SENT_AGAIN
    values = {"email": challenge.email, "is_again": is_again, **await flows.page_values(flow)}
    response = form_pages.form_page("authentication/email_sign_in_code.html", problem=None, **values)
    if is_again:
        kit.cookies.NOTICE.clear(response)
    return response


@routes.post(f"{FLOW_PATH}/email")
@kit.anyone(limit=rate_limits.EMAIL_SIGN_IN_VERIFICATION)
@kit.describes_page(
    {
        200: "The sign-in has ended. The page goes on.",
        303: "Signed in, or a code of the second factor is required: continue at the next page.",
        400: "The code is malformed.",
        401: "The code is wrong, or can no longer be used.",
        403: "The form was not sent by our page.",
        404: "Sign-in by email was switched off.",
    },
    form=["form_token", "code"],
)
@flows.in_flow
async def sign_in_with_code(flow: Flow) -> Response:
    """Sign in with the code from the email.

    It works only in the browser that asked for it. The code also verifies the email address.
    """
    form = await form_pages.read_own_form()
    challenge = await email_method.find_of_flow(kit.ports(), flow)
    if challenge is None:
        return await sign_in_again(login.EmailSignInEnded(), flow)
    try:
        response = await sign_in_browser(EmailCode(form.get("code", "")), flow)
    except (login.EmailSignInOff, login.EmailSignInEnded, login.LastEmailCodeWrong) as refusal:  # no code for this email can be right
        return await sign_in_again(refusal, flow, challenge.email)
    except (login.EmailCodeMalformed, login.EmailCodeWrong, errors.Limited) as refusal:
        values = {"email": challenge.email, "is_again": False, **await flows.page_values(flow)}
        return form_pages.refused_form_page(refusal, "authentication/email_sign_in_code.html", **values)
    kit.proof_accepted(str(challenge.id))
    return response


@routes.get(page_paths.EMAIL_SIGN_IN_LINK_PATH)
@kit.anyone
@kit.describes_page(
    {200: "The page that confirms the sign-in.", 400: "The link has expired or has been used."}, query={"token": "The token of the email."}
)
async def link_page() -> Response:
    """Show the page that confirms a sign-in.

    The link in the email leads here. Opening it changes nothing, because programs that check emails open links too. In
    a browser that did not ask for it, the page shows where the request came from.
    """
    token, browser = kit.link_token(), kit.cookies.browser_id()
    try:
        link = await email_sign_in.open_link(kit.ports(), token, browser)
        own, asked = link.flow or flows.page_flow(page_paths.HOME_PATH), link.challenge.flow
        options = await flows.load_options(asked if asked.in_browser else own)
    except (LinkInvalid, FlowEnded) as refusal:
        return _link_refused(refusal)
    kit.sign_in_goes_on(browser)
    service = options.destination.service
    return form_pages.form_page(
        "authentication/email_sign_in_link.html",
        token=token,
        email=link.challenge.email,
        origin=_origin_fields(link),
        service=service.known_name if service else None,
        design=options.design,
        sign_in=flows.path_of(own, "/sign-in"),
    )


def _origin_fields(link: OpenedLink) -> dict[str, str | datetime | None] | None:
    """Return where the request came from and when, or None in the browser that asked."""
    origin = link.origin
    if origin is None:
        return None
    return {"browser": origin.browser, "location": origin.location, "address": origin.address, "time": origin.at}


@routes.post(page_paths.EMAIL_SIGN_IN_LINK_PATH)
@kit.anyone(limit=rate_limits.EMAIL_SIGN_IN_VERIFICATION)
@kit.describes_page(
    {
        303: "This browser is signed in, or a code of the second factor is required: continue at the next page.",
        400: "The link has expired or has been used.",
        403: "The form was not sent by our page.",
        404: "Sign-in by email was switched off.",
    },
    form=["form_token", "token"],
)
async def sign_in_with_link() -> Response:
    """Sign in this browser with the link from the email.

    The link works once. It never signs in another browser, such as the browser that asked.
    """
    form = await form_pages.read_own_form()
    try:
        link = await email_sign_in.open_link(kit.ports(), form.get("token", ""), kit.cookies.browser_id())
        response = await sign_in_browser(EmailLink(link.challenge), link.flow or flows.page_flow(page_paths.HOME_PATH))
    except login.EmailSignInEnded:  # another request used the link up first
        return _link_refused(LinkInvalid())
    except (LinkInvalid, login.EmailSignInOff, FlowEnded) as refusal:
        return _link_refused(refusal)
    if link.origin is None:
        kit.proof_accepted(str(link.challenge.id))
    return response


def _link_refused(refusal: errors.Refusal) -> Response:
    return form_pages.refused_page(refusal, "authentication/email_sign_in_ended.html")
