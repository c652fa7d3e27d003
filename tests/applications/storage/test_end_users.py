"""Statements that read end users: fields, filters, order and isolation."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.accounts import Account
from core.accounts.model.protection import HeldFactor, Protection
from core.applications.model.users import EndUser, EndUserSummary, LinkedIdentity, UsedService
from core.kernel.connections import CODEHOST, WEBSUITE
from core.kernel.values import Page, PageResult
from tests.applications.storage.end_user_rows import enroll
from tests.support.builders import add_organization, add_provisioned, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, NOW, SECOND, account, add
from tests.support.services import add_service

FIRST = Page(1, 50)


async def page(storage: Postgres, org: UUID, page_: Page = FIRST, **filters: Any) -> PageResult[EndUserSummary]:
    async with storage.reading() as read:
        return await read.end_users.page(org, page_, **filters)


async def emails(storage: Postgres, org: UUID, page_: Page = FIRST, **filters: Any) -> tuple[list[str], int]:
    result = await page(storage, org, page_, **filters)
    return [item.email.partition("@")[0] for item in result.items], result.total


async def test_a_listed_end_user_has_all_fields(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(created_at=NOW - 5 * DAY), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    wiki, shop, other = [await add_service(pool, org, slug) for org, slug in ((acme, "wiki"), (acme, "shop"), (other_tenant, "third"))]
    await run_sql(pool, "update users set mfa_enabled_at = now() where id = %s", user.id)
    await enroll(storage, wiki, user.id, NOW - HOUR)
    await enroll(storage, shop, user.id, NOW - SECOND)
    await enroll(storage, other, user.id, NOW)  # in another organization, so not shown
    await enroll(storage, shop, eve.id, NOW - 2 * HOUR, signed_in=False)
    block = "insert into end_user_blocks (org_id, user_id, email, since) values (%s, %s, 'old@example.com', now())"
    for org, person in ((acme, eve), (other_tenant, user)):
        await run_sql(pool, block, org, person.id)
    adas_entry = EndUserSummary(
        user.id,
        ADA,
        NOW - 5 * DAY,
        True,
        NOW - SECOND,
        ("shop", "wiki"),
        blocked=False,
        protection=Protection.PROTECTED,
        factors=(HeldFactor.APP,),
    )
    eves_entry = EndUserSummary(
        eve.id, EVE, NOW - DAY, False, None, ("shop",), blocked=True, protection=Protection.PASSWORD_ALONE, factors=()
    )
    assert await page(storage, acme) == PageResult([adas_entry, eves_entry], 2)
    assert await page(storage, other_tenant) == PageResult([replace(adas_entry, last_login_at=NOW, services=("third",), blocked=True)], 1)
    assert await page(storage, acme, service_id=wiki) == PageResult([adas_entry], 1)
    assert await page(storage, acme, search="ada") == PageResult([adas_entry], 1)
    assert await page(storage, acme, search=str(user.id)) == PageResult([adas_entry], 1)
    assert await page(storage, acme, search="eve", service_id=shop) == PageResult([eves_entry], 1)
    assert await page(storage, acme, blocked=True) == PageResult([eves_entry], 1)
    assert await page(storage, acme, blocked=True, search="eve", service_id=shop) == PageResult([eves_entry], 1)
    assert await page(storage, acme, blocked=True, search=str(eve.id)) == PageResult([eves_entry], 1)
    assert await page(storage, other_tenant, search=str(eve.id)) == PageResult([], 0)
    assert await page(storage, acme, blocked=True, service_id=wiki) == PageResult([], 0)
    assert await page(storage, acme, blocked=True, search="old") == PageResult([], 0)
    assert await page(storage, uuid4()) == PageResult([], 0)


async def fill(storage: Postgres, pool: Pool) -> tuple[UUID, UUID, dict[str, UUID], list[Account]]:
    """Add seven users, newest first in acme. The same users are also in twin."""
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
        assert [item.id for page_of_users in pages for item in page_of_users.items] == expected


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
    # The same holds for users that only this directory blocks, and a user is subtracted once.
    for number in (1, 3):
        await add_provisioned(pool, acme, people[number].id, provisioned=False, blocked=True)
    assert await emails(storage, acme) == (["a-one", "e-two", "f-two", "g-three"], 4)
    assert await emails(storage, acme, Page(2, 2)) == (["f-two", "g-three"], 4)
    assert await emails(storage, acme, search="two") == (["e-two", "f-two"], 2)
    assert await emails(storage, acme, service_id=services["wiki"]) == (["f-two"], 1)
    assert await emails(storage, acme, service_id=services["wiki"], search="two") == (["f-two"], 1)
    assert (await emails(storage, other_tenant))[1] == 5
    await run_sql(pool, "update users set deactivated_at = null")
    await run_sql(pool, "delete from directory_blocks")
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
            *(user.id, ADA),
            email_verified=True,
            mfa_enabled=True,
            created_at=NOW - DAY,
            updated_at=NOW,
            protection=Protection.PROTECTED,
            factors=(HeldFactor.APP,),
        )
        assert await by_id(acme, eve.id) == EndUser(
            *(eve.id, EVE),
            email_verified=False,
            mfa_enabled=False,
            created_at=NOW - DAY,
            updated_at=NOW - DAY,
            protection=Protection.PASSWORD_ALONE,
            factors=(),
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
    identity_rows = [
        (user.id, shop, "codehost", "1", ADA, NOW),
        (user.id, wiki, "websuite", "2", None, NOW - HOUR),
        (user.id, other, "codehost", "3", ADA, NOW),
        (user.id, None, "officesuite", "4", ADA, NOW),  # not linked for a service
        (eve.id, shop, "codehost", "5", EVE, NOW),
    ]
    insert = """
        insert into identities (id, user_id, service_id, provider, provider_user_id, email, linked_at)
        values (gen_random_uuid(), %s, %s, %s, %s, %s, %s)"""
    for row in identity_rows:
        await run_sql(pool, insert, *row)
    async with storage.reading() as read:
        assert await read.end_users.identities(acme, user.id) == [
            LinkedIdentity(WEBSUITE, "2", None, NOW - HOUR),
            LinkedIdentity(CODEHOST, "1", ADA, NOW),
        ]
        assert await read.end_users.identities(other_tenant, eve.id) == []
