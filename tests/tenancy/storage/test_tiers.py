"""Storage for tiers, and the tiers that the settings define."""

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.kernel.causes import SYSTEM
from core.tenancy import governance
from core.tenancy.model.organizations import Tier
from ports import Ports
from tests.support.builders import FREE, PROFESSIONAL, add_organization, run_concurrently
from tests.support.rows import within

GOLD = Tier(UUID("00000000-0000-4000-8000-000000000003"), "gold", "Gold", 50, 500, 49_00)


pytestmark = pytest.mark.usefixtures("tiers_put_back")


async def all_tiers(storage: Postgres) -> list[Tier]:
    async with storage.reading() as read:
        return await read.tiers.all()


async def test_tiers_are_ordered_by_price_then_by_size(storage: Postgres) -> None:
    small, free_too = replace(GOLD, id=uuid4(), name="small", default_max_users=5), replace(FREE, id=uuid4(), name="also-free")
    async with storage.transaction(by=SYSTEM) as tx:
        for tier in (GOLD, small, free_too):
            await tx.tiers.put(tier)
    assert await all_tiers(storage) == [free_too, FREE, PROFESSIONAL, small, GOLD]


async def test_a_tier_is_found_by_id_and_by_name(storage: Postgres) -> None:
    async with storage.reading() as read:
        assert await read.tiers.by_id(PROFESSIONAL.id) == PROFESSIONAL
        assert await read.tiers.by_name("professional") == PROFESSIONAL
        assert await read.tiers.by_id(uuid4()) is None
        assert await read.tiers.by_name("Professional") is None


async def test_an_existing_tier_is_updated_and_keeps_its_id(storage: Postgres) -> None:
    new_tier = Tier(uuid4(), "free", "Gratis", 1, 2, 3)
    await within(storage, lambda tx: tx.tiers.put(new_tier))
    assert await all_tiers(storage) == [PROFESSIONAL, replace(new_tier, id=FREE.id)]


async def test_a_changed_tier_applies_to_its_organizations_immediately(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    await within(storage, lambda tx: tx.tiers.put(replace(FREE, default_max_users=7, default_max_services=8)))
    async with storage.reading() as read:
        organization = await read.organizations.by_id(org)
    assert organization is not None
    assert (organization.user_limit.value, organization.service_limit.value) == (7, 8)


# The settings' tiers


async def test_save_tiers_adds_and_updates_tiers_and_leaves_others(ports: Ports, storage: Postgres) -> None:
    dearer = replace(PROFESSIONAL, id=uuid4(), price_cents=9_00)
    await governance.save_tiers(ports, [GOLD, dearer])
    expected = [FREE, replace(dearer, id=PROFESSIONAL.id), GOLD]
    assert await all_tiers(storage) == expected
    await governance.save_tiers(ports, [replace(dearer, id=uuid4()), replace(GOLD, id=uuid4())])
    assert await all_tiers(storage) == expected
    await governance.save_tiers(ports, [])
    assert await all_tiers(storage) == expected


async def test_twenty_processes_save_tiers_concurrently(ports: Ports, storage: Postgres) -> None:
    tiers = [replace(GOLD, name=f"tier-{number}", price_cents=number) for number in range(1, 6)]

    async def put(number: int) -> None:
        ours = [replace(tier, id=uuid4()) for tier in tiers]
        await governance.save_tiers(ports, ours if number % 2 else ours[::-1])

    await run_concurrently(20, put)
    assert [tier.name for tier in await all_tiers(storage)] == ["free", "professional", *(tier.name for tier in tiers)]
