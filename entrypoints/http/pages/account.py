"""The account page and those below it: one's own address, password, second factor, devices, sessions and data (decisions, points 53 and
176; security.md G-1, G-2).

They do what the JSON interface does, by forms that work without scripts; after each the browser is sent on, so that loading a page again
repeats nothing. Only what is shown once comes as the answer itself.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from pydantic import TypeAdapter, ValidationError
from quart import Blueprint, Response

from core import privacy
from core.accounts import accounts, devices, mfa
from core.accounts.accounts_rules import CurrentPasswordWrong, NoPasswordSet, PasswordAlreadySet
from core.accounts.devices_rules import ListedDevice
from core.accounts.mfa_rules import MfaSetup
from core.authentication import browser, identities, oauth_credentials, sessions
from core.authentication.browser import FormTokenInvalid
from core.authentication.sessions_rules import LiveSession
from core.federation.upstream.social_rules import IDENTITIES_PATH
from core.kernel.display import format_utc
from core.kernel.errors import Invalid, Limited, Refusal, refuse
from core.kernel.providers import Provider
from core.kernel.rate_limits import MFA_CONFIRMATION, MFA_SETUP, MFA_VERIFICATION, RESEND_VERIFICATION
from core.kernel.values import Email
from entrypoints.http.api.privacy import export_package
from entrypoints.http.edge import cookies
from entrypoints.http.edge.access import ACCOUNT, SIGN_IN, page_session
from entrypoints.http.edge.bodies import Name
from entrypoints.http.edge.context import page_response, ports, signed_in
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.edge.qr import qr_svg
from entrypoints.http.edge.queries import path_id
from entrypoints.http.pages import render
from entrypoints.http.pages.sign_in import redirect, refused_page

routes = Blueprint("account", __name__)

EMAIL: Final = "/app/account/email"
PASSWORD: Final = "/app/account/password"  # noqa: S105  (an address)
TWO_FACTOR: Final = "/app/account/two-factor"
DEVICES: Final = "/app/account/devices"
SESSIONS: Final = "/app/account/sessions"

# What a page says was done just now, by the name that the notice's cookie has for it.
DONE: Final = {
    "address": "The address was changed. Follow the link in the mail that we sent there to verify it.",
    "link": "The mail is on its way.",
    "password": "The password was saved. You are signed out everywhere else.",
    "first-password": "The password was saved.",
    "off": "Two-factor authentication is off.",
    "name": "The name was saved.",
    "revoked": "The device was revoked, and is signed out.",
    "ended": "The session was ended.",
    "others": "All other sessions were ended.",
    "linked": "The account was linked. You can sign in with it from now on.",
    "unlinked": "The account was unlinked.",
}
SENT_ON: Final = "Done: on to the page that shows it."
FOREIGN: Final = "The form was not sent by our page."
NOT_ACCEPTED: Final = "What the form holds is not acceptable, which the page says."
ON_A_PAGE = 100  # devices that a list shows


# How these pages are answered


def _cookie() -> str:
    return cookies.session_cookie() or refuse(FormTokenInvalid)


def _page(name: str, **values: Any) -> Response:
    """A page of the account, with what was done just before."""
    notice = cookies.notice_cookie()
    page = render(name, form_action="'self'", form_token=browser.form_token(_cookie()), done=DONE.get(notice or ""), **values)
    response = page_response(page)
    if notice is not None:
        cookies.clear_notice_cookie(response)
    return response


def _again(refusal: Refusal, name: str, **values: Any) -> Response:
    return refused_page(refusal, name, form_token=browser.form_token(_cookie()), done=None, **values)


def _done(notice: str, target: str) -> Response:
    response = redirect(target)
    cookies.set_notice_cookie(response, notice)
    return response


async def _form() -> dict[str, str]:
    """The fields of a form of this session. Raises ForeignOrigin, FormTokenInvalid, FormInvalid."""
    form = await read_form()
    browser.check_form_token(_cookie(), form.get("form_token", ""))
    return form


# The account page


@routes.get(ACCOUNT)
@page_session
@describes_page({200: "The page."})
async def account_page() -> Response:
    """Your account: what there is, and where to change it."""
    me = signed_in()
    account, factor = await accounts.get_own(ports(), me), await mfa.get_status(ports(), me)
    seen, live = await _devices(), await sessions.list_own(ports(), me)
    return _page(
        "account.html",
        email=account.email,
        verified=account.email_verified_at is not None,
        has_password=account.password_hash is not None,
        mfa_since=None if factor.enabled_at is None else format_utc(factor.enabled_at),
        devices=len(seen),
        trusted=sum(one.trusted for one in seen),
        sessions=live.total,
        linked=[each.value.title() for each in await identities.list_sign_in_providers(ports(), me)],
    )


@routes.post("/app/account/export")
@page_session
@describes_page({200: "The export package, as a file to keep.", 403: FOREIGN}, form=["form_token"])
async def export() -> Response:
    """Download all that is kept about you."""
    await _form()
    me = signed_in()
    response = await export_package(await privacy.export(ports(), me, me.user_id))
    response.headers["Content-Disposition"] = 'attachment; filename="gatehouse-export.json"'
    response.headers["Cache-Control"] = "no-store"
    return response


# The address


@routes.get(EMAIL)
@page_session
@describes_page({200: "The form."})
async def email_page() -> Response:
    """The page to change your email address on."""
    me = signed_in()
    return _page("account_email.html", email=me.email, verified=me.email_verified, typed="", problem=None)


@routes.post(EMAIL)
@page_session
@describes_page({303: SENT_ON, 400: NOT_ACCEPTED, 403: FOREIGN}, form=["form_token", "email"])
async def change_email() -> Response:
    """What that page sends."""
    form, me = await _form(), signed_in()
    typed = form.get("email", "")
    try:
        await accounts.change_email(ports(), me, Email.parse(typed))
    except Invalid as refusal:
        return _again(refusal, "account_email.html", email=me.email, verified=me.email_verified, typed=typed)
    return _done("address", EMAIL)


@routes.post("/app/account/email/verification")
@page_session(limit=RESEND_VERIFICATION)
@describes_page({303: SENT_ON, 403: FOREIGN}, form=["form_token"])
async def resend_verification() -> Response:
    """Ask for another link to verify the address."""
    await _form()
    await accounts.resend_verification(ports(), signed_in(), signed_in().email)
    return _done("link", EMAIL)


# The password


async def _password_values() -> dict[str, Any]:
    account = await accounts.get_own(ports(), signed_in())
    return {"email": account.email, "has_password": account.password_hash is not None}


@routes.get(PASSWORD)
@page_session
@describes_page({200: "The form."})
async def password_page() -> Response:
    """The page to change your password on, or to set a first one."""
    return _page("account_password.html", about_current=False, problem=None, **await _password_values())


@routes.post(PASSWORD)
@page_session
@refuses(429)
@describes_page({303: SENT_ON, 400: NOT_ACCEPTED, 401: "The current password is wrong.", 403: FOREIGN}, form=["form_token", "new_password"])
async def change_password() -> Response:
    """What that page sends."""
    form, me = await _form(), signed_in()
    new = form.get("new_password", "")
    try:
        if "current_password" in form:
            await accounts.change_password(ports(), me, form["current_password"], new)
            return _done("password", ACCOUNT)
        await accounts.set_password(ports(), me, new)
    except (PasswordAlreadySet, NoPasswordSet):  # done meanwhile, elsewhere: the page asks for the other thing now
        return redirect(PASSWORD)
    except (Invalid, CurrentPasswordWrong, Limited) as refusal:
        about_current = not isinstance(refusal, Invalid)
        return _again(refusal, "account_password.html", about_current=about_current, **await _password_values())
    return _done("first-password", ACCOUNT)


# The second factor


async def _factor_values() -> dict[str, Any]:
    found = await mfa.get_status(ports(), signed_in())
    return {"since": None if found.enabled_at is None else format_utc(found.enabled_at), "codes": found.backup_codes}


def _setup_values(setup: MfaSetup) -> dict[str, Any]:
    svg = qr_svg(setup.uri, "").encode()
    groups = (setup.secret[start : start + 4] for start in range(0, len(setup.secret), 4))
    return {"qr": f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}", "secret": " ".join(groups), "uri": setup.uri}


@routes.get(TWO_FACTOR)
@page_session
@describes_page({200: "The page."})
async def two_factor_page() -> Response:
    """Whether you have two-factor authentication, and what to do about it."""
    return _page("account_two_factor.html", problem=None, **await _factor_values())


@routes.post("/app/account/two-factor/setup")
@page_session(limit=MFA_SETUP)
@describes_page({200: "The secret, to read into an app.", 400: NOT_ACCEPTED, 403: FOREIGN}, form=["form_token"])
async def set_up_two_factor() -> Response:
    """Begin to set up two-factor authentication."""
    await _form()
    try:
        begun = await mfa.start_setup(ports(), signed_in())
    except Invalid as refusal:
        return _again(refusal, "account_two_factor.html", **await _factor_values())
    return _page("account_two_factor_setup.html", problem=None, **_setup_values(begun))


@routes.post("/app/account/two-factor/confirm")
@page_session(limit=(MFA_CONFIRMATION, MFA_VERIFICATION))
@describes_page({200: "It is on; the backup codes.", 400: NOT_ACCEPTED, 403: FOREIGN}, form=["form_token", "code"])
async def confirm_two_factor() -> Response:
    """Show that the app makes the right codes, which switches two-factor authentication on."""
    form, me = await _form(), signed_in()
    try:
        codes = await mfa.confirm_setup(ports(), me, form.get("code", ""))
    except (Invalid, Limited) as refusal:
        begun = await mfa.find_pending_setup(ports(), me)
        if begun is None:
            return _again(refusal, "account_two_factor.html", **await _factor_values())
        return _again(refusal, "account_two_factor_setup.html", **_setup_values(begun))
    return _page("account_backup_codes.html", codes=codes, switched_on=True)


@routes.post("/app/account/two-factor/backup-codes")
@page_session(limit=MFA_SETUP)
@describes_page({200: "The new backup codes.", 400: NOT_ACCEPTED, 403: FOREIGN}, form=["form_token"])
async def make_backup_codes() -> Response:
    """Make new backup codes, in location of all older ones."""
    await _form()
    try:
        codes = await mfa.regenerate_backup_codes(ports(), signed_in())
    except (Invalid, Limited) as refusal:
        return _again(refusal, "account_two_factor.html", **await _factor_values())
    return _page("account_backup_codes.html", codes=codes, switched_on=False)


@routes.post("/app/account/two-factor/disable")
@page_session(limit=MFA_SETUP)
@describes_page({303: SENT_ON, 403: FOREIGN}, form=["form_token"])
async def switch_two_factor_off() -> Response:
    """Switch two-factor authentication off."""
    await _form()
    await mfa.disable(ports(), signed_in())
    return _done("off", TWO_FACTOR)


# Devices


async def _devices() -> Sequence[ListedDevice]:
    """The devices that were used last."""
    return (await devices.list_own(ports(), signed_in()).next_batch())[:ON_A_PAGE]


def _device(seen: ListedDevice) -> dict[str, Any]:
    device = seen.device
    browser_, system = (" ".join(filter(None, pair)) for pair in ((device.browser, device.browser_version), (device.os, device.os_version)))
    return {
        "id": device.id,
        "name": device.name,
        "system": f"{browser_} on {system}",
        "used": format_utc(device.last_used_at),
        "first": format_utc(device.created_at),
        "address": device.last_ip,
        "location": ", ".join(filter(None, (device.location.city, device.location.country))) if device.location else None,
        "is_current": seen.is_current,
        "trusted": seen.trusted,
    }


@routes.get(DEVICES)
@page_session
@describes_page({200: "The list."})
async def devices_page() -> Response:
    """The devices that you have signed in from."""
    return _page("account_devices.html", devices=[_device(seen) for seen in await _devices()])


@routes.get("/app/account/devices/<device_id>")
@page_session
@describes_page({200: "The page.", 403: "It is somebody else's."})
async def device_page(device_id: str) -> Response:
    """One of your devices."""
    seen = await devices.find(ports(), signed_in(), path_id(device_id))
    return _page("account_device.html", device=_device(seen), typed=seen.device.name, problem=None)


_NAME: TypeAdapter[str] = TypeAdapter(Name)


class NameInvalid(Invalid):
    """A name has 1 to 100 characters, and one at least that can be seen."""


def _name(text: str) -> str:
    try:
        return _NAME.validate_python(text)
    except ValidationError:
        raise NameInvalid from None


@routes.post("/app/account/devices/<device_id>/name")
@page_session
@describes_page({303: SENT_ON, 400: NOT_ACCEPTED, 403: FOREIGN}, form=["form_token", "name"])
async def rename_device(device_id: str) -> Response:
    """Give one of your devices another name."""
    form, me, id_ = await _form(), signed_in(), path_id(device_id)
    typed = form.get("name", "")
    try:
        renamed = await devices.rename(ports(), me, id_, _name(typed))
    except Invalid as refusal:
        seen = await devices.find(ports(), me, id_)
        return _again(refusal, "account_device.html", device=_device(seen), typed=typed)
    return _done("name", f"{DEVICES}/{renamed.id}")


@routes.post("/app/account/devices/<device_id>/revoke")
@page_session
@describes_page({303: SENT_ON, 400: NOT_ACCEPTED, 403: FOREIGN}, form=["form_token"])
async def revoke_device(device_id: str) -> Response:
    """End the sessions of one of your devices, and its trust."""
    await _form()
    await devices.revoke(ports(), signed_in(), path_id(device_id))
    return _done("revoked", DEVICES)


# Linked accounts


async def _identities_values() -> dict[str, Any]:
    linked = await identities.list_linked(ports(), signed_in())
    of_account = {each.provider for each in linked}
    elsewhere = set(await identities.list_sign_in_providers(ports(), signed_in())) - of_account
    can_be_linked = oauth_credentials.platform_providers(ports()) - of_account
    return {
        "linked": [
            {
                "name": each.provider.value.title(),
                "provider": each.provider.value,
                "email": each.email,
                "subject": each.provider_user_id,
                "since": format_utc(each.linked_at),
            }
            for each in linked
        ],
        "others": [
            {
                "name": each.value.title(),
                "provider": each.value,
                "can_be_linked": each in can_be_linked,
                "at_an_application": each in elsewhere,
            }
            for each in Provider
            if each in can_be_linked | elsewhere
        ],
    }


@routes.get(IDENTITIES_PATH)
@page_session
@describes_page({200: "The list."})
async def identities_page() -> Response:
    """The accounts elsewhere with which you can sign in."""
    return _page("account_identities.html", problem=None, **await _identities_values())


@routes.post("/app/account/identities/<provider:provider>/link")
@page_session
@describes_page({200: "On to the identity provider.", 400: NOT_ACCEPTED, 403: FOREIGN}, form=["form_token"])
async def link_identity(provider: str) -> Response:
    """Link an account at an identity provider."""
    await _form()
    try:
        ticket = await identities.start_link(ports(), signed_in(), provider)
    except Invalid as refusal:
        return _again(refusal, "account_identities.html", **await _identities_values())
    address = f"/auth/{provider}?{urlencode({'link': ticket})}"
    response = _page("account_link.html", provider=provider.title(), address=address)
    # Not by a redirect: browsers hold the policy of the page that the form is on against all that follows, and where a provider sends its
    # visitors from one host to the next nobody knows.
    response.headers["Refresh"] = f"0; url={address}"
    return response


@routes.post("/app/account/identities/<provider:provider>/unlink")
@page_session
@describes_page({303: SENT_ON, 400: NOT_ACCEPTED, 403: FOREIGN}, form=["form_token"])
async def unlink_identity(provider: str) -> Response:
    """Unlink an account at an identity provider, unless you could not sign in any more."""
    await _form()
    try:
        await identities.unlink(ports(), signed_in(), provider)
    except Invalid as refusal:
        return _again(refusal, "account_identities.html", **await _identities_values())
    return _done("unlinked", IDENTITIES_PATH)


# Sessions


def _session(live: LiveSession, current: UUID) -> dict[str, Any]:
    agent = ports().user_agents.parse(live.agent)
    return {
        "id": live.id,
        "title": _context(live),
        "where": live.address or "an unknown address",
        "agent": None if live.agent is None or live.by_support else f"{agent.browser} on {agent.os}",
        "since": format_utc(live.created_at),
        "is_current": live.id == current,
    }


def _context(live: LiveSession) -> str:
    if live.by_support:
        return "Platform support"
    if live.service is not None:
        return f"{live.service} of {live.organization}" if live.organization else live.service
    if live.in_browser:
        return "Your account, in a browser"
    return f"Gatehouse, for {live.organization}" if live.organization else "Gatehouse, through an application"


@routes.get(SESSIONS)
@page_session
@describes_page({200: "The list."})
async def sessions_page() -> Response:
    """Where you are signed in now."""
    me = signed_in()
    live = await sessions.list_own(ports(), me)
    return _page("account_sessions.html", sessions=[_session(one, me.session_id) for one in live.items], total=live.total)


@routes.post("/app/account/sessions/<session_id>/end")
@page_session
@describes_page({303: SENT_ON, 403: FOREIGN}, form=["form_token"])
async def end_session(session_id: str) -> Response:
    """End one of your sessions; of this one, that is to sign out."""
    await _form()
    me, id_ = signed_in(), path_id(session_id)
    await sessions.end_own(ports(), me, id_)
    return redirect(SIGN_IN) if id_ == me.session_id else _done("ended", SESSIONS)


@routes.post("/app/account/sessions/end-others")
@page_session
@describes_page({303: SENT_ON, 403: FOREIGN}, form=["form_token"])
async def end_other_sessions() -> Response:
    """End all your sessions but this one."""
    await _form()
    await sessions.end_others(ports(), signed_in())
    return _done("others", SESSIONS)
