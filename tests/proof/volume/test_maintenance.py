"""Sweeps of deferred deletions find records by index in large tables."""

from typing import Final, LiteralString
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from adapters.postgres.maintenance.housekeeping import SWEEPS
from core.maintenance.model.housekeeping import Sweep
from tests.maintenance.storage.tombstones import FILLING, TOMBSTONE_TABLES, add_tombstone, count_records
from tests.proof.volume.plans import PLAN_MODES, plan_nodes, rows_of, without_foreign_keys
from tests.support.rows import ADA, NOW, account, add

pytestmark = pytest.mark.slow

MANY: Final = 30_000


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_records_are_found_by_index_even_if_there_are_few(storage: Postgres, pool: Pool, mode: str) -> None:
    """A planner that expects the whole table to belong to one organization would read all of it, every few minutes."""
    await add(storage, account(ADA))
    gone = uuid4()
    fills: tuple[LiteralString, ...] = (
        """insert into users (id, email, origin, created_at, updated_at)
           select gen_random_uuid(), n || '@example.com', 'platform', now(), now() from generate_series(1, %(many)s) n""",
        """create temporary table owners as
           select n, case when n <= 100 then %(gone)s::uuid else %(other)s end as org
           from generate_series(1, %(many)s) n""",
        """insert into service_users (service_id, user_id, org_id, email, deactivated, created_at)
           select org, id, org, email, false, now() from owners join users u on u.email = n || '@example.com'""",
        """insert into end_users (org_id, user_id, email, deactivated, created_at)
           select org, id, email, false, now() from owners join users u on u.email = n || '@example.com'""",
        """insert into login_events (id, user_id, org_id, service_id, provider, success, created_at)
           select gen_random_uuid(), u.id, org, org, 'x', true, now() from owners, users u where u.email = 'ada@example.com'""",
        """insert into login_totals (org_id, service_id, day, provider, shard, total)
           select org, org, date '2026-01-01' + n, 'x', 0, 1 from owners""",
        """insert into webhook_deliveries (id, org_id, webhook_id, event_type, payload, status, due_at, created_at, updated_at)
           select gen_random_uuid(), org, org, 'x', '{}', 'done', now(), now(), now() from owners""",
        "drop table owners",
    )
    async with without_foreign_keys(pool) as connection:
        for statement in fills:
            await connection.execute(statement, {"gone": gone, "other": uuid4(), "many": MANY})
        await connection.execute("analyze users, service_users, end_users, login_events, login_totals, webhook_deliveries")
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
