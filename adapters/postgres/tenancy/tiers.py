"""Tiers."""

from typing import Final
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from core.tenancy.model.organizations import Tier

# In the order that `to_tier` expects.
COLUMNS: Final = "t.id, t.name, t.display_name, t.default_max_services, t.default_max_users, t.price_cents"


def to_tier(row: Row) -> Tier:
    return Tier(*row)


class Tiers(Repository):
    """Implements `ports.storage.tenancy.Tiers`."""

    async def all(self) -> list[Tier]:
        return await self._all(to_tier, f"select {COLUMNS} from tiers t order by price_cents, default_max_users, name")

    async def by_id(self, tier_id: UUID) -> Tier | None:
        return await self._one(to_tier, f"select {COLUMNS} from tiers t where id = %(tier_id)s", tier_id=tier_id)

    async def by_name(self, name: str) -> Tier | None:
        return await self._one(to_tier, f"select {COLUMNS} from tiers t where name = %(name)s", name=name)

    async def put(self, tier: Tier) -> None:
        await self._run(
            """
            insert into tiers (id, name, display_name, default_max_services, default_max_users, price_cents)
            values (%(id)s, %(name)s, %(display_name)s, %(default_max_services)s, %(default_max_users)s, %(price_cents)s)
            on conflict (name) do update set
                display_name = excluded.display_name, default_max_services = excluded.default_max_services,
                default_max_users = excluded.default_max_users, price_cents = excluded.price_cents""",
            id=tier.id,
            name=tier.name,
            display_name=tier.display_name,
            default_max_services=tier.default_max_services,
            default_max_users=tier.default_max_users,
            price_cents=tier.price_cents,
        )
