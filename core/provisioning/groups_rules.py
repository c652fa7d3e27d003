"""The SCIM group: the organization as a group, and its members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from core.kernel.errors import NotFound, Unsupported
from core.kernel.principals import Role

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import ScimClient
    from core.tenancy.organizations_rules import Organization


BATCH_SIZE: Final = 2000  # members per statement


class GroupNotFound(NotFound):
    """This group does not exist. The groups are the organization of the token, and its applications that only assigned users may use."""


class GroupCreationUnsupported(Unsupported):
    """Groups cannot be created by SCIM. The groups are the organization of the token and its applications."""


@dataclass(frozen=True, slots=True)
class ScimGroup:
    """The organization, or one of its services, as a group. Times are UTC."""

    id: UUID
    name: str
    external_id: str | None  # from the directory
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class GroupMember:
    """The group state of a user that the directory knows."""

    user_id: UUID
    role: Role | None  # None: not in the group
    is_blocked: bool  # by the directory, and therefore not a member until it activates the user
    is_platform_owner: bool
    is_provisioned: bool  # by this directory

    @property
    def is_protected(self) -> bool:
        """Return whether SCIM cannot remove this user from the group (security C-3)."""
        return self.role is Role.OWNER or self.is_platform_owner


def to_group(organization: Organization, external_id: str | None) -> ScimGroup:
    """Return the organization as a group."""
    updated_at = max(organization.updated_at, organization.members_changed_at or organization.updated_at)
    return ScimGroup(organization.id, organization.name, external_id, organization.created_at, updated_at)


def require_own_group(caller: ScimClient, group_id: UUID) -> None:
    """Check that the id is that of the caller's organization. Raises: GroupNotFound."""
    if group_id != caller.org_id:
        raise GroupNotFound
