"""Entities, refusals and pure rules of `core.provisioning.groups`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from core.kernel.errors import NotFound, Unsupported

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import Role, ScimClient
    from core.tenancy.organizations_rules import Organization


BATCH: Final = 2000  # people, at once


class GroupNotFound(NotFound):
    """There is no such group. There is one, which is the organization of the token."""


class GroupCreationUnsupported(Unsupported):
    """Groups are not made here: an organization is one, and is made through the organizations interface."""


@dataclass(frozen=True, slots=True)
class ScimGroup:
    """The organization as a group. Times are UTC."""

    id: UUID
    name: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class GroupMember:
    """Of somebody whom the directory knows: whether they are in the group, and may be moved."""

    user_id: UUID
    role: Role | None  # None: not in the group
    is_deactivated: bool  # so that it is put away what they are
    is_platform_owner: bool


def to_group(organization: Organization) -> ScimGroup:
    updated_at = max(organization.updated_at, organization.members_changed_at or organization.updated_at)
    return ScimGroup(organization.id, organization.name, organization.created_at, updated_at)


def check(caller: ScimClient, group_id: UUID) -> None:
    """Raises GroupNotFound for every other group, before anything is known of what shall become of it."""
    if group_id != caller.org_id:
        raise GroupNotFound
