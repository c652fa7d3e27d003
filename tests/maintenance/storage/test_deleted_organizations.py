"""The housekeeper deletes the records about deleted organizations."""

from datetime import datetime
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.maintenance import housekeeping
from core.maintenance.model.housekeeping import Sweep
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import add_organization, run_sql
from tests.support.rows import DAY, HOUR, NOW, SECOND, account, add, in_another_task, within


async def add_tombstone(pool: Pool, deleted_at: datetime) -> UUID:
    """Add a tombstone for an organization that was deleted at this time."""
    org = uuid4()
    await run_sql(pool, "insert into deleted_organizations (id, deleted_at) values (%s, %s)", org, deleted_at)
    return org


async def leave_records(pool: Pool, org: UUID | None, entries: int = 1, events: int = 1, totals: int = 1, logins: int = 0) -> None:
    """Add audit entries, events, totals and logins for an organization, which need not exist."""
    log = """
        insert into audit_log (id, org_id, action, target_type, target_id, details, created_at)
        select gen_random_uuid(), %s, 'x', 'user', 'x', '{}', now() from generate_series(1, %s)"""
    await run_sql(pool, log, org, entries)
    rows = """
        insert into events (id, org_id, name, target_id, data, created_at)
        select gen_random_uuid(), %s, 'x', 'x', '{}', now() from generate_series(1, %s)"""
    await run_sql(pool, rows, org, events)
    if org is not None:
        sums = "select %s, 'x' || n, 'user', 1 from generate_series(1, %s) n"
        await run_sql(pool, f"insert into audit_totals (org_id, action, target_type, total) {sums}", org, totals)
    signed_in = """
        insert into login_events (id, user_id, org_id, provider, success, created_at)
        select gen_random_uuid(), id, %s, 'x', true, now() from users, generate_series(1, %s)"""
    await run_sql(pool, signed_in, org, logins)


async def records_of(pool: Pool, org: UUID | None) -> tuple[int, int, int, int]:
    """Count the audit entries, events, totals and logins in an organization, or at the platform if `org` is None."""
    [(entries,)] = await run_sql(pool, "select count(*) from audit_log where org_id is not distinct from %s", org)
    [(events,)] = await run_sql(pool, "select count(*) from events where org_id is not distinct from %s", org)
    [(totals,)] = await run_sql(pool, "select count(*) from audit_totals where org_id is not distinct from %s", org)
    [(logins,)] = await run_sql(pool, "select count(*) from login_events where org_id is not distinct from %s", org)
    return entries, events, totals, logins


async def test_the_records_of_a_deleted_organization_are_deleted_and_no_others(storage: Postgres, pool: Pool) -> None:
    await add(storage, account())
    deleted_org, other_tenant = await add_tombstone(pool, NOW), await add_organization(pool, "acme")
    for org in (deleted_org, other_tenant, None):
        await leave_records(pool, org, 3, 2, 1, 4)
    assert await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.DELETED_ORGANIZATIONS, NOW, 100)) == 10
    assert await records_of(pool, deleted_org) == (0, 0, 0, 0)
    assert await records_of(pool, other_tenant) == (3, 2, 1, 4)
    assert await records_of(pool, None) == (3, 2, 0, 4)


async def test_a_batch_of_records_is_bounded_over_all_deleted_organizations(storage: Postgres, pool: Pool) -> None:
    await add(storage, account())
    deleted_orgs = [await add_tombstone(pool, NOW - 2 * DAY) for _ in range(3)]
    for org in deleted_orgs:
        await leave_records(pool, org, 3, 2, 2, 2)
    swept = []
    while count := await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.DELETED_ORGANIZATIONS, NOW, 5)):
        swept.append(count)
    assert swept == [5, 5, 5, 5, 5, 4, 1]  # 27 records and 3 tombstones
    assert [await records_of(pool, org) for org in deleted_orgs] == [(0, 0, 0, 0)] * 3
    assert await run_sql(pool, "select count(*) from deleted_organizations") == [(0,)]


@pytest.mark.parametrize("remaining", [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)])
async def test_a_tombstone_stays_while_records_are_left(storage: Postgres, pool: Pool, remaining: tuple[int, int, int, int]) -> None:
    await add(storage, account())
    org = await add_tombstone(pool, NOW - 2 * DAY)
    await leave_records(pool, org, *remaining)
    assert await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.DELETED_ORGANIZATIONS, NOW, 100)) == 1
    assert await run_sql(pool, "select id from deleted_organizations") == [(org,)]
    assert await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.DELETED_ORGANIZATIONS, NOW, 100)) == 1
    assert await run_sql(pool, "select id from deleted_organizations") == []


@pytest.mark.slow
async def test_records_written_during_the_deletion_are_deleted_for_a_day(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org, holder = await add_tombstone(pool, clock.now()), uuid4()
    for _ in range(2):
        await leave_records(pool, org)
        clock.advance(12 * HOUR)
        assert await housekeeping.sweep(ports, holder) == {"deleted_organizations": 3}
        assert await records_of(pool, org) == (0, 0, 0, 0)
    clock.advance(SECOND)
    assert await housekeeping.sweep(ports, holder) == {"deleted_organizations": 1}
    assert await run_sql(pool, "select * from deleted_organizations") == []


async def test_locked_records_are_left_for_the_next_sweep(storage: Postgres, pool: Pool) -> None:
    org = await add_tombstone(pool, NOW)
    await leave_records(pool, org, 2, 0, 0)
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("select 1 from audit_log where org_id = %s limit 1 for update", (org,))
        swept = await in_another_task(lambda: within(storage, lambda tx: tx.housekeeping.sweep(Sweep.DELETED_ORGANIZATIONS, NOW, 100)))
    assert swept == 1
    assert await records_of(pool, org) == (1, 0, 0, 0)
