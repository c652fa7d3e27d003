"""Members, and how an organization controls accounts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from core.accounts.model import accounts
from core.accounts.model.protection import NOTHING_ASKED, AskedStrength, HeldFactor, Protection
from core.kernel import errors, roles
from core.kernel.values import Email
from core.tenancy.model import organizations


class AlreadyMember(errors.Invalid):
    """This user is already a member of the organization."""


class MemberNotFound(errors.NotFound):
    """This user is not a member of the organization."""


class RoleUnknown(errors.Invalid):
    """This role does not exist. Use admin, member, or the slug of a role of the organization."""


class RoleFilterUnknown(errors.Invalid):
    """This role does not exist. Use owner, admin, member, or the slug of a role of the organization."""


class CannotChangeOwnRole(errors.Invalid):
    """You cannot change your own role. To step down as the owner, transfer the ownership to another member."""


class OwnershipNotAssignable(errors.Invalid):
    """The role owner cannot be assigned. Transfer the ownership instead."""


class CannotChangeOwnerRole(errors.Invalid):
    """The owner's role cannot be changed. Transfer the ownership to another member first."""


class MemberHasMoreRights(errors.Forbidden):
    """This member has rights that you do not have yourself. Ask the owner of the organization."""

    audited = True


class CannotRemoveSelf(errors.Invalid):
    """You cannot remove yourself. Leave the organization on the page of your account."""


class OwnerCannotLeave(errors.Invalid):
    """You own this organization. Transfer the ownership to another member first, or delete the organization."""


class CannotRemoveOwner(errors.Invalid):
    """The owner cannot be removed. Transfer the ownership to another member first."""


class CannotResetOwner(errors.Invalid):
    """You cannot send a password reset to the owner. Owners request one with "Forgot your password?" on the sign-in page."""


class MemberNotReachable(errors.Invalid):
    """This account is deactivated, or its address is not verified. Reactivate it, or let its user verify the address, first."""


class MembershipNotConfirmed(errors.Invalid):
    """This user has not used the organization yet. Ask them to request a link with "Forgot your password?" on the sign-in page."""


class AlreadyOwner(errors.Invalid):
    """You already own this organization. Choose another member as the new owner."""


class NewOwnerNotMember(errors.Invalid):
    """The new owner must be a member of the organization. Invite this user first."""


class NewOwnerNotActive(errors.Invalid):
    """The new owner's account is not active. Choose another member."""


class NoneSelected(errors.Invalid):
    """Select at least one person for this. Members and invitations have different actions."""


class TooManySelected(errors.Invalid):
    """You have selected too many people. Select fewer, and repeat the action for the others."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"Select at most {limit} people at once, and repeat the action for the others.")


@dataclass(frozen=True, slots=True)
class PersonOutcome:
    """What a change did to one person among several: their address, and the refusal, or None if it was changed."""

    email: Email
    refusal: errors.Refusal | None


@dataclass(frozen=True, slots=True)
class ListedMember:
    """A membership with the user it belongs to.

    `name` is None for an unconfirmed membership. Otherwise, an organization that adds an address would learn its owner's name.
    """

    email: Email
    name: str | None
    is_platform_owner: bool
    membership: organizations.Membership

    @property
    def user_id(self) -> UUID:
        return self.membership.user_id


@dataclass(frozen=True, slots=True)
class MemberAccount:
    """A member with the facts about their account that the organization may see. Times are UTC.

    `last_login_at` may be None for any member. The other facts are None for an unconfirmed membership, like the name.
    """

    member: ListedMember
    email_verified: bool | None
    mfa_enabled: bool | None
    last_login_at: datetime | None  # the last sign-in that the organization sees (decision 220)
    protection: Protection | None = None
    factors: tuple[HeldFactor, ...] | None = None


@dataclass(frozen=True, slots=True)
class MemberHoldings:
    """The things that a user has in an organization besides a role."""

    groups: tuple[str, ...]  # names, in order
    application_roles: tuple[tuple[str, str], ...]  # the application's slug and the role's slug, in order; also roles by groups
    attributes: Mapping[str, Any]  # the user's own values


@dataclass(frozen=True, slots=True)
class ExportedMember:
    """A member in an export."""

    account: MemberAccount
    holdings: MemberHoldings


@dataclass(frozen=True, slots=True)
class LiveSessions:
    """How many live sessions a user has in an organization, and when the newest session started, in UTC."""

    count: int
    last_created_at: datetime | None


@dataclass(frozen=True, slots=True)
class MemberDetails:
    """Everything that an organization may see about a member, with the live sessions in the organization.

    `invited_by` and `invited_at` (UTC) are None if the member joined without an invitation. `blocked_at` (UTC) is None
    unless an admin blocked the user at the organization's services.
    """

    account: MemberAccount
    sessions: LiveSessions
    blocked_at: datetime | None
    invited_by: accounts.AccountSummary | None = None
    invited_at: datetime | None = None


class MemberOrder(StrEnum):
    """How an organization's members are sorted."""

    JOINED = "joined"  # members who joined first come first
    EMAIL = "email"


class MemberState(StrEnum):
    """How a member list selects members by their account. To see who has second factors, a caller needs the right to manage members."""

    UNCONFIRMED = "unconfirmed"  # they have not used the organization yet
    WITHOUT_MFA = "without_mfa"  # confirmed members without a second factor
    ADMINS_WITHOUT_MFA = "admins_without_mfa"  # owners and admins without a second factor
    ADMINS_WITH_PASSWORD_ALONE = "admins_with_password_alone"  # noqa: S105  (a state) as the overview counts them


@dataclass(frozen=True, slots=True)
class MemberFilter:
    """What a member list selects: the role, a part of the email address in lower case, the state, and the factors. None selects all.

    `asked` is the strength against which `protection` is told.
    """

    role: roles.RoleName | None = None
    search: str | None = None
    state: MemberState | None = None
    protection: Protection | None = None
    factor: HeldFactor | None = None
    asked: AskedStrength = NOTHING_ASKED


@dataclass(frozen=True, slots=True)
class MembersPage:
    """A page with the organization's members, how many members all pages have, and the member limit."""

    members: Sequence[ListedMember]
    total: int
    limit: organizations.Limit


def require_assignable(role: roles.Role | None) -> roles.Role:
    """Return the role, if it can be assigned to a member. Raises: OwnershipNotAssignable; RoleUnknown if it is None."""
    if role is None:
        raise RoleUnknown
    if roles.Capability.ORGANIZATION_OWN in role.rights:
        raise OwnershipNotAssignable
    return role


def require_power_over(actor: roles.Authority, member: organizations.Membership) -> None:
    """Check that a caller may remove, sign out, reset, block or recover this member (security R-10)."""
    if not roles.may_act_on(actor, member.authority):
        raise MemberHasMoreRights


def may_invite(rights: roles.Rights, role: roles.Role | None) -> bool:
    """Return whether a caller with these rights may invite a person to this role (security R-4). None is an unknown role."""
    return roles.Capability.MEMBERS_MANAGE in rights and roles.may_give(rights, role)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountControl:
    """The facts that decide what an organization may do with an account.

    Except for the domain, these facts do not change while the account is locked.
    """

    org_id: UUID
    origin: accounts.AccountOrigin
    origin_org_id: UUID | None  # the organization that created the account, or None if the user did
    is_platform_owner: bool
    has_password: bool
    has_identity: bool  # an identity at any identity provider
    at_verified_domain: bool  # the account's address is at a domain that the organization has verified
    role: roles.RoleName | None  # in this organization
    member_elsewhere: bool  # a member in another organization
    end_user_elsewhere: bool  # an end user or a subscriber in another organization that still exists
    rights: roles.Rights = roles.NO_RIGHTS  # the member's rights there
    has_passkey: bool = False
    closed_by_others: bool = False  # the platform deactivated the account, or it was deleted and is not erased yet

    @property
    def created_by_org(self) -> bool:
        """Return whether the organization's API key, SCIM, connection or sign-up created the account."""
        return self.origin is not accounts.AccountOrigin.PLATFORM and self.origin_org_id == self.org_id

    @property
    def can_sign_in(self) -> bool:
        """Return whether the user has a password, a passkey, or an identity at an identity provider."""
        return self.has_password or self.has_identity or self.has_passkey

    @property
    def used_elsewhere(self) -> bool:
        """Return whether another organization or the platform itself uses the account, too."""
        return self.member_elsewhere or self.end_user_elsewhere or self.is_platform_owner

    @property
    def may_change_email(self) -> bool:
        """Return whether the organization may change the account's address (security K-4, C-4).

        With a password, a passkey or an identity, the user controls the account. If the user controls the account, the
        organization may change the address only if the present address is at a domain that it has verified.

        An owner's or admin's address never changes. The new mailbox's owner could take over the account, and would have
        more permissions than an API key or a directory. The address also stays if the platform deactivated the account,
        or if it was deleted. With the old address, the organization could create another account for the user.
        """
        if self.is_of_admin or self.closed_by_others:
            return False
        provisioned = self.created_by_org and self.origin in (
            accounts.AccountOrigin.API_KEY,
            accounts.AccountOrigin.SCIM,
            accounts.AccountOrigin.CONNECTION,
        )
        return provisioned and not self.used_elsewhere and (not self.can_sign_in or self.at_verified_domain)

    @property
    def controls_account(self) -> bool:
        """Return whether the organization controls the account, and not only what belongs to the organization.

        An organization controls an account that it created and that no other organization uses, unless it is its
        owner's account. The organization's directory deactivates and deletes the whole account, and its API keys delete
        it (security C-5, K-4).
        """
        return self.created_by_org and not self.used_elsewhere and self.role != roles.OWNER

    @property
    def is_of_admin(self) -> bool:
        """Return whether the user counts as an admin in the organization: they have a right that the role `member` lacks."""
        return self.role is not None and roles.is_admin(self.rights)

    @property
    def may_remove_second_factor(self) -> bool:
        """Return whether the organization may remove the account's second factor (security M-7)."""
        return self.controls_account and not self.is_of_admin and not self.closed_by_others

    @property
    def may_delete_account(self) -> bool:
        """Return whether the organization may delete the whole account.

        An organization may not delete an account while the platform has deactivated it. Otherwise the organization
        could create the account again, and the user would be back. An account that its user can still open again must
        not be deleted either.
        """
        return self.controls_account and not self.closed_by_others
