"""The pages for the user's account: overview, password and second factor.

They offer the API's actions as forms that work without scripts. After a change, the browser is redirected, so that
reloading the page repeats nothing. Only a secret that is shown once is in the direct response to its form. `security`
is the page that leads to the password and the second factor, `email` has the email address, `access` the linked
accounts.
"""

import base64
from typing import Any, Final

from quart import Blueprint, Response

from core.accounts import accounts, email_changes, mfa
from core.accounts.model.accounts import MAX_PASSWORD_LENGTH, CurrentPasswordWrong, NoPasswordSet, PasswordAlreadySet, PasswordTooLong
from core.accounts.model.mfa import MfaSetup
from core.applications import access
from core.billing import subscriptions
from core.federation.oauth import consents
from core.kernel.errors import Invalid, Limited, Refusal
from core.kernel.page_paths import ACCOUNT_PATH, SECURITY_PATH
from core.kernel.proofs import Method
from core.kernel.rate_limits import MFA_CONFIRMATION, MFA_SETUP, MFA_VERIFICATION
from core.privacy import personal_data
from core.tenancy import organizations
from entrypoints.http.api.privacy import export_file
from entrypoints.http.api.tenancy.roles import role_text
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.base.redirects import redirect
from entrypoints.http.edge.access import ACTS_ON_ME, WAYS_IN, page_session
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.edge.qr import qr_svg
from entrypoints.http.pages.accounts.security import TEMPLATE, security_values
from entrypoints.http.pages.accounts.ways_in import remaining_ways
from entrypoints.http.pages.consequences import Question, accepts_answer, ask, asks, describe_losses
from entrypoints.http.pages.console import console_page, redirect_with_notice
from entrypoints.http.pages.console_forms import (
    ANSWERS_TO_BUTTON,
    ANSWERS_TO_FORM,
    Form,
    accepts,
    answers_with,
    on_refusal,
    once,
    ports_once,
    refused_console_page,
    serves_form,
)

routes = Blueprint("account", __name__)

PASSWORD: Final = "/app/account/password"  # noqa: S105  (an address)

# The overview


@routes.get(ACCOUNT_PATH)
@page_session
@describes_page({200: "The page."}, api=["GET /api/user", "GET /api/privacy/export/<user_id>"])
async def show_account() -> Response:
    """Show an overview for your account.

    It links to the pages that change its parts.
    """
    user = signed_in()
    account, email_change = await accounts.get_own(ports(), user), await email_changes.find_pending(ports(), user.user_id)
    return await console_page(
        "accounts/account.html",
        email=account.email,
        verified=account.email_verified_at is not None,
        pending=None if email_change is None else email_change.new_email,
        has_second_factor=bool(account.second_factors),
        profile=account.profile,
        organizations=[
            (organization.name, role_text(membership)) for organization, membership in await organizations.list_own(ports(), user)
        ],
        applications=[application.name for application in await access.list_own_applications(ports(), user)],
        consents=[consent.known_name or consent.service for consent in await consents.list_own(ports(), user)],
        subscriptions=[
            (own.subscription.plan.name, own.service)
            for own in await subscriptions.list_own_subscriptions(ports(), user)
            if own.subscription.status.is_live
        ],
    )


@routes.post("/app/account/export")
@page_session(ACTS_ON_ME)
@accepts(answers={200: "The data, as a JSON file to download."})
async def download_data() -> Response:
    """Download your data.

    The JSON file contains your profile, memberships, latest sign-ins, linked accounts, second-factor
    events, passkeys and consents.
    """
    user = signed_in()
    return await export_file(await personal_data.export(ports(), user, user.user_id))


# The password


async def _password_values(_: Form) -> dict[str, Any]:
    account, least_length = await accounts.find_own_password_rules(ports(), signed_in())
    return {"email": account.email, "has_password": account.password_hash is not None, "least_length": least_length}


def _wrong_password(refusal: Refusal, form: Form) -> str:
    """Return the password field that a refusal is about."""
    is_too_long = isinstance(refusal, PasswordTooLong) and len(form.get("new_password", "")) <= MAX_PASSWORD_LENGTH
    return "new_password" if isinstance(refusal, Invalid) and not is_too_long else "current_password"


@serves_form(routes, PASSWORD, "POST /api/user/change-password", "POST /api/user/set-password", opens=page_session(WAYS_IN))
@page_session(WAYS_IN)
@refuses(429)
@accepts(
    answers={**ANSWERS_TO_FORM, 401: "The current password is wrong."},
    form=["form_token", "new_password"],
)
@on_refusal("accounts/password.html", _password_values, _wrong_password, refusals=(Invalid, CurrentPasswordWrong, Limited))
async def change_password(form: Form) -> Response:
    """Change your password, or set a first password.

    A change ends your sessions except the current session, and no device is trusted any longer.
    """
    current = form.get("current_password")
    try:
        await accounts.choose_password(ports(), signed_in(), current, form.get("new_password", ""))
    except (PasswordAlreadySet, NoPasswordSet):  # changed by another request: show the form for the new state
        return redirect(PASSWORD)
    return redirect_with_notice("password-set" if current is None else "password-changed", SECURITY_PATH)


async def _removal() -> Question:
    return Question(
        verb="Remove",
        target="your password",
        consequences=(
            await remaining_ways(Method.PASSWORD),
            "A link to set a new password still comes to your email address if you ask for one on the sign-in page.",
        ),
        button="Remove password",
        keep="Keep it",
        back=("Security", SECURITY_PATH),
    )


@asks(routes, f"{PASSWORD}/remove")
@page_session(WAYS_IN)
@accepts_answer("DELETE /api/user/password", _removal)
async def remove_password(form: Form) -> Response:
    """Remove your password.

    You sign in with a passkey from now on.
    """
    await accounts.remove_password(ports(), signed_in())
    return redirect_with_notice("password-removed", SECURITY_PATH)


# The second factor


def setup_values(setup: MfaSetup) -> dict[str, Any]:
    """Return the values for a page with the secret for an authenticator app."""
    svg = qr_svg(setup.uri, "").encode()
    groups = (setup.secret[start : start + 4] for start in range(0, len(setup.secret), 4))
    return {"qr": f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}", "secret": " ".join(groups), "uri": setup.uri}


@routes.get("/app/account/two-factor")
@page_session
@describes_page({303: "The security page."})
async def show_two_factor() -> Response:
    """Redirect to the security page.

    It has your second factor.
    """
    return redirect(f"{SECURITY_PATH}#two-factor")


@routes.post("/app/account/two-factor/setup")
@page_session(WAYS_IN, limit=MFA_SETUP)
@accepts(answers=answers_with("The secret, with a QR code for an authenticator app."))
@once(SECURITY_PATH, "Open security", "The secret was shown once. If you didn't scan it, start the set-up again.")
@on_refusal(TEMPLATE, security_values, refusals=(Invalid,))
async def start_two_factor_setup(form: Form) -> Response:
    """Start to set up two-factor authentication.

    The page shows a secret, and asks for a code within 15 minutes.
    """
    setup = await mfa.start_setup(ports_once(), signed_in())
    return await console_page("accounts/two_factor_setup.html", **setup_values(setup))


@routes.post("/app/account/two-factor/confirm")
@page_session(WAYS_IN, limit=(MFA_CONFIRMATION, MFA_VERIFICATION))
@accepts(
    answers=answers_with("Two-factor authentication is on. The page shows the backup codes."),
    form=["form_token", "code"],
)
async def confirm_two_factor(form: Form) -> Response:
    """Confirm the authenticator app with a code.

    This turns two-factor authentication on. The backup codes are shown only once.
    """
    user = signed_in()
    try:
        codes = await mfa.confirm_setup(ports(), user, form.get("code", ""))
    except (Invalid, Limited) as refusal:
        setup = await mfa.find_pending_setup(ports(), user)
        if setup is None:
            return await refused_console_page(refusal, TEMPLATE, **await security_values({}))
        return await refused_console_page(refusal, "accounts/two_factor_setup.html", **setup_values(setup))
    return await console_page("accounts/backup_codes.html", codes=codes, switched_on=True)


@routes.post("/app/account/two-factor/backup-codes")
@page_session(WAYS_IN, limit=MFA_SETUP)
@accepts(answers=answers_with("The new backup codes."))
@once(SECURITY_PATH, "Open security", "The new codes were shown once. If you didn't save them, replace them again.")
@on_refusal(TEMPLATE, security_values, refusals=(Invalid, Limited))
async def regenerate_backup_codes(form: Form) -> Response:
    """Replace your backup codes.

    The new codes are shown only once. All earlier codes stop working.
    """
    codes = await mfa.regenerate_backup_codes(ports_once(), signed_in())
    return await console_page("accounts/backup_codes.html", codes=codes, switched_on=False)


async def _disabling() -> Question:
    account = await accounts.get_own(ports(), signed_in())
    keeps_keys = account.passkey_second_at is not None
    target = "the authenticator app" if keeps_keys else "two-factor authentication"
    return Question(
        verb="Turn off",
        target=target,
        consequences=(
            "Sign-ins then ask for a passkey or security key after your password. Your backup codes stay."
            if keeps_keys
            else "You'll sign in without a code again. Your backup codes are removed.",
            "Your trusted devices are removed, and your personal access tokens end.",
            *describe_losses(await mfa.list_losses(ports(), account)),
        ),
        button=f"Turn off {target}",
        keep="Keep it on",
        back=("Security", SECURITY_PATH),
    )


@routes.get("/app/account/two-factor/disable")
@page_session
@describes_page({200: "The page.", 303: "It is off already. Continue at the security page."}, api=["DELETE /api/user/mfa"])
async def show_disabling() -> Response:
    """Ask before you turn two-factor authentication off."""
    is_on = (await accounts.get_own(ports(), signed_in())).mfa_enabled_at is not None
    return await ask(await _disabling()) if is_on else redirect(SECURITY_PATH)


@routes.post("/app/account/two-factor/disable")
@page_session(WAYS_IN, limit=MFA_SETUP)
@accepts(answers=ANSWERS_TO_BUTTON)
async def disable_two_factor() -> Response:
    """Turn two-factor authentication off.

    Backup codes and trusted devices are removed.
    """
    await mfa.disable(ports(), signed_in())
    return redirect_with_notice("second-factor-off", SECURITY_PATH)
