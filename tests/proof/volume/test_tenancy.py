"""Statements about invitations, deleted organizations and the list of organizations read few rows of large tables."""

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres, Repositories
from adapters.postgres.maintenance.housekeeping import SWEEPS
from adapters.postgres.tenancy.organizations import PAGE_WITH_OWNERS
from core.kernel.principals import OrganizationStatus
from core.kernel.values import Page
from core.maintenance.housekeeping_rules import Sweep
from core.tenancy.invitations_rules import InvitationStatus
from ports.signals import NoSignals
from tests.proof.volume.plans import plan_nodes, rows_of, without_foreign_keys
from tests.support import database
from tests.support.builders import make_vault, run_sql
from tests.support.rows import DAY, NOW
from tests.tenancy.storage.records import records_of

ALL = Page(1, 50)
PENDING, EXPIRED = InvitationStatus.PENDING, InvitationStatus.EXPIRED

# Many invitations. In one organization nearly all have ended; the few others are found as quickly.

ORG = UUID(int=1)
GENERATED = """
    insert into invitations (id, org_id, email, role, invited_by, status, token_hash, expires_at, created_at, ended_at)
    select gen_random_uuid(), case when mod(n, 4) = 0 then %(org)s else md5(mod(n, 100)::text)::uuid end, n || '@example.com', 'member',
           gen_random_uuid(), status, decode(md5(n::text), 'hex'), %(now)s + (n - 39990) * interval '1 second',
           %(now)s - n * interval '1 second', case when status = 'pending' then null else %(now)s end
    from generate_series(1, 40000) n, lateral (
        select case when n > 39980 then 'pending' when n > 39960 then 'accepted' when mod(n, 8) = 0 then 'rejected' else 'expired' end
        as status) s"""
TOTALS = {None: 10_000, PENDING: 3, EXPIRED: 4_997, InvitationStatus.ACCEPTED: 5, InvitationStatus.REJECTED: 4_995}


@pytest.fixture(scope="module")
def many(server: str) -> Iterator[str]:
    """A filled database for both plan modes."""
    with database.Database(server) as own:
        with psycopg.connect(own.conninfo, autocommit=True) as connection:
            connection.execute("set session_replication_role = replica")  # turns foreign keys off
            connection.execute(GENERATED, {"org": ORG, "now": NOW})
            database.settle(connection, "invitations")
        yield own.conninfo


READ = "select seq_scan, coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables where relname = 'invitations'"


@pytest.mark.slow
@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
async def test_a_page_of_many_invitations_reads_few_other_rows(many: str, plans: str) -> None:
    async with await connect(many, timeout=5) as connection:
        await connection.run(f"set plan_cache_mode = {plans}")
        for status in (None, *InvitationStatus):
            async with connection.transaction():
                [before] = await connection.rows(READ)
                found = await Repositories(connection, make_vault(), NoSignals()).invitations.page(ORG, status, ALL, NOW)
                [after] = await connection.rows(READ)
            total = TOTALS.get(status, 0)
            assert (found.total, len(found.items)) == (total, min(total, 50))
            assert (after[0] - before[0], after[1] - before[1] <= 100) == (0, True), status


async def rows_read(pool: Pool, mode: str, limit: int) -> float:
    """Run a sweep, and return the number of audit entries and events that it read."""
    nodes = await plan_nodes(pool, SWEEPS[Sweep.DELETED_ORGANIZATIONS], {"limit": limit, "before": NOW}, mode)
    return sum(rows_of(node) for node in nodes if node.get("Relation Name") in ("audit_log", "events"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("others", [1, 30])
async def test_a_sweep_finds_few_records_without_reading_the_whole_log(pool: Pool, others: int, mode: str) -> None:
    """A planner that expects many records of an organization reads the whole log each time."""
    fill = """
        with numbers as (
            select case when n <= 100 then %(gone)s::uuid
                        else ('00000000-0000-4000-9000-' || lpad(mod(n, %(others)s)::text, 12, '0'))::uuid end as org, now() as at
            from generate_series(1, 30100) n),
        logged as (
            insert into audit_log (id, org_id, action, target_type, target_id, details, created_at)
            select gen_random_uuid(), org, 'x', 'user', 'x', '{}', at from numbers)
        insert into events (id, org_id, name, target_id, data, created_at)
        select gen_random_uuid(), org, 'x', 'x', '{}', at from numbers"""
    gone = uuid4()
    async with pool.connection() as connection:
        await connection.execute(fill, {"others": others, "gone": gone})
        await connection.execute("analyze audit_log, events")
    await run_sql(pool, "insert into deleted_organizations (id, deleted_at) values (%s, %s)", gone, NOW - DAY)
    assert await rows_read(pool, mode, 80) <= 300
    assert await rows_read(pool, mode, 1000) <= 400
    assert await records_of(pool, gone) == [0, 0, 0]
    assert await rows_read(pool, mode, 1000) == 0


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
