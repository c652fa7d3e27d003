"""What is asked of storage about tiers."""

from typing import Protocol
from uuid import UUID

from core.organizations import Tier


class TiersRead(Protocol):
    async def all(self) -> list[Tier]:
        """Every tier, the smallest first."""
        ...

    async def by_id(self, tier_id: UUID) -> Tier | None: ...
    async def by_name(self, name: str) -> Tier | None: ...


class Tiers(TiersRead, Protocol):
    async def put(self, tier: Tier) -> None:
        """Add the tier, or give the one of this name these limits and this price; its id stays."""
        ...
