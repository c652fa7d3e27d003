"""The recovery pages: for admins and platform owners, who start a recovery, and for the user, who has no session (security M-8)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.accounts import platform
from core.accounts.model import passkeys
from core.applications import end_users
from core.authentication import account_recovery
from core.authentication.model import recovery
from core.kernel.access import require_view
from core.kernel.display import format_utc
from core.kernel.errors import Refusal
from core.kernel.page_paths import RECOVER_PATH
from core.kernel.rate_limits import EMAIL_SIGN_IN_VERIFICATION
from core.kernel.roles import Capability
from core.tenancy import members
from entrypoints.http import kit
from entrypoints.http.api.accounts.webauthn import RegistrationCredentialRequest
from entrypoints.http.api.authentication.recovery import END_USERS, MEMBERS, RecoveryRequest
from entrypoints.http.pages import consequences, console, console_forms, form_pages
from entrypoints.http.pages.accounts.account import setup_values
from entrypoints.http.pages.form_values import to_model
from ports import Ports

routes = Blueprint("recovery_pages", __name__)

ADVICE: Final = "The code was shown once. If you didn't copy it, start the recovery again: the new one replaces it."
OPEN: Final = f"{RECOVER_PATH}/<recovery_id>"


async def _user(user_id: UUID) -> tuple[str, str]:
    """Return a user's address, and the path to their page."""
    require_view(kit.acting_member(), Capability.END_USERS_VIEW)
    await members.require_power(kit.ports(), kit.acting_member(), user_id)
    return await end_users.find_address(kit.ports(), kit.acting_member(), user_id), console.organization_path(f"/users/{user_id}")


async def _member(user_id: UUID) -> tuple[str, str]:
    await members.require_power(kit.ports(), kit.acting_member(), user_id)
    found = (await members.find(kit.ports(), kit.acting_member(), user_id)).account.member
    return found.email, console.organization_path(f"/members/{user_id}")


async def _person(user_id: UUID) -> tuple[str, str]:
    return (await platform.find_user(kit.ports(), user_id)).email, f"/app/platform/people/{user_id}"


@dataclass(frozen=True, slots=True)
class Issuer:
    """An organization's admins, or the platform owners: how they start and cancel an account's recovery."""

    find: Callable[[UUID], Awaitable[tuple[str, str]]]  # the user's address, and the path to their page
    issue: Callable[[Ports, UUID, str], Awaitable[recovery.IssuedRecovery]]
    end: Callable[[UUID], Awaitable[None]]
    others: str = "admins"  # who get an email

    async def question(self, user_id: UUID) -> consequences.Question:
        """Return the page that asks for a reason before a recovery starts."""
        address, path = await self.find(user_id)
        return consequences.Question(
            verb="Recover the account of",
            target=address,
            consequences=(
                "For a user who has lost their second factor or passkey. We email them a link, and show you a code. With both, they set "
                "up a new factor within 24 hours. All earlier factors then end.",
                "Give them the code only when you are sure who asks: in person, or in a call that you started. Their sessions end now, "
                f"and the other {self.others} get an email.",
                "A sign-in with all factors of the account ends the recovery. If another person signed in, start another recovery within "
                "72 hours: all sign-ins to the account are refused until that recovery ends.",
            ),
            button="Start recovery",
            reason="Reason, for the audit log",
            back=(address, path),
            keep="Not now",
        )

    async def end_question(self, user_id: UUID) -> consequences.Question:
        """Return the page that asks before a recovery is canceled."""
        address, path = await self.find(user_id)
        return consequences.Question(
            verb="Cancel the recovery of",
            target=address,
            consequences=("The link and the code stop working. Their factors stay as they are.",),
            button="Cancel recovery",
            back=(address, path),
            keep="Keep recovery",
            dangerous=False,
        )


def _in_organization(find: Callable[[UUID], Awaitable[tuple[str, str]]], right: Capability) -> Issuer:
    return Issuer(
        find,
        lambda ports_of_form, user_id, reason: account_recovery.issue_in_organization(
            ports_of_form, kit.acting_member(), user_id, reason, right
        ),
        lambda user_id: account_recovery.cancel_in_organization(kit.ports(), kit.acting_member(), user_id, right),
    )


def _add_forms(noun: str, path: str, api: str, issuer: Issuer, access: Callable[[kit.EffectRow], Callable[[kit.View], kit.View]]) -> None:
    """Add the forms that start and cancel an account's recovery, and the pages that ask first."""

    @console_forms.once(path, "Back", ADVICE)
    @kit.refuses(429)
    @consequences.ask_on_refusal(issuer.question)
    async def start(user_id: UUID, form: console_forms.Form, **_: str) -> Response:
        issued = await issuer.issue(console_forms.ports_once(), user_id, to_model(RecoveryRequest, form).reason)
        address, page = await issuer.find(user_id)
        until = format_utc(issued.expires_at)
        advice = f"Give it to {address} after checking who asks. It works with the link that we emailed, until {until}."
        if issued.refuses_sign_ins:
            advice += " A sign-in ended the last recovery. So all sign-ins to this account are refused until the new recovery has ended."
        return await console.secret_page("Recovery code", {"Code": issued.code}, advice=advice, done=(f"Back to {address}", page))

    async def cancel(user_id: UUID, form: console_forms.Form, **_: str) -> Response:
        await issuer.end(user_id)
        return console.redirect_with_notice("recovery-canceled", (await issuer.find(user_id))[1])

    start.__name__, cancel.__name__ = f"start_{noun}_recovery", f"cancel_{noun}_recovery"
    start.__doc__ = f"Start the recovery of a {noun}.\n\nThe code is shown only once."
    cancel.__doc__ = f"Cancel the recovery of a {noun}."
    consequences.asks(routes, f"{path}/recovery")(
        access(kit.OWNS)(console_forms.accepts(f"POST {api}/recovery", answers=console_forms.answers_with("The code."))(start))
    )
    consequences.asks(routes, f"{path}/recovery/cancel")(
        access(kit.BY_PEOPLE)(consequences.accepts_answer(f"DELETE {api}/recovery", issuer.end_question)(cancel))
    )


OF_PEOPLE: Final = Issuer(
    _person,
    lambda ports_of_form, user_id, reason: account_recovery.issue_by_platform(ports_of_form, kit.signed_in(), user_id, reason),
    lambda user_id: account_recovery.cancel_by_platform(kit.ports(), kit.signed_in(), user_id),
    "platform owners",
)
for _noun, _find, _right in (("user", _user, END_USERS), ("member", _member, MEMBERS)):
    _path = f"organizations/<org_slug>/{_noun}s/<user_id>"
    _add_forms(_noun, f"/app/{_path}", f"/api/{_path}", _in_organization(_find, _right), partial(kit.member_page, _right))
_add_forms("person", "/app/platform/people/<user_id>", "/api/platform/users/<user_id>", OF_PEOPLE, kit.platform_page)


# For the user


@routes.get(RECOVER_PATH)
@kit.anyone
@kit.describes_page(
    {200: "The form for the code.", 303: "Both parts were given in this browser. Continue there."},
    query={"token": "The token of the link."},
)
async def recover_page() -> Response:
    """Show the form for a recovery's code.

    The link in the email leads here. Opening it does not use it up. The browser that gave the link and the code continues where it was.
    """
    token = kit.link_token()
    if (recovery_id := await account_recovery.find_resumable(kit.ports(), token, kit.cookies.browser_id())) is not None:
        return kit.redirect(f"{RECOVER_PATH}/{recovery_id}")
    return form_pages.form_page("authentication/recover.html", token=token, problem=None)


@routes.post(RECOVER_PATH)
@kit.anyone(limit=EMAIL_SIGN_IN_VERIFICATION)
@kit.describes_page(
    {
        303: "Both parts are right. Set up a new factor on the next page.",
        400: "The link or the code is wrong, or the recovery has ended.",
        403: "The form was not sent by our page.",
    },
    form=["form_token", "token", "code"],
)
async def recover() -> Response:
    """Open a recovery with its link and its code.

    It continues in this browser alone. The fifth wrong code ends it.
    """
    form = await form_pages.read_own_form()
    token = form.get("token", "")
    try:
        recovery_id = await account_recovery.open_in_browser(
            kit.ports(), kit.caller(), token, form.get("code", ""), kit.cookies.browser_id()
        )
    except recovery.RecoveryRefused as refusal:
        if (resumable := await account_recovery.find_resumable(kit.ports(), token, kit.cookies.browser_id())) is not None:
            return kit.redirect(f"{RECOVER_PATH}/{resumable}")  # the form stood in another tab
        return form_pages.refused_form_page(refusal, "authentication/recover.html", token=token)
    return kit.redirect(f"{RECOVER_PATH}/{recovery_id}")


async def _factor_values(recovery_id: UUID) -> dict[str, Any]:
    """Return the values for the page that sets a factor up."""
    opened = await account_recovery.find_open(kit.ports(), recovery_id, kit.cookies.browser_id())
    options = None
    if opened.allows_passkey:
        with suppress(passkeys.NoPasskeysHere):
            options = await account_recovery.start_passkey(kit.ports(), kit.caller(), recovery_id, kit.cookies.browser_id())
    return {
        "path": f"{RECOVER_PATH}/{recovery_id}",
        "email": opened.email,
        "options": options,
        "allows_app": opened.allows_app,
        "scripted": True,
        **setup_values(opened.setup),
    }


@routes.get(OPEN)
@kit.anyone(kit.PROTOCOL)
@kit.describes_page({200: "The ways to set a factor up.", 400: "The recovery has ended, or began in another browser."}, changes_state=True)
async def factor_page(recovery_id: UUID) -> Response:
    """Show the ways to set up a new factor in an open recovery.

    They are the ways that the account's sign-in policies accept.
    """
    return form_pages.form_page("authentication/recover_factor.html", problem=None, with_app=False, **await _factor_values(recovery_id))


async def _finish(recovery_id: UUID, finish: Callable[[Mapping[str, str]], Awaitable[Sequence[str]]], *, with_app: bool) -> Response:
    form = await form_pages.read_own_form()
    values = await _factor_values(recovery_id)
    try:
        codes = await finish(form)
    except Refusal as refusal:
        return form_pages.refused_form_page(refusal, "authentication/recover_factor.html", with_app=with_app, **values)
    return form_pages.form_page(
        "authentication/recovered.html", codes=codes, email=values["email"], with_passkey=not with_app, scripted=True
    )


ANSWERS: Final = {
    200: "The new backup codes. The user signs in next.",
    400: "The code or the passkey is not right, or the recovery has ended.",
    403: "The form was not sent by our page.",
}


@routes.post(f"{OPEN}/app")
@kit.anyone(limit=EMAIL_SIGN_IN_VERIFICATION)
@kit.describes_page(ANSWERS, form=["form_token", "code"])
async def finish_with_app(recovery_id: UUID) -> Response:
    """Set up an authenticator app, which replaces all earlier factors.

    The recovery is over, and no session begins.
    """

    async def finish(form: Mapping[str, str]) -> Sequence[str]:
        return await account_recovery.finish_with_app(
            kit.ports(), kit.caller(), recovery_id, kit.cookies.browser_id(), form.get("code", "")
        )

    return await _finish(recovery_id, finish, with_app=True)


@routes.post(f"{OPEN}/passkey")
@kit.anyone(limit=EMAIL_SIGN_IN_VERIFICATION)
@kit.describes_page(ANSWERS, form=["form_token", "credential"])
async def finish_with_passkey(recovery_id: UUID) -> Response:
    """Set up a passkey, which replaces all earlier factors.

    The recovery is over, and no session begins.
    """

    async def finish(form: Mapping[str, str]) -> Sequence[str]:
        credential = console_forms.read_credential(form, RegistrationCredentialRequest, passkeys.PasskeyNotAdded)
        return await account_recovery.finish_with_passkey(kit.ports(), kit.caller(), recovery_id, kit.cookies.browser_id(), credential)

    return await _finish(recovery_id, finish, with_app=False)
