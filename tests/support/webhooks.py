"""Webhooks in the database, events for them, and the delivery queue."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.eventing.model.webhooks import Webhook, new_signing_secret
from core.kernel import event_catalog
from core.kernel.causes import SYSTEM
from core.kernel.event_catalog import EVENT_KINDS
from core.kernel.values import new_id
from ports import Ports
from tests.support.builders import run_sql

EVENT: Final = "user.invited"
SECRET: Final = new_signing_secret()
COLUMNS: Final = (
    *("id", "webhook_id", "status", "due_at", "claims", "attempt_count", "delivered", "response_status_code", "response_body"),
    *("delivery_error", "next_retry_at", "payload", "created_at", "attempts"),
)


async def add_webhook(
    ports: Ports, org: UUID, url: str, event_types: Sequence[str] = (EVENT,), *, secret: str = SECRET, **changes: Any
) -> Webhook:
    now = ports.clock.now()
    id_ = new_id()
    default = Webhook(
        id=id_, org_id=org, name=f"hook {id_}", url=url, events=tuple(event_types), is_active=True, created_at=now, updated_at=now
    )
    webhook = replace(default, **changes)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.webhooks.add(webhook, secret)
    return webhook


async def happen(ports: Ports, org: UUID, count: int = 1, name: str = EVENT) -> None:
    """Record events in a single system transaction."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for number in range(count):
            tx.record(event_catalog.Event(EVENT_KINDS[name], f"target {number}", org_id=org, details={"number": number}))


async def queue(pool: Pool) -> list[dict[str, Any]]:
    """Return all deliveries in the database, oldest first."""
    rows = await run_sql(pool, f"select {', '.join(COLUMNS)} from webhook_deliveries order by created_at, id")  # noqa: S608
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]
