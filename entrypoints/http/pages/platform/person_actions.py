"""The actions that platform owners take on a person. Every action has a page that says what happens, and asks for a reason."""

from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.accounts import platform_users
from core.accounts.model.accounts import Account
from core.authentication import browser, impersonation, sessions, user_access
from core.kernel.callers import Person
from core.kernel.page_paths import HOME_PATH
from core.kernel.rate_limits import IMPERSONATE
from core.privacy import personal_data
from entrypoints.http.api.authentication.impersonation import ImpersonationRequest
from entrypoints.http.api.authentication.user_access import UserAccessRequest
from entrypoints.http.api.privacy import export_file
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.base.redirects import redirect
from entrypoints.http.edge.access import GIVES, OWNS, REMOVES_FACTORS, SIGNS_OUT, page_session, platform_page
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.pages.consequences import RESET_LINK, Question, accepts_answer, ask, asks
from entrypoints.http.pages.console import redirect_with_notice, session_secret, shows
from entrypoints.http.pages.console_forms import ANSWERS_TO_FORM, Form, accepts, check_typed_name
from entrypoints.http.pages.form_values import to_model
from entrypoints.http.pages.platform.people import API, LIST, ONE
from ports import Ports

routes = Blueprint("person_action_pages", __name__)

IMPERSONATION: Final = "POST /api/platform/impersonate/<user_id>"
EXPORT: Final = "GET /api/privacy/export/<user_id>"
FORGET: Final = "DELETE /api/privacy/forget/<user_id>"


def _question(account: Account, verb: str, consequence: str, button: str, **more: Any) -> Question:
    back = (account.email, f"{LIST}/{account.id}")
    return Question(verb=verb, target=account.email, consequences=(consequence,), button=button, back=back, **more)


def _reasoned(verb: str, consequence: str, button: str, *, dangerous: bool = False) -> Callable[[UUID], Awaitable[Question]]:
    """Return the function that loads the question for an action that needs only a reason."""

    async def load(user_id: UUID) -> Question:
        account = await platform_users.find(ports(), user_id)
        return _question(account, verb, consequence, button, reason="Reason, for the platform log", dangerous=dangerous)

    return load


_sessions_question = _reasoned(
    "End all sessions of", "They are signed out on all devices and in all applications. They can sign in again.", "End all sessions"
)
_reset_question = _reasoned("Send a reset link to", RESET_LINK, "Send reset link")
_second_factor_question = _reasoned(
    "Remove the second factor of",
    "All sessions end. They can set up another second factor.",
    "Remove second factor",
    dangerous=True,
)
_deactivation = _reasoned(
    "Deactivate", "All sessions end, and they can't sign in anywhere. Memberships stay.", "Deactivate account", dangerous=True
)
_reactivation = _reasoned(
    "Reactivate", "They can sign in again, unless a directory deactivated the account, or it was deleted.", "Reactivate account"
)


async def _act(user_id: UUID, form: Form, run: Callable[[Ports, Person, UUID, str], Awaitable[object]], notice: str) -> Response:
    """Run an action on an account with the reason from the form."""
    account = await platform_users.find(ports(), user_id)
    await run(ports(), signed_in(), account.id, to_model(UserAccessRequest, form).reason)
    return redirect_with_notice(notice, f"{LIST}/{account.id}")


@asks(routes, f"{ONE}/end-sessions")
@platform_page(GIVES)
@accepts_answer(f"POST {API}/end-sessions", _sessions_question)
async def end_sessions(user_id: UUID, form: Form) -> Response:
    """End all sessions that a person has."""
    return await _act(user_id, form, user_access.end_sessions, "all-sessions-ended")


@asks(routes, f"{ONE}/password-reset")
@platform_page(GIVES)
@accepts_answer(f"POST {API}/password-reset", _reset_question)
async def send_password_reset(user_id: UUID, form: Form) -> Response:
    """Send a person a link to set a new password."""
    return await _act(user_id, form, user_access.send_password_reset, "reset-sent")


@asks(routes, f"{ONE}/second-factor")
@platform_page(REMOVES_FACTORS)
@accepts_answer(f"DELETE {API}/mfa", _second_factor_question)
async def remove_second_factor(user_id: UUID, form: Form) -> Response:
    """Remove a person's second factor."""
    return await _act(user_id, form, platform_users.remove_mfa, "second-factor-removed")


@asks(routes, f"{ONE}/deactivate")
@platform_page(GIVES)
@accepts_answer(f"POST {API}/deactivate", _deactivation)
async def deactivate(user_id: UUID, form: Form) -> Response:
    """Deactivate a person's account."""
    return await _act(user_id, form, user_access.deactivate, "account-deactivated")


@asks(routes, f"{ONE}/reactivate")
@platform_page(GIVES)
@accepts_answer(f"POST {API}/reactivate", _reactivation)
async def reactivate(user_id: UUID, form: Form) -> Response:
    """Undo an account's deactivation."""
    return await _act(user_id, form, platform_users.reactivate, "account-reactivated")


# Impersonation


async def _impersonation(user_id: UUID) -> Question:
    details = await user_access.find(ports(), signed_in(), user_id)
    organizations = [(each.slug, each.name) for each in details.user.organizations]
    return _question(
        details.account,
        "Impersonate",
        "You see the console as they see it, for at most an hour. The platform log has an entry for every request, and the person sees a "
        "session of platform support.",
        "Impersonate",
        reason="Reason for the impersonation",
        choice=("org_slug", "Organization", [("", "All their organizations"), *organizations]) if organizations else None,
        dangerous=False,
    )


@asks(routes, f"{ONE}/impersonate")
@platform_page(OWNS, limit=IMPERSONATE)
@accepts_answer(IMPERSONATION, _impersonation)
async def start_impersonation(user_id: UUID, form: Form) -> Response:
    """Act as a person in this browser's console.

    The impersonation lasts at most an hour, and ends when you end it or sign out. The platform's log has an entry for every request.
    """
    account = await platform_users.find(ports(), user_id)
    data = to_model(ImpersonationRequest, form)
    await impersonation.start(ports(), signed_in(), account.id, data.reason, org_slug=data.org_slug)
    return redirect(HOME_PATH)


@routes.post("/app/impersonation/end")
@page_session(SIGNS_OUT)
@describes_page(ANSWERS_TO_FORM, form=["form_token"], api=["POST /api/auth/logout"])
async def end_impersonation() -> Response:
    """End the impersonation in this browser."""
    form, person = await read_form(), signed_in()
    browser.check_form_token(session_secret(), form.get("form_token", ""))
    if person.impersonator_id is None:  # it has ended already
        return redirect_with_notice("impersonation-ended", HOME_PATH)
    await sessions.logout(ports(), person)
    return redirect_with_notice("impersonation-ended", f"{LIST}/{person.user_id}")


# Personal data


@routes.get(f"{ONE}/export")
@platform_page
@shows(EXPORT)
async def show_export(user_id: UUID) -> Response:
    """Ask before a person's data is downloaded."""
    account = await platform_users.find(ports(), user_id)
    text = "All data of this account, as JSON. The platform log has an entry for the export."
    return await ask(_question(account, "Export the data of", text, "Export data", dangerous=False))


@routes.post(f"{ONE}/export")
@platform_page(OWNS)
@accepts(EXPORT, answers={200: "The data, as a JSON file."})
async def export(user_id: UUID) -> Response:
    """Download a person's data."""
    return await export_file(await personal_data.export(ports(), signed_in(), user_id))


async def _anonymization(user_id: UUID) -> Question:
    account = await platform_users.find(ports(), user_id)
    return _question(
        account,
        "Anonymize",
        "The address, the password, the second factor and every other way to sign in are deleted permanently. The id, memberships and log "
        "entries stay.",
        "Anonymize person",
        typed_name=account.email,
        name_label="Email address",
    )


@asks(routes, f"{ONE}/anonymize")
@platform_page(OWNS)
@accepts_answer(FORGET, _anonymization)
async def anonymize(user_id: UUID, form: Form) -> Response:
    """Anonymize a person permanently."""
    account = await platform_users.find(ports(), user_id)
    check_typed_name(form, account.email)
    await personal_data.anonymize(ports(), signed_in(), account.id)
    return redirect_with_notice("person-anonymized", LIST)
