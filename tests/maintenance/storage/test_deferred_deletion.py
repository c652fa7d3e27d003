"""The records of deleted organizations, services and webhooks are deleted in batches, and no other records."""

from typing import Final
from uuid import uuid4

import pytest
import trio
from psycopg import sql

from adapters.postgres.engine.pool import Pool
from adapters.postgres.maintenance.housekeeping import OF_ORGANIZATIONS, OF_SERVICES, OF_WEBHOOKS
from adapters.postgres.storage import Postgres
from core.maintenance.model.housekeeping import Sweep
from tests.maintenance.storage.tombstones import FILLING, TOMBSTONE_TABLES, add_tombstone, count_records, fill
from tests.support.builders import run_sql
from tests.support.rows import NOW, account, add, in_another_task, within

TABLES: Final = {
    Sweep.DELETED_ORGANIZATIONS: [table for table, _ in OF_ORGANIZATIONS.tables],
    Sweep.DELETED_SERVICES: [table for table, _ in OF_SERVICES.tables],
    Sweep.DELETED_WEBHOOKS: [table for table, _ in OF_WEBHOOKS.tables],
}
TOMBSTONES: Final = """
    select (select count(*) from deleted_organizations) + (select count(*) from deleted_services)
         + (select count(*) from deleted_webhooks)"""


async def sweep(storage: Postgres, kind: Sweep, limit: int = 100) -> int:
    return await within(storage, lambda tx: tx.housekeeping.sweep(kind, NOW, limit))


@pytest.fixture
async def people(storage: Postgres) -> int:
    await add(storage, *(account(f"{number}@example.com") for number in range(3)))
    return 3


def test_every_swept_table_is_filled() -> None:
    assert FILLING.keys() == {table for tables in TABLES.values() for table in tables}


async def test_every_table_of_an_organization_is_deleted_or_kept_on_purpose(pool: Pool) -> None:
    """Rows with an organization are deleted by a foreign key or by the housekeeper, unless the table is listed here."""
    columns = """
        select table_name from information_schema.columns natural join information_schema.tables
        where column_name = 'org_id' and table_schema = 'public' and table_type = 'BASE TABLE'"""
    referring = """
        select c.conrelid::regclass::text, c.confrelid::regclass::text from pg_constraint c
        where c.contype = 'f' and c.confdeltype = 'c'
          and c.confrelid in ('organizations'::regclass, 'services'::regclass, 'api_resources'::regclass, 'service_roles'::regclass)"""
    with_column = {table for (table,) in await run_sql(pool, columns)}
    cascaded = {table for table, _ in await run_sql(pool, referring)}
    # Their organization is only a context: sessions expire, and emails and their links work without
    # it.
    kept_tables = {"sessions", "mails", "one_time_tokens"}
    kept_tables |= {"saml_logouts", "saml_logout_requests"}  # sign-outs in progress continue, for fifteen minutes
    kept_tables |= {"policy_passes"}  # they go with their sessions
    kept_tables |= {"account_recoveries"}  # they end within a day
    kept_tables |= {"sign_in_flows"}  # they end within a day, and start nothing for an application that was deleted
    kept_tables |= {"logout_notices"}  # notices for deleted services are never sent, and deleted after a week
    kept_tables |= {"removed_siem_configurations"}  # it is a tombstone itself
    kept_tables |= {"billing_checkouts", "billing_facts", "billing_cancellations"}  # pending work at the payment provider
    kept_tables |= {"webhook_deliveries"}  # deleted by their webhooks' tombstones, which are created with the organization's tombstone
    assert with_column - cascaded - set(TABLES[Sweep.DELETED_ORGANIZATIONS]) == kept_tables


async def test_each_foreign_key_that_deletes_rows_has_an_index(pool: Pool) -> None:
    """Otherwise every deletion of the referenced row reads the whole table."""
    unindexed = """
        select c.conname from pg_constraint c
        where c.contype = 'f' and c.confdeltype in ('c', 'n') and c.connamespace = 'public'::regnamespace and not exists (
            select from pg_index i
            where i.indrelid = c.conrelid and (i.indkey::int2[])[0:cardinality(c.conkey) - 1] @> c.conkey)"""
    assert await run_sql(pool, unindexed) == []


@pytest.mark.parametrize("kind", TOMBSTONE_TABLES)
async def test_all_records_of_the_deleted_are_deleted_and_no_others(storage: Postgres, pool: Pool, people: int, kind: Sweep) -> None:
    deleted_org, other_tenant = uuid4(), uuid4()
    for org in (deleted_org, other_tenant):
        await fill(pool, org)
    await add_tombstone(pool, kind, deleted_org)
    before = await count_records(pool, deleted_org)
    assert before == await count_records(pool, other_tenant) == {table: 1 if table == "end_user_totals" else people for table in FILLING}
    swept = {table: 0 if table in TABLES[kind] else count for table, count in before.items()}
    assert await sweep(storage, kind) == sum(before.values()) - sum(swept.values())
    assert await count_records(pool, deleted_org) == swept
    assert await count_records(pool, other_tenant) == before
    assert await sweep(storage, kind) == 1
    assert await run_sql(pool, TOMBSTONES) == [(0,)]


@pytest.mark.parametrize(("kind", "table"), [(kind, table) for kind, tables in TABLES.items() for table in tables])
async def test_a_tombstone_stays_while_records_are_left(storage: Postgres, pool: Pool, people: int, kind: Sweep, table: str) -> None:
    deleted_org = uuid4()
    await fill(pool, deleted_org, table)
    await add_tombstone(pool, kind, deleted_org)
    count = (await count_records(pool, deleted_org))[table]
    assert await sweep(storage, kind) == count
    # The record still existed when the statement began.
    assert await run_sql(pool, TOMBSTONES) == [(1,)]
    assert [await sweep(storage, kind), await sweep(storage, kind)] == [1, 0]


@pytest.mark.parametrize("kind", TOMBSTONE_TABLES)
async def test_a_batch_is_bounded_over_all_tables_and_tombstones(storage: Postgres, pool: Pool, people: int, kind: Sweep) -> None:
    total = 0
    for _ in range(2):
        await fill(pool, deleted_org := uuid4())
        await add_tombstone(pool, kind, deleted_org)
        remaining = await count_records(pool, deleted_org)
        total += sum(remaining[table] for table in TABLES[kind])
    swept = []
    while count := await sweep(storage, kind, 4):
        swept.append(count)
    assert max(swept) == 4
    assert sum(swept) == total + 2


@pytest.mark.parametrize("table", TABLES[Sweep.DELETED_ORGANIZATIONS])
async def test_locked_records_are_left_for_the_next_sweep(storage: Postgres, pool: Pool, people: int, table: str) -> None:
    deleted_org = uuid4()
    await fill(pool, deleted_org, table)
    await add_tombstone(pool, Sweep.DELETED_ORGANIZATIONS, deleted_org)
    count = (await count_records(pool, deleted_org))[table]
    async with pool.connection() as connection, connection.transaction():
        await connection.execute(sql.SQL("select 1 from {} limit 1 for update").format(sql.Identifier(table)))
        with trio.fail_after(5):
            assert await in_another_task(lambda: sweep(storage, Sweep.DELETED_ORGANIZATIONS)) == count - 1
    assert await sweep(storage, Sweep.DELETED_ORGANIZATIONS) == 1
    assert await count_records(pool, deleted_org) == dict.fromkeys(FILLING, 0)


async def test_users_of_services_are_deleted_before_other_records(storage: Postgres, pool: Pool, people: int) -> None:
    """An account cannot be deleted while a service has a record about it, even a deleted service."""
    await fill(pool, deleted_org := uuid4())
    await add_tombstone(pool, Sweep.DELETED_ORGANIZATIONS, deleted_org)
    await sweep(storage, Sweep.DELETED_ORGANIZATIONS, 2 * people)
    remaining = await count_records(pool, deleted_org)
    assert (remaining["service_users"], remaining["end_users"], remaining["audit_log"]) == (0, 0, people)
