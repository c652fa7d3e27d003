"""Statements about logins: totals, ranges, deleted services, order, and isolation."""

from datetime import date
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications.model.analytics import DailyLogins, DateRange, ProviderLogins, RecentLogin, ServiceLogins, ServiceUsage
from core.applications.model.users import EnrollmentOrigin
from core.kernel.callers import ServiceContext
from core.kernel.causes import SYSTEM
from core.kernel.connections import CODEHOST, OFFICESUITE, WEBSUITE
from tests.support.builders import add_organization, run_sql
from tests.support.rows import ADA, DAY, EVE, MICROSECOND, NOW, SECOND, account, add, session, within
from tests.support.services import add_service, enroll_user, service_context

TODAY = date(2026, 3, 14)
EVER = DateRange(date.min, date.max)


@pytest.fixture
async def shop(pool: Pool) -> ServiceContext:
    return await service_context(pool, await add_service(pool, await add_organization(pool, "acme")))


@pytest.fixture
async def other(pool: Pool, shop: ServiceContext) -> ServiceContext:
    """Another service in the same organization."""
    return await service_context(pool, await add_service(pool, shop.org_id, "other"))


@pytest.fixture
async def foreign(pool: Pool) -> ServiceContext:
    """A service in another organization."""
    return await service_context(pool, await add_service(pool, await add_organization(pool, "foreign")))


@pytest.fixture
async def user(storage: Postgres) -> UUID:
    return (await add(storage, account(ADA))).id


async def count(pool: Pool, service: ServiceContext, day: date = TODAY, provider: str = "password", *shards: int) -> None:
    """Add a day's totals, with a row per shard."""
    for shard, total in enumerate(shards or (1,)):
        await run_sql(
            pool,
            "insert into login_totals (org_id, service_id, day, provider, shard, total) values (%s, %s, %s, %s, %s, %s)",
            *(service.org_id, service.id, day, provider, shard, total),
        )


async def login(storage: Postgres, user: UUID, service: ServiceContext | None, **changes: Any) -> None:
    new_session = session(user, service=service, **{"created_at": NOW, **changes})
    await within(storage, lambda tx: tx.logins.record_success(new_session, "password"))


async def test_totals_are_summed_by_day_over_shards_services_and_providers(
    storage: Postgres, pool: Pool, shop: ServiceContext, other: ServiceContext, foreign: ServiceContext
) -> None:
    await count(pool, shop, TODAY, "password", 1, 2, 3)
    await count(pool, shop, TODAY, "codehost", 10)
    await count(pool, other, TODAY, "saml", 100)
    await count(pool, other, TODAY - DAY, "password", 5)
    await count(pool, foreign, TODAY, "password", 1000)
    async with storage.reading() as read:
        assert await read.analytics.by_day(shop.org_id, None, EVER) == [DailyLogins(TODAY - DAY, 5), DailyLogins(TODAY, 116)]
        assert await read.analytics.by_day(shop.org_id, shop.id, EVER) == [DailyLogins(TODAY, 16)]
        assert await read.analytics.by_day(foreign.org_id, None, EVER) == [DailyLogins(TODAY, 1000)]
        assert await read.analytics.by_day(uuid4(), None, EVER) == []
        for org, service in ((shop.org_id, foreign.id), (foreign.org_id, shop.id)):  # another organization's service
            assert await read.analytics.by_day(org, service, EVER) == []


async def test_a_range_includes_both_ends(storage: Postgres, pool: Pool, shop: ServiceContext) -> None:
    week = [TODAY + number * DAY for number in range(7)]
    for day in week:
        await count(pool, shop, day, "codehost", day.day)
    range_ = DateRange(week[2], week[4])
    async with storage.reading() as read:
        assert await read.analytics.by_day(shop.org_id, None, range_) == [DailyLogins(day, day.day) for day in week[2:5]]
        assert await read.analytics.by_service(shop.org_id, range_) == [ServiceLogins(shop.id, "Shop", 16 + 17 + 18)]
        assert await read.analytics.by_provider(shop.org_id, None, range_) == [ProviderLogins(CODEHOST, 16 + 17 + 18)]
        assert await read.analytics.by_day(shop.org_id, None, DateRange(week[6] + DAY, date.max)) == []


async def test_services_are_ordered_by_logins_and_then_by_name(
    storage: Postgres, pool: Pool, shop: ServiceContext, other: ServiceContext, foreign: ServiceContext
) -> None:
    third, silent = [await service_context(pool, await add_service(pool, shop.org_id, slug)) for slug in ("admin-tool", "silent")]
    for service, totals in ((shop, (2, 2)), (other, (3, 4)), (third, (4,)), (foreign, (9,)), (silent, (1, -1))):
        await count(pool, service, TODAY, "password", *totals)
    async with storage.reading() as read:
        assert await read.analytics.by_service(shop.org_id, EVER) == [
            ServiceLogins(other.id, "Other", 7),
            ServiceLogins(third.id, "Admin-Tool", 4),
            ServiceLogins(shop.id, "Shop", 4),
        ]


async def test_counts_by_provider_contain_only_identity_providers(
    storage: Postgres, pool: Pool, shop: ServiceContext, other: ServiceContext, foreign: ServiceContext
) -> None:
    for provider, totals in {"password": (9,), "saml": (9,), "websuite": (1, 1), "codehost": (2,), "officesuite": (1, -1)}.items():
        await count(pool, shop, TODAY, provider, *totals)
    await count(pool, other, TODAY, "officesuite", 3)
    await count(pool, foreign, TODAY, "codehost", 9)
    async with storage.reading() as read:
        assert await read.analytics.by_provider(shop.org_id, None, EVER) == [
            ProviderLogins(OFFICESUITE, 3),
            ProviderLogins(CODEHOST, 2),
            ProviderLogins(WEBSUITE, 2),
        ]
        assert await read.analytics.by_provider(shop.org_id, shop.id, EVER) == [
            ProviderLogins(CODEHOST, 2),
            ProviderLogins(WEBSUITE, 2),
        ]
        assert await read.analytics.by_provider(foreign.org_id, shop.id, EVER) == []


async def test_logins_of_a_deleted_service_are_neither_counted_nor_listed(
    storage: Postgres, pool: Pool, shop: ServiceContext, other: ServiceContext, user: UUID
) -> None:
    for service in (shop, other):
        await login(storage, user, service)
    await run_sql(pool, "delete from services where id = %s", shop.id)
    async with storage.reading() as read:
        assert await read.analytics.by_day(other.org_id, None, EVER) == [DailyLogins(TODAY, 1)]
        assert await read.analytics.by_service(other.org_id, EVER) == [ServiceLogins(other.id, "Other", 1)]
        assert [one.service_id for one in await read.analytics.recent(other.org_id, None, 10)] == [other.id]
        assert await read.analytics.usage(shop.org_id, shop.id, NOW) == ServiceUsage(0, 0, 0, 0)


async def test_a_day_with_a_total_of_zero_is_left_out(storage: Postgres, shop: ServiceContext, user: UUID) -> None:
    await login(storage, user, shop)
    await within(storage, lambda tx: tx.logins.remove(user))
    async with storage.reading() as read:
        assert await read.analytics.by_day(shop.org_id, None, EVER) == []
        assert await read.analytics.by_service(shop.org_id, EVER) == []


# Recent logins


async def test_recent_logins_have_all_fields(storage: Postgres, pool: Pool, shop: ServiceContext, user: UUID) -> None:
    new_session = session(user, service=shop, created_at=NOW)
    await within(storage, lambda tx: tx.logins.record_success(new_session, "websuite"))
    [(id_,)] = await run_sql(pool, "select id from login_events")
    async with storage.reading() as read:
        assert await read.analytics.recent(shop.org_id, None, 10) == [RecentLogin(id_, user, shop.id, "Shop", "websuite", NOW)]


async def test_recent_logins_are_successful_and_to_services_of_the_organization(
    storage: Postgres, pool: Pool, shop: ServiceContext, other: ServiceContext, foreign: ServiceContext, user: UUID
) -> None:
    for service in (shop, other, foreign, None):
        await login(storage, user, service)
    await login(storage, user, shop, created_at=NOW + SECOND)
    await run_sql(pool, "update login_events set success = false where created_at > %s", NOW)
    async with storage.reading() as read:
        assert {one.service_id for one in await read.analytics.recent(shop.org_id, None, 10)} == {shop.id, other.id}
        assert [one.service_id for one in await read.analytics.recent(foreign.org_id, None, 10)] == [foreign.id]


async def test_recent_logins_can_be_continued_from_any_login(
    storage: Postgres, shop: ServiceContext, other: ServiceContext, foreign: ServiceContext, user: UUID
) -> None:
    for number in range(12):  # several logins at the same time
        await login(storage, user, (shop, other, foreign)[number % 3], created_at=NOW - (number // 6) * MICROSECOND)
    async with storage.reading() as read:
        all_logins = await read.analytics.recent(shop.org_id, None, 100)
        assert len(all_logins) == 8
        assert all((newer.created_at, newer.id) > (older.created_at, older.id) for newer, older in pairwise(all_logins))
        for place, last in enumerate(all_logins):
            assert await read.analytics.recent(shop.org_id, last, 3) == all_logins[place + 1 : place + 4]


# A service's usage


async def test_new_and_active_users_are_counted_since_the_given_time(
    storage: Postgres, pool: Pool, shop: ServiceContext, other: ServiceContext, foreign: ServiceContext
) -> None:
    since = NOW - 30 * DAY
    people = [(await add(storage, account(email))).id for email in (ADA, EVE, "grace@example.com", "silent@example.com")]

    async def use(service: ServiceContext, user: UUID, *login_times: Any, born: Any = None) -> None:
        async with storage.transaction(by=SYSTEM) as tx:
            if born is not None:
                await tx.assignments.add(service.org_id, service.id, [user], EnrollmentOrigin.API_KEY, born)
            for at in login_times:
                await enroll_user(tx, service.id, user, at)

    await use(shop, people[0], since - DAY, since)  # an old user who signed in again
    await use(shop, people[1], since)  # new, and signed in
    await use(shop, people[2], since - DAY, since - MICROSECOND)  # an old user who did not sign in again
    await use(shop, people[3], born=NOW)  # new, and never signed in
    await use(other, people[0], since - DAY)
    await use(foreign, people[0], NOW)
    await count(pool, shop, TODAY - 1000 * DAY, "password", 4, 3)
    await count(pool, shop, TODAY, "codehost", 2)
    await count(pool, other, TODAY, "password", 50)
    async with storage.reading() as read:
        assert await read.analytics.usage(shop.org_id, shop.id, since) == ServiceUsage(users=4, new_users=2, active_users=2, logins=9)
        assert await read.analytics.usage(other.org_id, other.id, since) == ServiceUsage(users=1, new_users=0, active_users=0, logins=50)
        assert await read.analytics.usage(foreign.org_id, foreign.id, since) == ServiceUsage(users=1, new_users=1, active_users=1, logins=0)
        assert await read.analytics.usage(foreign.org_id, shop.id, since) == ServiceUsage(0, 0, 0, 0)
