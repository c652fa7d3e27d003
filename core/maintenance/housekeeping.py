"""Deleting obsolete rows (security N-9), and `process_in_batches`, which all sweeps use.

No rule relies on this: all code that uses a row checks its expiry.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from core.kernel.causes import SYSTEM
from core.maintenance import log_redaction
from core.maintenance.model.housekeeping import BATCH, LEASE, SealedColumn, Sweep
from ports import Ports
from ports.storage import Transaction

# Processes a batch in this transaction, at this time, and returns how many items it had. If there
# are fewer items than the batch size, nothing is left.
ProcessBatch = Callable[[Transaction, datetime], Awaitable[int]]


async def process_in_batches(
    ports: Ports,
    holder: UUID,
    lease: str,
    length: timedelta,
    size: int,
    batches: Mapping[str, ProcessBatch],
    *,
    report: Callable[[str, int], None] = lambda kind, count: None,
) -> dict[str, int] | None:
    """Process every kind in `batches`, one transaction per batch with `size` items, while `holder` has the lease.

    Return how many items there were by kind, without zeros, or None if another process holds the lease. `report` is
    called after every batch, for metrics that must be counted even if a later batch fails.
    """
    counts: dict[str, int] = {}
    for kind, process in batches.items():
        count = size
        while count >= size:
            async with ports.storage.transaction(by=SYSTEM) as tx:
                now = ports.clock.now()
                # Renewed with every batch, since a large backlog may take longer than a lease.
                if not await tx.leases.take(lease, holder, now, now + length):
                    return counts or None
                count = await process(tx, now)
            if count:
                report(kind, count)
                counts[kind] = counts.get(kind, 0) + count
    return counts


async def sweep(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Delete obsolete rows. Return how many rows were deleted by kind, or None if another process holds the lease."""
    started = ports.clock.now()
    by_policy = {
        Sweep.SIGNING_KEYS: ports.policy.session_absolute_ttl,  # for hints
        Sweep.FAILED_LOGINS: ports.policy.failed_logins_kept,
        Sweep.UNVERIFIED_ACCOUNTS: ports.policy.unverified_purge,
    }

    async def process(kind: Sweep, tx: Transaction, _: datetime) -> int:
        if kind is Sweep.LOG_REDACTIONS:
            return await log_redaction.sweep(tx, BATCH)
        if kind is Sweep.DPOP_PROOFS:
            return await tx.dpop_proofs.sweep(started)
        return await tx.housekeeping.sweep(kind, started - by_policy.get(kind, kind.kept), BATCH)

    def report(kind: str, count: int) -> None:
        if kind == Sweep.SIEM_BACKLOGS:
            ports.metrics.siem_dropped(count)

    return await process_in_batches(
        ports, holder, "housekeeper", LEASE, BATCH, {kind: partial(process, kind) for kind in Sweep}, report=report
    )


async def reencrypt(ports: Ports) -> int:
    """Encrypt again, with the active key, every value that another key encrypted. Return how many values were encrypted (security L-1)."""
    return await _open_sealed(ports, renew=True)


async def check_sealed(ports: Ports) -> int:
    """Decrypt every encrypted value. Return how many values were decrypted. Raises: SealBroken if the keys do not fit a value."""
    return await _open_sealed(ports, renew=False)


async def _open_sealed(ports: Ports, *, renew: bool) -> int:
    count = 0
    for column in SealedColumn:
        after: str | None = ""
        while after is not None:
            async with ports.storage.transaction(by=SYSTEM) as tx:
                opened, after = await (tx.sealed.renew if renew else tx.sealed.check)(column, after, BATCH)
            count += opened
    return count
