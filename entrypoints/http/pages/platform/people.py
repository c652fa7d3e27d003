"""The pages of all people: search, a person with everything that gives access, and the actions of platform owners."""

from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.accounts import platform, platform_users
from core.accounts.model.accounts import Account
from core.authentication import browser, impersonation, sessions, user_access
from core.kernel.callers import Person
from core.kernel.errors import Refusal
from core.kernel.page_paths import HOME_PATH
from core.kernel.rate_limits import IMPERSONATE
from core.kernel.sign_in_age import SignInAge
from core.privacy import personal_data
from entrypoints.http.api.accounts.platform_users import UserSearchQuery
from entrypoints.http.api.authentication.impersonation import ImpersonationRequest
from entrypoints.http.api.authentication.user_access import UserAccessRequest
from entrypoints.http.api.privacy import export_file
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.base.redirects import redirect
from entrypoints.http.edge.access import page_session, platform_page
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.edge.queries import path_id
from entrypoints.http.pages.consequences import Question, ask, ask_again
from entrypoints.http.pages.console import console_page, redirect_with_notice, session_secret, shows, with_query
from entrypoints.http.pages.console_forms import (
    ANSWERS_TO_FORM,
    Form,
    accepts,
    check_typed_name,
    on_refusal,
    refused_console_page,
    wrong_field,
)
from entrypoints.http.pages.form_values import to_model
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
@platform_page
@shows(f"GET {SEARCH}")
async def show_people(query_args: UserSearchQuery) -> Response:
    """Search all people of the platform."""
    user_id = None if query_args.user_id is None else path_id(query_args.user_id)
    after = None if query_args.after is None else path_id(query_args.after)
    users, has_more = await platform_users.search(ports(), query_args.limit, email=query_args.email, user_id=user_id, after=after)
    return await console_page(
        "platform/people.html",
        people=users,
        query=query_args,
        previous=with_query(after=None) if after else None,
        next=with_query(after=users[-1].id) if has_more else None,
    )


async def _values(_: Form, user_id: UUID) -> dict[str, Any]:
    details = await user_access.find(ports(), signed_in(), user_id)
    return {
        "typed": {},
        "details": details,
        "person": details.user,
        "path": f"{LIST}/{details.user.id}",
        "is_self": details.user.id == signed_in().user_id,
    }


@routes.get(ONE)
@platform_page
@shows(
    f"GET {API}",
    f"POST {API}/end-sessions",
    f"POST {API}/password-reset",
    f"DELETE {API}/mfa",
    f"POST {API}/deactivate",
    f"POST {API}/reactivate",
    "POST /api/platform/impersonate/<user_id>",
    "GET /api/privacy/export/<user_id>",
    "DELETE /api/privacy/forget/<user_id>",
)
async def show_person(user_id: UUID) -> Response:
    """Show a person with memberships, sessions, devices, linked accounts and second factor."""
    return await console_page("platform/person.html", **await _values({}, user_id))


async def _act(user_id: UUID, form: Form, prefix: str, action: Action, notice: str) -> Response:
    """Run an action on an account with the reason from the form. `prefix` is that of the ids of its fields."""
    account = await platform_users.find(ports(), user_id)
    try:
        await action(ports(), signed_in(), account.id, to_model(UserAccessRequest, form).reason)
    except Refusal as refusal:
        values = {"wrong": _field_of(prefix, refusal), **await _typed_values(form, user_id)}
        return await refused_console_page(refusal, "platform/person.html", **values)
    return redirect_with_notice(notice, f"{LIST}/{account.id}")


async def _typed_values(typed: Form, user_id: UUID) -> dict[str, Any]:
    return {**await _values({}, user_id), "typed": typed}


def _field_of(prefix: str, refusal: Refusal) -> str | None:
    field = wrong_field(refusal)
    return None if field is None else f"{prefix}-{field}"


@routes.post(f"{ONE}/end-sessions")
@platform_page
@accepts(f"POST {API}/end-sessions")
async def end_sessions(user_id: UUID, form: Form) -> Response:
    """End all sessions of a person."""
    return await _act(user_id, form, "end-sessions", user_access.end_sessions, "all-sessions-ended")


@routes.post(f"{ONE}/password-reset")
@platform_page
@accepts(f"POST {API}/password-reset")
async def send_password_reset(user_id: UUID, form: Form) -> Response:
    """Send a person a link to set a new password."""
    return await _act(user_id, form, "password-reset", user_access.send_password_reset, "reset-form")


@routes.post(f"{ONE}/second-factor")
@platform_page(sign_in=SignInAge.FRESH)
@accepts(f"DELETE {API}/mfa")
async def remove_second_factor(user_id: UUID, form: Form) -> Response:
    """Remove the second factor of a person."""
    return await _act(user_id, form, "second-factor", platform_users.remove_mfa, "second-factor-removed")


@routes.post(f"{ONE}/deactivate")
@platform_page
@accepts(f"POST {API}/deactivate")
async def deactivate(user_id: UUID, form: Form) -> Response:
    """Deactivate the account of a person."""
    return await _act(user_id, form, "deactivate", user_access.deactivate, "account-deactivated")


@routes.post(f"{ONE}/reactivate")
@platform_page
@accepts(f"POST {API}/reactivate")
async def reactivate(user_id: UUID, form: Form) -> Response:
    """Undo the deactivation of an account."""
    return await _act(user_id, form, "reactivate", platform_users.reactivate, "account-reactivated")


@routes.post(f"{ONE}/impersonate")
@platform_page(limit=IMPERSONATE, sign_in=SignInAge.FRESH)
@accepts("POST /api/platform/impersonate/<user_id>")
@on_refusal("platform/person.html", _typed_values, lambda refusal, _: _field_of("impersonate", refusal))
async def start_impersonation(user_id: UUID, form: Form) -> Response:
    """Act as a person in the console of this browser.

    The impersonation lasts at most one hour, and ends when you end it or sign out. The log of the platform has an entry for every request.
    """
    account = await platform_users.find(ports(), user_id)
    data = to_model(ImpersonationRequest, form)
    await impersonation.start(ports(), signed_in(), account.id, data.reason, org_slug=data.org_slug)
    return redirect(HOME_PATH)


@routes.post("/app/impersonation/end")
@page_session(outlives=False)
@describes_page(ANSWERS_TO_FORM, form=["form_token"], api=["POST /api/auth/logout"])
async def end_impersonation() -> Response:
    """End the impersonation in this browser."""
    form, person = await read_form(), signed_in()
    browser.check_form_token(session_secret(), form.get("form_token", ""))
    if person.impersonator_id is None:  # it has ended already
        return redirect_with_notice("impersonation-ended", HOME_PATH)
    await sessions.logout(ports(), person)
    return redirect_with_notice("impersonation-ended", f"{LIST}/{person.user_id}")


@routes.post(f"{ONE}/export")
@platform_page(sign_in=SignInAge.FRESH)
@accepts("GET /api/privacy/export/<user_id>", answers={200: "The data, as a JSON file."})
async def export(user_id: UUID) -> Response:
    """Download the data of a person."""
    return await export_file(await personal_data.export(ports(), signed_in(), user_id))


@routes.post(f"{ONE}/anonymize")
@platform_page(sign_in=SignInAge.FRESH)
@accepts("DELETE /api/privacy/forget/<user_id>")
@on_refusal("platform/person.html", _values)
async def anonymize(user_id: UUID, form: Form) -> Response:
    """Anonymize a person permanently."""
    account = await platform_users.find(ports(), user_id)
    check_typed_name(form, account.email)
    await personal_data.anonymize(ports(), signed_in(), account.id)
    return redirect_with_notice("person-anonymized", LIST)


# Platform owners


@routes.get(OWNERS)
@platform_page
@shows(f"GET {OWNERS_API}", f"POST {OWNERS_API}", f"DELETE {OWNERS_API}/<user_id>")
async def show_owners() -> Response:
    """List the platform owners."""
    owners = await platform_users.list_owners(ports())
    return await console_page("platform/owners.html", owners=owners, own_id=signed_in().user_id)


def _promotion(account: Account) -> Question:
    return Question(
        verb="Make platform owner:",
        target=account.email,
        consequences=(
            "Platform owners can do everything on this platform: read all logs, impersonate users, and delete organizations.",
            "All platform owners get an email, with your reason.",
            *([] if account.second_factor is not None else ["The user must turn on two-factor authentication first."]),
        ),
        button="Make platform owner",
        keep="Cancel",
        back=(account.email, f"{LIST}/{account.id}"),
        typed_name=account.email,
        name_label="Email address",
        reason="Reason, for the platform log and the email",
    )


@routes.get(f"{ONE}/promote")
@platform_page
@shows(f"POST {OWNERS_API}")
async def show_promotion(user_id: UUID) -> Response:
    """Show what it means to make a person a platform owner, and ask for a reason."""
    return await ask(_promotion(await platform_users.find(ports(), user_id)))


@routes.post(f"{ONE}/promote")
@platform_page(sign_in=SignInAge.FRESH)
@accepts(f"POST {OWNERS_API}")
async def promote(user_id: UUID, form: Form) -> Response:
    """Make a person a platform owner."""
    return await _change_owners(user_id, form, _promotion, platform.promote, "owner-added")


async def _change_owners(user_id: UUID, form: Form, question_about: Callable[[Account], Question], action: Action, notice: str) -> Response:
    """Change the platform owners, with the reason and the address from the form."""
    account = await platform_users.find(ports(), user_id)
    try:
        reason = to_model(UserAccessRequest, form).reason
        check_typed_name(form, account.email)
        await action(ports(), signed_in(), account.id, reason)
    except Refusal as refusal:
        return await ask_again(refusal, question_about(account), form)
    return redirect_with_notice(notice, OWNERS)


def _demotion(account: Account) -> Question:
    return Question(
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


@routes.get(f"{OWNERS}/<user_id>/remove")
@platform_page
@shows(f"DELETE {OWNERS_API}/<user_id>")
async def show_demotion(user_id: UUID) -> Response:
    """Show what it means to take the role of a platform owner from a person, and ask for a reason."""
    return await ask(_demotion(await platform_users.find(ports(), user_id)))


@routes.post(f"{OWNERS}/<user_id>/remove")
@platform_page(sign_in=SignInAge.FRESH)
@accepts(f"DELETE {OWNERS_API}/<user_id>")
async def demote(user_id: UUID, form: Form) -> Response:
    """Take the role of a platform owner from a person."""
    return await _change_owners(user_id, form, _demotion, platform.demote, "owner-removed")


# Second factors


@routes.get("/app/platform/second-factors")
@platform_page
@shows("GET /api/platform/mfa/metrics", "GET /api/platform/mfa/suspicious")
async def show_second_factors() -> Response:
    """Show how many people have a second factor, and suspicious activity around second factors."""
    metrics, alerts = await platform_users.get_mfa_metrics(ports()), await platform_users.list_alerts(ports())
    return await console_page("platform/second_factors.html", metrics=metrics, alerts=alerts)
