"""The pages for the users of an organization's applications: the list, a user, and a page per action."""

from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response

from core.applications import access as applications_access
from core.applications import end_users, role_assignments
from core.applications.model.access_reasons import OrganizationAccess, RightSource, UserState
from core.applications.model.users import EndUserDetails
from core.authentication import account_recovery
from core.authentication.model.recovery import RecoveryChoices
from core.eventing import audit
from core.kernel.access import require_view
from core.kernel.roles import Capability
from core.tenancy import groups, members
from core.tenancy.model.roles import ALL_SENTENCES
from entrypoints.http import kit
from entrypoints.http.pages import console
from entrypoints.http.pages.authentication.sign_in_log import failure_values
from entrypoints.http.pages.consequences import RESET_LINK, Question, accepts_answer, asks
from entrypoints.http.pages.console_forms import Form
from entrypoints.http.pages.timeline import MOST, list_entries

routes = Blueprint("end_user_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/users"
ONE: Final = f"{LIST}/<user_id>"
API: Final = "/api/organizations/<org_slug>/users"
STATE_FILTER: Final = [(None, "All"), ("true", "Blocked")]


class UsersQuery(kit.PageQuery):
    """The search, and the page."""

    search: kit.Text | None = Field(None, description="A part of the email address, or the user id.")
    blocked: kit.Flag = Field(False, description="Whether only blocked users are listed.")


@routes.get(LIST)
@kit.member_page(Capability.END_USERS_VIEW)
@console.shows(f"GET {API}")
async def show_users(org_slug: str, query_args: UsersQuery) -> Response:
    """List the users who use an organization's applications."""
    result = await end_users.list_end_users(
        kit.ports(), kit.acting_member(), query_args.page_request(), search=query_args.search, blocked=query_args.blocked
    )
    return await console.console_page(
        "applications/users.html",
        users=result.items,
        states=STATE_FILTER,
        path=console.organization_path("/users"),
        query=query_args,
        **console.neighbors(query_args, result.total),
    )


@routes.get(ONE)
@kit.member_page(Capability.END_USERS_VIEW)
@console.shows(
    f"GET {API}/<user_id>",
    f"GET {API}/<user_id>/roles",
    f"GET {API}/<user_id>/access",
    "GET /api/organizations/<org_slug>/sign-ins",
    "GET /api/organizations/<org_slug>/audit-log",
)
async def show_user(org_slug: str, user_id: UUID) -> Response:
    """Show a user who uses an organization's applications. Every action has a page."""
    details = await end_users.find(kit.ports(), kit.acting_member(), user_id)
    choices = await account_recovery.load_choices(kit.ports(), kit.acting_member(), user_id, Capability.END_USERS_MANAGE)
    return await console.console_page(
        "applications/user.html",
        details=details,
        path=console.organization_path("/users"),
        actions=_actions(details, choices),
        groups=await groups.list_of_user(kit.ports(), kit.acting_member(), user_id) if console.may(Capability.MEMBERS_VIEW) else [],
        roles=await role_assignments.list_of_user(kit.ports(), kit.acting_member(), user_id),
        entries=list_entries(await audit.load_timeline(kit.ports(), kit.acting_member(), user_id, MOST)),
        **await failure_values(kit.acting_member(), user_id),
    )


def _actions(details: EndUserDetails, choices: RecoveryChoices) -> list[tuple[str, str, bool]]:
    """Return the actions that the user may take on an end user: label, path and whether it is dangerous."""
    if not console.may(Capability.END_USERS_MANAGE):
        return []
    path = console.organization_path(f"/users/{details.user.id}")
    removes_factor = details.user.mfa_enabled and details.may_remove_second_factor
    return [
        ("End sessions", f"{path}/end-sessions", False),
        ("Send reset link", f"{path}/password-reset", False),
        *([("Remove second factor", f"{path}/second-factor", True)] if removes_factor else []),
        *([("Recover account", f"{path}/recovery", False)] if choices.can_start else []),
        *([("Cancel recovery", f"{path}/recovery/cancel", False)] if choices.can_cancel else []),
        ("Unblock", f"{path}/unblock", False) if details.blocked_at else ("Block", f"{path}/block", True),
    ]


def _make_question(
    verb: str, button: str, *consequences: str, has_page: bool = True, **parts: Any
) -> Callable[[UUID], Awaitable[Question]]:
    """Return the function that loads an action's question. Without `has_page`, the user can have left the applications."""

    async def load(user_id: UUID) -> Question:
        require_view(kit.acting_member(), Capability.END_USERS_VIEW)
        if has_page:  # a block is removed without power over the user
            await members.require_power(kit.ports(), kit.acting_member(), user_id)
        email = await end_users.find_address(kit.ports(), kit.acting_member(), user_id)
        back = (email, console.organization_path(f"/users/{user_id}")) if has_page else ("Users", console.organization_path("/users"))
        return Question(verb=verb, target=email, consequences=consequences, button=button, back=back, **{"dangerous": False, **parts})

    return load


_sessions_question = _make_question(
    "End the sessions of", "End sessions", "Their sessions in your applications end. They can sign in again."
)
_reset_question = _make_question("Send a reset link to", "Send reset link", RESET_LINK)
_block_question = _make_question(
    "Block",
    "Block user",
    "Their sessions in your applications end at once, and they cannot sign in to any of them, or use your API resources. Their account, "
    "and other organizations, are not touched. You can unblock them at any time.",
    keep="Keep user",
    dangerous=True,
)
_unblock_question = _make_question(
    "Unblock",
    "Unblock user",
    "They can sign in to your applications again, as far as the access rules of each application admit them.",
    has_page=False,
)
_second_factor_question = _make_question(
    "Remove the second factor of",
    "Remove second factor",
    "They sign in without a code, until they set up another second factor. Their sessions end, and they get an email.",
    "This is possible only for accounts that your organization created, and that no other organization uses.",
    keep="Keep second factor",
    dangerous=True,
)


@asks(routes, f"{ONE}/end-sessions")
@kit.member_page(Capability.END_USERS_MANAGE, kit.ENDS)
@accepts_answer(f"DELETE {API}/<user_id>/sessions", _sessions_question)
async def end_sessions(org_slug: str, user_id: UUID, form: Form) -> Response:
    """End a user's sessions in an organization's applications."""
    count = await end_users.revoke_sessions(kit.ports(), kit.acting_member(), user_id)
    return console.redirect_with_notice("sessions-ended", console.organization_path(f"/users/{user_id}"), count=count)


@asks(routes, f"{ONE}/password-reset")
@kit.member_page(Capability.END_USERS_MANAGE, kit.GIVES)
@accepts_answer(f"POST {API}/<user_id>/password-reset", _reset_question)
async def send_password_reset(org_slug: str, user_id: UUID, form: Form) -> Response:
    """Send a user a link to set a new password."""
    await end_users.send_password_reset(kit.ports(), kit.acting_member(), user_id)
    return console.redirect_with_notice("reset-sent", console.organization_path(f"/users/{user_id}"))


@asks(routes, f"{ONE}/block")
@kit.member_page(Capability.END_USERS_MANAGE, kit.GIVES)
@accepts_answer(f"PUT {API}/<user_id>/block", _block_question)
async def block(org_slug: str, user_id: UUID, form: Form) -> Response:
    """Block a user at an organization's applications."""
    await end_users.block(kit.ports(), kit.acting_member(), user_id)
    return console.redirect_with_notice("user-blocked", console.organization_path(f"/users/{user_id}"))


@asks(routes, f"{ONE}/unblock")
@kit.member_page(Capability.END_USERS_MANAGE, kit.GIVES)
@accepts_answer(f"DELETE {API}/<user_id>/block", _unblock_question)
async def unblock(org_slug: str, user_id: UUID, form: Form) -> Response:
    """Admit a blocked user to an organization's applications again."""
    is_end_user = await end_users.unblock(kit.ports(), kit.acting_member(), user_id)
    return console.redirect_with_notice("user-unblocked", console.organization_path(f"/users/{user_id}" if is_end_user else "/users"))


@asks(routes, f"{ONE}/second-factor")
@kit.member_page(Capability.END_USERS_MANAGE, kit.REMOVES_FACTORS)
@accepts_answer(f"DELETE {API}/<user_id>/mfa", _second_factor_question)
async def remove_second_factor(org_slug: str, user_id: UUID, form: Form) -> Response:
    """Remove a user's second factor."""
    await end_users.remove_second_factor(kit.ports(), kit.acting_member(), user_id)
    return console.redirect_with_notice("second-factor-removed", console.organization_path(f"/users/{user_id}"))


@routes.get("/app/organizations/<org_slug>/users/<user_id>/access")
@kit.member_page(Capability.END_USERS_VIEW)
@console.shows("GET /api/organizations/<org_slug>/users/<user_id>/access")
async def show_reasons(org_slug: str, user_id: UUID, query_args: kit.PageQuery) -> Response:
    """Show what a user may do in the organization and its applications, and why."""
    access = await applications_access.load_user_access(kit.ports(), kit.acting_member(), user_id, query_args.page_request())
    return await console.console_page(
        "applications/access_reasons.html",
        user=access.user,
        organization=access.organization,
        rights=_rights(access.organization) if access.organization else [],
        applications=access.applications,
        back=_back(access.user),
        groups_path=console.organization_path("/groups"),
        applications_path=console.organization_path("/applications"),
        **console.neighbors(query_args, access.total),
    )


def _back(user: UserState) -> tuple[str, str]:
    """Return the label and path for a page about the user that the caller may open."""
    if user.is_member and console.may(Capability.MEMBERS_MANAGE):
        return "Member", console.organization_path(f"/members/{user.user_id}")
    return (
        ("User", console.organization_path(f"/users/{user.user_id}"))
        if user.is_end_user
        else ("Users", console.organization_path("/users"))
    )


def _rights(access: OrganizationAccess) -> list[tuple[str, list[RightSource]]]:
    """Return a member's rights: the sentence, and the roles that give it."""
    return [(sentence, sources) for capability, sentence in ALL_SENTENCES.items() if (sources := access.sources_of(capability))]
