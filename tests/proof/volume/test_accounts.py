"""Statements for platform owners read few rows of large tables."""

import hashlib
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from adapters.postgres.accounts.repositories import AccountsRepositories
from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.driver import Connection
from ports.signals import NoSignals
from tests.support import database
from tests.support.builders import make_vault
from tests.support.rows import DAY, NOW

SIZE = 20_000
GENERATED = """
    insert into users (id, email, origin, created_at, updated_at)
    select md5('u' || n)::uuid, 'person-' || n || '@example.com', 'platform', %(now)s - n * interval '1 minute', now()
    from generate_series(1, %(size)s) n;
    insert into organizations (id, slug, name, status, tier_id, created_at, updated_at)
    select md5('o' || n)::uuid, 'o' || n, 'O', 'active', tiers.id, now(), now()
    from generate_series(1, %(size)s / 10) n, tiers where tiers.name = 'free';
    insert into memberships (id, org_id, user_id, role, created_at)
    select gen_random_uuid(), md5('o' || 1 + mod(n, %(size)s / 10))::uuid, md5('u' || n)::uuid, 'member', now()
    from generate_series(1, %(size)s) n;
    insert into mfa_events (id, user_id, event_type, success, created_at)
    select gen_random_uuid(), md5('u' || 1 + mod(n, %(size)s))::uuid,
           (array['mfa_verify_attempt', 'mfa_verify_success', 'mfa_verify_failed', 'backup_code_used', 'mfa_disabled'])[1 + mod(n, 5)],
           true, %(now)s - n * interval '10 minutes'
    from generate_series(1, 5 * %(size)s) n;
    insert into login_events (id, user_id, provider, success, created_at)
    select gen_random_uuid(), md5('u' || 1 + mod(n, %(size)s))::uuid, 'password', true, %(now)s - n * interval '10 minutes'
    from generate_series(1, 5 * %(size)s) n"""


@pytest.fixture(scope="module")
def large_database(server: str) -> Iterator[str]:
    """A filled database for both plan modes."""
    with database.Database(server) as own:
        with psycopg.ClientCursor(psycopg.connect(own.conninfo, autocommit=True)) as cursor, cursor.connection as connection:
            connection.execute("set session_replication_role = replica")  # the data satisfies the foreign keys, so skip their checks
            cursor.execute(GENERATED, {"now": NOW, "size": SIZE})
            database.settle(connection, "users", "organizations", "memberships", "mfa_events", "login_events")
        yield own.conninfo


FETCHED = """
    select sum(seq_scan) filter (where relname in ('users', 'organizations', 'memberships', 'mfa_events', 'login_events')),
           sum(seq_tup_read + coalesce(idx_tup_fetch, 0))
    from pg_stat_xact_user_tables"""


async def fetched(connection: Connection) -> tuple[int, int]:
    """Return the number of sequential scans and of fetched rows in this transaction. Index-only scans fetch none."""
    [(scans, rows)] = await connection.rows(FETCHED)
    return scans, rows


@pytest.mark.slow
@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
async def test_few_rows_of_large_tables_are_read(large_database: str, plans: str) -> None:
    person = UUID(hashlib.md5(b"u1", usedforsecurity=False).hexdigest())
    async with await connect(large_database, timeout=5) as connection:
        await connection.run(f"set plan_cache_mode = {plans}")
        users = AccountsRepositories(connection, make_vault(), NoSignals()).platform_users
        searches: list[tuple[dict[str, Any], int]] = [
            ({}, 100),
            ({"email": "person"}, 100),
            ({"email": f"person-{SIZE}@"}, 1),
            ({"email": "unknown"}, 0),
            ({"user_id": person}, 1),
            ({"user_id": person, "email": "unknown"}, 0),
        ]
        for filters, count in searches:
            async with connection.transaction():
                before = await fetched(connection)
                assert len(await users.search(100, **filters)) == count, filters
                after = await fetched(connection)
            # For each user: the account, the membership and its organization.
            assert after[0] == before[0], filters
            assert after[1] - before[1] <= 3 * count + 20, filters
        async with connection.transaction():
            before = await fetched(connection)
            assert await users.mfa_status(person) is not None
            assert len(await users.alerts(NOW - DAY, 100)) == 29, "every fifth of the 144 events of a day"
            after = await fetched(connection)
        assert after[0] == before[0]
        assert after[1] - before[1] <= 200
