"""What is asked of storage about memberships."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.access import Role
from core.members import ListedMember
from core.organizations import Membership
from core.values import Page


class MembersRead(Protocol):
    """Memberships, looked at."""

    async def page(self, org_id: UUID, role: Role | None, page: Page) -> list[ListedMember]:
        """Those of the organization with this role, the oldest first."""
        ...

    async def count(self, org_id: UUID, role: Role) -> int:
        """How many have this role. How many there are altogether is Organization.member_count."""
        ...

    async def exists(self, org_id: UUID, user_id: UUID) -> bool:
        """Whether this person is a member of the organization, or one whose membership its directory has put away."""
        ...


class Members(MembersRead, Protocol):
    """Memberships, changed. The organization is locked before any of these, but for `lock` where only sessions follow."""

    async def lock(self, org_id: UUID, user_id: UUID) -> Membership | None:
        """The membership, locked until the transaction ends."""
        ...

    async def put_away(self, org_id: UUID, user_id: UUID) -> Membership | None:
        """The membership that the organization's directory has put away, and would give back. Nobody changes it but who holds the
        organization."""
        ...

    async def add(self, membership: Membership) -> None:
        """Also counts it; the directory forgets whoever left with this person's address, unless it has deactivated them. Raises
        AlreadyAMember."""
        ...

    async def set_role(self, org_id: UUID, user_id: UUID, role: Role) -> None:
        """Of the membership, or of the one that is put away."""
        ...

    async def remove(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """Also counts it out. Nothing gives one back that was put away, and the directory knows the person no more, unless it has
        deactivated them: then it can say that it has not, and nothing else."""
        ...


class Confirmations(Protocol):
    async def confirm(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """The member took part in the organization; the first time counts (the terms of security.md)."""
        ...
