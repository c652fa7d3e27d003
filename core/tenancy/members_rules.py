"""Entities, refusals and pure rules of `core.tenancy.members`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel import principals
from core.kernel.errors import Invalid, NotFound
from core.kernel.principals import Capability, Role

if TYPE_CHECKING:
    from uuid import UUID

    from core.kernel.values import Email
    from core.tenancy.organizations_rules import Membership


class AlreadyAMember(Invalid):
    """This person is a member of the organization already."""


class MemberNotFound(NotFound):
    """This person is not a member of the organization."""


class RoleUnknown(Invalid):
    """There is no such role. A member's role is admin or member."""


class OwnRole(Invalid):
    """You cannot change your own role. To step down, transfer the ownership to another member."""


class OwnershipNotAssigned(Invalid):
    """Nobody becomes the owner by a change of role. Transfer the ownership instead."""


class OwnersRole(Invalid):
    """The role of the owner cannot be changed. Transfer the ownership instead."""


class OwnRemoval(Invalid):
    """You cannot remove yourself. Ask somebody else who manages the members."""


class OwnersRemoval(Invalid):
    """The owner cannot be removed. The ownership must be transferred first."""


class OwnerAlready(Invalid):
    """You own the organization already. Name another member as the new owner."""


class NewOwnerNotAMember(Invalid):
    """The new owner must be a member of the organization. Invite the person first."""


class NewOwnerNotActive(Invalid):
    """The account of the new owner is not active. Name another member."""


@dataclass(frozen=True, slots=True)
class ListedMember:
    """A membership and whose it is."""

    user_id: UUID
    email: Email
    is_platform_owner: bool
    membership: Membership


def assignable(role: str) -> Role:
    """The role of this name, if a member can be given it. Raises OwnershipNotAssigned, RoleUnknown."""
    match role:
        case Role.OWNER:
            raise OwnershipNotAssigned
        case Role.ADMIN | Role.MEMBER:
            return Role(role)
    raise RoleUnknown


def grantable(role: Role | None) -> frozenset[Role]:
    """The roles that somebody of this role, or without any, may make others have (security.md R-4; decisions, point 190)."""
    if role is None or not principals.may(role, Capability.MEMBERS_MANAGE):
        return frozenset()
    return frozenset({Role.ADMIN, Role.MEMBER}) if principals.may(role, Capability.ROLES_MANAGE) else frozenset({Role.MEMBER})
