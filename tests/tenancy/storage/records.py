"""An organization's audit entries, events and totals."""

from uuid import UUID

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.kernel.causes import SYSTEM
from core.kernel.event_catalog import EVENT_KINDS, Event
from tests.support.builders import run_sql


async def leave_records(storage: Postgres, org: UUID, count: int) -> None:
    """Write this many audit entries and events."""
    async with storage.transaction(by=SYSTEM) as tx:
        for number in range(count):
            tx.record(Event(EVENT_KINDS["service.created"], str(number), org_id=org))


async def records_of(pool: Pool, org: UUID) -> list[int]:
    """Return how many audit entries, events and totals there are."""
    query = """
        select (select count(*) from audit_log where org_id = o), (select count(*) from events where org_id = o),
               (select count(*) from audit_totals where org_id = o) from (select %s::uuid as o) x"""
    return list((await run_sql(pool, query, org))[0])
