"""The record of logins to services: what is stored, and that the totals of each day in UTC are what counting finds."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg.conninfo import make_conninfo

from adapters.postgres.authentication.logins import SHARDS
from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from adapters.postgres.maintenance.housekeeping import SWEEPS
from core.authentication.sessions_rules import Session
from core.kernel.principals import ServiceContext
from core.maintenance.housekeeping_rules import Sweep
from tests.fakes.outside import FakeClock
from tests.support.builders import add_organization, everyone, make_vault, meanwhile, run_sql
from tests.support.rows import DAY, EVE, MICROSECOND, NOW, account, add, in_another_task, session, within
from tests.support.services import add_service, service_context

TODAY = date(2026, 3, 14)


@pytest.fixture
async def shop(pool: Pool) -> ServiceContext:
    return await service_context(pool, await add_service(pool, await add_organization(pool, "acme")))


@pytest.fixture
async def twin(pool: Pool) -> ServiceContext:
    """A service of another organization."""
    return await service_context(pool, await add_service(pool, await add_organization(pool, "twin")))


@pytest.fixture
async def ada(storage: Postgres) -> UUID:
    return (await add(storage, account())).id


async def login(storage: Postgres, user: UUID, service: ServiceContext | None, provider: str = "password", **changes: Any) -> Session:
    begun = session(user, service=service, **{"created_at": NOW, **changes})
    await within(storage, lambda tx: tx.logins.record_success(begun, provider))
    return begun


async def totals(pool: Pool) -> list[tuple[Any, ...]]:
    """The sums over the shards."""
    return await run_sql(
        pool, "select org_id, service_id, day, provider, sum(total)::int from login_totals group by 1, 2, 3, 4 order by 3, 4, 1"
    )


async def test_a_login_to_a_service_is_stored_with_it_and_its_organization(
    storage: Postgres, pool: Pool, shop: ServiceContext, ada: UUID
) -> None:
    begun = await login(storage, ada, shop, "codehost")
    query = "select user_id, session_id, org_id, service_id, provider, success, address, agent, created_at from login_events"
    assert await run_sql(pool, query) == [
        (ada, begun.id, shop.org_id, shop.id, "codehost", True, begun.address, begun.agent, begun.created_at)
    ]
    assert await totals(pool) == [(shop.org_id, shop.id, TODAY, "codehost", 1)]


async def test_a_login_to_no_service_and_one_that_failed_are_not_counted(storage: Postgres, pool: Pool, ada: UUID) -> None:
    await login(storage, ada, None)
    async with storage.autocommit() as at_once:
        await at_once.logins.record_failure(ada, "password", NOW, None, None)
    assert await run_sql(pool, "select count(*), count(org_id), count(service_id) from login_events") == [(2, 0, 0)]
    assert await totals(pool) == []


async def test_each_service_day_and_provider_has_its_own_total(
    storage: Postgres, pool: Pool, shop: ServiceContext, twin: ServiceContext, ada: UUID
) -> None:
    other = await service_context(pool, await add_service(pool, shop.org_id, "other"))
    for service, provider, at in (
        (shop, "password", NOW),
        (shop, "password", NOW),
        (shop, "saml", NOW),
        (shop, "password", NOW + timedelta(days=1)),
        (other, "password", NOW),
        (twin, "password", NOW),
    ):
        await login(storage, ada, service, provider, created_at=at)
    counted = await run_sql(
        pool,
        "select org_id, service_id, (created_at at time zone 'UTC')::date, provider, count(*)::int from login_events group by 1, 2, 3, 4",
    )
    assert sorted(await totals(pool)) == sorted(counted)
    assert len(counted) == 5


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12", "America/New_York", "UTC"])
async def test_a_day_is_one_in_utc_whatever_the_time_zone_of_the_connection(
    conninfo: str, pool: Pool, clock: FakeClock, shop: ServiceContext, ada: UUID, zone: str
) -> None:
    elsewhere = Pool(make_conninfo(conninfo, options=f"-c timezone={zone}"), size=1)
    there = Postgres(elsewhere, make_vault(), clock)
    midnight = datetime(2026, 3, 15, tzinfo=UTC)
    try:
        assert await run_sql(elsewhere, "show timezone") == [(zone,)]
        for at, provider in ((midnight - MICROSECOND, "a"), (midnight, "b"), (midnight + timedelta(days=1) - MICROSECOND, "c")):
            await login(there, ada, shop, provider, created_at=at)
    finally:
        await elsewhere.aclose()
    assert [row[2:] for row in await totals(pool)] == [(TODAY, "a", 1), (date(2026, 3, 15), "b", 1), (date(2026, 3, 15), "c", 1)]


@pytest.mark.slow
async def test_a_total_is_spread_over_shards_and_loses_nothing_at_once(
    storage: Postgres, pool: Pool, shop: ServiceContext, ada: UUID
) -> None:
    begun = session(ada, service=shop, created_at=NOW)

    async def sign_in(_: int) -> None:
        for _ in range(5):
            await within(storage, lambda tx: tx.logins.record_success(replace(begun), "password"))

    await everyone(20, sign_in)
    assert await totals(pool) == [(shop.org_id, shop.id, TODAY, "password", 100)]
    shards = {shard for (shard,) in await run_sql(pool, "select shard from login_totals")}
    assert 1 < len(shards) <= SHARDS
    assert shards <= set(range(SHARDS))


# What becomes of the totals


async def count(pool: Pool, service: ServiceContext, day: date, *shards: int) -> None:
    """Totals of a day, one for each of these shards, each as large as the number of its shard and one more."""
    for shard in shards:
        await run_sql(
            pool,
            "insert into login_totals (org_id, service_id, day, provider, shard, total) values (%s, %s, %s, 'password', %s, %s)",
            *(service.org_id, service.id, day, shard, shard + 1),
        )


async def shards(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(pool, "select service_id, day, shard, total from login_totals order by day, service_id, shard")


async def put_together(storage: Postgres, limit: int = 100) -> int:
    return await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.LOGIN_TOTALS, NOW, limit))


async def test_the_totals_of_days_before_are_put_together_and_those_of_the_day_are_not(
    storage: Postgres, pool: Pool, shop: ServiceContext, twin: ServiceContext
) -> None:
    await count(pool, shop, TODAY - DAY, 0, 3, 7)
    await count(pool, twin, TODAY - DAY, 5)
    await count(pool, shop, TODAY - 400 * DAY, 1, 2)
    await count(pool, shop, TODAY, 0, 1)
    before = await totals(pool)
    assert await put_together(storage) == 5
    assert await totals(pool) == before
    assert await shards(pool) == [
        (shop.id, TODAY - 400 * DAY, 0, 5),
        *sorted([(shop.id, TODAY - DAY, 0, 13), (twin.id, TODAY - DAY, 0, 6)]),
        (shop.id, TODAY, 0, 1),
        (shop.id, TODAY, 1, 2),
    ]
    assert await put_together(storage) == 0


async def test_totals_are_put_together_in_batches_the_oldest_first(storage: Postgres, pool: Pool, shop: ServiceContext) -> None:
    for age in (1, 3, 2):
        await count(pool, shop, TODAY - age * DAY, 1, 2, 3)
    assert [await put_together(storage, 4) for _ in range(4)] == [4, 4, 1, 0]
    assert await shards(pool) == [(shop.id, TODAY - age * DAY, 0, 9) for age in (3, 2, 1)]


async def test_totals_that_somebody_counts_in_or_whose_service_is_being_deleted_are_left_for_later(
    storage: Postgres, pool: Pool, shop: ServiceContext, twin: ServiceContext
) -> None:
    await count(pool, shop, TODAY - DAY, 1, 2)
    await count(pool, twin, TODAY - DAY, 1, 2)
    before = await shards(pool)
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("update login_totals set total = total where service_id = %s", (shop.id,))
        await connection.execute("select 1 from services where id = %s for update", (twin.id,))
        assert await in_another_task(lambda: put_together(storage)) == 0
    assert await shards(pool) == before
    await run_sql(pool, "delete from services where id = %s", twin.id)
    assert await put_together(storage) == 2


async def test_a_person_who_goes_is_counted_out_of_every_service_day_and_provider(
    storage: Postgres, pool: Pool, shop: ServiceContext, twin: ServiceContext, ada: UUID
) -> None:
    eve = (await add(storage, account(EVE))).id
    for user in (ada, eve, ada):
        for service, provider, at in ((shop, "password", NOW), (shop, "saml", NOW - DAY), (twin, "password", NOW)):
            await login(storage, user, service, provider, created_at=at)
    await login(storage, ada, None)
    await within(storage, lambda tx: tx.logins.remove(ada, shop.id))
    assert {row[1:4]: row[4] for row in await totals(pool)} == {
        (shop.id, TODAY, "password"): 1,
        (shop.id, TODAY - DAY, "saml"): 1,
        (twin.id, TODAY, "password"): 3,
    }
    await within(storage, lambda tx: tx.logins.remove(ada))
    assert [row[4] for row in await totals(pool)] == [1, 1, 1]
    assert await run_sql(pool, "select distinct user_id from login_events") == [(eve,)]


async def test_nobody_is_lost_who_is_counted_out_while_totals_are_put_together(
    storage: Postgres, pool: Pool, shop: ServiceContext, ada: UUID
) -> None:
    await login(storage, ada, shop, created_at=NOW - DAY)
    await run_sql(pool, "update login_totals set shard = 1")
    await count(pool, shop, TODAY - DAY, 2, 3)
    housekeeper = (SWEEPS[Sweep.LOGIN_TOTALS], {"before": NOW, "limit": 100})
    await meanwhile(pool, [housekeeper], lambda: within(storage, lambda tx: tx.logins.remove(ada)))
    assert await shards(pool) == [(shop.id, TODAY - DAY, 0, 3 + 4)]
