"""Storage for the organizations' roles."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.kernel.roles import Role, RoleName
from core.tenancy.model.roles import MemberCount, OrganizationRole, RoleHolders


class RolesRead(Protocol):
    """Read access to roles."""

    async def find(self, org_id: UUID, name: str) -> Role | None:
        """Return the role with this name, built in or the organization's, or None. No statement is sent for built-in roles."""

    async def all(self, org_id: UUID) -> Sequence[Role]:
        """Return all roles: the built-in roles first, and the organization's own roles by their names."""

    async def own(self, org_id: UUID) -> Sequence[OrganizationRole]:
        """Return the roles that the organization has defined, ordered by name."""

    async def by_slug(self, org_id: UUID, slug: str) -> OrganizationRole | None: ...

    async def counts(self, org_id: UUID, slug: str | None = None) -> dict[RoleName, MemberCount]:
        """Return how many members every role has, or only this role. Roles without members are left out."""

    async def holders(self, org_id: UUID, role_id: UUID, now: datetime) -> RoleHolders:
        """Return the members, pending invitations, service accounts and groups with this role."""


class Roles(RolesRead, Protocol):
    """Write access to roles. Lock order: the organization before any call."""

    async def add(self, role: OrganizationRole) -> None:
        """Add a role. Raises: RoleSlugTaken."""

    async def save(self, role: OrganizationRole) -> None:
        """Store the name, the description and the capabilities. The role's holders have the capabilities at once."""

    async def givers(self, org_id: UUID, slug: RoleName) -> Sequence[UUID]:
        """Return the members who may have given something because of this role, or with it, ordered by id.

        Such members have the role, alone or by a group, and have invited users, own service accounts or made credentials. Or they have
        invited users to the role, own service accounts with it, or made such accounts' credentials.
        """

    async def replace_of_members(self, org_id: UUID, old: RoleName, new: RoleName, *, promoted_by: UUID | None) -> Sequence[UUID]:
        """Give the members with a role another role, and return them. `promoted_by` is as for `Members.set_role`."""

    async def replace_of_invitations(self, org_id: UUID, old: RoleName, new: RoleName) -> None:
        """Let pending invitations to a role offer another role."""

    async def replace_of_groups(self, org_id: UUID, old: RoleName, new: RoleName, *, mapped_by: UUID | None, now: datetime) -> None:
        """Let groups with a role give another role. Unless `mapped_by` is None, this member gives the role, except to stopped groups."""

    async def remove(self, org_id: UUID, role_id: UUID) -> None:
        """Delete a role without holders. Invitations that have ended keep the role's name."""
