"""Removing what is past its use (security.md N-9). Nothing relies on it: expiry is checked at every use."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from core.access import SYSTEM

if TYPE_CHECKING:
    from uuid import UUID

    from ports import Ports

BATCH = 1000
# An ended session is kept for a while, so that its refresh tokens are still recognised as reused rather than unknown.
ENDED_SESSIONS_KEPT = timedelta(days=1)
FINISHED_MAILS_KEPT = timedelta(days=7)
# Event rows are what webhooks are fed from; the audit log is the lasting record.
EVENTS_KEPT = timedelta(days=30)
# Who was told of a change before an organization was deleted may still write of it for a moment.
TOMBSTONES_KEPT = timedelta(days=1)
# Longer than one batch can take, and than the pause between two sweeps, so that one process goes on doing it while it lives.
LEASE = timedelta(minutes=5)


class Sweep(StrEnum):
    """What is swept."""

    ONE_TIME_TOKENS = "one_time_tokens"
    SIGNING_KEYS = "signing_keys"
    SESSIONS = "sessions"
    RATES = "rates"
    GUESSES = "guesses"
    MAILS = "mails"
    EVENTS = "events"
    UNVERIFIED_ACCOUNTS = "unverified_accounts"
    DELETED_ORGANIZATIONS = "deleted_organizations"  # last, since a large one takes minutes


class Sealed(StrEnum):
    """The columns whose values are encrypted at rest."""

    SIGNING_KEYS = "signing_keys.private_key"
    MAIL_TOKENS = "mails.token"


async def sweep(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Remove in bounded batches all that is past its use: how many of what. None while another holder is at it."""
    now = ports.clock.now()
    kept = {
        Sweep.SESSIONS: ENDED_SESSIONS_KEPT,
        Sweep.MAILS: FINISHED_MAILS_KEPT,
        Sweep.EVENTS: EVENTS_KEPT,
        Sweep.UNVERIFIED_ACCOUNTS: ports.policy.unverified_purge,
        Sweep.DELETED_ORGANIZATIONS: TOMBSTONES_KEPT,
    }
    removed: dict[str, int] = {}
    for what in Sweep:
        before = now - kept.get(what, timedelta())
        count = BATCH
        while count >= BATCH:
            async with ports.storage.transaction(by=SYSTEM) as tx:
                # With each batch, since a large backlog may take longer than a lease.
                taken = ports.clock.now()
                if not await tx.leases.take("housekeeper", holder, taken, taken + LEASE):
                    return removed or None
                count = await tx.housekeeping.sweep(what, before, BATCH)
            if count:
                removed[what] = removed.get(what, 0) + count
    return removed


async def reencrypt(ports: Ports) -> int:
    """Seal again, under the active key, every value that is sealed under another one; how many it were (security.md L-1)."""
    renewed = 0
    for kind in Sealed:
        after: str | None = ""
        while after is not None:
            async with ports.storage.transaction(by=SYSTEM) as tx:
                count, after = await tx.sealed.renew(kind, after, BATCH)
            renewed += count
    return renewed
