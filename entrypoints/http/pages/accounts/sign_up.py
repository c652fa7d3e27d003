"""The pages to sign up with a password, and to get another verification link."""

from contextlib import suppress

from quart import Blueprint, Response, request

from core.accounts import accounts
from core.accounts.model.accounts import EmailTaken
from core.accounts.model.email_queue import LinkContinuation
from core.authentication.browser import FormTokenInvalid
from core.federation import sign_in as sign_in_flow
from core.federation.sign_in import SignInOptions
from core.kernel.errors import Conflict, Invalid, Limited, Refusal, refuse
from core.kernel.page_paths import RESEND_VERIFICATION_PATH, SIGN_UP_PATH
from core.kernel.rate_limits import REGISTER, RESEND_VERIFICATION
from core.kernel.values import Email, EmailInvalid, digest
from entrypoints.http.base import cookies
from entrypoints.http.base.context import caller, ports
from entrypoints.http.base.redirects import next_of, path_to_store, redirect
from entrypoints.http.base.rendering.templates import page_response, render
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.pages.authentication.sign_in import links, values_of
from entrypoints.http.pages.form_pages import form_page, read_own_form, refused_page
from entrypoints.http.pages.visitors import visitor_with_mfa

routes = Blueprint("sign_up", __name__)


@routes.get(SIGN_UP_PATH)
@anyone
@describes_page({200: "The sign-up form.", 303: "The user is signed in already. Continue at `next`."})
async def sign_up_page() -> Response:
    """Show the sign-up page.

    `next` is the path on this server to continue at after the sign-up. The default, also for a path
    that is not valid, is the account page.
    """
    next_path = next_of(request.args)
    if await visitor_with_mfa() is not None:
        return redirect(next_path)
    return await sign_up_form(next_path)


async def sign_up_form(next_path: str) -> Response:
    """Return the sign-up page that continues at this path."""
    options = await sign_in_flow.load_options(ports(), next_path)
    email = options.login_hint or ""
    return form_page("accounts/sign_up.html", email=email, problem=None, is_taken=False, **values_of(options, next_path))


@routes.post(SIGN_UP_PATH)
@anyone(limit=REGISTER)
@refuses(409)
@describes_page(
    {
        200: "The account was created. The page asks the user to open the link in the email.",
        400: "A field is missing or malformed.",
        403: "The form was not sent by our page.",
        409: "An account with this email address already exists.",
    },
    form=["form_token", "email", "password"],
)
async def sign_up() -> Response:
    """Create an account with the form of the sign-up page.

    The user gets an email with a verification link. In this browser, the link also signs the user in,
    and continues at `next`. In another browser, the user signs in with the password.
    """
    form = await read_own_form()
    next_path = next_of(form)
    options = await sign_in_flow.load_options(ports(), next_path)
    try:
        email = Email.parse(form.get("email", ""))
        await accounts.register(ports(), caller(), email, form.get("password", ""), options.org_slug, _continuation(options, next_path))
    except (Invalid, Conflict, Limited) as refusal:
        return _sign_up_again(refusal, form, next_path, options)
    return _inbox_page(form["form_token"], email, next_path, options)


def _continuation(options: SignInOptions, next_path: str) -> LinkContinuation:
    browser = cookies.device_cookie() or refuse(FormTokenInvalid)  # `read_own_form` has checked that there is one
    service = options.service if options.offers_sign_up else None  # a sign-up on the way to SAML admits no stranger
    return LinkContinuation(path_to_store(next_path), digest(browser), service.id if service else None)


def _sign_up_again(refusal: Refusal, form: dict[str, str], next_path: str, options: SignInOptions) -> Response:
    return refused_page(
        refusal,
        "accounts/sign_up.html",
        form_token=form["form_token"],
        email=form.get("email", ""),
        is_taken=isinstance(refusal, EmailTaken),
        **values_of(options, next_path),
    )


def _inbox_page(form_token: str, email: str, next_path: str, options: SignInOptions) -> Response:
    return page_response(render("accounts/check_inbox.html", form_token=form_token, email=email, **values_of(options, next_path)))


@routes.get(RESEND_VERIFICATION_PATH)
@anyone
@describes_page({200: "The form for the email address."})
async def resend_page() -> Response:
    """Show the page that requests another verification link.

    It needs no session. `next` is the path to continue at after the link.
    """
    next_path = next_of(request.args)
    options = await sign_in_flow.load_options(ports(), next_path)
    return form_page("accounts/resend_verification.html", design=options.design, **links(next_path))


@routes.post(RESEND_VERIFICATION_PATH)
@anyone(limit=RESEND_VERIFICATION)
@describes_page({200: "The same page for every email address.", 403: "The form was not sent by our page."}, form=["form_token", "email"])
async def resend() -> Response:
    """Email another verification link.

    The response does not tell whether an account has the email address, or whether it is verified.
    """
    form = await read_own_form()
    next_path, email = next_of(form), form.get("email", "")
    options = await sign_in_flow.load_options(ports(), next_path)
    with suppress(EmailInvalid):  # the response is the same for a malformed address (security B-3)
        await accounts.resend_verification(ports(), caller(), Email.parse(email), options.org_slug, path_to_store(next_path))
    values = {"form_token": form["form_token"], "email": email, "design": options.design, **links(next_path)}
    return page_response(render("accounts/resend_verification_done.html", **values))
