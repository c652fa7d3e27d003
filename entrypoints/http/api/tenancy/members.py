"""The API for members: list, export as files, roles, removal, and the transfer to a new owner (decision 199)."""

import json
from typing import Any, Final
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response

from core.accounts.model.protection import HeldFactor, Protection
from core.kernel.roles import ADMIN, OWNER, Capability
from core.kernel.values import Batches
from core.tenancy import members
from core.tenancy.model.members import ExportedMember, ListedMember, MemberOrder, MemberState
from core.tenancy.model.organizations import LimitSource
from entrypoints.http import kit
from entrypoints.http.api.eventing import audit
from entrypoints.http.api.tenancy import organizations
from entrypoints.http.api.tenancy.invitations import InviterResponse
from entrypoints.http.api.tenancy.roles import AssignableRole, Role
from entrypoints.http.edge.bodies import fields_of

PROTECTION: Final = (
    "`password_alone`: the password alone signs in, also if the account has a passkey that is no second factor. `protected`: it does not. "
    "`missing`: the sign-in policy of the organization asks for a factor that the account lacks."
)
FILE: Final = {200: "The members, in the order in which they joined."}


class ExportedMemberRoleResponse(kit.ResponseModel):
    """A role that a member has in an application."""

    service_slug: str = Field(description="The slug of the application.")
    role: str = Field(description="The slug of the role.", examples=["editor"])


class ExportedMemberResponse(kit.ResponseModel):
    """A line in the export."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address.")
    name: str | None = Field(description="The user's name, or null. It is null until the user has confirmed the membership.")
    role: Role = Field(description="The member's role.")
    joined_at: kit.Timestamp = Field(description="When the user became a member.")
    confirmed_at: kit.Timestamp | None = Field(description="When the membership was confirmed, or null if it is not confirmed yet.")
    email_verified: bool | None = Field(description="Whether the address is verified. Null until the membership is confirmed.")
    mfa_enabled: bool | None = Field(description="Whether the account has a second factor. Null until the membership is confirmed.")
    last_login_at: kit.Timestamp | None = Field(
        description="When the user last signed in to a service of the organization or, since they joined, to the platform. Null if never."
    )
    roles: list[Role] = Field(description="All the member's roles in the organization: their own role, then their groups' roles.")
    groups: list[str] = Field(description="The names of the groups that the member is in. Empty for callers without `end_users.view`.")
    application_roles: list[ExportedMemberRoleResponse] = Field(
        description="The member's roles in applications, also roles by groups. Empty for callers without `end_users.view`."
    )
    attributes: dict[str, Any] = Field(description="The member's own values of the organization's attributes, by name.")
    protection: Protection | None = Field(description=f"{PROTECTION} Null until the membership is confirmed.")
    factors: list[HeldFactor] | None = Field(description="The kinds of the account's factors. Null until the membership is confirmed.")


async def stream_members(batches: Batches[ExportedMember], format_: audit.ExportFormat, name: str) -> Response:
    """Return all members as a streamed file with this name. The format's extension is added. In CSV, lists and objects are JSON."""
    return await audit.stream_file(batches, format_, name, tuple(ExportedMemberResponse.model_fields), _cells, _to_exported)


def _cells(exported: ExportedMember) -> list[str]:
    return [_cell(value) for value in _to_exported(exported).model_dump(mode="json").values()]


def _cell(value: object) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _to_exported(exported: ExportedMember) -> ExportedMemberResponse:
    account, holdings = exported.account, exported.holdings
    listed, membership = account.member, account.member.membership
    return ExportedMemberResponse(
        user_id=listed.user_id,
        email=listed.email,
        name=listed.name,
        role=membership.role,
        joined_at=membership.created_at,
        confirmed_at=membership.confirmed_at,
        email_verified=account.email_verified,
        mfa_enabled=account.mfa_enabled,
        protection=account.protection,
        factors=None if account.factors is None else list(account.factors),
        last_login_at=account.last_login_at,
        roles=list(membership.roles),
        groups=list(holdings.groups),
        application_roles=[ExportedMemberRoleResponse(service_slug=service, role=role) for service, role in holdings.application_roles],
        attributes=dict(holdings.attributes),
    )


routes = Blueprint("members", __name__)


class MemberFilters(kit.Query):
    """The member filters. A member must match all filters."""

    role: kit.Text | None = Field(None, description="Return only members with this role: `owner`, `admin`, `member`, or a slug.")
    search: kit.Text | None = Field(
        default=None,
        description="Return only members with this text in their email address, or the member with this user id. Case is ignored.",
    )
    state: MemberState | None = Field(
        None,
        description="Return only members in this state. `unconfirmed`: they have not used the organization yet. "
        "`without_mfa`: confirmed members without a second factor. `admins_without_mfa`: such members with a "
        "right that `member` does not give. `admins_with_password_alone`: such members whose password alone signs in. "
        "The filter needs `members.manage`.",
    )
    protection: Protection | None = Field(
        None, description=f"Return only confirmed members with this protection. {PROTECTION} It needs `members.manage`."
    )
    factor: HeldFactor | None = Field(
        None,
        description="Return only confirmed members with this factor: `passkey`, `app` (an authenticator app), `key` (a security key), or "
        "`none`. It needs `members.manage`.",
    )

    def selection(self) -> dict[str, Any]:
        """Return the filters besides the role, as the use cases take them."""
        return {name: getattr(self, name) for name in ("search", "state", "protection", "factor")}


class MembersQuery(MemberFilters, kit.PageQuery):
    """The page in the list, the filters and the order."""

    sort: MemberOrder = Field(MemberOrder.JOINED, description="The order: `joined`, with the first members first, or `email`.")


class MemberExportQuery(MemberFilters):
    """The member filters, and the format. A member must match all filters."""

    format: audit.ExportFormat = Field(
        default=audit.ExportFormat.CSV, description="The format: `csv`, or `jsonl` for one JSON object per line."
    )


class MemberRoleResponse(kit.ResponseModel):
    """A member's role."""

    id: UUID = Field(description="The membership's id.")
    role: Role = Field(description="The member's own role.")
    roles: list[Role] = Field(description="All the member's roles: their own role first, then the roles that groups give.")
    created_at: kit.Timestamp = Field(description="When the user became a member.")


class ListedUserResponse(organizations.MemberUserResponse):
    """A membership's user, with their name."""

    name: str | None = Field(description="The user's name, or null. It is null until the user has confirmed the membership.")


class MemberResponse(kit.ResponseModel):
    """An organization's member."""

    user: ListedUserResponse = Field(description="The user.")
    membership: MemberRoleResponse = Field(description="The user's role.")


class MemberLimitResponse(kit.ResponseModel):
    """How many members are allowed, and where the limit comes from."""

    max_users: int = Field(description="The maximum number of members.")
    source: LimitSource = Field(description="Whether the organization, its tier or the platform's default sets the limit.")


class MemberListResponse(kit.ResponseModel):
    """A page of the members."""

    members: list[MemberResponse] = Field(description="The members on this page.")
    pagination: kit.Pagination = Field(description="The position of this page, and how many members there are.")
    limits: MemberLimitResponse = Field(description="The maximum number of members.")


@routes.get("/api/organizations/<org_slug>/members")
@kit.member(Capability.MEMBERS_VIEW)
async def list_members(org_slug: str, query_args: MembersQuery) -> MemberListResponse:
    """List the organization's members.

    By default, the members who joined first come first. The response also says how many members are allowed.
    """
    listed = await members.list_page(
        kit.ports(),
        kit.acting(),
        query_args.role,
        query_args.page_request(),
        **query_args.selection(),
        order=query_args.sort,
    )
    return MemberListResponse(
        members=[_to_response(item) for item in listed.members],
        pagination=query_args.pagination(listed.total),
        limits=MemberLimitResponse(max_users=listed.limit.value, source=listed.limit.source),
    )


_member, _user, _role = fields_of(MemberResponse), fields_of(ListedUserResponse), fields_of(MemberRoleResponse)


def _to_response(listed: ListedMember) -> MemberResponse:
    membership = listed.membership
    return _member(
        user=_user(id=listed.user_id, email=listed.email, is_platform_owner=listed.is_platform_owner, name=listed.name),
        membership=_role(id=membership.id, role=membership.role, roles=list(membership.roles), created_at=membership.created_at),
    )


@routes.get("/api/organizations/<org_slug>/members/export")
@kit.member(Capability.MEMBERS_MANAGE)
@kit.describes(FILE, content_type=audit.CSV, other_content_types=(audit.JSON_LINES,))
async def export(org_slug: str, query_args: MemberExportQuery) -> Response:
    """Export the organization's members.

    The export has all members that match, with their accounts' state, their groups, roles and attributes. In CSV, lists and objects are
    JSON, and a cell that a spreadsheet would run as a formula has an apostrophe before it.
    """
    batches = await members.export(kit.ports(), kit.acting(), query_args.role, **query_args.selection())
    return await stream_members(batches, query_args.format, f"members-{org_slug}")


class MemberSessionsResponse(kit.ResponseModel):
    """The member's live sessions in the organization."""

    active_count: int = Field(description="The number of live sessions in the organization and its services.")
    last_created_at: kit.Timestamp | None = Field(description="When the newest session started, or null if there is none.")


class MemberDetailsResponse(MemberResponse):
    """A member, with their account's state and their sessions in the organization."""

    confirmed_at: kit.Timestamp | None = Field(description="When the membership was confirmed, or null if it is not confirmed yet.")
    email_verified: bool | None = Field(
        description="Whether the user has proved that the email address is theirs. Null until the membership is confirmed."
    )
    mfa_enabled: bool | None = Field(description="Whether the account has a second factor. Null until the membership is confirmed.")
    protection: Protection | None = Field(description=f"{PROTECTION} Null until the membership is confirmed.")
    factors: list[HeldFactor] | None = Field(description="The kinds of the account's factors. Null until the membership is confirmed.")
    last_login_at: kit.Timestamp | None = Field(
        description="When the user last signed in to a service of the organization or, since they joined, to the platform. Null if never."
    )
    sessions: MemberSessionsResponse = Field(description="The user's live sessions in the organization.")
    invited_by: InviterResponse | None = Field(
        description="Who sent the invitation with which the member joined, or null without an invitation."
    )
    invited_at: kit.Timestamp | None = Field(
        description="When this invitation was sent, or null if the member joined without an invitation."
    )


@routes.get("/api/organizations/<org_slug>/members/<user_id>")
@kit.member(Capability.MEMBERS_MANAGE)
async def get(org_slug: str, user_id: UUID) -> MemberDetailsResponse:
    """Get a member.

    Sign-ins and sessions outside the organization are not included.
    """
    details = await members.find(kit.ports(), kit.acting(), user_id)
    account = details.account
    return MemberDetailsResponse(
        **dict(_to_response(account.member)),
        confirmed_at=account.member.membership.confirmed_at,
        email_verified=account.email_verified,
        mfa_enabled=account.mfa_enabled,
        protection=account.protection,
        factors=None if account.factors is None else list(account.factors),
        last_login_at=account.last_login_at,
        invited_by=None if details.invited_by is None else InviterResponse.of(details.invited_by),
        invited_at=details.invited_at,
        sessions=MemberSessionsResponse(active_count=details.sessions.count, last_created_at=details.sessions.last_created_at),
    )


class RevokedMemberSessionsResponse(kit.ResponseModel):
    """How many sessions were ended."""

    sessions_revoked: int = Field(description="The number of sessions that were ended.")


@routes.delete("/api/organizations/<org_slug>/members/<user_id>/sessions")
@kit.member(Capability.MEMBERS_MANAGE, kit.ENDS)
async def revoke_sessions(org_slug: str, user_id: UUID) -> RevokedMemberSessionsResponse:
    """End a member's sessions.

    Ends all the user's sessions in the organization and its services, and everything that would start a new session,
    such as authorization codes. Sessions elsewhere and the membership continue.
    """
    return RevokedMemberSessionsResponse(sessions_revoked=await members.revoke_sessions(kit.ports(), kit.acting(), user_id))


@kit.before_body
async def existing_member(org_slug: str, user_id: UUID) -> None:
    """Answer 404 if `<user_id>` is not a member."""
    await members.require_member(kit.ports(), kit.acting(), user_id)


class RoleRequest(kit.RequestModel):
    """A member's new role."""

    # A plain string, because the use case has a better error message for the role owner.
    role: AssignableRole = Field(description="The new role. To make a member the owner, transfer the ownership.")


class MemberReferenceResponse(kit.ResponseModel):
    """A membership's user, by id and email address."""

    id: UUID = Field(description="The user's id.")
    email: str = Field(description="The user's email address.")


class RoleChangeResponse(kit.ResponseModel):
    """The member after the change."""

    user: MemberReferenceResponse = Field(description="The user.")
    membership: organizations.MembershipResponse = Field(description="The user's membership.")


@routes.patch("/api/organizations/<org_slug>/members/<user_id>")
@kit.member(Capability.ROLES_MANAGE, kit.PROMOTES)
@existing_member
async def change_role(org_slug: str, user_id: UUID, data: RoleRequest) -> RoleChangeResponse:
    """Change a member's role.

    The new role is `admin`, `member` or a role that the organization defined. You need every right in the old and the
    new role. Pending invitations that the member sent are canceled if the new role does not allow them. You cannot
    change your own role or the owner's.
    """
    changed = await members.change_role(kit.ports(), kit.acting(), user_id, data.role)
    return RoleChangeResponse(
        user=MemberReferenceResponse(id=changed.user_id, email=changed.email),
        membership=organizations.MembershipResponse.of(changed.membership),
    )


@routes.post("/api/organizations/<org_slug>/members/<user_id>")
@kit.member(Capability.MEMBERS_MANAGE, kit.GIVES)
@kit.refuses(400)
async def remove(org_slug: str, user_id: UUID) -> kit.Message:
    """Remove a member from the organization.

    The member's sessions in the organization end, and pending invitations from and to the member are canceled. You
    cannot remove yourself or the owner. The account remains. If the member left in the last 72 hours, this ends the
    member's service accounts that have no more rights than you.
    """
    await members.remove(kit.ports(), kit.acting(), user_id)
    return kit.Message(message="The member was removed.")


@routes.post("/api/organizations/<org_slug>/members/<user_id>/password-reset")
@kit.member(Capability.MEMBERS_MANAGE, kit.GIVES)
@kit.refuses(400)
async def send_password_reset(org_slug: str, user_id: UUID) -> kit.Message:
    """Send a member a link to set a new password.

    The link goes to the member's own address, which must be verified, and works once. Until then the password and the
    sessions stay. A member gets at most five such emails in an hour; further emails are dropped. You cannot send the
    email to the owner, or to a user who has not used the organization yet.
    """
    await members.send_password_reset(kit.ports(), kit.acting(), user_id)
    return kit.Message(message="The email with the link is on its way.")


@routes.post("/api/organizations/<org_slug>/leave")
@kit.member(Capability.ORGANIZATION_VIEW, kit.LEAVES, inactive=True)
@kit.refuses(400)
@kit.describes({204: "You are no longer a member."})
async def leave(org_slug: str) -> None:
    """Leave the organization.

    Your sessions in the organization end, and pending invitations from and to you are canceled. Your
    account remains. The owner transfers the ownership first.
    """
    await members.leave(kit.ports(), kit.acting_member(), org_slug)


class OwnershipTransferRequest(kit.RequestModel):
    """The member who becomes the owner."""

    new_owner_user_id: kit.Id = Field(description="The user id of the new owner, who must be a member with an active account.")
    reason: kit.Reason | None = Field(
        default=None, description="The reason, for the audit log and for the email to the former and the new owner."
    )


class FormerOwnerResponse(kit.ResponseModel):
    """The former owner and their new role."""

    user_id: UUID = Field(description="The user id of the former owner.")
    new_role: Role = Field(description="The role of the former owner from now on.")


class NewOwnerResponse(kit.ResponseModel):
    """The new owner."""

    user_id: UUID = Field(description="The user id of the new owner.")
    role: Role = Field(description="The role of the new owner.")


class OwnershipTransferResponse(kit.ResponseModel):
    """The former and the new owner."""

    message: str = Field(description="A confirmation to show to the user.")
    old_owner: FormerOwnerResponse = Field(description="The former owner.")
    new_owner: NewOwnerResponse = Field(description="The member who owns the organization from now on.")


@routes.post("/api/organizations/<org_slug>/transfer-ownership")
@kit.member(Capability.ORGANIZATION_OWN, kit.OWNS)
async def transfer_ownership(org_slug: str, data: OwnershipTransferRequest) -> OwnershipTransferResponse:
    """Transfer the ownership to another member.

    Only the owner can do this. The former owner becomes an admin, and their pending invitations
    that an admin may not send are canceled.
    """
    old_owner = kit.acting_member()
    await members.transfer_ownership(kit.ports(), old_owner, data.new_owner_user_id, data.reason)
    return OwnershipTransferResponse(
        message="The ownership was transferred.",
        old_owner=FormerOwnerResponse(user_id=old_owner.user_id, new_role=ADMIN),
        new_owner=NewOwnerResponse(user_id=data.new_owner_user_id, role=OWNER),
    )
