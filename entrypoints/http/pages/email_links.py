"""The pages behind the links in emails: verify an address, and set a new password."""

from quart import Blueprint, Response, request

from core.accounts import accounts
from core.accounts.accounts_rules import LinkInvalid
from core.accounts.one_time_tokens import TokenPurpose
from core.kernel.errors import Invalid
from core.tenancy import branding
from core.tenancy.branding_rules import Design
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.bodies import Message
from entrypoints.http.edge.context import caller, page_response, ports
from entrypoints.http.edge.errors import wants_page
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.pages import Page, render

routes = Blueprint("email_links", __name__)

TOKEN = {"token": "The token of the email."}


@routes.get("/auth/verify-email")
@anyone
@describes_page({200: "The address is verified.", 400: "The link has expired or has been used."}, query=TOKEN, changes_state=True)
async def verify_email() -> Response:
    """Verify an email address.

    The link in a verification email leads here. It works once. Clients that prefer JSON get a
    message instead of the page.
    """
    token = request.args.get("token", "")
    # Load the branding first, because the next call uses the token up.
    design = await branding.get_design_of_link(ports(), TokenPurpose.VERIFY_EMAIL, token) if wants_page() else None
    email = await accounts.verify_email(ports(), caller(), token)
    if not wants_page():
        return Response(Message(message="The address is verified.").model_dump_json(), content_type="application/json")
    return page_response(render("verified.html", design=design, email=email))


@routes.get("/auth/reset-password")
@anyone
@describes_page({200: "The form.", 400: "The link has expired or has been used."}, query=TOKEN)
async def reset_password_page() -> Response:
    """Show the form to set a new password.

    The link in a reset email leads here. Opening it does not use it up.
    """
    token = request.args.get("token", "")
    if not await accounts.reset_link_is_live(ports(), token):
        raise LinkInvalid
    return page_response(_form(token, await branding.get_design_of_link(ports(), TokenPurpose.RESET_PASSWORD, token)))


def _form(token: str, design: Design | None, problem: str | None = None) -> Page:
    status = 200 if problem is None else 400
    return render("reset_password.html", status=status, form_action="'self'", design=design, token=token, problem=problem)


@routes.post("/auth/reset-password")
@anyone
@describes_page(
    {200: "The password was updated.", 400: "The link or the password is not valid.", 403: "The form does not come from our page."},
    form=["token", "new_password"],
)
async def reset_password() -> Response:
    """Set a new password.

    The form of the page sends this. All sessions of the account end.
    """
    form = await read_form()
    token = form.get("token", "")
    # Load the branding first, because the next call uses the token up.
    design = await branding.get_design_of_link(ports(), TokenPurpose.RESET_PASSWORD, token)
    try:
        await accounts.reset_password(ports(), caller(), token, form.get("new_password", ""))
    except LinkInvalid:
        raise
    except Invalid as refusal:
        return page_response(_form(token, design, refusal.message))
    return page_response(render("password_reset_done.html", design=design))
