"""Statements that enroll end users: times, counters and locks."""

from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import trio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.kernel.causes import SYSTEM
from tests.applications.storage.end_user_rows import enroll
from tests.support.builders import add_organization, run_concurrently, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, NOW, SECOND, account, add, in_another_task, is_locked, until_blocked
from tests.support.services import add_service, enroll_user


async def relations(pool: Pool) -> set[tuple[Any, ...]]:
    return set(await run_sql(pool, "select service_id, user_id, org_id, created_at, first_login_at, last_login_at from service_users"))


async def check_counts(pool: Pool) -> None:
    """Check that all counters are right."""
    query = """
        select 'service', id::text from services v
        where user_count <> (select count(*) from service_users r where r.service_id = v.id)
        union all
        select 'organization', id::text from organizations o
        where (select count(*) from end_users e where e.org_id = o.id)
              <> coalesce((select total from end_user_totals t where t.org_id = o.id), 0)
        union all
        select 'end user', user_id::text from (
            (select org_id, user_id, email, deactivated from end_users
             except select org_id, user_id, email, deactivated from service_users)
            union all
            (select org_id, user_id, email, deactivated from service_users
             except select org_id, user_id, email, deactivated from end_users)) d"""
    assert await run_sql(pool, query) == []


async def totals(pool: Pool, org: UUID, *services: UUID) -> tuple[int, ...]:
    """Return the stored counts: the organization's end users, and its service users."""
    await check_counts(pool)
    rows = await run_sql(pool, "select total from end_user_totals where org_id = %s", org)
    counts = dict(await run_sql(pool, "select id, user_count from services"))
    return (rows[0][0] if rows else 0, *(counts[service] for service in services))


async def test_enrolling_stores_the_times_of_logins(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    org = await add_organization(pool, "acme")
    shop, forum = [await add_service(pool, org, slug) for slug in ("shop", "forum")]
    assert await enroll(storage, shop, user.id, NOW - HOUR, signed_in=False)
    assert await relations(pool) == {(shop, user.id, org, NOW - HOUR, None, None)}
    assert await enroll(storage, shop, user.id, NOW)
    assert await relations(pool) == {(shop, user.id, org, NOW - HOUR, NOW, NOW)}
    assert await enroll(storage, shop, user.id, NOW + HOUR, signed_in=False), "an API key does not record logins"
    assert await enroll(storage, shop, user.id, NOW + DAY)
    assert await enroll(storage, forum, user.id, NOW + HOUR)
    assert await relations(pool) == {
        (shop, user.id, org, NOW - HOUR, NOW, NOW + DAY),
        (forum, user.id, org, NOW + HOUR, NOW + HOUR, NOW + HOUR),
    }
    assert await run_sql(pool, "select org_id, user_id, email, deactivated, created_at from end_users") == [
        (org, user.id, ADA, False, NOW - HOUR)
    ]
    assert await totals(pool, org, shop, forum) == (1, 1, 1)


async def test_a_login_that_is_written_late_keeps_the_first_and_last_times(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    shop = await add_service(pool, org := await add_organization(pool, "acme"))
    for at in (NOW, NOW - HOUR, NOW - SECOND):
        await enroll(storage, shop, user.id, at)
    assert await relations(pool) == {(shop, user.id, org, NOW, NOW - HOUR, NOW)}


async def test_a_user_is_one_end_user_per_organization(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    shop, forum, other = [await add_service(pool, org, slug) for org, slug in ((acme, "shop"), (acme, "forum"), (other_tenant, "shop"))]
    for service, target in ((shop, user.id), (forum, user.id), (other, user.id), (shop, eve.id), (shop, user.id)):
        assert await enroll(storage, service, target)
    assert await totals(pool, acme, shop, forum) == (2, 2, 1)
    assert await totals(pool, other_tenant, other) == (1, 1)


async def test_enrolling_in_a_missing_service_fails(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    shop = await add_service(pool, org := await add_organization(pool, "acme"))
    assert not await enroll(storage, uuid4(), user.id)
    await run_sql(pool, "delete from services where id = %s", shop)
    assert not await enroll(storage, shop, user.id)
    assert await relations(pool) == set()
    assert await totals(pool, org) == (0,)


async def test_a_rollback_restores_the_counters(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    shop = await add_service(pool, org := await add_organization(pool, "acme"))

    async def fail() -> None:
        async with storage.transaction(by=SYSTEM) as tx:
            await enroll_user(tx, shop, user.id, NOW)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    assert await totals(pool, org, shop) == (0, 0)


async def test_email_address_and_deactivation_follow_the_account(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE, deactivated_at=NOW))
    services = [await add_service(pool, await add_organization(pool, slug)) for slug in ("acme", "twin")]
    for service in services:
        for target in (user.id, eve.id):
            await enroll(storage, service, target)
    copies = "select email, deactivated from end_users union all select email, deactivated from service_users order by 1"
    assert await run_sql(pool, copies) == [(ADA, False)] * 4 + [(EVE, True)] * 4
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.change_email(user.id, account("new@example.com").email, NOW)
    await run_sql(pool, "update users set deactivated_at = case when deactivated_at is null then now() end")
    assert await run_sql(pool, copies) == [(EVE, False)] * 4 + [("new@example.com", True)] * 4
    await check_counts(pool)


async def test_an_enrolled_account_cannot_be_deleted_without_its_relations(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    await enroll(storage, await add_service(pool, await add_organization(pool, "acme")), user.id)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await run_sql(pool, "delete from users where id = %s", user.id)


async def test_deleting_a_service_waits_for_enrollments_in_progress(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    shop = await add_service(pool, org := await add_organization(pool, "acme"))
    await enroll(storage, shop, eve.id)
    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        assert await enroll_user(tx, shop, eve.id, NOW)
        # Other users can sign in, but a deletion waits.
        assert not await is_locked(pool, "services", "id = %s", shop, mode="for no key update")
        nursery.start_soon(run_sql, pool, "delete from services where id = %s", shop)
        await until_blocked(pool)
    assert not await enroll(storage, shop, user.id)
    assert [target for _, target, *_ in await relations(pool)] == [eve.id], "enrollment does not change rows of a deleted service"
    assert await run_sql(pool, "select total from end_user_totals where org_id = %s", org) == [(1,)]


async def test_enrolling_in_a_service_that_is_being_deleted_fails_without_waiting(storage: Postgres, pool: Pool) -> None:
    """Waiting requests would occupy connections while a large service is deleted."""
    user = await add(storage, account())
    shop, other = [await add_service(pool, org, slug) for org in [await add_organization(pool, "acme")] for slug in ("shop", "other")]
    async with pool.connection() as connection, connection.transaction(force_rollback=True):
        await connection.execute("delete from services where id = %s", (shop,))
        assert [await in_another_task(partial(enroll, storage, service, user.id)) for service in (shop, other)] == [False, True]
        assert {service for service, *_ in await in_another_task(partial(relations, pool))} == {other}
    assert await enroll(storage, shop, user.id), "the deletion was rolled back"


async def test_signing_in_during_the_removal_of_an_end_user_adds_them_again(storage: Postgres, pool: Pool) -> None:
    """Removals do not lock accounts. A login must therefore not rely on a row that is about to be deleted."""
    user = await add(storage, account())
    org = await add_organization(pool, "acme")
    shop, forum = [await add_service(pool, org, slug) for slug in ("shop", "forum")]
    await enroll(storage, shop, user.id)
    async with trio.open_nursery() as nursery, pool.connection() as connection, connection.transaction():
        await connection.execute("delete from service_users")
        await connection.execute("delete from end_users")
        await connection.execute("update services set user_count = 0")
        await connection.execute("update end_user_totals set total = 0")
        nursery.start_soon(enroll, storage, forum, user.id)
        async with trio.open_nursery() as waiting:
            waiting.start_soon(until_blocked, pool)
    assert await totals(pool, org, shop, forum) == (1, 0, 1)


async def test_enrolling_locks_an_existing_end_user(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    shop = await add_service(pool, await add_organization(pool, "acme"))
    for target in (user.id, eve.id):
        await enroll(storage, shop, target)
    before = await run_sql(pool, "select xmin, ctid, * from end_users order by user_id")
    async with storage.transaction(by=SYSTEM) as tx:
        await enroll_user(tx, shop, user.id, NOW + HOUR)
        assert [await is_locked(pool, "end_users", "user_id = %s", target) for target in (user.id, eve.id)] == [True, False]
    assert await run_sql(pool, "select xmin, ctid, * from end_users order by user_id") == before, "locked, but not written"


@pytest.mark.slow
async def test_concurrent_enrollments_count_each_user_once(storage: Postgres, pool: Pool) -> None:
    people = [account(f"person-{number}@example.com") for number in range(5)]
    await add(storage, *people)
    org = await add_organization(pool, "acme")
    services = [await add_service(pool, org, slug) for slug in ("shop", "forum")]
    for _ in range(3):
        results = await run_concurrently(20, lambda number: enroll(storage, services[number % 2], people[number % 5].id))
        assert results == [True] * 20
    assert await totals(pool, org, *services) == (5, 5, 5)
