"""Storage for the organizations' groups and roles."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.kernel import roles, values
from core.tenancy.model import groups
from core.tenancy.model.roles import MemberCount, OrganizationRole, RoleHolders


class GroupsRead(Protocol):
    """Read access to groups and their members."""

    async def of_org(self, org_id: UUID) -> list[groups.Group]:
        """Return all groups in the organization, by name."""

    async def page(self, org_id: UUID, page: values.Page, *, search: str | None = None) -> values.PageResult[groups.Group]:
        """Return a page with the groups by name. `search` is a part of the name, as `to_name_key` returns it."""

    async def by_id(self, org_id: UUID, group_id: UUID) -> groups.Group | None: ...

    async def of_user(self, org_id: UUID, user_id: UUID) -> list[groups.Group]:
        """Return the organization's groups that the user is in, by name."""

    async def ids(self, org_id: UUID, group_ids: Collection[UUID]) -> set[UUID]:
        """Return which of these ids are groups in the organization."""

    async def count(self, org_id: UUID) -> int: ...

    async def members(
        self, org_id: UUID, group_id: UUID, page: values.Page, *, search: str | None = None
    ) -> values.PageResult[groups.MemberOfGroup]:
        """Return a page with the members, ordered by id. `search` is a lower-case part of an email address."""

    async def member_ids(self, org_id: UUID, group_id: UUID, after: UUID | None, limit: int) -> list[UUID]:
        """Return the member ids that follow this id, in order."""

    async def present(self, org_id: UUID, group_id: UUID, user_ids: Collection[UUID] | None) -> set[UUID]:
        """Return which of these users are in the group. `user_ids` of None means all members."""

    async def rights_given(self, org_id: UUID, group_id: UUID) -> roles.Rights:
        """Return the rights needed to give a user, or to take away, all that the group's users get at applications and API resources."""

    async def with_members(self, org_id: UUID, user_ids: Collection[UUID]) -> dict[UUID, set[UUID]]:
        """Return which of these users are in the organization's groups, by group id."""

    async def same_names(self, org_id: UUID, name_key: str) -> list[tuple[groups.NameKind, UUID]]:
        """Return what has this name in the organization, as `to_name_key` returns it: kinds and ids."""


class Groups(GroupsRead, Protocol):
    """Write access to groups and their members. Callers lock the organization before calling any method."""

    async def add(self, group: groups.Group) -> None: ...

    async def save(self, group: groups.Group) -> None:
        """Store the name, the description, the external id and when the group last changed."""

    async def remove(self, org_id: UUID, group_id: UUID) -> None:
        """Delete the group with its members and its assignments."""

    async def add_members(self, org_id: UUID, group_id: UUID, user_ids: Collection[UUID], now: datetime) -> set[UUID]:
        """Add these users. The caller has locked the users' accounts. Return who was added: anonymized users are left out.

        `add_members` and `remove_members` run two statements.
        """

    async def remove_members(self, org_id: UUID, group_id: UUID, user_ids: Collection[UUID], now: datetime) -> None: ...

    async def remove_former_members(self, org_id: UUID, user_ids: Collection[UUID], *, keep_in_directory: bool = False) -> None:
        """Remove users who left the organization from its groups.

        With `keep_in_directory`, users stay in groups that a directory created: it deactivated them, and does not add
        them again when it activates them.
        """


class GroupRolesRead(Protocol):
    """Read access to the roles that groups give, and to the group members' rights."""

    async def active(self, org_id: UUID) -> Sequence[groups.GroupMapping]:
        """Return the roles that groups give, except stopped roles. Organizations without such roles read no group."""

    async def authorities(
        self, org_id: UUID, group_ids: Collection[UUID], *, role: roles.RoleName | None = None
    ) -> Sequence[roles.Authority]:
        """Return the roles with rights that members in these groups have, without duplicates: own roles, and roles by groups.

        With `role`, return also the roles of members with this own role. Power over all returned roles is power over
        all members. End users have no such roles.
        """


class GroupRoles(GroupRolesRead, Protocol):
    """Write access to the roles that groups give. Callers lock the organization before calling any method."""

    async def save(self, group: groups.Group) -> None:
        """Store the group's role, with who gave it when, and whether the organization has groups with roles."""

    async def stop(self, org_id: UUID, group_ids: Collection[UUID], now: datetime) -> None:
        """Let these groups give their roles no longer."""

    async def givers(self, org_id: UUID, user_ids: Collection[UUID]) -> Sequence[UUID]:
        """Return which of these users have given something that can end, ordered by id.

        Such users have invited users, own service accounts, or made credentials.
        """

    async def givers_in(self, org_id: UUID, group_ids: Collection[UUID]) -> Sequence[UUID]:
        """Return the users in these groups who have given something that can end, ordered by id."""


class RolesRead(Protocol):
    """Read access to roles."""

    async def find(self, org_id: UUID, name: str) -> roles.Role | None:
        """Return the role with this name, built in or the organization's, or None. No statement is sent for built-in roles."""

    async def all(self, org_id: UUID) -> Sequence[roles.Role]:
        """Return all roles: the built-in roles first, and the organization's own roles by their names."""

    async def own(self, org_id: UUID) -> Sequence[OrganizationRole]:
        """Return the roles that the organization has defined, ordered by name."""

    async def by_slug(self, org_id: UUID, slug: str) -> OrganizationRole | None: ...

    async def counts(self, org_id: UUID, slug: str | None = None) -> dict[roles.RoleName, MemberCount]:
        """Return how many members every role has, or only this role. Roles without members are left out."""

    async def holders(self, org_id: UUID, role_id: UUID, now: datetime) -> RoleHolders:
        """Return the members, pending invitations, service accounts and groups with this role."""


class Roles(RolesRead, Protocol):
    """Write access to roles. Lock order: the organization before any call."""

    async def add(self, role: OrganizationRole) -> None:
        """Add a role. Raises: RoleSlugTaken."""

    async def save(self, role: OrganizationRole) -> None:
        """Store the name, the description and the capabilities. The role's holders have the capabilities at once."""

    async def givers(self, org_id: UUID, slug: roles.RoleName) -> Sequence[UUID]:
        """Return the members who may have given something because of this role, or with it, ordered by id.

        Such members have the role, alone or by a group, and have invited users, own service accounts or made credentials. Or they have
        invited users to the role, own service accounts with it, or made such accounts' credentials.
        """

    async def replace_of_members(
        self, org_id: UUID, old: roles.RoleName, new: roles.RoleName, *, promoted_by: UUID | None
    ) -> Sequence[UUID]:
        """Give the members with a role another role, and return them. `promoted_by` is as for `Members.set_role`."""

    async def replace_of_invitations(self, org_id: UUID, old: roles.RoleName, new: roles.RoleName) -> None:
        """Let pending invitations to a role offer another role."""

    async def replace_of_groups(
        self, org_id: UUID, old: roles.RoleName, new: roles.RoleName, *, mapped_by: UUID | None, now: datetime
    ) -> None:
        """Let groups with a role give another role. Unless `mapped_by` is None, this member gives the role, except to stopped groups."""

    async def remove(self, org_id: UUID, role_id: UUID) -> None:
        """Delete a role without holders. Invitations that have ended keep the role's name."""
