"""The page for the user's email address: request a new address, and resend or cancel the change (security A-9)."""

from typing import Any

from quart import Blueprint, Response

from core.accounts import accounts, email_changes, required_connections
from core.kernel.errors import Invalid, Limited
from core.kernel.page_paths import EMAIL_PATH
from core.kernel.rate_limits import RESEND_VERIFICATION
from core.kernel.values import Email
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.edge.access import MINE, WAYS_IN, page_session
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.pages.console import redirect_with_notice
from entrypoints.http.pages.console_forms import ANSWERS_TO_BUTTON, Form, accepts, on_refusal, serves_form

routes = Blueprint("account_email", __name__)


async def _values(typed: Form) -> dict[str, Any]:
    user = signed_in()
    pending = await email_changes.find_pending(ports(), user.user_id)
    return {
        "typed": typed.get("email", ""),
        "email": user.email,
        "verified": user.email_verified,
        "pending": None if pending is None else pending.new_email,
        "until": pending and pending.expires_at,
        "blocking": await required_connections.find_organizations_that_block(ports(), user.user_id, user.email),
    }


@serves_form(routes, EMAIL_PATH, "GET /api/user", "PATCH /api/user", "POST /api/auth/resend-verification")
@page_session(WAYS_IN)
@refuses(429)
@accepts(form=["form_token", "email"])
@on_refusal("accounts/email.html", _values, refusals=(Invalid, Limited))
async def change_email(form: Form) -> Response:
    """Request another email address.

    You keep the present address until you open the link in the email to the new address.
    """
    pending = await email_changes.request(ports(), signed_in(), Email.parse(form.get("email", "")))
    return redirect_with_notice("same-address" if pending is None else "email-change-sent", EMAIL_PATH)


@routes.post(f"{EMAIL_PATH}/verification")
@page_session(MINE, limit=RESEND_VERIFICATION)
@accepts(answers=ANSWERS_TO_BUTTON)
async def resend_verification() -> Response:
    """Send another verification email.

    It goes to the new address if a change is pending, otherwise to the account's address.
    """
    await accounts.resend_own_verification(ports(), signed_in())
    return redirect_with_notice("verification-sent", EMAIL_PATH)


@routes.post(f"{EMAIL_PATH}/cancel")
@page_session(MINE)
@accepts(answers=ANSWERS_TO_BUTTON)
async def cancel_change() -> Response:
    """Cancel the pending change to your email address.

    The link in the email to the new address stops working.
    """
    await email_changes.cancel(ports(), signed_in())
    return redirect_with_notice("kept-address", EMAIL_PATH)
