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
from core.kernel import errors, rate_limits
from core.kernel.page_paths import ACCOUNT_PATH, SECURITY_PATH
from core.kernel.proofs import Method
from core.privacy import personal_data
from core.tenancy import organizations
from entrypoints.http import kit
from entrypoints.http.api.privacy import export_file
from entrypoints.http.api.tenancy.roles import role_text
from entrypoints.http.edge.qr import qr_svg
from entrypoints.http.pages import consequences, console, console_forms
from entrypoints.http.pages.accounts import security
from entrypoints.http.pages.accounts.ways_in import remaining_ways

routes = Blueprint("account", __name__)

PASSWORD: Final = "/app/account/password"  # noqa: S105  (an address)

# The overview


@routes.get(ACCOUNT_PATH)
@kit.page_session
@console.shows("GET /api/user", "GET /api/privacy/export/<user_id>")
async def show_account() -> Response:
    """Show an overview for your account."""
    user = kit.signed_in()
    account, email_change = await accounts.get_own(kit.ports(), user), await email_changes.find_pending(kit.ports(), user.user_id)
    return await console.console_page(
        "accounts/account.html",
        email=account.email,
        verified=account.email_verified_at is not None,
        pending=None if email_change is None else email_change.new_email,
        has_second_factor=bool(account.second_factors),
        profile=account.profile,
        organizations=[
            (organization.name, role_text(membership)) for organization, membership in await organizations.list_own(kit.ports(), user)
        ],
        applications=[application.name for application in await access.list_own_applications(kit.ports(), user)],
        consents=[consent.known_name or consent.service for consent in await consents.list_own(kit.ports(), user)],
        subscriptions=[
            (own.subscription.plan.name, own.service)
            for own in await subscriptions.list_own_subscriptions(kit.ports(), user)
            if own.subscription.status.is_live
        ],
    )


@routes.post("/app/account/export")
@kit.page_session(kit.ACTS_ON_ME)
@console_forms.accepts(answers={200: "The data, as a JSON file to download."})
async def download_data() -> Response:
    """Download your data.

    The JSON file contains your profile, memberships, latest sign-ins, linked accounts, second-factor
    events, passkeys and consents.
    """
    user = kit.signed_in()
    return await export_file(await personal_data.export(kit.ports(), user, user.user_id))


# The password


async def _password_values(_: console_forms.Form) -> dict[str, Any]:
    account, least_length = await accounts.find_own_password_rules(kit.ports(), kit.signed_in())
    return {"email": account.email, "has_password": account.password_hash is not None, "least_length": least_length}


def _wrong_password(refusal: errors.Refusal, form: console_forms.Form) -> str:
    """Return the password field that a refusal is about."""
    is_too_long = isinstance(refusal, PasswordTooLong) and len(form.get("new_password", "")) <= MAX_PASSWORD_LENGTH
    return "new_password" if isinstance(refusal, errors.Invalid) and not is_too_long else "current_password"


@console_forms.serves_form(
    routes, PASSWORD, "POST /api/user/change-password", "POST /api/user/set-password", opens=kit.page_session(kit.WAYS_IN)
)
@kit.page_session(kit.WAYS_IN)
@kit.refuses(429)
@console_forms.accepts(
    answers={**console_forms.ANSWERS_TO_FORM, 401: "The current password is wrong."},
    form=["form_token", "new_password"],
)
@console_forms.on_refusal(
    "accounts/password.html", _password_values, _wrong_password, refusals=(errors.Invalid, CurrentPasswordWrong, errors.Limited)
)
async def change_password(form: console_forms.Form) -> Response:
    """Change your password, or set a first password.

    A change ends your sessions except the current session, and no device is trusted any longer.
    """
    current = form.get("current_password")
    try:
        await accounts.choose_password(kit.ports(), kit.signed_in(), current, form.get("new_password", ""))
    except (PasswordAlreadySet, NoPasswordSet):  # changed by another request: show the form for the new state
        return kit.redirect(PASSWORD)
    return console.redirect_with_notice("password-set" if current is None else "password-changed", SECURITY_PATH)


async def _removal() -> consequences.Question:
    return consequences.Question(
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


@consequences.asks(routes, f"{PASSWORD}/remove")
@kit.page_session(kit.WAYS_IN)
@consequences.accepts_answer("DELETE /api/user/password", _removal)
async def remove_password(form: console_forms.Form) -> Response:
    """Remove your password."""
    await accounts.remove_password(kit.ports(), kit.signed_in())
    return console.redirect_with_notice("password-removed", SECURITY_PATH)


# The second factor


def setup_values(setup: MfaSetup) -> dict[str, Any]:
    """Return the values for a page with the secret for an authenticator app."""
    svg = qr_svg(setup.uri, "").encode()
    groups = (setup.secret[start : start + 4] for start in range(0, len(setup.secret), 4))
    return {"qr": f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}", "secret": " ".join(groups), "uri": setup.uri}


@routes.get("/app/account/two-factor")
@kit.page_session
@kit.describes_page({303: "The security page."})
async def show_two_factor() -> Response:
    """Redirect to the security page.

    It has your second factor.
    """
    return kit.redirect(f"{SECURITY_PATH}#two-factor")


@routes.post("/app/account/two-factor/setup")
@kit.page_session(kit.WAYS_IN, limit=rate_limits.MFA_SETUP)
@console_forms.accepts(answers=console_forms.answers_with("The secret, with a QR code for an authenticator app."))
@console_forms.once(SECURITY_PATH, "Open security", "The secret was shown once. If you didn't scan it, start the set-up again.")
@console_forms.on_refusal(security.TEMPLATE, security.security_values, refusals=(errors.Invalid,))
async def start_two_factor_setup(form: console_forms.Form) -> Response:
    """Start to set up two-factor authentication.

    The page shows a secret, and asks for a code within 15 minutes.
    """
    setup = await mfa.start_setup(console_forms.ports_once(), kit.signed_in())
    return await console.console_page("accounts/two_factor_setup.html", **setup_values(setup))


@routes.post("/app/account/two-factor/confirm")
@kit.page_session(kit.WAYS_IN, limit=(rate_limits.MFA_CONFIRMATION, rate_limits.MFA_VERIFICATION))
@console_forms.accepts(
    answers=console_forms.answers_with("Two-factor authentication is on. The page shows the backup codes."),
    form=["form_token", "code"],
)
async def confirm_two_factor(form: console_forms.Form) -> Response:
    """Confirm the authenticator app with a code.

    This turns two-factor authentication on. The backup codes are shown only once.
    """
    user = kit.signed_in()
    try:
        codes = await mfa.confirm_setup(kit.ports(), user, form.get("code", ""))
    except (errors.Invalid, errors.Limited) as refusal:
        setup = await mfa.find_pending_setup(kit.ports(), user)
        if setup is None:
            return await console_forms.refused_console_page(refusal, security.TEMPLATE, **await security.security_values({}))
        return await console_forms.refused_console_page(refusal, "accounts/two_factor_setup.html", **setup_values(setup))
    return await console.console_page("accounts/backup_codes.html", codes=codes, switched_on=True)


@routes.post("/app/account/two-factor/backup-codes")
@kit.page_session(kit.WAYS_IN, limit=rate_limits.MFA_SETUP)
@console_forms.accepts(answers=console_forms.answers_with("The new backup codes."))
@console_forms.once(SECURITY_PATH, "Open security", "The new codes were shown once. If you didn't save them, replace them again.")
@console_forms.on_refusal(security.TEMPLATE, security.security_values, refusals=(errors.Invalid, errors.Limited))
async def regenerate_backup_codes(form: console_forms.Form) -> Response:
    """Replace your backup codes.

    The new codes are shown only once. All earlier codes stop working.
    """
    codes = await mfa.regenerate_backup_codes(console_forms.ports_once(), kit.signed_in())
    return await console.console_page("accounts/backup_codes.html", codes=codes, switched_on=False)


async def _disabling() -> consequences.Question:
    account = await accounts.get_own(kit.ports(), kit.signed_in())
    keeps_keys = account.passkey_second_at is not None
    target = "the authenticator app" if keeps_keys else "two-factor authentication"
    return consequences.Question(
        verb="Turn off",
        target=target,
        consequences=(
            "Sign-ins then ask for a passkey or security key after your password. Your backup codes stay."
            if keeps_keys
            else "You'll sign in without a code again. Your backup codes are removed.",
            "Your trusted devices are removed, and your personal access tokens end.",
            *consequences.describe_losses(await mfa.list_losses(kit.ports(), account)),
        ),
        button=f"Turn off {target}",
        keep="Keep it on",
        back=("Security", SECURITY_PATH),
    )


@routes.get("/app/account/two-factor/disable")
@kit.page_session
@kit.describes_page({200: "The page.", 303: "It is off already. Continue at the security page."}, api=["DELETE /api/user/mfa"])
async def show_disabling() -> Response:
    """Ask before you turn two-factor authentication off."""
    is_on = (await accounts.get_own(kit.ports(), kit.signed_in())).mfa_enabled_at is not None
    return await consequences.ask(await _disabling()) if is_on else kit.redirect(SECURITY_PATH)


@routes.post("/app/account/two-factor/disable")
@kit.page_session(kit.WAYS_IN, limit=rate_limits.MFA_SETUP)
@console_forms.accepts(answers=console_forms.ANSWERS_TO_BUTTON)
async def disable_two_factor() -> Response:
    """Turn two-factor authentication off.

    Backup codes and trusted devices are removed.
    """
    await mfa.disable(kit.ports(), kit.signed_in())
    return console.redirect_with_notice("second-factor-off", SECURITY_PATH)
