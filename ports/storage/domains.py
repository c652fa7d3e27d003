"""What is asked of storage about domains."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.domains import Claim


class DomainsRead(Protocol):
    """The domains of organizations, looked at."""

    async def of(self, org_id: UUID) -> Claim | None: ...


class Domains(DomainsRead, Protocol):
    """The same, changed. The organization is locked before any of these."""

    async def put(self, claim: Claim) -> None:
        """In the place of what the organization has claimed before."""
        ...

    async def prove(self, org_id: UUID, now: datetime) -> Claim:
        """The claim, proved. Raises DomainTaken where another organization has proved the same."""
        ...

    async def remove(self, org_id: UUID) -> None: ...
