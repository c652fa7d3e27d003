"""The page for the user's email address: request a new address, and resend or cancel the change (security A-9)."""

from typing import Any

from quart import Blueprint, Response

from core.accounts import accounts, email_changes, required_connections
from core.kernel import errors
from core.kernel.page_paths import EMAIL_PATH
from core.kernel.rate_limits import RESEND_VERIFICATION
from core.kernel.values import Email
from entrypoints.http import kit
from entrypoints.http.pages import console_forms
from entrypoints.http.pages.console import redirect_with_notice

routes = Blueprint("account_email", __name__)


async def _values(typed: console_forms.Form) -> dict[str, Any]:
    user = kit.signed_in()
    pending = await email_changes.find_pending(kit.ports(), user.user_id)
    return {
        "typed": typed.get("email", ""),
        "email": user.email,
        "verified": user.email_verified,
        "pending": None if pending is None else pending.new_email,
        "until": pending and pending.expires_at,
        "blocking": await required_connections.find_organizations_that_block(kit.ports(), user.user_id, user.email),
    }


@console_forms.serves_form(routes, EMAIL_PATH, "GET /api/user", "PATCH /api/user", "POST /api/auth/resend-verification")
@kit.page_session(kit.WAYS_IN)
@kit.refuses(429)
@console_forms.accepts(form=["form_token", "email"])
@console_forms.on_refusal("accounts/email.html", _values, refusals=(errors.Invalid, errors.Limited))
async def change_email(form: console_forms.Form) -> Response:
    """Request another email address.

    You keep the present address until you open the link in the email to the new address.
    """
    pending = await email_changes.request(kit.ports(), kit.signed_in(), Email.parse(form.get("email", "")))
    return redirect_with_notice("same-address" if pending is None else "email-change-sent", EMAIL_PATH)


@routes.post(f"{EMAIL_PATH}/verification")
@kit.page_session(kit.MINE, limit=RESEND_VERIFICATION)
@console_forms.accepts(answers=console_forms.ANSWERS_TO_BUTTON)
async def resend_verification() -> Response:
    """Send another verification email.

    It goes to the new address if a change is pending, otherwise to the account's address.
    """
    await accounts.resend_own_verification(kit.ports(), kit.signed_in())
    return redirect_with_notice("verification-sent", EMAIL_PATH)


@routes.post(f"{EMAIL_PATH}/cancel")
@kit.page_session(kit.MINE)
@console_forms.accepts(answers=console_forms.ANSWERS_TO_BUTTON)
async def cancel_change() -> Response:
    """Cancel the pending change to your email address.

    The link in the email to the new address stops working.
    """
    await email_changes.cancel(kit.ports(), kit.signed_in())
    return redirect_with_notice("kept-address", EMAIL_PATH)
