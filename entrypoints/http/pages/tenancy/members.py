"""The pages for members: the list, a member with their role, sessions and second factor, and a page for every action."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from quart import Blueprint, Response

from core.accounts.model.protection import HeldFactor, Protection
from core.applications import removals
from core.authentication import account_recovery
from core.authentication.model.recovery import RecoveryChoices
from core.eventing import audit as eventing_audit
from core.kernel import roles, values
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
from entrypoints.http import kit
from entrypoints.http.api.eventing import audit
from entrypoints.http.api.tenancy.members import FILE, MemberExportQuery, MembersQuery, stream_members
from entrypoints.http.api.tenancy.roles import giveable_options, role_choices, role_filter, role_labels
from entrypoints.http.base.rendering.labels import LABELS
from entrypoints.http.pages import consequences, console, console_forms
from entrypoints.http.pages.authentication.sign_in_log import failure_values
from entrypoints.http.pages.tenancy import selected_people
from entrypoints.http.pages.timeline import MOST, list_entries

routes = Blueprint("member_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/members"
ONE: Final = f"{LIST}/<user_id>"
API: Final = "/api/organizations/<org_slug>/members"
ROLE_FIELDS: Final[console_forms.Fields] = {
    RoleUnknown: "role",
    OwnershipNotAssignable: "role",
    CannotChangeOwnRole: "role",
    CannotChangeOwnerRole: "role",
}
STATE_FILTER: Final = [
    (None, "All"),
    (MemberState.ADMINS_WITH_PASSWORD_ALONE, "Admins with a password alone"),
    (MemberState.WITHOUT_MFA, "No second factor"),
    (MemberState.UNCONFIRMED, "Not confirmed"),
]
FACTOR_FILTERS: Final = [
    ("protection", "Protection", [("", "All"), *((each.value, LABELS[Protection][each]) for each in Protection)]),
    ("factor", "Factor", [("", "All"), *((each.value, LABELS[HeldFactor][each]) for each in HeldFactor)]),
]
INVITATIONS_SHOWN: Final = 10


@routes.get(LIST)
@kit.member_page(roles.Capability.MEMBERS_VIEW)
@console.shows(f"GET {API}", "GET /api/organizations/<org_slug>/invitations")
async def show_members(org_slug: str, query_args: MembersQuery) -> Response:
    """List an organization's members. Users who manage members also see the accounts' state and the pending invitations."""
    page, manages = query_args.page_request(), console.may(roles.Capability.MEMBERS_MANAGE)
    result = await members.list_page(
        kit.ports(), kit.acting_member(), query_args.role, page, order=query_args.sort, **query_args.selection()
    )
    invited, choices = await _invited(query_args) if manages else None, await role_choices()
    return await console.console_page(
        "tenancy/members.html",
        images_of=_with_picture(result.members),
        members=result.members,
        accounts=await members.load_accounts(kit.ports(), kit.acting_member(), result.members) if manages else {},
        invited=invited,
        actions=selected_people.actions_on_people(with_invitations=invited is not None and invited.total > 0) if manages else [],
        most=MAX_SELECTED,
        states=STATE_FILTER if manages else [],
        factor_filters=FACTOR_FILTERS if manages else [],
        invitable=giveable_options(choices) if manages else [],
        limit=result.limit.value,
        total=result.total,
        query=query_args,
        roles=role_filter(choices),
        own_id=kit.acting_member().user_id,
        export=console.with_query(page=None, limit=None, sort=None, format="csv"),
        **console.neighbors(query_args, result.total),
    )


@routes.get(f"{LIST}/export")
@kit.member_page(roles.Capability.MEMBERS_MANAGE)
@kit.describes(FILE, content_type=audit.CSV, other_content_types=(audit.JSON_LINES,), api=[f"GET {API}/export"])
async def export_members(org_slug: str, query_args: MemberExportQuery) -> Response:
    """Export an organization's members that match the filters."""
    batches = await members.export(kit.ports(), kit.acting_member(), query_args.role, **query_args.selection())
    return await stream_members(batches, query_args.format, f"members-{org_slug}")


async def _invited(query: MembersQuery) -> values.PageResult[ListedInvitation] | None:
    """Return the pending invitations that stand before the filtered members' first page."""
    if query.page > 1 or not (query.state is None and query.protection is None and query.factor is None):
        return None
    page = values.Page(1, INVITATIONS_SHOWN)
    return await invitations.list_page(
        kit.ports(), kit.acting_member(), InvitationStatus.PENDING, page, search=query.search, role=query.role
    )


@routes.get(ONE)
@kit.member_page(roles.Capability.MEMBERS_MANAGE)
@console.shows(f"GET {API}/<user_id>", "GET /api/organizations/<org_slug>/sign-ins", "GET /api/organizations/<org_slug>/audit-log")
async def show_member(org_slug: str, user_id: UUID) -> Response:
    """Show a member, with their role and their sessions in the organization. Every action has a page."""
    details = await members.find(kit.ports(), kit.acting_member(), user_id)
    choices = await account_recovery.load_choices(kit.ports(), kit.acting_member(), user_id, roles.Capability.MEMBERS_MANAGE)
    return await console.console_page(
        "tenancy/member.html",
        images_of=_with_picture([details.account.member]),
        member=details.account.member,
        account=details.account,
        sessions=details.sessions,
        blocked_at=details.blocked_at,
        invited_by=details.invited_by,
        invited_at=details.invited_at,
        groups=await groups.list_of_user(kit.ports(), kit.acting_member(), user_id) if console.may(roles.Capability.END_USERS_VIEW) else [],
        further_roles=await role_labels(details.account.member.membership.group_roles or ()),
        actions=_actions(details.account.member, choices),
        not_recovered=choices.reason if _is_other(details.account.member) else None,
        entries=list_entries(await eventing_audit.load_timeline(kit.ports(), kit.acting_member(), user_id, MOST)),
        **await failure_values(kit.acting_member(), user_id),
    )


def _with_picture(listed: Iterable[ListedMember]) -> list[UUID]:
    """Return the members with a picture on the page. An organization sees nothing from the account of a member who has not confirmed."""
    return [member.user_id for member in listed if member.membership.confirmed_at is not None]


def _is_other(member: ListedMember) -> bool:
    """Return whether the user may act on the membership: it is not their own, and not the owner's."""
    return not member.membership.is_owner and member.user_id != kit.acting_member().user_id


def _actions(member: ListedMember, choices: RecoveryChoices) -> list[tuple[str, str, bool]]:
    """Return the actions that the user may take on a member: label, path and whether it is dangerous. None on members with more rights."""
    path, is_other, own = console.organization_path(f"/members/{member.user_id}"), _is_other(member), kit.acting_member().acts_in
    if not roles.may_act_on(roles.Authority(own.role, own.rights), member.membership.authority):
        return []
    return [
        *([("Change role", f"{path}/role", False)] if is_other and console.may(roles.Capability.ROLES_MANAGE) else []),
        ("Attributes", f"{path}/attributes", False),
        ("End sessions", f"{path}/end-sessions", False),
        *([("Send reset link", f"{path}/password-reset", False)] if is_other else []),
        *([("Recover account", f"{path}/recovery", False)] if is_other and choices.can_start else []),
        *([("Cancel recovery", f"{path}/recovery/cancel", False)] if is_other and choices.can_cancel else []),
        *([("Remove member", f"{path}/remove", True)] if is_other else []),
    ]


async def _find(user_id: UUID) -> ListedMember:
    """Return a member within the user's power."""
    await members.require_power(kit.ports(), kit.acting_member(), user_id)
    return (await members.find(kit.ports(), kit.acting_member(), user_id)).account.member


def _back(member: ListedMember) -> tuple[str, str]:
    return member.name or member.email, console.organization_path(f"/members/{member.user_id}")


async def _role_question(user_id: UUID) -> consequences.Question:
    member = await _find(user_id)
    return consequences.Question(
        verb="Change the role of",
        target=member.email,
        consequences=(selected_people.ROLE_CONSEQUENCE,),
        button="Save role",
        back=_back(member),
        choice=("role", "Role", giveable_options(await role_choices())),
        chosen={"role": member.membership.role},
        dangerous=False,
    )


@consequences.asks(routes, f"{ONE}/role")
@kit.member_page(roles.Capability.ROLES_MANAGE, kit.PROMOTES)
@consequences.accepts_answer(f"PATCH {API}/<user_id>", _role_question, ROLE_FIELDS)
async def change_role(org_slug: str, user_id: UUID, form: console_forms.Form) -> Response:
    """Change a member's role."""
    await members.change_role(kit.ports(), kit.acting_member(), user_id, form.get("role", ""))
    return console.redirect_with_notice("role-changed", console.organization_path(f"/members/{user_id}"))


async def _sessions_question(user_id: UUID) -> consequences.Question:
    member = await _find(user_id)
    return consequences.Question(
        verb="End the sessions of",
        target=member.email,
        consequences=("Their sessions in this organization and its applications end. They can sign in again.",),
        button="End sessions",
        back=_back(member),
        dangerous=False,
    )


@consequences.asks(routes, f"{ONE}/end-sessions")
@kit.member_page(roles.Capability.MEMBERS_MANAGE, kit.ENDS)
@consequences.accepts_answer(f"DELETE {API}/<user_id>/sessions", _sessions_question)
async def end_sessions(org_slug: str, user_id: UUID, form: console_forms.Form) -> Response:
    """End a member's sessions in the organization and its applications."""
    count = await members.revoke_sessions(kit.ports(), kit.acting_member(), user_id)
    return console.redirect_with_notice("sessions-ended", console.organization_path(f"/members/{user_id}"), count=count)


async def _reset_question(user_id: UUID) -> consequences.Question:
    member = await _find(user_id)
    return consequences.Question(
        verb="Send a reset link to",
        target=member.email,
        consequences=(consequences.RESET_LINK,),
        button="Send reset link",
        back=_back(member),
        dangerous=False,
    )


@consequences.asks(routes, f"{ONE}/password-reset")
@kit.member_page(roles.Capability.MEMBERS_MANAGE, kit.GIVES)
@consequences.accepts_answer(f"POST {API}/<user_id>/password-reset", _reset_question)
async def send_password_reset(org_slug: str, user_id: UUID, form: console_forms.Form) -> Response:
    """Send a member a link to set a new password."""
    await members.send_password_reset(kit.ports(), kit.acting_member(), user_id)
    return console.redirect_with_notice("reset-sent", console.organization_path(f"/members/{user_id}"))


async def _removal(user_id: UUID) -> consequences.Question:
    member = await _find(user_id)
    return consequences.Question(
        verb="Remove",
        target=member.email,
        button="Remove member",
        keep="Keep member",
        back=_back(member),
        typed_name=member.email,
        name_label="Email address",
        **await selected_people.removal_parts({user_id: member.email}),
    )


@consequences.asks(routes, f"{ONE}/remove")
@kit.member_page(roles.Capability.MEMBERS_MANAGE, kit.GIVES)
@consequences.accepts_answer(f"POST {API}/<user_id>", _removal)
async def remove(org_slug: str, user_id: UUID, form: console_forms.Form) -> Response:
    """Remove a member from the organization.

    The page names the applications that stay open to them, and can block them there.
    """
    console_forms.check_typed_name(form, (await _find(user_id)).email)
    await removals.remove_member(kit.ports(), kit.acting_member(), user_id, blocks=selected_people.BLOCK in form)
    return console.redirect_with_notice("member-removed", console.organization_path("/members"))
