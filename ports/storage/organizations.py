"""What is asked of storage about organizations."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.access import OrganizationStatus
from core.governance import ListedOrganization
from core.organizations import Membership, Organization
from core.values import Listed
from ports.storage.soon import Soon


class OrganizationsRead(Protocol):
    """Organizations, looked at."""

    async def by_id(self, org_id: UUID) -> Organization | None: ...
    async def status(self, slug: str) -> OrganizationStatus | None: ...
    async def id_of(self, slug: str) -> UUID | None: ...

    async def of_person(self, user_id: UUID) -> list[tuple[Organization, Membership]]:
        """Those that the person is a member of, whatever their status, by slug."""
        ...

    async def governed(
        self, status: OrganizationStatus | None, tier_id: UUID | None, limit: int, offset: int
    ) -> Listed[ListedOrganization]:
        """Those with this status and tier, the newest first, with their owners."""
        ...


class Organizations(OrganizationsRead, Protocol):
    """Organizations, changed."""

    async def lock(self, org_id: UUID) -> Organization | None:
        """The organization, locked until the transaction ends: the first lock of every transaction that changes something of it."""
        ...

    def lock_soon(self, org_id: UUID) -> Soon[Organization]:
        """The same, before the next statement."""
        ...

    async def lock_of_invitation(self, token_hash: bytes) -> Organization | None:
        """The organization that a token invites to, locked; whether the invitation is still good is another question."""
        ...

    async def add(self, organization: Organization) -> None:
        """Raises SlugTaken."""
        ...

    async def save(self, organization: Organization) -> None:
        """Write all that can change of a locked organization; `member_count` is not among it."""
        ...

    async def delete(self, org_id: UUID, now: datetime) -> None:
        """Remove a locked organization and what hangs on it; a tombstone tells Sweep.DELETED_ORGANIZATIONS to remove the records of it."""
        ...

    async def purge(self, org_id: UUID, limit: int) -> None:
        """Remove at most `limit` records (who used its services, audit entries, events, logins, totals) of a deleted organization."""
        ...
