"""Forwarding of audit logs, step by step, for tests without the actor."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.eventing import siem
from core.eventing.siem_rules import SiemAttempt, SiemProvider, SiemSink
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.principals import SYSTEM
from core.kernel.values import new_id
from ports import Ports
from tests.support.builders import run_sql

TOKEN = "t0ken-of-the-siem"


def make_sink(org: UUID, endpoint_url: str = "https://siem.example.com/collect", **changes: Any) -> SiemSink:
    plain = SiemSink(org_id=org, provider=SiemProvider.HTTP, endpoint_url=endpoint_url, token=TOKEN, enabled=True)
    return replace(plain, **changes)


async def configure(ports: Ports, sink: SiemSink) -> None:
    """Without a record."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.siem.put(new_id(), sink, ports.clock.now())


async def record(ports: Ports, org: UUID, *targets: str, name: str = "plan.created") -> None:
    """Entries, in one transaction."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for target in targets:
            tx.record(Event(EVENT_KINDS[name], target, org_id=org))


async def forward(ports: Ports) -> list[SiemAttempt]:
    """What the forwarder does, until nothing is due."""
    done = []
    while claimed := await siem.claim_queue(ports, struggling=True):
        attempt = await siem.attempt(ports, claimed)
        assert attempt is not None
        await siem.settle(ports, claimed, attempt, slow=False, spread=0.5)
        done.append(attempt)
    return done


async def queued(pool: Pool, org: UUID) -> list[str]:
    """The targets of the entries that wait, in their order."""
    waiting = """
        select l.target_id from siem_queue q join audit_log l on l.id = q.entry_id where q.org_id = %s order by q.position"""
    return [row[0] for row in await run_sql(pool, waiting, org)]
