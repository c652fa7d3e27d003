"""Statements about end users: fields, filters, order, counters and isolation.

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import trio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.accounts.accounts_rules import Account
from core.applications.end_users_rules import EndUser, EndUserSummary, LinkedIdentity, UsedService
from core.kernel.principals import SYSTEM
from core.kernel.providers import Provider
from core.kernel.values import Page, PageResult
from tests.support.builders import add_organization, add_provisioned, run_concurrently, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, NOW, SECOND, account, add, in_another_task, is_locked, until_blocked
from tests.support.services import add_service

FIRST = Page(1, 50)


async def enroll(storage: Postgres, service: UUID, user: UUID, at: datetime = NOW, *, signed_in: bool = True) -> bool:
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.lock(user)
        return await tx.end_users.enroll(service, user, at, signed_in=signed_in)


async def relations(pool: Pool) -> set[tuple[Any, ...]]:
    return set(await run_sql(pool, "select service_id, user_id, org_id, created_at, first_login_at, last_login_at from service_users"))


async def check_counts(pool: Pool) -> None:
    """Check that all counters are right."""
    off = """
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
    assert await run_sql(pool, off) == []


async def totals(pool: Pool, org: UUID, *services: UUID) -> tuple[int, ...]:
    """Return the stored numbers of end users of the organization and of users of its services."""
    await check_counts(pool)
    found = await run_sql(pool, "select total from end_user_totals where org_id = %s", org)
    counts = dict(await run_sql(pool, "select id, user_count from services"))
    return (found[0][0] if found else 0, *(counts[service] for service in services))


# Enrollment


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
            await tx.end_users.enroll(shop, user.id, NOW, signed_in=True)
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
        assert await tx.end_users.enroll(shop, eve.id, NOW, signed_in=True)
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
        await tx.end_users.enroll(shop, user.id, NOW + HOUR, signed_in=True)
        assert [await is_locked(pool, "end_users", "user_id = %s", target) for target in (user.id, eve.id)] == [True, False]
    assert await run_sql(pool, "select xmin, ctid, * from end_users order by user_id") == before, "locked, but not written"


@pytest.mark.slow
async def test_concurrent_enrollments_count_each_user_once(storage: Postgres, pool: Pool) -> None:
    people = [account(f"person-{number}@example.com") for number in range(5)]
    await add(storage, *people)
    org = await add_organization(pool, "acme")
    services = [await add_service(pool, org, slug) for slug in ("shop", "forum")]
    for _ in range(3):
        done = await run_concurrently(20, lambda number: enroll(storage, services[number % 2], people[number % 5].id))
        assert done == [True] * 20
    assert await totals(pool, org, *services) == (5, 5, 5)


# The list


async def page(storage: Postgres, org: UUID, page_: Page = FIRST, **filters: Any) -> PageResult[EndUserSummary]:
    async with storage.reading() as read:
        return await read.end_users.page(org, page_, **filters)


async def emails(storage: Postgres, org: UUID, page_: Page = FIRST, **filters: Any) -> tuple[list[str], int]:
    found = await page(storage, org, page_, **filters)
    return [one.email.partition("@")[0] for one in found.items], found.total


async def test_a_listed_end_user_has_all_fields(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(created_at=NOW - 5 * DAY), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    wiki, shop, other = [await add_service(pool, org, slug) for org, slug in ((acme, "wiki"), (acme, "shop"), (other_tenant, "third"))]
    await run_sql(pool, "update users set mfa_enabled_at = now() where id = %s", user.id)
    await enroll(storage, wiki, user.id, NOW - HOUR)
    await enroll(storage, shop, user.id, NOW - SECOND)
    await enroll(storage, other, user.id, NOW)  # in another organization, so not shown
    await enroll(storage, shop, eve.id, NOW - 2 * HOUR, signed_in=False)
    mine = EndUserSummary(user.id, ADA, NOW - 5 * DAY, True, NOW - SECOND, ("shop", "wiki"))
    hers = EndUserSummary(eve.id, EVE, NOW - DAY, False, None, ("shop",))
    assert await page(storage, acme) == PageResult([mine, hers], 2)
    assert await page(storage, other_tenant) == PageResult([replace(mine, last_login_at=NOW, services=("third",))], 1)
    assert await page(storage, acme, service_id=wiki) == PageResult([mine], 1)
    assert await page(storage, acme, search="ada") == PageResult([mine], 1)
    assert await page(storage, acme, search="eve", service_id=shop) == PageResult([hers], 1)
    assert await page(storage, uuid4()) == PageResult([], 0)


async def fill(storage: Postgres, pool: Pool) -> tuple[UUID, UUID, dict[str, UUID], list[Account]]:
    """Add seven users, newest first in acme. All of them are also in twin."""
    people = [account(f"{name}@example.com") for name in ("a-one", "b_one", "c%one", "d.two", "e-two", "f-two", "g-three")]
    await add(storage, *people)
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    services = {slug: await add_service(pool, acme, slug) for slug in ("shop", "wiki")} | {
        "other": await add_service(pool, other_tenant, "other")
    }
    for number, person in enumerate(people):
        await enroll(storage, services["shop"], person.id, NOW - number * SECOND)
        await enroll(storage, services["other"], person.id, NOW + number * SECOND)
    for number in (1, 3, 5):  # in reverse order
        await enroll(storage, services["wiki"], people[number].id, NOW + number * HOUR)
    return acme, other_tenant, services, people


async def test_the_list_contains_one_organization_newest_first(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant, _, people = await fill(storage, pool)
    names = [person.email.partition("@")[0] for person in people]
    assert await emails(storage, acme) == (names, 7)
    assert await emails(storage, other_tenant) == (names[::-1], 7)
    assert [await emails(storage, acme, Page(number, 3)) for number in (1, 2, 3, 4)] == [
        (names[:3], 7),
        (names[3:6], 7),
        (names[6:], 7),
        ([], 7),
    ]
    assert await emails(storage, acme, Page(2**31 - 1, 100)) == ([], 7)


async def test_the_list_of_a_service_is_ordered_by_the_start_of_its_use(storage: Postgres, pool: Pool) -> None:
    acme, _, services, _ = await fill(storage, pool)
    assert await emails(storage, acme, service_id=services["wiki"]) == (["f-two", "d.two", "b_one"], 3)
    assert await emails(storage, acme, Page(2, 2), service_id=services["wiki"]) == (["b_one"], 3)
    assert await emails(storage, acme, Page(3, 2), service_id=services["wiki"]) == ([], 3)
    assert (await emails(storage, acme, service_id=services["shop"]))[1] == 7


async def test_the_filter_matches_no_service_of_another_organization(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant, services, _ = await fill(storage, pool)
    for org, service in ((acme, services["other"]), (other_tenant, services["shop"]), (acme, uuid4()), (uuid4(), services["shop"])):
        for search in (None, "one"):
            assert await page(storage, org, service_id=service, search=search) == PageResult([], 0)


async def test_a_search_matches_a_literal_part_of_the_address(storage: Postgres, pool: Pool) -> None:
    acme, _, services, _ = await fill(storage, pool)
    for search, names in (
        ("one", ["a-one", "b_one", "c%one"]),
        ("b_", ["b_one"]),
        ("_", ["b_one"]),
        ("%", ["c%one"]),
        ("\\", []),
        (".", ["a-one", "b_one", "c%one", "d.two", "e-two", "f-two", "g-three"]),
        ("d.", ["d.two"]),
        ("@example.com", ["a-one", "b_one", "c%one", "d.two", "e-two", "f-two", "g-three"]),
        ("a-one@example.com", ["a-one"]),
        ("a-one@example.comm", []),
        ("a%one", []),
        ("'", []),
    ):
        assert await emails(storage, acme, search=search) == (names, len(names)), search
        assert await emails(storage, acme, search=search, service_id=services["shop"]) == (names, len(names)), search
        in_wiki = [name for name in ("f-two", "d.two", "b_one") if name in names]
        assert await emails(storage, acme, search=search, service_id=services["wiki"]) == (in_wiki, len(in_wiki)), search
        assert await emails(storage, acme, Page(2, 1), search=search) == (names[1:2], len(names)), search


async def test_a_search_does_not_match_users_of_other_organizations(storage: Postgres, pool: Pool) -> None:
    acme, _, services, _ = await fill(storage, pool)
    stranger = await add(storage, account("z-one@example.com"))
    await enroll(storage, services["other"], stranger.id)
    assert "z-one" not in (await emails(storage, acme, search="one"))[0]


async def test_users_with_equal_times_have_a_stable_order(storage: Postgres, pool: Pool) -> None:
    people = [account(f"person-{number}@example.com") for number in range(7)]
    await add(storage, *people)
    shop = await add_service(pool, org := await add_organization(pool, "acme"))
    for person in people:
        await enroll(storage, shop, person.id)
    expected = sorted((person.id for person in people), key=str, reverse=True)
    for filters in ({}, {"service_id": shop}, {"search": "person"}, {"service_id": shop, "search": "person"}):
        pages = [await page(storage, org, Page(number, 3), **filters) for number in (1, 2, 3)]
        assert [one.id for found in pages for one in found.items] == expected


async def test_deactivated_users_are_neither_listed_nor_counted(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant, services, people = await fill(storage, pool)
    for number in (1, 2):
        await run_sql(pool, "update users set deactivated_at = now() where id = %s", people[number].id)
    assert await emails(storage, acme) == (["a-one", "d.two", "e-two", "f-two", "g-three"], 5)
    assert await emails(storage, acme, Page(2, 2)) == (["e-two", "f-two"], 5)
    assert await emails(storage, acme, search="one") == (["a-one"], 1)
    assert await emails(storage, acme, service_id=services["wiki"]) == (["f-two", "d.two"], 2)
    assert await emails(storage, acme, service_id=services["wiki"], search="_") == ([], 0)
    assert (await emails(storage, other_tenant))[1] == 5
    # The same holds for users that only this directory blocks, and each user is subtracted once.
    for number in (1, 3):
        await add_provisioned(pool, acme, people[number].id, provisioned=False, kept_out=True)
    assert await emails(storage, acme) == (["a-one", "e-two", "f-two", "g-three"], 4)
    assert await emails(storage, acme, Page(2, 2)) == (["f-two", "g-three"], 4)
    assert await emails(storage, acme, search="two") == (["e-two", "f-two"], 2)
    assert await emails(storage, acme, service_id=services["wiki"]) == (["f-two"], 1)
    assert await emails(storage, acme, service_id=services["wiki"], search="two") == (["f-two"], 1)
    assert (await emails(storage, other_tenant))[1] == 5
    await run_sql(pool, "update users set deactivated_at = null")
    await run_sql(pool, "delete from scim_users")
    assert (await emails(storage, acme))[1] == 7


# Details


async def test_the_details_of_an_end_user_have_all_fields(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE, email_verified_at=None))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    shop, other = await add_service(pool, acme), await add_service(pool, other_tenant)
    await enroll(storage, shop, user.id)
    await enroll(storage, other, user.id)
    await enroll(storage, shop, eve.id)
    await run_sql(pool, "update users set mfa_enabled_at = now(), updated_at = %s where id = %s", NOW, user.id)
    async with storage.reading() as read:
        by_id = read.end_users.by_id
        assert await by_id(acme, user.id) == EndUser(
            user.id, ADA, email_verified=True, mfa_enabled=True, created_at=NOW - DAY, updated_at=NOW
        )
        assert await by_id(acme, eve.id) == EndUser(
            eve.id, EVE, email_verified=False, mfa_enabled=False, created_at=NOW - DAY, updated_at=NOW - DAY
        )
        for org, target in ((other_tenant, eve.id), (acme, uuid4()), (uuid4(), user.id)):
            assert await by_id(org, target) is None


async def test_the_details_contain_only_services_of_the_organization(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    wiki, shop, other = [await add_service(pool, org, slug) for org, slug in ((acme, "wiki"), (acme, "shop"), (other_tenant, "aaa"))]
    await enroll(storage, wiki, user.id, NOW - HOUR)
    await enroll(storage, wiki, user.id, NOW)
    await enroll(storage, shop, user.id, NOW, signed_in=False)
    await enroll(storage, other, user.id, NOW)
    await enroll(storage, shop, eve.id, NOW + DAY)
    async with storage.reading() as read:
        assert await read.end_users.services(acme, user.id) == [
            UsedService(shop, "shop", "Shop", None, None),
            UsedService(wiki, "wiki", "Wiki", NOW - HOUR, NOW),
        ]
        assert await read.end_users.services(other_tenant, eve.id) == []


async def test_the_details_contain_only_identities_of_its_services(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    shop, wiki, other = [await add_service(pool, org, slug) for org, slug in ((acme, "shop"), (acme, "wiki"), (other_tenant, "shop"))]
    linked = [
        (user.id, shop, "codehost", "1", ADA, NOW),
        (user.id, wiki, "websuite", "2", None, NOW - HOUR),
        (user.id, other, "codehost", "3", ADA, NOW),
        (user.id, None, "officesuite", "4", ADA, NOW),  # not linked for a service
        (eve.id, shop, "codehost", "5", EVE, NOW),
    ]
    insert = """
        insert into identities (id, user_id, service_id, provider, provider_user_id, email, linked_at)
        values (gen_random_uuid(), %s, %s, %s, %s, %s, %s)"""
    for row in linked:
        await run_sql(pool, insert, *row)
    async with storage.reading() as read:
        assert await read.end_users.identities(acme, user.id) == [
            LinkedIdentity(Provider.WEBSUITE, "2", None, NOW - HOUR),
            LinkedIdentity(Provider.CODEHOST, "1", ADA, NOW),
        ]
        assert await read.end_users.identities(other_tenant, eve.id) == []
