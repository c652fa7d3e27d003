"""Statements for platform owners read few rows in large tables."""

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID

import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.repositories import Repositories
from ports.signals import NoSignals
from tests.proof.volume.plans import PLAN_MODES, count_reads, filled_database
from tests.support.builders import make_vault
from tests.support.rows import DAY, NOW

pytestmark = pytest.mark.slow

SIZE: Final = 20_000
TABLES: Final = ("users", "organizations", "memberships", "mfa_events", "login_events")
INSERTS: Final = """
    insert into users (id, email, origin, created_at, updated_at)
    select md5('u' || n)::uuid, 'person-' || n || '@example.com', 'platform', %(now)s - n * interval '1 minute', now()
    from generate_series(1, %(size)s) n;
    insert into organizations (id, slug, name, status, tier_id, created_at, updated_at)
    select md5('o' || n)::uuid, 'o' || n, 'O', 'active', tiers.id, now(), now()
    from generate_series(1, %(size)s / 10) n, tiers where tiers.name = 'free';
    insert into memberships (id, org_id, user_id, email, role, created_at)
    select gen_random_uuid(), md5('o' || 1 + mod(n, %(size)s / 10))::uuid, md5('u' || n)::uuid,
           'person-' || n || '@example.com', 'member', now()
    from generate_series(1, %(size)s) n;
    insert into mfa_events (id, user_id, event_type, success, created_at)
    select gen_random_uuid(), md5('u' || 1 + mod(n, %(size)s))::uuid,
           (array['mfa_verify_attempt', 'mfa_verify_success', 'mfa_verify_failed', 'backup_code_used', 'mfa_disabled'])[1 + mod(n, 5)],
           true, %(now)s - n * interval '10 minutes'
    from generate_series(1, %(size)s) n;
    insert into login_events (id, user_id, provider, success, created_at)
    select gen_random_uuid(), md5('u' || 1 + mod(n, %(size)s))::uuid, 'password', true, %(now)s - n * interval '10 minutes'
    from generate_series(1, %(size)s) n"""


@pytest.fixture(scope="module")
def large_database(server: str) -> Iterator[str]:
    """A filled database for both plan modes."""
    with filled_database(server, INSERTS, {"now": NOW, "size": SIZE}, *TABLES) as conninfo:
        yield conninfo


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_few_rows_of_large_tables_are_read(large_database: str, mode: str) -> None:
    person = UUID(hashlib.md5(b"u1", usedforsecurity=False).hexdigest())
    async with await connect(large_database, timeout=5) as connection:
        users = Repositories(connection, make_vault(), NoSignals()).platform_users
        searches: list[tuple[dict[str, Any], int]] = [
            ({}, 100),
            ({"email": "person"}, 100),
            ({"email": f"person-{SIZE}@"}, 1),
            ({"email": "unknown"}, 0),
            ({"user_id": person}, 1),
            ({"user_id": person, "email": "unknown"}, 0),
        ]
        for filters, count in searches:
            matches, reads = await count_reads(connection, mode, partial(users.search, 100, **filters))
            assert len(matches) == count, filters
            assert not reads.scans.keys() & TABLES, filters
            # Per user: the account, the membership and its organization.
            assert reads.rows.total() <= 3 * count + 20, filters
        status, status_reads = await count_reads(connection, mode, partial(users.mfa_status, person))
        assert status is not None
        alerts, alert_reads = await count_reads(connection, mode, partial(users.alerts, NOW - DAY, 100))
        assert len(alerts) == 29, "every fifth of the 144 events of a day"
        assert not (status_reads.scans + alert_reads.scans).keys() & TABLES
        assert (status_reads.rows + alert_reads.rows).total() <= 200
