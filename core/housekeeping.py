"""Removing what is past its use (security.md N-9). Nothing relies on it: expiry is checked at every use."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from core.access import SYSTEM
from core.values import new_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from ports import Ports

BATCH = 1000
# An ended session is kept for a while, so that its refresh tokens are still recognised as reused rather than unknown.
ENDED_SESSIONS_KEPT = timedelta(days=1)
FINISHED_MAILS_KEPT = timedelta(days=7)
# Event rows are what webhooks are fed from; the audit log is the lasting record.
EVENTS_KEPT = timedelta(days=30)
LEASE = timedelta(minutes=5)

HOLDER: UUID = new_id()


async def sweep(ports: Ports) -> AsyncIterator[tuple[str, int]]:
    """Remove in bounded batches, by one process at a time, telling what was removed and how many; ends when all is tidy."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        if not await tx.leases.take("housekeeper", HOLDER, now, now + LEASE):
            return
    sweeps = (
        ("one_time_tokens", now),
        ("signing_keys", now),
        ("sessions", now - ENDED_SESSIONS_KEPT),
        ("rates", now),
        ("guesses", now),
        ("mails", now - FINISHED_MAILS_KEPT),
        ("events", now - EVENTS_KEPT),
        ("unverified_accounts", now - ports.policy.unverified_purge),
    )
    for what, before in sweeps:
        while True:
            async with ports.storage.transaction(by=SYSTEM) as tx:
                removed = await tx.housekeeping.sweep(what, before, BATCH)
            if removed:
                yield what, removed
            if removed < BATCH:
                break
