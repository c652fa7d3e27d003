"""Storage of the groups of organizations."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.kernel.roles import Authority, Rights, RoleName
from core.kernel.values import Page, PageResult
from core.tenancy.model.group_roles import GroupMapping
from core.tenancy.model.groups import Group, MemberOfGroup, NameKind


class GroupsRead(Protocol):
    """Read access to groups and their members."""

    async def of_org(self, org_id: UUID) -> list[Group]:
        """Return all groups of the organization, by name."""

    async def page(self, org_id: UUID, page: Page, *, search: str | None = None) -> PageResult[Group]:
        """Return a page of the groups by name. `search` is a part of the name, as `to_name_key` returns it."""

    async def by_id(self, org_id: UUID, group_id: UUID) -> Group | None: ...

    async def of_user(self, org_id: UUID, user_id: UUID) -> list[Group]:
        """Return the groups of the organization that the user is in, by name."""

    async def ids(self, org_id: UUID, group_ids: Collection[UUID]) -> set[UUID]:
        """Return those of these ids that are groups of the organization."""

    async def count(self, org_id: UUID) -> int: ...

    async def members(self, org_id: UUID, group_id: UUID, page: Page, *, search: str | None = None) -> PageResult[MemberOfGroup]:
        """Return a page of the members, ordered by id. `search` is a part of an email address in lower case."""

    async def member_ids(self, org_id: UUID, group_id: UUID, after: UUID | None, limit: int) -> list[UUID]:
        """Return the ids of the next members after this one, in order."""

    async def present(self, org_id: UUID, group_id: UUID, user_ids: Collection[UUID] | None) -> set[UUID]:
        """Return those of these users that are in the group. None means all members."""

    async def rights_given(self, org_id: UUID, group_id: UUID) -> Rights:
        """Return the rights to give one user, or to take from them, all that applications and API resources give the users of the group."""

    async def with_members(self, org_id: UUID, user_ids: Collection[UUID]) -> dict[UUID, set[UUID]]:
        """Return those of these users that are in groups of the organization, by the id of the group."""

    async def same_names(self, org_id: UUID, name_key: str) -> list[tuple[NameKind, UUID]]:
        """Return the things of the organization with this name, as `to_name_key` returns it: kinds and ids."""


class Groups(GroupsRead, Protocol):
    """Write access to groups and their members. Callers lock the organization before calling any method."""

    async def add(self, group: Group) -> None: ...

    async def save(self, group: Group) -> None:
        """Store the name, the description, the external id and the time of the last change."""

    async def remove(self, org_id: UUID, group_id: UUID) -> None:
        """Delete the group with its members and its assignments."""

    async def add_members(self, org_id: UUID, group_id: UUID, user_ids: Collection[UUID], now: datetime) -> set[UUID]:
        """Add these users. The caller has locked their accounts. Return those that were added: anonymized users are left out.

        This and `remove_members` are two statements.
        """

    async def remove_members(self, org_id: UUID, group_id: UUID, user_ids: Collection[UUID], now: datetime) -> None: ...

    async def remove_former_members(self, org_id: UUID, user_ids: Collection[UUID], *, keep_in_directory: bool = False) -> None:
        """Remove users who left the organization from its groups.

        With `keep_in_directory`, users stay in groups that a directory created: it deactivated them, and does not add
        them again when it activates them.
        """


class GroupRoles(Protocol):
    """The roles that groups give. Callers lock the organization before calling any method."""

    async def save(self, group: Group) -> None:
        """Store the role of the group, with who gave it when, and whether the organization has groups with roles."""

    async def active(self, org_id: UUID) -> Sequence[GroupMapping]:
        """Return the roles that groups give, except stopped ones. Organizations without any read no group."""

    async def stop(self, org_id: UUID, group_ids: Collection[UUID], now: datetime) -> None:
        """Let these groups give their roles no longer."""

    async def givers(self, org_id: UUID, user_ids: Collection[UUID]) -> Sequence[UUID]:
        """Return those of these users who have given something that can end, ordered by id.

        They have invited users, own service accounts, or made credentials.
        """

    async def givers_in(self, org_id: UUID, group_ids: Collection[UUID]) -> Sequence[UUID]:
        """Return the users in these groups who have given something that can end, ordered by id."""

    async def authorities(self, org_id: UUID, group_ids: Collection[UUID], *, role: RoleName | None = None) -> Sequence[Authority]:
        """Return the roles with rights of the organization's members in these groups, each of them once: own roles, and roles by groups.

        With `role`, return also those of the members with this own role. Power over all of these is power over all
        members. End users have none.
        """
