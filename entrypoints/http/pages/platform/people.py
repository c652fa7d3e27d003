"""The pages for all people: search, a person with everything that gives access, and the platform owners."""

from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from quart import Blueprint, Response

from core.accounts import platform_users
from core.authentication import account_recovery, user_access
from core.authentication.user_access import UserDetails
from core.eventing import timeline
from core.kernel.callers import Person
from core.tenancy import platform_owners
from entrypoints.http.api.accounts.platform_users import UserSearchQuery
from entrypoints.http.api.authentication.user_access import UserAccessRequest
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.edge.access import OWNS, platform_page
from entrypoints.http.edge.queries import path_id
from entrypoints.http.pages.authentication.sign_in_log import failure_values
from entrypoints.http.pages.consequences import Question, accepts_answer, asks
from entrypoints.http.pages.console import console_page, redirect_with_notice, shows, with_query
from entrypoints.http.pages.console_forms import Form, check_typed_name
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
@platform_page
@shows(f"GET {SEARCH}")
async def show_people(query_args: UserSearchQuery) -> Response:
    """Search all people on the platform."""
    user_id = None if query_args.user_id is None else path_id(query_args.user_id)
    after = None if query_args.after is None else path_id(query_args.after)
    users, has_more = await platform_users.search(ports(), query_args.limit, email=query_args.email, user_id=user_id, after=after)
    return await console_page(
        "platform/people.html",
        images_of=[person.id for person in users],
        people=users,
        query=query_args,
        previous=with_query(after=None) if after else None,
        next=with_query(after=users[-1].id) if has_more else None,
    )


@routes.get(ONE)
@platform_page
@shows(f"GET {API}", "GET /api/platform/sign-ins", "GET /api/platform/audit-log")
async def show_person(user_id: UUID) -> Response:
    """Show a person with memberships, sessions, devices, linked accounts and second factor. Every action has a page."""
    details = await user_access.find(ports(), signed_in(), user_id)
    return await console_page(
        "platform/person.html",
        images_of=[user_id],
        details=details,
        person=details.user,
        path=f"{LIST}/{details.user.id}",
        actions=_actions(details, recovers=await account_recovery.is_open(ports(), user_id)),
        entries=list_entries(await timeline.load_on_platform(ports(), user_id, MOST), details.devices),
        **await failure_values(None, details.user.id),
    )


def _actions(details: UserDetails, *, recovers: bool) -> list[tuple[str, str, bool]]:
    """Return the actions that the user may take on a person: label, path and whether it is dangerous."""
    person, is_owner = details.user, details.user.is_platform_owner
    is_active = person.deactivated_at is None
    removes_factor = person.mfa_enabled and details.may_remove_second_factor and person.id != signed_in().user_id
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
@platform_page
@shows(f"GET {OWNERS_API}", f"POST {OWNERS_API}", f"DELETE {OWNERS_API}/<user_id>")
async def show_owners() -> Response:
    """List the platform owners."""
    owners = await platform_users.list_owners(ports())
    return await console_page("platform/owners.html", images_of=[owner.id for owner in owners], owners=owners, own_id=signed_in().user_id)


async def _promotion(user_id: UUID) -> Question:
    account = await platform_users.find(ports(), user_id)
    return Question(
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


@asks(routes, f"{ONE}/promote")
@platform_page(OWNS)
@accepts_answer(f"POST {OWNERS_API}", _promotion)
async def promote(user_id: UUID, form: Form) -> Response:
    """Make a person a platform owner."""
    return await _change_owners(user_id, form, platform_owners.promote, "owner-added")


async def _change_owners(user_id: UUID, form: Form, action: Action, notice: str) -> Response:
    """Change the platform owners, with the reason and the address from the form."""
    account = await platform_users.find(ports(), user_id)
    reason = to_model(UserAccessRequest, form).reason
    check_typed_name(form, account.email)
    await action(ports(), signed_in(), account.id, reason)
    return redirect_with_notice(notice, OWNERS)


async def _demotion(user_id: UUID) -> Question:
    account = await platform_users.find(ports(), user_id)
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


@asks(routes, f"{OWNERS}/<user_id>/remove")
@platform_page(OWNS)
@accepts_answer(f"DELETE {OWNERS_API}/<user_id>", _demotion)
async def demote(user_id: UUID, form: Form) -> Response:
    """Take the platform owner role from a person."""
    return await _change_owners(user_id, form, platform_owners.demote, "owner-removed")


# Second factors


@routes.get("/app/platform/second-factors")
@platform_page
@shows("GET /api/platform/mfa/metrics", "GET /api/platform/mfa/suspicious")
async def show_second_factors() -> Response:
    """Show how many people have a second factor, and suspicious activity around second factors."""
    metrics, alerts = await platform_users.get_mfa_metrics(ports()), await platform_users.list_alerts(ports())
    return await console_page("platform/second_factors.html", metrics=metrics, alerts=alerts)
