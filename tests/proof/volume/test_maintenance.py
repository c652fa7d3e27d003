"""Sweeps that delete later find records by index in large tables."""

from collections.abc import Iterator
from typing import Final, LiteralString
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.maintenance.housekeeping import SWEEPS
from core.maintenance.model.housekeeping import Sweep
from tests.maintenance.storage.tombstones import FILLING, TOMBSTONE_TABLES, add_tombstone, count_records
from tests.proof.volume.plans import PLAN_MODES, filled_database, plan_nodes, rows_of
from tests.support.rows import NOW

pytestmark = pytest.mark.slow

MANY: Final = 10_000
TABLES: Final = ("users", "service_users", "end_users", "login_events", "login_totals", "webhook_deliveries")
# Every plan mode has its own deleted organization, with 100 rows in all tables.
GONE = {mode: UUID(int=number) for number, mode in enumerate(PLAN_MODES, 2)}
INSERTS: Final[LiteralString] = """
    insert into users (id, email, origin, created_at, updated_at)
    select gen_random_uuid(), n || '@example.com', 'platform', now(), now() from generate_series(1, %(many)s) n;
    create temporary table owners as
    select case when n <= 200 then (%(gone)s::uuid[])[1 + mod(n, 2)] else %(other)s end as org, n, u.id as user_id, u.email
    from generate_series(1, %(many)s) n join users u on u.email = n || '@example.com';
    insert into service_users (service_id, user_id, org_id, email, deactivated, created_at)
    select org, user_id, org, email, false, now() from owners;
    insert into end_users (org_id, user_id, email, deactivated, created_at) select org, user_id, email, false, now() from owners;
    insert into login_events (id, user_id, org_id, service_id, provider, success, created_at)
    select gen_random_uuid(), %(user)s, org, org, 'x', true, now() from owners;
    insert into login_totals (org_id, service_id, day, provider, shard, total)
    select org, org, date '2026-01-01' + n, 'x', 0, 1 from owners;
    insert into webhook_deliveries (id, org_id, webhook_id, event_type, payload, status, due_at, created_at, updated_at)
    select gen_random_uuid(), org, org, 'x', '{}', 'done', now(), now(), now() from owners"""


@pytest.fixture(scope="module")
def large_database(server: str) -> Iterator[str]:
    """A filled database for both plan modes."""
    parameters = {"many": MANY, "gone": list(GONE.values()), "other": UUID(int=1), "user": UUID(int=1)}
    with filled_database(server, INSERTS, parameters, *TABLES) as conninfo:
        yield conninfo


@pytest.fixture
def conninfo(large_database: str) -> str:
    return large_database


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_records_are_found_by_index_even_if_there_are_few(pool: Pool, mode: str) -> None:
    """A planner that expects the whole table to belong to a single organization would read all of it, every few minutes."""
    gone = GONE[mode]
    assert sum((await count_records(pool, gone)).values()) == 100 * (len(TABLES) - 1)
    for kind in TOMBSTONE_TABLES:
        await add_tombstone(pool, kind, gone)
    for kind in (Sweep.DELETED_SERVICES, Sweep.DELETED_WEBHOOKS, Sweep.DELETED_ORGANIZATIONS):
        counts = []
        for limit in (50, 1000, 1000):
            nodes = await plan_nodes(pool, SWEEPS[kind], {"limit": limit, "before": NOW}, mode)
            counts.append(sum(rows_of(node) for node in nodes if node.get("Relation Name") in FILLING))
        assert max(counts) <= 1500, counts
        assert counts[-1] == 0
    assert await count_records(pool, gone) == dict.fromkeys(FILLING, 0)
