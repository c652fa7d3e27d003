"""Service login records, and that the daily totals in UTC match them."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg.conninfo import make_conninfo

from adapters.postgres.authentication.logins import SHARDS
from adapters.postgres.engine.pool import Pool
from adapters.postgres.maintenance.housekeeping import SWEEPS
from adapters.postgres.storage import Postgres
from core.accounts.model.devices import Location, LoginRisk
from core.authentication.model.sessions import Session
from core.kernel.callers import ServiceContext
from core.kernel.values import digest
from core.maintenance.model.housekeeping import Sweep
from tests.fakes.outside import FakeClock
from tests.support.builders import add_organization, make_device, make_vault, one_factor, run_concurrently, run_during, run_sql
from tests.support.rows import (
    DAY,
    EVE,
    MICROSECOND,
    NOW,
    SECOND,
    account,
    add,
    begin,
    failed_login,
    in_another_task,
    session,
    within,
)
from tests.support.services import add_service, service_context

TODAY = date(2026, 3, 14)


@pytest.fixture
async def shop(pool: Pool) -> ServiceContext:
    return await service_context(pool, await add_service(pool, await add_organization(pool, "acme")))


@pytest.fixture
async def other_tenant(pool: Pool) -> ServiceContext:
    """Return another organization's service."""
    return await service_context(pool, await add_service(pool, await add_organization(pool, "twin")))


@pytest.fixture
async def user(storage: Postgres) -> UUID:
    return (await add(storage, account())).id


async def login(storage: Postgres, user: UUID, service: ServiceContext | None, provider: str = "password", **changes: Any) -> Session:
    new_session = session(user, service=service, **{"created_at": NOW, **changes})
    await within(storage, lambda tx: tx.logins.record_success(new_session, provider))
    return new_session


async def totals(pool: Pool) -> list[tuple[Any, ...]]:
    """Return the totals summed over their shards."""
    return await run_sql(
        pool, "select org_id, service_id, day, provider, sum(total)::int from login_totals group by 1, 2, 3, 4 order by 3, 4, 1"
    )


async def test_a_login_to_a_service_is_stored_with_the_service_and_organization(
    storage: Postgres, pool: Pool, shop: ServiceContext, user: UUID
) -> None:
    new_session = await login(storage, user, shop, "codehost")
    query = "select user_id, session_id, org_id, service_id, provider, success, address, agent, created_at from login_events"
    assert await run_sql(pool, query) == [
        (user, new_session.id, shop.org_id, shop.id, "codehost", True, new_session.address, new_session.agent, new_session.created_at)
    ]
    assert await totals(pool) == [(shop.org_id, shop.id, TODAY, "codehost", 1)]


@pytest.mark.parametrize("in_browser", [False, True])
async def test_the_session_of_a_login_is_stored_with_its_record(
    storage: Postgres, pool: Pool, shop: ServiceContext, user: UUID, in_browser: bool
) -> None:
    service = None if in_browser else shop
    new_session = session(user, service=service, proofs=one_factor(NOW, "codehost"), created_at=NOW)
    device = replace(make_device(user, NOW), location=Location("Berlin", "DE"), risk=LoginRisk(40, ("new_device",)))
    secret = digest("secret")
    if in_browser:
        await within(storage, lambda tx: tx.logins.begin_browser_session(new_session, secret, device))
    else:
        await within(storage, lambda tx: tx.logins.begin_session(new_session, secret, device))
    org_id, service_id = (shop.org_id, shop.id) if service else (None, None)
    columns = "user_id, org_id, service_id, address, agent, created_at"
    row = (user, org_id, service_id, new_session.address, new_session.agent, NOW)
    assert await run_sql(pool, f"select id, browser_hash, {columns} from sessions") == [  # noqa: S608
        (new_session.id, secret if in_browser else None, *row)
    ]
    query = f"select session_id, {columns}, provider, success, risk_score, risk_factors, city, country from login_events"  # noqa: S608
    assert await run_sql(pool, query) == [(new_session.id, *row, "codehost", True, 40, ["new_device"], "Berlin", "DE")]
    tokens = await run_sql(pool, "select token_hash, session_id, generation, created_at from refresh_tokens")
    assert tokens == ([] if in_browser else [(secret, new_session.id, 1, NOW)])
    assert await totals(pool) == ([] if in_browser else [(shop.org_id, shop.id, TODAY, "codehost", 1)])


async def test_logins_without_a_service_and_failed_logins_are_not_counted(storage: Postgres, pool: Pool, user: UUID) -> None:
    await login(storage, user, None)
    async with storage.autocommit() as at_once:
        await at_once.failed_logins.record_failure(failed_login(user))
    assert await run_sql(pool, "select count(*), count(org_id), count(service_id) from login_events") == [(2, 0, 0)]
    assert await totals(pool) == []


async def test_each_service_day_and_provider_has_a_total(
    storage: Postgres, pool: Pool, shop: ServiceContext, other_tenant: ServiceContext, user: UUID
) -> None:
    other = await service_context(pool, await add_service(pool, shop.org_id, "other"))
    for service, provider, at in (
        (shop, "password", NOW),
        (shop, "password", NOW),
        (shop, "saml", NOW),
        (shop, "password", NOW + timedelta(days=1)),
        (other, "password", NOW),
        (other_tenant, "password", NOW),
    ):
        await login(storage, user, service, provider, created_at=at)
    rows = await run_sql(
        pool,
        "select org_id, service_id, (created_at at time zone 'UTC')::date, provider, count(*)::int from login_events group by 1, 2, 3, 4",
    )
    assert sorted(await totals(pool)) == sorted(rows)
    assert len(rows) == 5


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12", "America/New_York", "UTC"])
async def test_days_are_in_utc_for_every_time_zone_of_the_connection(
    conninfo: str, pool: Pool, clock: FakeClock, shop: ServiceContext, user: UUID, zone: str
) -> None:
    zone_pool = Pool(make_conninfo(conninfo, options=f"-c timezone={zone}"), size=1)
    zone_storage = Postgres(zone_pool, make_vault(), clock)
    midnight = datetime(2026, 3, 15, tzinfo=UTC)
    try:
        assert await run_sql(zone_pool, "show timezone") == [(zone,)]
        for at, provider in ((midnight - MICROSECOND, "a"), (midnight, "b"), (midnight + timedelta(days=1) - MICROSECOND, "c")):
            await login(zone_storage, user, shop, provider, created_at=at)
    finally:
        await zone_pool.aclose()
    assert [row[2:] for row in await totals(pool)] == [(TODAY, "a", 1), (date(2026, 3, 15), "b", 1), (date(2026, 3, 15), "c", 1)]


@pytest.mark.slow
async def test_concurrent_logins_are_all_counted_over_the_shards(storage: Postgres, pool: Pool, shop: ServiceContext, user: UUID) -> None:
    new_session = session(user, service=shop, created_at=NOW)

    async def sign_in(_: int) -> None:
        for _ in range(5):
            await within(storage, lambda tx: tx.logins.record_success(replace(new_session), "password"))

    await run_concurrently(20, sign_in)
    assert await totals(pool) == [(shop.org_id, shop.id, TODAY, "password", 100)]
    shards = {shard for (shard,) in await run_sql(pool, "select shard from login_totals")}
    assert 1 < len(shards) <= SHARDS
    assert shards <= set(range(SHARDS))


# Merging and subtraction


async def count(pool: Pool, service: ServiceContext, day: date, *shards: int) -> None:
    """Insert a day's totals: shard number n has the total n + 1."""
    for shard in shards:
        await run_sql(
            pool,
            "insert into login_totals (org_id, service_id, day, provider, shard, total) values (%s, %s, %s, 'password', %s, %s)",
            *(service.org_id, service.id, day, shard, shard + 1),
        )


async def shards(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(pool, "select service_id, day, shard, total from login_totals order by day, service_id, shard")


async def merge_shards(storage: Postgres, limit: int = 100) -> int:
    return await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.LOGIN_TOTALS, NOW, limit))


async def test_totals_of_earlier_days_are_merged_and_those_of_today_are_not(
    storage: Postgres, pool: Pool, shop: ServiceContext, other_tenant: ServiceContext
) -> None:
    await count(pool, shop, TODAY - DAY, 0, 3, 7)
    await count(pool, other_tenant, TODAY - DAY, 5)
    await count(pool, shop, TODAY - 400 * DAY, 1, 2)
    await count(pool, shop, TODAY, 0, 1)
    before = await totals(pool)
    assert await merge_shards(storage) == 5
    assert await totals(pool) == before
    assert await shards(pool) == [
        (shop.id, TODAY - 400 * DAY, 0, 5),
        *sorted([(shop.id, TODAY - DAY, 0, 13), (other_tenant.id, TODAY - DAY, 0, 6)]),
        (shop.id, TODAY, 0, 1),
        (shop.id, TODAY, 1, 2),
    ]
    assert await merge_shards(storage) == 0


async def test_totals_are_merged_in_batches_oldest_first(storage: Postgres, pool: Pool, shop: ServiceContext) -> None:
    for age in (1, 3, 2):
        await count(pool, shop, TODAY - age * DAY, 1, 2, 3)
    assert [await merge_shards(storage, 4) for _ in range(4)] == [4, 4, 1, 0]
    assert await shards(pool) == [(shop.id, TODAY - age * DAY, 0, 9) for age in (3, 2, 1)]


async def test_locked_totals_and_those_of_a_service_being_deleted_are_skipped(
    storage: Postgres, pool: Pool, shop: ServiceContext, other_tenant: ServiceContext
) -> None:
    await count(pool, shop, TODAY - DAY, 1, 2)
    await count(pool, other_tenant, TODAY - DAY, 1, 2)
    before = await shards(pool)
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("update login_totals set total = total where service_id = %s", (shop.id,))
        await connection.execute("select 1 from services where id = %s for update", (other_tenant.id,))
        assert await in_another_task(lambda: merge_shards(storage)) == 0
    assert await shards(pool) == before
    await run_sql(pool, "delete from services where id = %s", other_tenant.id)
    assert await merge_shards(storage) == 2


async def test_the_removal_of_a_user_subtracts_from_every_total(
    storage: Postgres, pool: Pool, shop: ServiceContext, other_tenant: ServiceContext, user: UUID
) -> None:
    eve = (await add(storage, account(EVE))).id
    for target in (user, eve, user):
        for service, provider, at in ((shop, "password", NOW), (shop, "saml", NOW - DAY), (other_tenant, "password", NOW)):
            await login(storage, target, service, provider, created_at=at)
    await login(storage, user, None)
    await within(storage, lambda tx: tx.logins.remove(user, shop.id))
    assert {row[1:4]: row[4] for row in await totals(pool)} == {
        (shop.id, TODAY, "password"): 1,
        (shop.id, TODAY - DAY, "saml"): 1,
        (other_tenant.id, TODAY, "password"): 3,
    }
    await within(storage, lambda tx: tx.logins.remove(user))
    assert [row[4] for row in await totals(pool)] == [1, 1, 1]
    assert await run_sql(pool, "select distinct user_id from login_events") == [(eve,)]


async def test_a_subtraction_during_a_merge_is_not_lost(storage: Postgres, pool: Pool, shop: ServiceContext, user: UUID) -> None:
    await login(storage, user, shop, created_at=NOW - DAY)
    await run_sql(pool, "update login_totals set shard = 1")
    await count(pool, shop, TODAY - DAY, 2, 3)
    housekeeper = (SWEEPS[Sweep.LOGIN_TOTALS], {"before": NOW, "limit": 100})
    await run_during(pool, [housekeeper], lambda: within(storage, lambda tx: tx.logins.remove(user)))
    assert await shards(pool) == [(shop.id, TODAY - DAY, 0, 3 + 4)]


# Login records


async def test_every_field_of_a_login_is_stored(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    new_session = await begin(storage, user.id, "token")
    await within(storage, lambda tx: tx.logins.record_success(new_session, "websuite"))
    async with storage.autocommit() as count:
        failure = failed_login(user.id, at=NOW + SECOND, address="2001:db8::1")
        await count.failed_logins.record_failure(failure)
    query = "select user_id, session_id, provider, success, address, agent, created_at, org_id from login_events order by created_at"
    assert await run_sql(pool, query) == [
        (user.id, new_session.id, "websuite", True, new_session.address, new_session.agent, new_session.created_at, None),
        (user.id, None, "password", False, "2001:db8::1", None, NOW + SECOND, None),
    ]


async def test_recording_a_failed_login_leaves_the_connection_synchronous(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    await run_sql(pool, "set synchronous_commit = on")  # it is off in the tests
    try:
        async with storage.autocommit() as count:
            await count.failed_logins.record_failure(failed_login(user.id))
        assert await run_sql(pool, "show synchronous_commit") == [("on",)]
    finally:
        await run_sql(pool, "reset synchronous_commit")
