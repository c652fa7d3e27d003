"""The pages for all people: search, a person with everything that gives access, the platform owners, and actions that ask for a reason."""

from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.accounts import platform
from core.accounts.model.accounts import Account
from core.authentication import account_recovery, browser, impersonation, sessions, user_access
from core.authentication.user_access import UserDetails
from core.eventing import audit
from core.kernel.callers import Person
from core.kernel.page_paths import HOME_PATH
from core.kernel.rate_limits import IMPERSONATE
from core.privacy import personal_data
from core.tenancy import platform_owners
from entrypoints.http import kit
from entrypoints.http.api.accounts.platform_users import UserSearchQuery
from entrypoints.http.api.authentication.user_access import ImpersonationRequest, UserAccessRequest
from entrypoints.http.api.privacy import export_file
from entrypoints.http.pages import consequences, console, console_forms
from entrypoints.http.pages.authentication.sign_in_log import failure_values
from entrypoints.http.pages.form_values import to_model
from entrypoints.http.pages.timeline import MOST, list_entries
from ports import Ports

routes = Blueprint("people_pages", __name__)

LIST: Final = "/app/platform/people"
ONE: Final = f"{LIST}/<user_id>"
OWNERS: Final = "/app/platform/owners"
API: Final = "/api/platform/users/<user_id>"
SEARCH: Final = "/api/platform/users/search"
OWNERS_API: Final = "/api/platform/owners"
Action = Callable[[Ports, Person, UUID, str], Awaitable[object]]


@routes.get(LIST)
@kit.platform_page
@console.shows(f"GET {SEARCH}")
async def show_people(query_args: UserSearchQuery) -> Response:
    """Search all people on the platform."""
    user_id = None if query_args.user_id is None else kit.path_id(query_args.user_id)
    after = None if query_args.after is None else kit.path_id(query_args.after)
    users, has_more = await platform.search_users(kit.ports(), query_args.limit, email=query_args.email, user_id=user_id, after=after)
    return await console.console_page(
        "platform/people.html",
        images_of=[person.id for person in users],
        people=users,
        query=query_args,
        previous=console.with_query(after=None) if after else None,
        next=console.with_query(after=users[-1].id) if has_more else None,
    )


@routes.get(ONE)
@kit.platform_page
@console.shows(f"GET {API}", "GET /api/platform/sign-ins", "GET /api/platform/audit-log")
async def show_person(user_id: UUID) -> Response:
    """Show a person with memberships, sessions, devices, linked accounts and second factor. Every action has a page."""
    details = await user_access.find(kit.ports(), kit.signed_in(), user_id)
    return await console.console_page(
        "platform/person.html",
        images_of=[user_id],
        details=details,
        person=details.user,
        path=f"{LIST}/{details.user.id}",
        actions=_actions(details, recovers=await account_recovery.is_open(kit.ports(), user_id)),
        entries=list_entries(await audit.load_platform_timeline(kit.ports(), user_id, MOST), details.devices),
        **await failure_values(None, details.user.id),
    )


def _actions(details: UserDetails, *, recovers: bool) -> list[tuple[str, str, bool]]:
    """Return the actions that the user may take on a person: label, path and whether it is dangerous."""
    person, is_owner = details.user, details.user.is_platform_owner
    is_active = person.deactivated_at is None
    removes_factor = person.mfa_enabled and details.may_remove_second_factor and person.id != kit.signed_in().user_id
    actions = (
        ("End all sessions", "end-sessions", False, True),
        ("Send reset link", "password-reset", False, is_active),
        ("Impersonate", "impersonate", False, bool(person.email) and is_active and not is_owner),
        ("Export data", "export", False, True),
        ("Remove second factor", "second-factor", True, removes_factor),
        ("Recover account", "recovery", False, is_active and bool(person.email) and not is_owner),
        ("Cancel recovery", "recovery/cancel", False, recovers),
        ("Make platform owner", "promote", True, not is_owner),
        ("Reactivate account", "reactivate", False, person.deactivated_by_platform and not is_owner),
        ("Deactivate account", "deactivate", True, not person.deactivated_by_platform and not is_owner),
        ("Anonymize person", "anonymize", True, not is_owner),
    )
    possible = details.account.anonymized_at is None
    return [(label, f"{LIST}/{person.id}/{name}", is_dangerous) for label, name, is_dangerous, fits in actions if fits and possible]


# Platform owners


@routes.get(OWNERS)
@kit.platform_page
@console.shows(f"GET {OWNERS_API}", f"POST {OWNERS_API}", f"DELETE {OWNERS_API}/<user_id>")
async def show_owners() -> Response:
    """List the platform owners."""
    owners = await platform.list_owners(kit.ports())
    return await console.console_page(
        "platform/owners.html", images_of=[owner.id for owner in owners], owners=owners, own_id=kit.signed_in().user_id
    )


async def _promotion(user_id: UUID) -> consequences.Question:
    account = await platform.find_user(kit.ports(), user_id)
    return consequences.Question(
        verb="Make platform owner:",
        target=account.email,
        consequences=(
            "Platform owners can do everything on this platform: read all logs, impersonate users, and delete organizations.",
            "All platform owners get an email, with your reason.",
            *([] if account.second_factors else ["The user must turn on two-factor authentication first."]),
        ),
        button="Make platform owner",
        back=(account.email, f"{LIST}/{account.id}"),
        typed_name=account.email,
        name_label="Email address",
        reason="Reason, for the platform log and the email",
    )


@consequences.asks(routes, f"{ONE}/promote")
@kit.platform_page(kit.OWNS)
@consequences.accepts_answer(f"POST {OWNERS_API}", _promotion)
async def promote(user_id: UUID, form: console_forms.Form) -> Response:
    """Make a person a platform owner."""
    return await _change_owners(user_id, form, platform_owners.promote, "owner-added")


async def _change_owners(user_id: UUID, form: console_forms.Form, action: Action, notice: str) -> Response:
    """Change the platform owners, with the reason and the address from the form."""
    account = await platform.find_user(kit.ports(), user_id)
    reason = to_model(UserAccessRequest, form).reason
    console_forms.check_typed_name(form, account.email)
    await action(kit.ports(), kit.signed_in(), account.id, reason)
    return console.redirect_with_notice(notice, OWNERS)


async def _demotion(user_id: UUID) -> consequences.Question:
    account = await platform.find_user(kit.ports(), user_id)
    return consequences.Question(
        verb="Remove platform owner:",
        target=account.email,
        consequences=(
            "They lose all rights on this platform at once, and their impersonations end. The credentials that they created for service "
            "accounts of the platform end. Their account remains.",
            "They and all platform owners get an email, with your reason.",
        ),
        button="Remove platform owner",
        keep="Keep platform owner",
        back=("Platform owners", OWNERS),
        typed_name=account.email,
        name_label="Email address",
        reason="Reason, for the platform log and the email",
    )


@consequences.asks(routes, f"{OWNERS}/<user_id>/remove")
@kit.platform_page(kit.OWNS)
@consequences.accepts_answer(f"DELETE {OWNERS_API}/<user_id>", _demotion)
async def demote(user_id: UUID, form: console_forms.Form) -> Response:
    """Take the platform owner role from a person."""
    return await _change_owners(user_id, form, platform_owners.demote, "owner-removed")


# Second factors


@routes.get("/app/platform/second-factors")
@kit.platform_page
@console.shows("GET /api/platform/mfa/metrics", "GET /api/platform/mfa/suspicious")
async def show_second_factors() -> Response:
    """Show how many people have a second factor, and suspicious activity around second factors."""
    metrics, alerts = await platform.get_mfa_metrics(kit.ports()), await platform.list_alerts(kit.ports())
    return await console.console_page("platform/second_factors.html", metrics=metrics, alerts=alerts)


IMPERSONATION: Final = "POST /api/platform/impersonate/<user_id>"
EXPORT: Final = "GET /api/privacy/export/<user_id>"
FORGET: Final = "DELETE /api/privacy/forget/<user_id>"


def _question(account: Account, verb: str, consequence: str, button: str, **more: Any) -> consequences.Question:
    back = (account.email, f"{LIST}/{account.id}")
    return consequences.Question(verb=verb, target=account.email, consequences=(consequence,), button=button, back=back, **more)


def _reasoned(verb: str, consequence: str, button: str, *, dangerous: bool = False) -> Callable[[UUID], Awaitable[consequences.Question]]:
    """Return the function that loads the question for an action that needs only a reason."""

    async def load(user_id: UUID) -> consequences.Question:
        account = await platform.find_user(kit.ports(), user_id)
        return _question(account, verb, consequence, button, reason="Reason, for the platform log", dangerous=dangerous)

    return load


_sessions_question = _reasoned(
    "End all sessions of", "They are signed out on all devices and in all applications. They can sign in again.", "End all sessions"
)
_reset_question = _reasoned("Send a reset link to", consequences.RESET_LINK, "Send reset link")
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


async def _act(
    user_id: UUID, form: console_forms.Form, run: Callable[[Ports, Person, UUID, str], Awaitable[object]], notice: str
) -> Response:
    """Run an action on an account with the reason from the form."""
    account = await platform.find_user(kit.ports(), user_id)
    await run(kit.ports(), kit.signed_in(), account.id, to_model(UserAccessRequest, form).reason)
    return console.redirect_with_notice(notice, f"{LIST}/{account.id}")


@consequences.asks(routes, f"{ONE}/end-sessions")
@kit.platform_page(kit.GIVES)
@consequences.accepts_answer(f"POST {API}/end-sessions", _sessions_question)
async def end_sessions(user_id: UUID, form: console_forms.Form) -> Response:
    """End all sessions that a person has."""
    return await _act(user_id, form, user_access.end_sessions, "all-sessions-ended")


@consequences.asks(routes, f"{ONE}/password-reset")
@kit.platform_page(kit.GIVES)
@consequences.accepts_answer(f"POST {API}/password-reset", _reset_question)
async def send_password_reset(user_id: UUID, form: console_forms.Form) -> Response:
    """Send a person a link to set a new password."""
    return await _act(user_id, form, user_access.send_password_reset, "reset-sent")


@consequences.asks(routes, f"{ONE}/second-factor")
@kit.platform_page(kit.REMOVES_FACTORS)
@consequences.accepts_answer(f"DELETE {API}/mfa", _second_factor_question)
async def remove_second_factor(user_id: UUID, form: console_forms.Form) -> Response:
    """Remove a person's second factor."""
    return await _act(user_id, form, platform.remove_mfa, "second-factor-removed")


@consequences.asks(routes, f"{ONE}/deactivate")
@kit.platform_page(kit.GIVES)
@consequences.accepts_answer(f"POST {API}/deactivate", _deactivation)
async def deactivate(user_id: UUID, form: console_forms.Form) -> Response:
    """Deactivate a person's account."""
    return await _act(user_id, form, user_access.deactivate, "account-deactivated")


@consequences.asks(routes, f"{ONE}/reactivate")
@kit.platform_page(kit.GIVES)
@consequences.accepts_answer(f"POST {API}/reactivate", _reactivation)
async def reactivate(user_id: UUID, form: console_forms.Form) -> Response:
    """Undo an account's deactivation."""
    return await _act(user_id, form, platform.reactivate_user, "account-reactivated")


# Impersonation


async def _impersonation(user_id: UUID) -> consequences.Question:
    details = await user_access.find(kit.ports(), kit.signed_in(), user_id)
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


@consequences.asks(routes, f"{ONE}/impersonate")
@kit.platform_page(kit.OWNS, limit=IMPERSONATE)
@consequences.accepts_answer(IMPERSONATION, _impersonation)
async def start_impersonation(user_id: UUID, form: console_forms.Form) -> Response:
    """Act as a person in this browser's console."""
    account = await platform.find_user(kit.ports(), user_id)
    data = to_model(ImpersonationRequest, form)
    await impersonation.start(kit.ports(), kit.signed_in(), account.id, data.reason, org_slug=data.org_slug)
    return kit.redirect(HOME_PATH)


@routes.post("/app/impersonation/end")
@kit.page_session(kit.SIGNS_OUT)
@kit.describes_page(console_forms.ANSWERS_TO_FORM, form=["form_token"], api=["POST /api/auth/logout"])
async def end_impersonation() -> Response:
    """End the impersonation in this browser."""
    form, person = await kit.read_form(), kit.signed_in()
    browser.check_form_token(console.session_secret(), form.get("form_token", ""))
    if person.impersonator_id is None:  # it has ended already
        return console.redirect_with_notice("impersonation-ended", HOME_PATH)
    await sessions.logout(kit.ports(), person)
    return console.redirect_with_notice("impersonation-ended", f"{LIST}/{person.user_id}")


# Personal data


@routes.get(f"{ONE}/export")
@kit.platform_page
@console.shows(EXPORT)
async def show_export(user_id: UUID) -> Response:
    """Ask before a person's data is downloaded."""
    account = await platform.find_user(kit.ports(), user_id)
    text = "All data of this account, as JSON. The platform log has an entry for the export."
    return await consequences.ask(_question(account, "Export the data of", text, "Export data", dangerous=False))


@routes.post(f"{ONE}/export")
@kit.platform_page(kit.OWNS)
@console_forms.accepts(EXPORT, answers={200: "The data, as a JSON file."})
async def export(user_id: UUID) -> Response:
    """Download a person's data."""
    return await export_file(await personal_data.export(kit.ports(), kit.signed_in(), user_id))


async def _anonymization(user_id: UUID) -> consequences.Question:
    account = await platform.find_user(kit.ports(), user_id)
    return _question(
        account,
        "Anonymize",
        "The address, the password, the second factor and every other way to sign in are deleted permanently. The id, memberships and log "
        "entries stay.",
        "Anonymize person",
        typed_name=account.email,
        name_label="Email address",
    )


@consequences.asks(routes, f"{ONE}/anonymize")
@kit.platform_page(kit.OWNS)
@consequences.accepts_answer(FORGET, _anonymization)
async def anonymize(user_id: UUID, form: console_forms.Form) -> Response:
    """Anonymize a person permanently."""
    account = await platform.find_user(kit.ports(), user_id)
    console_forms.check_typed_name(form, account.email)
    await personal_data.anonymize(kit.ports(), kit.signed_in(), account.id)
    return console.redirect_with_notice("person-anonymized", LIST)
