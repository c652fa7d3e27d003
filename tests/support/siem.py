"""SIEM configurations and queues, and forwarding without the actor."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.eventing import siem
from core.eventing.model.siem import SiemAttempt, SiemProvider, SiemSink
from core.kernel.causes import SYSTEM
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.values import new_id
from ports import Ports
from ports.storage import Storage
from tests.support.builders import run_sql
from tests.support.rows import NOW

TOKEN = "t0ken-of-the-siem"


def make_sink(org: UUID, endpoint_url: str = "https://siem.example.com/collect", **changes: Any) -> SiemSink:
    default = SiemSink(org_id=org, provider=SiemProvider.HTTP, endpoint_url=endpoint_url, token=TOKEN, enabled=True)
    return replace(default, **changes)


async def configure(ports: Ports, sink: SiemSink) -> None:
    """Store a configuration without recording an event."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.siem.put(new_id(), sink, ports.clock.now())


async def remove_configuration(storage: Storage, org: UUID) -> None:
    """Remove an existing configuration without recording an event."""
    async with storage.transaction(by=SYSTEM) as tx:
        removed = await tx.siem.remove(org, NOW)
        assert removed is not None


async def fill_queue(pool: Pool, org: UUID, count: int) -> None:
    """Queue this many ids without an audit log entry."""
    insert = """
        insert into siem_queue (org_id, siem_id, entry_id)
        select org_id, id, gen_random_uuid() from siem_configurations, generate_series(1, %s) where org_id = %s"""
    await run_sql(pool, insert, count, org)


async def record(ports: Ports, org: UUID, *targets: str, name: str = "plan.created") -> None:
    """Record an event per target in a single transaction."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for target in targets:
            tx.record(Event(EVENT_KINDS[name], target, org_id=org))


async def forward(ports: Ports) -> list[SiemAttempt]:
    """Forward all due queues, as the actor does. Return the attempts."""
    attempts = []
    while claimed := await siem.claim_queue(ports, struggling=True):
        attempt = await siem.attempt(ports, claimed)
        assert attempt is not None
        await siem.settle(ports, claimed, attempt, slow=False, spread=0.5)
        attempts.append(attempt)
    return attempts


async def queued(pool: Pool, org: UUID) -> list[str]:
    """Return the queued entries' targets, in order."""
    statement = """
        select l.target_id from siem_queue q join audit_log l on l.id = q.entry_id where q.org_id = %s order by q.position"""
    return [row[0] for row in await run_sql(pool, statement, org)]
