"""The SCIM group: the organization as a group, and its members."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from core.kernel.callers import ScimClient
from core.kernel.errors import NotFound, Unsupported
from core.kernel.roles import Role
from core.kernel.values import parse_id
from core.provisioning.model.filters import FieldValue, ScimField, ScimFilter, comparisons, matches
from core.tenancy.model.organizations import Organization

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


def named_member_ids(filter_: ScimFilter) -> set[UUID]:
    """Return the ids of the members that the filter names. Only these need to be loaded for `matches_group`."""
    values = {test.value for test in comparisons(filter_) if test.field is ScimField.MEMBER}
    return {id_ for value in values if isinstance(value, str) and (id_ := parse_id(value)) is not None}


def matches_group(filter_: ScimFilter, group: ScimGroup, member_ids: Collection[UUID]) -> bool:
    """Return whether the group with these members matches the filter."""
    values: dict[ScimField, FieldValue] = {
        ScimField.ID: str(group.id),
        ScimField.EXTERNAL_ID: group.external_id,
        ScimField.DISPLAY_NAME: group.name,
        ScimField.RESOURCE_TYPE: "Group",
        ScimField.CREATED: group.created_at,
        ScimField.LAST_MODIFIED: group.updated_at,
        ScimField.MEMBER: frozenset(map(str, member_ids)),
    }
    return matches(filter_, values.__getitem__)
