"""Registration, proof of the mailbox, password recovery, and the caller's own account (identity.md sections 2.1, 4.1 and 4.2)."""

from quart import Blueprint, Response, request
from quart_schema import validate_request, validate_response

from core.accounts import accounts
from core.accounts.accounts_rules import LinkInvalid
from core.accounts.one_time_tokens import TokenPurpose
from core.kernel.errors import Invalid
from core.kernel.rate_limits import FORGOT_PASSWORD, REGISTER, RESEND_VERIFICATION
from core.kernel.values import Email
from core.tenancy import branding
from core.tenancy.branding_rules import Design
from entrypoints.http.edge.access import anyone, person
from entrypoints.http.edge.bodies import EmailAddress, Message, PasswordText, RequestModel, ResponseModel, Text
from entrypoints.http.edge.context import caller, page_response, ports, signed_in
from entrypoints.http.edge.errors import wants_page
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.pages import Page, render

routes = Blueprint("accounts", __name__)

MAIL_ON_ITS_WAY = "If this address belongs to an account, a mail is on its way."


class Registration(RequestModel):
    """An email address and a password of 8 to 128 characters; the mail has the design of the active organization `org_slug`."""

    email: EmailAddress
    password: PasswordText
    org_slug: Text | None = None


@routes.post("/api/auth/register")
@anyone(limit=REGISTER)
@refuses(409)
@validate_request(Registration)
@validate_response(Message)
async def register(data: Registration) -> Message:
    """Register an account; a verification link goes to its address."""
    await accounts.register(ports(), caller(), Email(data.email), data.password, data.org_slug)
    return Message(message="The account was created. Follow the link in the mail that we sent you to verify your address.")


@routes.get("/auth/verify-email")
@anyone
@describes_page(
    {200: "The address is verified.", 400: "The link is invalid, expired or used."},
    query={"token": "the token of the mail"},
    changes_state=True,
)
async def verify_email() -> Response:
    """Verify an email address by the link of the mail."""
    token = request.args.get("token", "")
    # First, since the link works once, and whoever follows it shall see that it did.
    design = await branding.get_design_of_link(ports(), TokenPurpose.VERIFY_EMAIL, token) if wants_page() else None
    email = await accounts.verify_email(ports(), caller(), token)
    if not wants_page():
        return Response(Message(message="The address is verified.").model_dump_json(), content_type="application/json")
    return page_response(render("verified.html", design=design, email=email))


class Recovery(RequestModel):
    """Whose password is forgotten; the mail has the design of the active organization `org_slug`."""

    # Not an EmailAddress: the answer is the same for an address that cannot be one (security.md B-3).
    email: Text
    org_slug: Text | None = None


@routes.post("/api/auth/forgot-password")
@anyone(limit=FORGOT_PASSWORD)
@validate_request(Recovery)
@validate_response(Message)
async def forgot_password(data: Recovery) -> Message:
    """Ask for a link to reset a forgotten password. The answer never tells whether there is an account."""
    email = _address_or_none(data.email)
    if email is not None:
        await accounts.forgot_password(ports(), caller(), email, data.org_slug)
    return Message(message=MAIL_ON_ITS_WAY)


class Reset(RequestModel):
    """The token of the mail, and the new password."""

    token: Text
    new_password: PasswordText


@routes.post("/api/auth/reset-password")
@anyone
@validate_request(Reset)
@validate_response(Message)
async def reset_password(data: Reset) -> Message:
    """Set a new password by the token of a reset link. Every session of the account ends."""
    await accounts.reset_password(ports(), caller(), data.token, data.new_password)
    return Message(message="The password was changed. Sign in with the new one.")


@routes.get("/auth/reset-password")
@anyone
@describes_page({200: "The form.", 400: "The link is invalid, expired or used."}, query={"token": "the token of the mail"})
async def reset_password_form() -> Response:
    """The page that a reset link leads to. Looking at it uses nothing up."""
    token = request.args.get("token", "")
    if not await accounts.reset_link_is_live(ports(), token):
        raise LinkInvalid
    return page_response(_reset_form(token, await branding.get_design_of_link(ports(), TokenPurpose.RESET_PASSWORD, token)))


def _reset_form(token: str, design: Design | None, problem: str | None = None) -> Page:
    status = 200 if problem is None else 400
    return render("reset_password.html", status=status, form_action="'self'", design=design, token=token, problem=problem)


@routes.post("/auth/reset-password")
@anyone
@describes_page(
    {200: "The password was changed.", 400: "The link or the password is not acceptable.", 403: "The form was not sent by our page."},
    form=["token", "new_password"],
)
async def reset_password_by_form() -> Response:
    """What the form of the reset page sends."""
    form = await read_form()
    token = form.get("token", "")
    design = await branding.get_design_of_link(ports(), TokenPurpose.RESET_PASSWORD, token)  # first, since the link works once
    try:
        await accounts.reset_password(ports(), caller(), token, form.get("new_password", ""))
    except LinkInvalid:
        raise
    except Invalid as refusal:
        return page_response(_reset_form(token, design, refusal.message))
    return page_response(render("password_reset_done.html", design=design))


class Resend(RequestModel):
    """Whose verification link got lost."""

    email: Text


@routes.post("/api/auth/resend-verification")
@anyone(limit=RESEND_VERIFICATION)
@validate_request(Resend)
@validate_response(Message)
async def resend_verification(data: Resend) -> Message:
    """Ask for another verification link. The answer never tells whether there is an account."""
    email = _address_or_none(data.email)
    if email is not None:
        await accounts.resend_verification(ports(), caller(), email)
    return Message(message=MAIL_ON_ITS_WAY)


class Profile(ResponseModel):
    """The authenticated user; `org` and `service` are empty outside such a context (identity.md section 2.1)."""

    id: str
    email: str
    org: str
    service: str


def _profile(email: Email) -> Profile:
    me = signed_in()
    context = me.organization.slug if me.organization else me.service.org_slug if me.service else ""
    return Profile(id=str(me.user_id), email=email, org=context, service=me.service.slug if me.service else "")


@routes.get("/api/user")
@person(applications=True)
@validate_response(Profile)
async def profile() -> Profile:
    """Your own profile."""
    return _profile(signed_in().email)


class ProfileChange(RequestModel):
    """What to change; what is left out stays."""

    email: EmailAddress | None = None


@routes.patch("/api/user")
@person(impersonated=False)
@refuses(404)
@validate_request(ProfileChange)
@validate_response(Profile)
async def change_profile(data: ProfileChange) -> Profile:
    """Change your email address. It must be verified anew, and your other sessions end."""
    if "email" not in data.model_fields_set:
        return _profile(signed_in().email)
    if data.email is None:
        raise EmailRequired
    return _profile(await accounts.change_email(ports(), signed_in(), Email(data.email)))


class EmailRequired(Invalid):
    """The email address cannot be removed."""


class NewPassword(RequestModel):
    """A first password."""

    new_password: PasswordText


@routes.post("/api/user/set-password")
@person(impersonated=False)
@refuses(404, 429)
@validate_request(NewPassword)
@validate_response(Message)
async def set_password(data: NewPassword) -> Message:
    """Set a first password on an account that has none."""
    await accounts.set_password(ports(), signed_in(), data.new_password)
    return Message(message="The password was set.")


class PasswordChange(RequestModel):
    """The password as it is, and as it shall be."""

    current_password: PasswordText
    new_password: PasswordText


@routes.post("/api/user/change-password")
@person(impersonated=False)
@refuses(404, 429)
@validate_request(PasswordChange)
@validate_response(Message)
async def change_password(data: PasswordChange) -> Message:
    """Change your password. Your other sessions end."""
    await accounts.change_password(ports(), signed_in(), data.current_password, data.new_password)
    return Message(message="The password was changed. Your other sessions were ended.")


def _address_or_none(text: str) -> Email | None:
    try:
        return Email.parse(text)
    except Invalid:
        return None
