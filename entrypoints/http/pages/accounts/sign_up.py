"""The pages to sign up with a password, and to get another verification link."""

from contextlib import suppress

from quart import Blueprint, Response

from core.accounts import accounts
from core.accounts.model.accounts import EmailTaken
from core.accounts.model.email_queue import LinkContinuation
from core.accounts.model.profiles import NameInvalid
from core.authentication.browser import FormTokenInvalid
from core.authentication.flow.model import Flow
from core.federation.sign_in import SignInOptions
from core.kernel.errors import Conflict, Invalid, Limited, Refusal, refuse
from core.kernel.rate_limits import REGISTER, RESEND_VERIFICATION
from core.kernel.sign_in_policy.steps import Step
from core.kernel.values import Email, EmailInvalid, digest
from entrypoints.http.base import cookies
from entrypoints.http.base.context import caller, ports
from entrypoints.http.base.redirects import redirect
from entrypoints.http.base.rendering.templates import page_response, render
from entrypoints.http.edge.access import PROTOCOL, anyone
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.pages.flow.flows import (
    address_to_store,
    flow_route,
    in_flow,
    lead_to_connection,
    links,
    load_options,
    path_of,
    values_of,
)
from entrypoints.http.pages.flow.steps import step_page
from entrypoints.http.pages.form_pages import form_page, read_own_form, refused_page

routes = Blueprint("sign_up", __name__)


@flow_route(routes, "/sign-up", "GET")
@anyone(PROTOCOL)
@describes_page(
    {200: "The sign-up form.", 303: "Continue at the next step, or at `next` if the user is signed in already."}, changes_state=True
)
@in_flow
async def sign_up_page(flow: Flow) -> Response:
    """Show the sign-up page.

    Without a flow, `next` is the path on this server to continue at after the sign-up. The default, also for
    a path that is not valid, is the account page. `prompt=create` is added to an authorization request. If the
    application has no sign-up, the browser continues at the sign-in page.
    """
    return await step_page(flow, Step.SIGN_UP)


@flow_route(routes, "/sign-up", "POST")
@anyone(limit=REGISTER)
@refuses(409)
@describes_page(
    {
        200: "The account was created. The page asks the user to open the link in the email.",
        303: "The application has no sign-up, or the domain leads to a connection. Continue there.",
        400: "A field is missing or malformed.",
        403: "The form was not sent by our page.",
        409: "An account with this email address already exists.",
    },
    form=["form_token", "name", "email", "password"],
)
@in_flow
async def sign_up(flow: Flow) -> Response:
    """Create an account with the form on the sign-up page.

    `name` is optional. The user gets an email with a verification link. In this browser, the link also signs the user in,
    and continues with this sign-in. In another browser, the user signs in with the password.
    """
    form, options = await read_own_form(), await load_options(flow)
    if not options.destination.offers_sign_up:
        return redirect(path_of(flow, "/sign-in"))
    org_slug, values = options.destination.org_slug, {"form_token": form["form_token"], **values_of(options, flow)}
    try:
        email = Email.parse(form.get("email", ""))
        if (to_connection := await lead_to_connection(flow, form, email)) is not None:
            return to_connection
        link, name = _continuation(options, flow), form.get("name", "")
        await accounts.register(ports(), caller(), email, form.get("password", ""), org_slug, link, name=name)
    except (Invalid, Conflict, Limited) as refusal:
        is_taken = isinstance(refusal, EmailTaken)
        typed = {"email": form.get("email", ""), "typed_name": form.get("name", "")}
        return refused_page(refusal, "accounts/sign_up.html", wrong=_wrong_field(refusal), is_taken=is_taken, **typed, **values)
    return page_response(render("accounts/check_inbox.html", email=email, **values))


def _wrong_field(refusal: Refusal) -> str | None:
    """Return the field that the refusal is about, or None."""
    match refusal:
        case EmailTaken() | EmailInvalid():
            return "email"
        case NameInvalid():
            return "name"
        case Invalid():
            return "password"
    return None


def _continuation(options: SignInOptions, flow: Flow) -> LinkContinuation:
    browser = cookies.DEVICE.read() or refuse(FormTokenInvalid)  # `read_own_form` has checked that the browser has the cookie
    service = options.destination.service
    return LinkContinuation(address_to_store(flow), digest(browser), service.id if service else None)


@flow_route(routes, "/resend-verification", "GET")
@anyone
@describes_page({200: "The form for the email address."})
@in_flow
async def resend_page(flow: Flow) -> Response:
    """Show the page that requests another verification link.

    It needs no session. Without a flow, `next` is the path to continue at after the link.
    """
    return form_page("accounts/resend_verification.html", design=(await load_options(flow)).design, **links(flow))


@flow_route(routes, "/resend-verification", "POST")
@anyone(limit=RESEND_VERIFICATION)
@describes_page({200: "The same page for every email address.", 403: "The form was not sent by our page."}, form=["form_token", "email"])
@in_flow
async def resend(flow: Flow) -> Response:
    """Email another verification link.

    The response does not tell whether an account has the email address, or whether it is verified.
    """
    form, options = await read_own_form(), await load_options(flow)
    email = form.get("email", "")
    with suppress(EmailInvalid):  # the response is the same for a malformed address (security B-3)
        address, org_slug = address_to_store(flow), options.destination.org_slug
        await accounts.resend_verification(ports(), caller(), Email.parse(email), org_slug, address)
    values = {"form_token": form["form_token"], "email": email, "design": options.design, **links(flow)}
    return page_response(render("accounts/resend_verification_done.html", **values))
