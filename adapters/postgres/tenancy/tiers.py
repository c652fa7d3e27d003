"""Tiers."""

from typing import Final
from uuid import UUID

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.tenancy.model.organizations import Tier

TIER: Final = Record(Tier, "t")
PUT: Final = f"{TIER.insert('tiers')} on conflict (name) do update set {TIER.overwrites(without=('id', 'name'))}"


class Tiers(Repository):
    """Implements `ports.storage.tenancy.organizations.Tiers`."""

    async def all(self) -> list[Tier]:
        return await self._all(TIER.read, f"select {TIER.columns} from tiers t order by price_cents, default_max_users, name")

    async def by_id(self, tier_id: UUID) -> Tier | None:
        return await self._one(TIER.read, f"select {TIER.columns} from tiers t where id = %(tier_id)s", tier_id=tier_id)

    async def by_name(self, name: str) -> Tier | None:
        return await self._one(TIER.read, f"select {TIER.columns} from tiers t where name = %(name)s", name=name)

    async def put(self, tier: Tier) -> None:
        await self._run(PUT, **TIER.values(tier))
