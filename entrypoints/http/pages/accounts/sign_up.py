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
from core.kernel import errors, rate_limits
from core.kernel.sign_in_policy.steps import Step
from core.kernel.values import Email, EmailInvalid, digest
from entrypoints.http import kit
from entrypoints.http.pages import form_pages
from entrypoints.http.pages.flow import flows
from entrypoints.http.pages.flow.steps import step_page

routes = Blueprint("sign_up", __name__)


@flows.flow_route(routes, "/sign-up", "GET")
@kit.anyone(kit.PROTOCOL)
@kit.describes_page(
    {200: "The sign-up form.", 303: "Continue at the next step, or at `next` if the user is signed in already."}, changes_state=True
)
@flows.in_flow
async def sign_up_page(flow: Flow) -> Response:
    """Show the sign-up page.

    Without a flow, `next` is the path on this server to continue at after the sign-up. The default, also for
    a path that is not valid, is the account page. `prompt=create` is added to an authorization request. If the
    application has no sign-up, the browser continues at the sign-in page.
    """
    return await step_page(flow, Step.SIGN_UP)


@flows.flow_route(routes, "/sign-up", "POST")
@kit.anyone(limit=rate_limits.REGISTER)
@kit.refuses(409)
@kit.describes_page(
    {
        200: "The account was created. The page asks the user to open the link in the email.",
        303: "The application has no sign-up, or the domain leads to a connection. Continue there.",
        400: "A field is missing or malformed.",
        403: "The form was not sent by our page.",
        409: "An account with this email address already exists.",
    },
    form=["form_token", "name", "email", "password"],
)
@flows.in_flow
async def sign_up(flow: Flow) -> Response:
    """Create an account with the form on the sign-up page.

    `name` is optional. The user gets an email with a verification link. In this browser, the link also signs the user in,
    and continues with this sign-in. In another browser, the user signs in with the password.
    """
    form, options = await form_pages.read_own_form(), await flows.load_options(flow)
    if not options.destination.offers_sign_up:
        return kit.redirect(flows.path_of(flow, "/sign-in"))
    org_slug, values = options.destination.org_slug, {"form_token": form["form_token"], **flows.values_of(options, flow)}
    try:
        email = Email.parse(form.get("email", ""))
        if (to_connection := await flows.lead_to_connection(flow, form, email)) is not None:
            return to_connection
        link, name = _continuation(options, flow), form.get("name", "")
        await accounts.register(kit.ports(), kit.caller(), email, form.get("password", ""), org_slug, link, name=name)
    except (errors.Invalid, errors.Conflict, errors.Limited) as refusal:
        is_taken = isinstance(refusal, EmailTaken)
        typed = {"email": form.get("email", ""), "typed_name": form.get("name", "")}
        return form_pages.refused_page(refusal, "accounts/sign_up.html", wrong=_wrong_field(refusal), is_taken=is_taken, **typed, **values)
    return kit.page_response(kit.render("accounts/check_inbox.html", email=email, **values))


def _wrong_field(refusal: errors.Refusal) -> str | None:
    """Return the field that the refusal is about, or None."""
    match refusal:
        case EmailTaken() | EmailInvalid():
            return "email"
        case NameInvalid():
            return "name"
        case errors.Invalid():
            return "password"
    return None


def _continuation(options: SignInOptions, flow: Flow) -> LinkContinuation:
    browser = kit.cookies.DEVICE.read() or errors.refuse(FormTokenInvalid)  # `read_own_form` has checked that the browser has the cookie
    service = options.destination.service
    return LinkContinuation(flows.address_to_store(flow), digest(browser), service.id if service else None)


@flows.flow_route(routes, "/resend-verification", "GET")
@kit.anyone
@kit.describes_page({200: "The form for the email address."})
@flows.in_flow
async def resend_page(flow: Flow) -> Response:
    """Show the page that requests another verification link.

    It needs no session. Without a flow, `next` is the path to continue at after the link.
    """
    return form_pages.form_page("accounts/resend_verification.html", design=(await flows.load_options(flow)).design, **flows.links(flow))


@flows.flow_route(routes, "/resend-verification", "POST")
@kit.anyone(limit=rate_limits.RESEND_VERIFICATION)
@kit.describes_page(
    {200: "The same page for every email address.", 403: "The form was not sent by our page."}, form=["form_token", "email"]
)
@flows.in_flow
async def resend(flow: Flow) -> Response:
    """Email another verification link.

    The response does not tell whether an account has the email address, or whether it is verified.
    """
    form, options = await form_pages.read_own_form(), await flows.load_options(flow)
    email = form.get("email", "")
    with suppress(EmailInvalid):  # the response is the same for a malformed address (security B-3)
        address, org_slug = flows.address_to_store(flow), options.destination.org_slug
        await accounts.resend_verification(kit.ports(), kit.caller(), Email.parse(email), org_slug, address)
    values = {"form_token": form["form_token"], "email": email, "design": options.design, **flows.links(flow)}
    return kit.page_response(kit.render("accounts/resend_verification_done.html", **values))
