"""The shares in the database connections (security N-11)."""

from collections import Counter
from typing import Final
from uuid import UUID

import pytest
import trio
import trio.testing

from adapters.postgres.engine.pool import Pool
from core.kernel.errors import Limited, StorageDown
from core.kernel.shares import OWN, Share, of_organization, of_stranger, working_for
from tests.engine.test_pool import pool_of
from tests.support.waiting import PATIENCE, eventually

ORGANIZATIONS: Final = [of_organization(UUID(int=number)) for number in range(4)]


class Holders:
    """Tasks that take a connection for a share, and keep it until `ended` is set."""

    def __init__(self, pool: Pool, nursery: trio.Nursery) -> None:
        self.ended = trio.Event()
        self.served: list[Share] = []
        self._pool = pool
        self._nursery = nursery

    async def start(self, share: Share, count: int) -> None:
        for _ in range(count):
            self._nursery.start_soon(self._hold, share)
            await trio.testing.wait_all_tasks_blocked()

    async def _hold(self, share: Share) -> None:
        with working_for(share):
            async with self._pool.connection():
                self.served.append(share)
                await self.ended.wait()


async def test_a_flood_of_one_organization_leaves_two_connections_for_others(blank: str) -> None:
    async with pool_of(blank, 10) as pool, trio.open_nursery() as nursery:
        holders = Holders(pool, nursery)
        for share in ORGANIZATIONS[:2]:
            await holders.start(share, 12)
        await eventually(lambda: Counter(holders.served) == dict(zip(ORGANIZATIONS, (8, 1), strict=False)))
        with working_for(ORGANIZATIONS[2]), trio.fail_after(PATIENCE):
            async with pool.connection() as connection:
                assert await connection.row("select 1") == (1,)
        holders.ended.set()
    assert Counter(holders.served) == dict.fromkeys(ORGANIZATIONS[:2], 12)


async def test_three_organizations_at_once_leave_a_connection_for_another(blank: str) -> None:
    async with pool_of(blank, 10) as pool, trio.open_nursery() as nursery:
        holders = Holders(pool, nursery)
        for count in (1, 11):  # so every task holds a connection before the flood
            for share in ORGANIZATIONS[:3]:
                await holders.start(share, count)
        await eventually(lambda: Counter(holders.served) == dict(zip(ORGANIZATIONS, (4, 3, 2), strict=False)))
        with working_for(ORGANIZATIONS[3]), trio.fail_after(PATIENCE):
            async with pool.connection() as connection:
                assert await connection.row("select 1") == (1,)
        holders.ended.set()
    assert Counter(holders.served) == dict.fromkeys(ORGANIZATIONS[:3], 12)


@pytest.mark.slow
async def test_an_organization_that_holds_its_part_of_the_connections_is_limited(blank: str) -> None:
    async with pool_of(blank, 2, acquire_timeout=0.1) as pool, trio.open_nursery() as nursery:
        holders = Holders(pool, nursery)
        await holders.start(ORGANIZATIONS[0], 1)
        await eventually(lambda: len(holders.served) == 1)
        with working_for(ORGANIZATIONS[0]):
            with pytest.raises(StorageDown):
                await pool.connection().__aenter__()
            nursery.start_soon(use_shortly, pool)  # so the database is not down
            with pytest.raises(Limited):
                await pool.connection().__aenter__()
        holders.ended.set()


async def use_shortly(pool: Pool) -> None:
    with working_for(OWN):
        async with pool.connection():
            await trio.sleep(0.01)


async def test_tasks_that_wait_are_served_in_turn_by_organization(blank: str) -> None:
    async with pool_of(blank, 1) as pool, trio.open_nursery() as nursery:
        holders = Holders(pool, nursery)
        holders.ended.set()
        async with pool.connection():
            await holders.start(ORGANIZATIONS[0], 3)
            await holders.start(of_stranger("192.0.2.1"), 2)
            await holders.start(ORGANIZATIONS[1], 1)
    acme, other, stranger = *ORGANIZATIONS[:2], of_stranger("192.0.2.1")
    assert holders.served == [acme, stranger, other, stranger, acme, acme]
