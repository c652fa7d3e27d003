"""Members: entities, errors, and the roles that a member may give."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from core.kernel import principals
from core.kernel.errors import Invalid, NotFound
from core.kernel.principals import Capability, Role

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from core.authentication.sessions_rules import LiveSessions
    from core.kernel.values import Email
    from core.tenancy.organizations_rules import Limit, Membership


class AlreadyMember(Invalid):
    """This user is already a member of the organization."""


class MemberNotFound(NotFound):
    """This user is not a member of the organization."""


class RoleUnknown(Invalid):
    """This role does not exist. Use admin or member."""


class CannotChangeOwnRole(Invalid):
    """You cannot change your own role. To step down as the owner, transfer the ownership to another member."""


class OwnershipNotAssignable(Invalid):
    """The role owner cannot be assigned. Transfer the ownership instead."""


class CannotChangeOwnerRole(Invalid):
    """The owner's role cannot be changed. Transfer the ownership to another member first."""


class CannotRemoveSelf(Invalid):
    """You cannot remove yourself. Leave the organization on the page of your account."""


class OwnerCannotLeave(Invalid):
    """You own this organization. Transfer the ownership to another member first, or delete the organization."""


class CannotRemoveOwner(Invalid):
    """The owner cannot be removed. Transfer the ownership to another member first."""


class CannotResetOwner(Invalid):
    """You cannot send a password reset to the owner. Owners request one with "Forgot your password?" on the sign-in page."""


class MemberNotReachable(Invalid):
    """This member's account is deactivated, or its address is not verified. Have it reactivated, or verified by the member, first."""


class MembershipNotConfirmed(Invalid):
    """This user has not used the organization yet. Ask them to request a link with "Forgot your password?" on the sign-in page."""


class AlreadyOwner(Invalid):
    """You already own this organization. Choose another member as the new owner."""


class NewOwnerNotMember(Invalid):
    """The new owner must be a member of the organization. Invite this user first."""


class NewOwnerNotActive(Invalid):
    """The new owner's account is not active. Choose another member."""


@dataclass(frozen=True, slots=True)
class ListedMember:
    """A membership with the user it belongs to.

    `name` is None for an unconfirmed membership. Otherwise, an organization that adds an address would learn the name of its owner.
    """

    user_id: UUID
    email: Email
    name: str | None
    is_platform_owner: bool
    membership: Membership


@dataclass(frozen=True, slots=True)
class MemberAccount:
    """A member with the facts about their account that the organization may see. Times are UTC.

    `email_verified` and `mfa_enabled` are None for an unconfirmed membership, like the name.
    """

    member: ListedMember
    email_verified: bool | None
    mfa_enabled: bool | None
    last_login_at: datetime | None  # the last sign-in to a service of the organization


@dataclass(frozen=True, slots=True)
class MemberDetails:
    """Everything that an organization may see of a member, with the live sessions in the organization."""

    account: MemberAccount
    sessions: LiveSessions


class MemberOrder(StrEnum):
    """An order of the members of an organization."""

    JOINED = "joined"  # those who joined first come first
    EMAIL = "email"


@dataclass(frozen=True, slots=True)
class MembersPage:
    """One page of an organization's members, the number of members on all pages, and the member limit."""

    members: Sequence[ListedMember]
    total: int
    limit: Limit


def parse_assignable_role(name: str) -> Role:
    """Return the role with this name, if an admin or the owner can assign it to a member.

    Raises: OwnershipNotAssignable, RoleUnknown.
    """
    match name:
        case Role.OWNER:
            raise OwnershipNotAssignable
        case Role.ADMIN | Role.MEMBER:
            return Role(name)
    raise RoleUnknown


def grantable_roles(role: Role | None) -> frozenset[Role]:
    """Return the roles that a user with `role` may give to others (security R-4).

    `role` is None for a user who is not a member. They may give no roles.
    """
    if role is None or not principals.has_capability(role, Capability.MEMBERS_MANAGE):
        return frozenset()
    return frozenset({Role.ADMIN, Role.MEMBER}) if principals.has_capability(role, Capability.ROLES_MANAGE) else frozenset({Role.MEMBER})
