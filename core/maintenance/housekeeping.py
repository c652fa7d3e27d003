"""Removing what is past its use (security.md N-9), and how whatever sweeps does it little by little. Nothing relies on it: expiry is
checked at every use.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from core.accounts.mfa_rules import SETUP_TTL
from core.kernel.principals import SYSTEM
from core.maintenance import log_redaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime
    from uuid import UUID

    from ports import Ports
    from ports.storage import Transaction

    # Does one batch in this transaction, at this time, and says how many it were: fewer than a whole batch were the last.
    Batch = Callable[[Transaction, datetime], Awaitable[int]]
from core.maintenance.housekeeping_rules import (
    BATCH,
    BILLING_KEPT,
    CODES_KEPT,
    DELIVERIES_KEPT,
    ENDED_SESSIONS_KEPT,
    EVENTS_KEPT,
    EXPIRED_DEVICE_CODES_KEPT,
    FINISHED_MAILS_KEPT,
    LEASE,
    LOGIN_TOTALS_APART,
    SIEM_BACKLOGS_KEPT,
    TOMBSTONES_KEPT,
    Sealed,
    Sweep,
)


async def in_batches(
    ports: Ports,
    holder: UUID,
    lease: str,
    length: timedelta,
    size: int,
    batches: Mapping[str, Batch],
    *,
    told: Callable[[str, int], None] = lambda what, count: None,
) -> dict[str, int] | None:
    """Do all of this, a transaction for each batch of this size, while `holder` has the lease: how many of what, where there were any.

    None while another holder is at it. `told` is told of each batch at once, for what must be known even if a later one fails.
    """
    done: dict[str, int] = {}
    for what, batch in batches.items():
        count = size
        while count >= size:
            async with ports.storage.transaction(by=SYSTEM) as tx:
                now = ports.clock.now()
                # With each batch, since a large backlog may take longer than a lease.
                if not await tx.leases.take(lease, holder, now, now + length):
                    return done or None
                count = await batch(tx, now)
            if count:
                told(what, count)
                done[what] = done.get(what, 0) + count
    return done


async def sweep(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Remove in bounded batches all that is past its use: how many of what. None while another holder is at it."""
    started = ports.clock.now()
    kept = {
        Sweep.SESSIONS: ENDED_SESSIONS_KEPT,
        Sweep.DEVICE_CODES: EXPIRED_DEVICE_CODES_KEPT,
        Sweep.AUTHORIZATION_CODES: CODES_KEPT,
        Sweep.MAILS: FINISHED_MAILS_KEPT,
        Sweep.MFA_SETUPS: SETUP_TTL,
        Sweep.EVENTS: EVENTS_KEPT,
        Sweep.UNVERIFIED_ACCOUNTS: ports.policy.unverified_purge,
        Sweep.CHECKOUTS: BILLING_KEPT,
        Sweep.BILLING_FACTS: BILLING_KEPT,
        Sweep.PAYMENT_METHODS: BILLING_KEPT,
        Sweep.DELETED_CUSTOMERS: BILLING_KEPT,
        Sweep.LOGIN_TOTALS: LOGIN_TOTALS_APART,
        Sweep.SIEM_QUEUES: TOMBSTONES_KEPT,
        Sweep.SIEM_BACKLOGS: SIEM_BACKLOGS_KEPT,
        Sweep.WEBHOOK_DELIVERIES: DELIVERIES_KEPT,
        Sweep.DELETED_WEBHOOKS: TOMBSTONES_KEPT,
        Sweep.DELETED_ORGANIZATIONS: TOMBSTONES_KEPT,
    }

    async def batch(what: Sweep, tx: Transaction, _: datetime) -> int:
        if what is Sweep.BLANKINGS:
            return await log_redaction.sweep(tx, BATCH)
        return await tx.housekeeping.sweep(what, started - kept.get(what, timedelta()), BATCH)

    def told(what: str, count: int) -> None:
        if what == Sweep.SIEM_BACKLOGS:
            ports.metrics.siem_dropped(count)

    return await in_batches(ports, holder, "housekeeper", LEASE, BATCH, {what: partial(batch, what) for what in Sweep}, told=told)


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
