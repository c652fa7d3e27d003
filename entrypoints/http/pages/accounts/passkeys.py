"""The passkeys and security keys on the user's account. `security` lists them."""

from typing import Any, Final
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response

from core.accounts import mfa, passkey_waits, passkeys
from core.accounts.model.passkeys import OwnPasskeys, Passkey, PasskeyKind, PasskeyNotAdded
from core.kernel.display import format_utc
from core.kernel.errors import Refusal
from core.kernel.page_paths import SECURITY_PATH
from core.kernel.rate_limits import PASSKEYS
from core.kernel.values import base64url
from entrypoints.http import kit
from entrypoints.http.api.accounts.passkeys import KIND, Kind, PasskeyUpdateRequest
from entrypoints.http.api.accounts.webauthn import RegistrationCredentialRequest
from entrypoints.http.pages import consequences, console, console_forms
from entrypoints.http.pages.accounts.ways_in import remaining_ways
from entrypoints.http.pages.form_values import to_model

routes = Blueprint("passkey_pages", __name__)

LIST: Final = "/app/account/passkeys"
SECOND: Final = f"{LIST}/second-factor"
LOST: Final = f"{LIST}/lost"
API: Final = "/api/user/passkeys"
NEW_TEMPLATE: Final = "accounts/new_passkey.html"
GO_ON, ALL = "Go on without", "your passkeys"
DELETED: Final = "passkey-deleted", "last-key-deleted"  # notices
SECTION: Final = f"{SECURITY_PATH}#passkeys"
CODES_ADVICE: Final = "The backup codes were shown once. If you didn't save them, replace them on the security page."


def passkey_values(passkey: Passkey, own: OwnPasskeys) -> dict[str, Any]:
    """Return the values for a passkey's row on the security page, and for its own page."""
    return {
        "id": passkey.id,
        "name": passkey.name,
        "is_security_key": passkey.kind is PasskeyKind.SECURITY_KEY,
        "product": passkey.product,
        "can_sync": passkey.backup_eligible,
        "is_synced": passkey.backed_up,
        "created": passkey.created_at,
        "used": passkey.last_used_at,
        "other_host": None if passkey in own.usable else passkey.rp_id,
    }


def signals_of(own: OwnPasskeys, *, has_deleted: bool) -> dict[str, Any] | None:
    """Return the browser's signals to password managers, by PublicKeyCredential's method, or None without any.

    They keep passkeys that an undo can restore, except a passkey that the user `has_deleted` in this browser just now.
    """
    if own.rp_id is None or own.handle is None:
        return None
    user = {"rpId": own.rp_id, "userId": base64url(own.handle)}
    email, name = own.account.email, own.account.profile.name
    kept = [each.credential_id for each in own.usable] + list(own.restorable)[has_deleted:]
    return {
        "signalAllAcceptedCredentials": {**user, "allAcceptedCredentialIds": [base64url(each) for each in kept]},
        "signalCurrentUserDetails": {**user, "name": email, "displayName": name or email},
    }


# Add a passkey


class NewPasskeyQuery(kit.Query):
    """The kind of passkey to add."""

    kind: Kind = Field(default="passkey", description=KIND)


class NewPasskeyForm(kit.RequestModel):
    """The form fields that the user fills in."""

    name: kit.Name | None = None
    kind: Kind = "passkey"


async def _new_values(typed: console_forms.Form, kind: PasskeyKind | None = None) -> dict[str, Any]:
    """Return the page's values, without options if no ceremony can start."""
    user, is_key = kit.signed_in(), typed.get("kind") == PasskeyKind.SECURITY_KEY
    kind = kind or (PasskeyKind.SECURITY_KEY if is_key else PasskeyKind.PASSKEY)
    status = await mfa.get_status(kit.ports(), user)
    try:
        options, problem = await passkeys.start(kit.ports(), user, kind), None
    except Refusal as refusal:
        options, problem = None, refusal
    return {"kind": kind, "options": options, "blocker": problem, "is_second": status.passkey_at is not None, "typed": typed}


@routes.get(f"{LIST}/new")
@kit.page_session(kit.WAYS_IN, limit=PASSKEYS)
@kit.refuses(400, 403)
@console.shows(f"POST {API}/options")
async def show_form(query_args: NewPasskeyQuery) -> Response:
    """Show the page that adds a passkey or a security key. Its script runs the browser's ceremony. The page works for 10 minutes."""
    values = await _new_values({}, PasskeyKind(query_args.kind))
    if values["blocker"] is not None:
        return await console_forms.refused_console_page(values["blocker"], NEW_TEMPLATE, **values)
    return await console.console_page(NEW_TEMPLATE, **values)


@routes.post(LIST)
@kit.page_session(kit.WAYS_IN, limit=PASSKEYS)
@console_forms.accepts(
    f"POST {API}",
    answers=console_forms.answers_with("The backup codes, if it became the first second factor."),
    form=["form_token", "credential"],
    page=f"{LIST}/new",
)
@console_forms.once(SECTION, "Open security", CODES_ADVICE)
@console_forms.on_refusal(NEW_TEMPLATE, _new_values)
async def add(form: console_forms.Form) -> Response:
    """Add a passkey or a security key."""
    fields = to_model(NewPasskeyForm, form)
    credential = console_forms.read_credential(form, RegistrationCredentialRequest, PasskeyNotAdded)
    _, codes = await passkeys.register(console_forms.ports_once(), kit.signed_in(), credential, fields.name, PasskeyKind(fields.kind))
    if codes:
        return await console.console_page("accounts/backup_codes.html", codes=codes, switched_on=True)
    return console.redirect_with_notice(f"{fields.kind.replace('_', '-')}-added", SECURITY_PATH)


# A single passkey


async def _own_values(typed: console_forms.Form, passkey_id: UUID) -> dict[str, Any]:
    own = await passkeys.load_own(kit.ports(), kit.signed_in())
    passkey = own.find(passkey_id)
    return {"passkey": passkey_values(passkey, own), "typed": {"name": passkey.name, **typed}}


@routes.get(f"{LIST}/<passkey_id>")
@kit.page_session
@kit.refuses(404)
@console.shows(f"GET {API}", f"PATCH {API}/<passkey_id>", f"DELETE {API}/<passkey_id>")
async def show_passkey(passkey_id: UUID) -> Response:
    """Show a passkey or security key."""
    return await console.console_page("accounts/passkey.html", **await _own_values({}, passkey_id))


@routes.post(f"{LIST}/<passkey_id>/name")
@kit.page_session(kit.WAYS_IN)
@kit.refuses(404)
@console_forms.accepts(f"PATCH {API}/<passkey_id>", form=["form_token", "name"])
@console_forms.on_refusal("accounts/passkey.html", _own_values)
async def rename(passkey_id: UUID, form: console_forms.Form) -> Response:
    """Rename a passkey or security key."""
    await passkeys.rename(kit.ports(), kit.signed_in(), passkey_id, to_model(PasskeyUpdateRequest, form).name)
    return console.redirect_with_notice("passkey-renamed", SECURITY_PATH)


async def _deletion(passkey_id: UUID) -> consequences.Question:
    own = await passkeys.load_own(kit.ports(), kit.signed_in())
    passkey = own.find(passkey_id)
    is_last_second = own.account.passkey_second_at is not None and len(own.passkeys) == 1
    return consequences.Question(
        verb="Delete",
        target=passkey.name,
        consequences=(
            "It stops working at once. If your browser can, it also removes it from your password manager.",
            *([_without_second(own)] if is_last_second else []),
            *consequences.describe_losses(await passkeys.list_losses(kit.ports(), own.account, passkey)),
            await remaining_ways(passkey_id),
        ),
        button="Delete",
        back=(passkey.name, f"{LIST}/{passkey_id}"),
    )


def _without_second(own: OwnPasskeys) -> str:
    if own.account.mfa_enabled_at is not None:
        return "It is your last one, so sign-ins then ask only for a code of your authenticator app."
    return (
        "It is your last one, so two-factor authentication is turned off: sign-ins ask for no second factor. "
        "Your backup codes and trusted devices are removed, and your personal access tokens end."
    )


@consequences.asks(routes, f"{LIST}/<passkey_id>/delete")
@kit.page_session(kit.WAYS_IN)
@kit.refuses(404)
@consequences.accepts_answer(f"DELETE {API}/<passkey_id>", _deletion)
async def delete(passkey_id: UUID, form: console_forms.Form) -> Response:
    """Delete a passkey or security key."""
    has_ended = await passkeys.delete(kit.ports(), kit.signed_in(), passkey_id)
    return console.redirect_with_notice(DELETED[has_ended], SECURITY_PATH)


# After all passkeys are lost


async def _loss() -> consequences.Question:
    wait = await passkey_waits.find(kit.ports(), kit.signed_in())
    if wait is not None and kit.ports().clock.now() < wait.over_at:
        text = f"The wait has started. You can remove the passkeys from {format_utc(wait.over_at)} on."
        return consequences.Question(verb=GO_ON, target=ALL, consequences=(text,), button="", back=("Security", SECTION))
    if wait is not None:
        return consequences.Question(
            verb="Remove",
            target="your lost passkeys",
            consequences=(
                "They no longer sign in. You can then change your account without a passkey, and add a new one.",
                "We email you a link that gives them back, for 72 hours.",
            ),
            button="Remove passkeys",
            back=("Security", SECTION),
            action=f"{LOST}/remove",
        )
    if (refusal := await passkey_waits.find_refusal(kit.ports(), kit.signed_in())) is not None:
        return consequences.Question(verb=GO_ON, target=ALL, consequences=(refusal.message,), button="", back=("Security", SECTION))
    return consequences.Question(
        verb=GO_ON,
        target=ALL,
        consequences=(
            "Only do this if you've lost all your passkeys. We ask for your password, and for a code that we email you.",
            "You then wait for 24 hours. In the next 48 hours, you can remove the passkeys, and need no passkey for it.",
            "We email you now and when the wait is over. The link in these emails stops the removal, and so does a sign-in with a passkey.",
        ),
        button="Start the wait",
        back=("Security", SECTION),
        dangerous=False,
        action=LOST,
    )


@routes.get(LOST)
@kit.page_session
@console.shows(f"POST {API}/wait", f"DELETE {API}")
async def show_loss() -> Response:
    """Ask before you start the wait for lost passkeys, and after the wait before you remove the passkeys."""
    wait = await passkey_waits.find(kit.ports(), kit.signed_in())
    is_waiting = wait is not None and kit.ports().clock.now() < wait.over_at
    return kit.redirect(SECTION) if is_waiting else await consequences.ask(await _loss())


@routes.post(LOST)
@kit.page_session(kit.ACTS_ON_ME, limit=PASSKEYS)
@consequences.accepts_answer(f"POST {API}/wait", _loss)
async def start_wait(form: console_forms.Form) -> Response:
    """Report that you lost all your passkeys. You can remove them after 24 hours."""
    await passkey_waits.start(kit.ports(), kit.signed_in())
    return console.redirect_with_notice("passkey-wait-started", SECURITY_PATH)


@routes.post(f"{LOST}/cancel")
@kit.page_session(kit.MINE)
@kit.refuses(404)
@console_forms.accepts(f"DELETE {API}/wait", answers=console_forms.ANSWERS_TO_BUTTON)
async def cancel_wait(form: console_forms.Form) -> Response:
    """Cancel the wait for lost passkeys."""
    await passkey_waits.cancel(kit.ports(), kit.signed_in())
    return console.redirect_with_notice("passkey-wait-canceled", SECURITY_PATH)


@routes.post(f"{LOST}/remove")
@kit.page_session(kit.ACTS_ON_ME, limit=PASSKEYS)
@kit.refuses(404)
@consequences.accepts_answer(f"DELETE {API}", _loss)
async def remove_lost(form: console_forms.Form) -> Response:
    """Remove all your passkeys after the wait for lost passkeys."""
    await passkey_waits.finish(kit.ports(), kit.signed_in())
    return console.redirect_with_notice("lost-passkeys-removed", SECURITY_PATH)


# The second factor


async def _turning_off() -> consequences.Question:
    account = (await passkeys.load_own(kit.ports(), kit.signed_in())).account
    if account.mfa_enabled_at is not None:
        effect = "Sign-ins then ask for a code of your authenticator app after your password. They still accept a passkey or security key."
    else:
        effect = "Two-factor authentication is turned off: a password alone signs in. Your backup codes are removed."
    return consequences.Question(
        verb="Turn off",
        target="passkeys as second factor",
        consequences=(
            effect,
            "Your trusted devices are removed, and your personal access tokens end. Your passkeys stay, and still sign in.",
            *consequences.describe_losses(await passkeys.list_losses(kit.ports(), account)),
        ),
        button="Turn off",
        keep="Keep it on",
        back=("Security", SECTION),
        answered={"enabled": "no"},
    )


@routes.get(SECOND)
@kit.page_session
@console.shows(f"PUT {API}/second-factor")
async def show_turning_off() -> Response:
    """Ask before sign-ins no longer ask for a passkey or security key after your password."""
    is_on = (await passkeys.load_own(kit.ports(), kit.signed_in())).account.passkey_second_at is not None
    return await consequences.ask(await _turning_off()) if is_on else kit.redirect(SECURITY_PATH)


@routes.post(SECOND)
@kit.page_session(kit.WAYS_IN)
@console_forms.accepts(
    f"PUT {API}/second-factor", answers=console_forms.answers_with("The backup codes, if you had none."), form=["form_token", "enabled"]
)
@console_forms.once(SECTION, "Open security", CODES_ADVICE)
@consequences.ask_on_refusal(_turning_off)
async def set_second(form: console_forms.Form) -> Response:
    """Choose whether sign-ins ask for a passkey or security key after your password."""
    is_on = form.get("enabled") == "yes"
    codes = await passkeys.set_second(console_forms.ports_once(), kit.signed_in(), on=is_on)
    if codes:
        return await console.console_page("accounts/backup_codes.html", codes=codes, switched_on=True)
    return console.redirect_with_notice("second-key-on" if is_on else "second-key-off", SECURITY_PATH)
