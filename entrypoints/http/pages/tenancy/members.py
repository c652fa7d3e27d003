"""The pages for members: the list, a member with their role, sessions and second factor, and a page for every action."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from quart import Blueprint, Response

from core.authentication import account_recovery
from core.authentication.model.recovery import RecoveryChoices
from core.eventing import timeline
from core.kernel.roles import Authority, Capability, may_act_on
from core.kernel.values import Page, PageResult
from core.tenancy import groups, invitations, members
from core.tenancy.model.invitations import InvitationStatus, ListedInvitation
from core.tenancy.model.members import (
    CannotChangeOwnerRole,
    CannotChangeOwnRole,
    ListedMember,
    MemberState,
    OwnershipNotAssignable,
    RoleUnknown,
)
from core.tenancy.selected_people import MAX_SELECTED
from entrypoints.http.api.eventing.audit import CSV, JSON_LINES
from entrypoints.http.api.tenancy.members import FILE, MemberExportQuery, MembersQuery, stream_members
from entrypoints.http.api.tenancy.roles import giveable_options, role_choices, role_filter, role_labels
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import ENDS, GIVES, PROMOTES, member_page
from entrypoints.http.edge.openapi import describes
from entrypoints.http.pages.authentication.sign_in_log import failure_values
from entrypoints.http.pages.consequences import RESET_LINK, Question, accepts_answer, asks, count
from entrypoints.http.pages.console import console_page, may, neighbors, organization_path, redirect_with_notice, shows, with_query
from entrypoints.http.pages.console_forms import Fields, Form, check_typed_name
from entrypoints.http.pages.tenancy.selected_people import ROLE_CONSEQUENCE, actions_on_people
from entrypoints.http.pages.timeline import MOST, list_entries

routes = Blueprint("member_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/members"
ONE: Final = f"{LIST}/<user_id>"
API: Final = "/api/organizations/<org_slug>/members"
ROLE_FIELDS: Final[Fields] = {
    RoleUnknown: "role",
    OwnershipNotAssignable: "role",
    CannotChangeOwnRole: "role",
    CannotChangeOwnerRole: "role",
}
STATE_FILTER: Final = [
    (None, "All"),
    (MemberState.ADMINS_WITHOUT_MFA, "Admins without second factor"),
    (MemberState.WITHOUT_MFA, "No second factor"),
    (MemberState.UNCONFIRMED, "Not confirmed"),
]
INVITATIONS_SHOWN: Final = 10


@routes.get(LIST)
@member_page(Capability.MEMBERS_VIEW)
@shows(f"GET {API}", "GET /api/organizations/<org_slug>/invitations")
async def show_members(org_slug: str, query_args: MembersQuery) -> Response:
    """List an organization's members.

    Users who manage members also see the accounts' state and the pending invitations.
    """
    page, manages = query_args.page_request(), may(Capability.MEMBERS_MANAGE)
    result = await members.list_page(
        ports(), acting_member(), query_args.role, page, search=query_args.search, state=query_args.state, order=query_args.sort
    )
    invited, choices = await _invited(query_args) if manages else None, await role_choices()
    return await console_page(
        "tenancy/members.html",
        images_of=_with_picture(result.members),
        members=result.members,
        accounts=await members.load_accounts(ports(), acting_member(), result.members) if manages else {},
        invited=invited,
        actions=actions_on_people(with_invitations=invited is not None and invited.total > 0) if manages else [],
        most=MAX_SELECTED,
        states=STATE_FILTER if manages else [],
        invitable=giveable_options(choices) if manages else [],
        limit=result.limit.value,
        total=result.total,
        query=query_args,
        roles=role_filter(choices),
        own_id=acting_member().user_id,
        export=with_query(page=None, limit=None, sort=None, format="csv"),
        **neighbors(query_args, result.total),
    )


@routes.get(f"{LIST}/export")
@member_page(Capability.MEMBERS_MANAGE)
@describes(FILE, content_type=CSV, other_content_types=(JSON_LINES,), api=[f"GET {API}/export"])
async def export_members(org_slug: str, query_args: MemberExportQuery) -> Response:
    """Export an organization's members that match the filters."""
    batches = await members.export(ports(), acting_member(), query_args.role, search=query_args.search, state=query_args.state)
    return await stream_members(batches, query_args.format, f"members-{org_slug}")


async def _invited(query: MembersQuery) -> PageResult[ListedInvitation] | None:
    """Return the pending invitations that stand before the filtered members' first page."""
    if query.page > 1 or query.state is not None:
        return None
    page = Page(1, INVITATIONS_SHOWN)
    return await invitations.list_page(ports(), acting_member(), InvitationStatus.PENDING, page, search=query.search, role=query.role)


@routes.get(ONE)
@member_page(Capability.MEMBERS_MANAGE)
@shows(f"GET {API}/<user_id>", "GET /api/organizations/<org_slug>/sign-ins", "GET /api/organizations/<org_slug>/audit-log")
async def show_member(org_slug: str, user_id: UUID) -> Response:
    """Show a member, with their role and their sessions in the organization. Every action has a page."""
    details = await members.find(ports(), acting_member(), user_id)
    choices = await account_recovery.load_choices(ports(), acting_member(), user_id, Capability.MEMBERS_MANAGE)
    return await console_page(
        "tenancy/member.html",
        images_of=_with_picture([details.account.member]),
        member=details.account.member,
        account=details.account,
        sessions=details.sessions,
        blocked_at=details.blocked_at,
        invited_by=details.invited_by,
        invited_at=details.invited_at,
        groups=await groups.list_of_user(ports(), acting_member(), user_id) if may(Capability.END_USERS_VIEW) else [],
        further_roles=await role_labels(details.account.member.membership.group_roles or ()),
        actions=_actions(details.account.member, choices),
        not_recovered=choices.reason if _is_other(details.account.member) else None,
        entries=list_entries(await timeline.load_in_organization(ports(), acting_member(), user_id, MOST)),
        **await failure_values(acting_member(), user_id),
    )


def _with_picture(listed: Iterable[ListedMember]) -> list[UUID]:
    """Return the members with a picture on the page. An organization sees nothing from the account of a member who has not confirmed."""
    return [member.user_id for member in listed if member.membership.confirmed_at is not None]


def _is_other(member: ListedMember) -> bool:
    """Return whether the user may act on the membership: it is not their own, and not the owner's."""
    return not member.membership.is_owner and member.user_id != acting_member().user_id


def _actions(member: ListedMember, choices: RecoveryChoices) -> list[tuple[str, str, bool]]:
    """Return the actions that the user may take on a member: label, path and whether it is dangerous. None on members with more rights."""
    path, is_other, own = organization_path(f"/members/{member.user_id}"), _is_other(member), acting_member().acts_in
    if not may_act_on(Authority(own.role, own.rights), member.membership.authority):
        return []
    return [
        *([("Change role", f"{path}/role", False)] if is_other and may(Capability.ROLES_MANAGE) else []),
        ("Attributes", f"{path}/attributes", False),
        ("End sessions", f"{path}/end-sessions", False),
        *([("Send reset link", f"{path}/password-reset", False)] if is_other else []),
        *([("Recover account", f"{path}/recovery", False)] if is_other and choices.can_start else []),
        *([("Cancel recovery", f"{path}/recovery/cancel", False)] if is_other and choices.can_cancel else []),
        *([("Remove member", f"{path}/remove", True)] if is_other else []),
    ]


async def _find(user_id: UUID) -> ListedMember:
    """Return a member within the user's power."""
    await members.require_power(ports(), acting_member(), user_id)
    return (await members.find(ports(), acting_member(), user_id)).account.member


def _back(member: ListedMember) -> tuple[str, str]:
    return member.name or member.email, organization_path(f"/members/{member.user_id}")


async def _role_question(user_id: UUID) -> Question:
    member = await _find(user_id)
    return Question(
        verb="Change the role of",
        target=member.email,
        consequences=(ROLE_CONSEQUENCE,),
        button="Save role",
        back=_back(member),
        choice=("role", "Role", giveable_options(await role_choices())),
        chosen={"role": member.membership.role},
        dangerous=False,
    )


@asks(routes, f"{ONE}/role")
@member_page(Capability.ROLES_MANAGE, PROMOTES)
@accepts_answer(f"PATCH {API}/<user_id>", _role_question, ROLE_FIELDS)
async def change_role(org_slug: str, user_id: UUID, form: Form) -> Response:
    """Change a member's role."""
    await members.change_role(ports(), acting_member(), user_id, form.get("role", ""))
    return redirect_with_notice("role-changed", organization_path(f"/members/{user_id}"))


async def _sessions_question(user_id: UUID) -> Question:
    member = await _find(user_id)
    return Question(
        verb="End the sessions of",
        target=member.email,
        consequences=("Their sessions in this organization and its applications end. They can sign in again.",),
        button="End sessions",
        back=_back(member),
        dangerous=False,
    )


@asks(routes, f"{ONE}/end-sessions")
@member_page(Capability.MEMBERS_MANAGE, ENDS)
@accepts_answer(f"DELETE {API}/<user_id>/sessions", _sessions_question)
async def end_sessions(org_slug: str, user_id: UUID, form: Form) -> Response:
    """End a member's sessions in the organization and its applications."""
    count = await members.revoke_sessions(ports(), acting_member(), user_id)
    return redirect_with_notice("sessions-ended", organization_path(f"/members/{user_id}"), count=count)


async def _reset_question(user_id: UUID) -> Question:
    member = await _find(user_id)
    return Question(
        verb="Send a reset link to",
        target=member.email,
        consequences=(RESET_LINK,),
        button="Send reset link",
        back=_back(member),
        dangerous=False,
    )


@asks(routes, f"{ONE}/password-reset")
@member_page(Capability.MEMBERS_MANAGE, GIVES)
@accepts_answer(f"POST {API}/<user_id>/password-reset", _reset_question)
async def send_password_reset(org_slug: str, user_id: UUID, form: Form) -> Response:
    """Send a member a link to set a new password."""
    await members.send_password_reset(ports(), acting_member(), user_id)
    return redirect_with_notice("reset-sent", organization_path(f"/members/{user_id}"))


async def _removal(user_id: UUID) -> Question:
    await members.require_power(ports(), acting_member(), user_id)
    details = await members.find(ports(), acting_member(), user_id)
    member = details.account.member
    sessions = count(details.sessions.count, "session")
    return Question(
        verb="Remove",
        target=member.email,
        consequences=(
            f"We end their {sessions} here at once, and cancel pending invitations from and to them. They lose access to the applications "
            "of this organization. The credentials that they created for service accounts and API resources end, and the admins who can "
            "replace them get an email. Their account remains.",
        ),
        button="Remove member",
        keep="Keep member",
        back=_back(member),
        typed_name=member.email,
        name_label="Email address",
    )


@asks(routes, f"{ONE}/remove")
@member_page(Capability.MEMBERS_MANAGE, GIVES)
@accepts_answer(f"POST {API}/<user_id>", _removal)
async def remove(org_slug: str, user_id: UUID, form: Form) -> Response:
    """Remove a member from the organization."""
    check_typed_name(form, (await _find(user_id)).email)
    await members.remove(ports(), acting_member(), user_id)
    return redirect_with_notice("member-removed", organization_path("/members"))
