"""What a user may do in an organization and its applications, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from core.applications.model.authorization import GivingGroup
from core.applications.model.users import AccessPolicy
from core.kernel.roles import Capability, Rights, RoleName
from core.kernel.values import Email


class AccessReason(StrEnum):
    """The reason why a user may use an application, or may not."""

    ANYONE = "anyone"  # the application admits every account
    MEMBER = "member"
    ASSIGNED = "assigned"
    SUBSCRIPTION = "subscription"
    GROUP = "group"
    NOT_MEMBER = "not_member"
    NOT_ASSIGNED = "not_assigned"
    BLOCKED_BY_DIRECTORY = "blocked_by_directory"
    BLOCKED_BY_ADMIN = "blocked_by_admin"
    DEACTIVATED = "deactivated"

    @property
    def admits(self) -> bool:
        """Whether the user may use the application."""
        return self in (AccessReason.ANYONE, AccessReason.MEMBER, AccessReason.ASSIGNED, AccessReason.SUBSCRIPTION, AccessReason.GROUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserState:
    """The facts about a user that count at all the organization's applications."""

    user_id: UUID
    email: Email
    is_member: bool  # confirmed or not
    is_end_user: bool
    is_deactivated: bool
    is_blocked_by_directory: bool
    is_blocked_by_admin: bool


@dataclass(frozen=True, slots=True)
class RoleAtApplication:
    """A role that a user has at an application. The role is given to the user directly, or by groups."""

    slug: str
    name: str
    permissions: tuple[str, ...]
    is_direct: bool
    groups: tuple[GivingGroup, ...]  # by name


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationFacts:
    """The facts about a user at one application."""

    slug: str
    name: str
    policy: AccessPolicy
    is_assigned: bool
    is_subscribed: bool
    groups: tuple[GivingGroup, ...]  # the user's groups that are assigned to the application, by name
    roles: tuple[RoleAtApplication, ...]  # by slug


@dataclass(frozen=True, slots=True)
class ApplicationAccess:
    """What a user may do at an application. Without access, the roles give nothing."""

    application: ApplicationFacts
    reason: AccessReason

    @property
    def permissions(self) -> list[str]:
        """The permissions from all roles, sorted. A user without access has no permissions."""
        return sorted({name for role in self.application.roles for name in role.permissions}) if self.reason.admits else []


@dataclass(frozen=True, slots=True)
class RightSource:
    """An organization role that gives a right to a member: the own role, or a group's role."""

    role: RoleName
    role_label: str
    rights: Rights
    group: GivingGroup | None = None  # None: the own role


@dataclass(frozen=True, slots=True)
class OrganizationAccess:
    """A member's roles in the organization. An unconfirmed member has no rights yet."""

    sources: Sequence[RightSource]
    is_confirmed: bool

    def sources_of(self, capability: Capability) -> list[RightSource]:
        """Return the roles that give this right, the own role first."""
        return [source for source in self.sources if capability in source.rights]


@dataclass(frozen=True, slots=True)
class UserAccess:
    """What a user may do in an organization.

    `organization` is None without a membership, and for callers who may not see members.
    """

    user: UserState
    organization: OrganizationAccess | None
    applications: Sequence[ApplicationAccess]
    total: int  # how many applications the organization has
    groups: Sequence[GivingGroup]  # the user's groups, by name; empty for callers who may not see members


def reason_of(user: UserState, application: ApplicationFacts) -> AccessReason:
    """Return the reason why the user may use the application, or may not. The strongest obstacle comes first."""
    if user.is_deactivated:
        return AccessReason.DEACTIVATED
    if user.is_blocked_by_directory:
        return AccessReason.BLOCKED_BY_DIRECTORY
    if user.is_blocked_by_admin:
        return AccessReason.BLOCKED_BY_ADMIN
    match application.policy:
        case AccessPolicy.ANYONE:
            return AccessReason.ANYONE
        case AccessPolicy.MEMBERS:
            return AccessReason.MEMBER if user.is_member else AccessReason.NOT_MEMBER
        case AccessPolicy.ASSIGNED | AccessPolicy.MEMBERS_AND_ASSIGNED:
            if user.is_member and application.policy is AccessPolicy.MEMBERS_AND_ASSIGNED:
                return AccessReason.MEMBER
            if application.is_assigned:
                return AccessReason.ASSIGNED
            if application.is_subscribed:
                return AccessReason.SUBSCRIPTION
            return AccessReason.GROUP if application.groups else AccessReason.NOT_ASSIGNED
