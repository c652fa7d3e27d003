"""Storage of the list of all organizations, and the rows that a page of a large table reads."""

from datetime import timedelta

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from adapters.postgres.tenancy.organizations import PAGE_WITH_OWNERS
from core.accounts.accounts_rules import DELETED_ACCOUNT, AccountSummary
from core.kernel.principals import OrganizationStatus
from tests.support.builders import add_member, add_organization, run_sql
from tests.support.rows import ADA, EVE, NOW, account, add, plan_nodes, without_foreign_keys


async def test_an_organization_is_listed_with_its_owner(storage: Postgres, pool: Pool) -> None:
    user, eve = account(ADA, is_platform_owner=True), account(EVE)
    await add(storage, user, eve)
    org, lost = await add_organization(pool, "acme"), await add_organization(pool, "lost")
    for one in (org, lost):
        await add_member(pool, one, eve.id, "admin")
    await add_member(pool, org, user.id, "owner")
    await run_sql(pool, "update organizations set created_at = created_at - interval '1 day' where id = %s", org)
    async with storage.reading() as read:
        listed = await read.organizations.page_with_owners(None, None, 50, 0)
        organizations = [await read.organizations.by_id(one) for one in (lost, org)]
    assert [item.organization for item in listed.items] == organizations
    assert [item.owner for item in listed.items] == [DELETED_ACCOUNT, AccountSummary(str(user.id), ADA, True, user.created_at)]
    assert listed.total == 2


async def test_an_empty_page_has_the_total(storage: Postgres, pool: Pool) -> None:
    async with storage.reading() as read:
        assert (await read.organizations.page_with_owners(None, None, 50, 0)).total == 0
    for slug, status in (("one", "active"), ("two", "active"), ("three", "pending")):
        await add_organization(pool, slug, status)
    async with storage.reading() as read:
        listed = await read.organizations.page_with_owners(OrganizationStatus.ACTIVE, None, 50, 7)
    assert (listed.items, listed.total) == ([], 2)


@pytest.mark.slow
async def test_a_page_of_ten_thousand_organizations_reads_only_its_own_owners(storage: Postgres, pool: Pool) -> None:
    async with without_foreign_keys(pool) as connection:
        await connection.execute(
            """
            insert into users (id, email, is_platform_owner, origin, created_at, updated_at)
            select gen_random_uuid(), n || '@example.com', false, 'platform', now(), now() from generate_series(1, 10000) n"""
        )
        await connection.execute(
            """
            with added as (
                insert into organizations (id, slug, name, status, tier_id, created_at, updated_at)
                select gen_random_uuid(), 'o' || n, 'O', case when mod(n, 100) = 0 then 'pending' else 'active' end, tiers.id,
                       %s - n * interval '1 minute', now()
                from generate_series(1, 10000) n, tiers where tiers.name = 'free'
                returning id, slug)
            insert into memberships (id, org_id, user_id, role, created_at)
            select gen_random_uuid(), added.id, u.id, 'owner', now()
            from added join users u on u.email = substr(added.slug, 2) || '@example.com'""",
            (NOW,),
        )
        # One organization is large.
        await connection.execute(
            """
            insert into memberships (id, org_id, user_id, role, created_at)
            select gen_random_uuid(), o.id, u.id, 'member', now()
            from organizations o, users u where o.slug = 'o1' and u.email <> '1@example.com'"""
        )
    await run_sql(pool, "analyze users, organizations, memberships, tiers")
    for mode in ("force_generic_plan", "force_custom_plan"):
        for status, tier in ((None, None), ("pending", None)):
            nodes = await plan_nodes(pool, PAGE_WITH_OWNERS, {"status": status, "tier_id": tier, "limit": 50, "offset": 0}, mode)
            read = [node["Actual Rows"] * node["Actual Loops"] for node in nodes if node.get("Relation Name") in ("memberships", "users")]
            assert sum(read) <= 200, (mode, status)
            if status is None:
                assert [node["Actual Rows"] for node in nodes if node["Node Type"] == "Sort"] == [50], mode
                [page] = [node for node in nodes if node.get("Index Name") == "organizations_by_age"]
                assert page["Actual Rows"] == 50
    async with storage.reading() as first:
        listed = await first.organizations.page_with_owners(None, None, 50, 0)
        last = await first.organizations.page_with_owners(None, None, 50, 9_990)
        pending = await first.organizations.page_with_owners(OrganizationStatus.PENDING, None, 50, 50)
    assert [(one.organization.slug, one.owner.email) for one in listed.items] == [(f"o{n}", f"{n}@example.com") for n in range(1, 51)]
    assert listed.items[0].organization.created_at == NOW - timedelta(minutes=1)
    assert [one.organization.slug for one in last.items] == [f"o{n}" for n in range(9_991, 10_001)]
    assert [one.organization.slug for one in pending.items] == [f"o{n}" for n in range(5_100, 10_001, 100)]
    assert (listed.total, last.total, pending.total) == (10_000, 10_000, 100)
