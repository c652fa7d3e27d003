"""Deleting obsolete rows (security N-9) and personal data in logs (docs/adr/0008), and `process_in_batches`, which all sweeps use.

No rule relies on this: all code that uses a row checks its expiry. Work is done in batches, because a log may be longer than a transaction
should process. Emails about secrets that expire soon (decision 291) are such a sweep, too.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from core.accounts.model import email_queue
from core.kernel.causes import SYSTEM
from core.maintenance.model import housekeeping
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
        housekeeping.Sweep.SIGNING_KEYS: ports.policy.session_absolute_ttl,  # for hints
        housekeeping.Sweep.FAILED_LOGINS: ports.policy.failed_logins_kept,
        housekeeping.Sweep.UNVERIFIED_ACCOUNTS: ports.policy.unverified_purge,
    }

    async def process(kind: housekeeping.Sweep, tx: Transaction, _: datetime) -> int:
        if kind is housekeeping.Sweep.LOG_REDACTIONS:
            return await sweep_redactions(tx, housekeeping.BATCH)
        if kind is housekeeping.Sweep.DPOP_PROOFS:
            return await tx.dpop_proofs.sweep(started)
        return await tx.housekeeping.sweep(kind, started - by_policy.get(kind, kind.kept), housekeeping.BATCH)

    def report(kind: str, count: int) -> None:
        if kind == housekeeping.Sweep.SIEM_BACKLOGS:
            ports.metrics.siem_dropped(count)

    return await process_in_batches(
        ports,
        holder,
        "housekeeper",
        housekeeping.LEASE,
        housekeeping.BATCH,
        {kind: partial(process, kind) for kind in housekeeping.Sweep},
        report=report,
    )


async def reencrypt(ports: Ports) -> int:
    """Encrypt again, with the active key, every value that another key encrypted. Return how many values were encrypted (security L-1)."""
    return await _open_sealed(ports, renew=True)


async def check_sealed(ports: Ports) -> int:
    """Decrypt every encrypted value. Return how many values were decrypted. Raises: SealBroken if the keys do not fit a value."""
    return await _open_sealed(ports, renew=False)


async def _open_sealed(ports: Ports, *, renew: bool) -> int:
    count = 0
    for column in housekeeping.SealedColumn:
        after: str | None = ""
        while after is not None:
            async with ports.storage.transaction(by=SYSTEM) as tx:
                opened, after = await (tx.sealed.renew if renew else tx.sealed.check)(column, after, housekeeping.BATCH)
            count += opened
    return count


async def finish_redaction(ports: Ports, user_id: UUID) -> None:
    """Redact the rest of the user's log entries, one transaction per batch.

    The housekeeper may work on the same entries at the same time.
    """
    async with ports.storage.reading() as read:
        if await read.privacy.next_log_to_redact(user_id) is None:
            return
    done = housekeeping.REDACTION_BATCH
    while done >= housekeeping.REDACTION_BATCH:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            done = await _redact(tx, user_id, housekeeping.REDACTION_BATCH)


async def sweep_redactions(tx: Transaction, limit: int) -> int:
    """Redact at most `limit` entries about anonymized users, one user after the other. Return how many entries were redacted."""
    done = 0
    while done < limit and (user_id := await tx.privacy.next_user_to_redact()) is not None:
        done += await _redact(tx, user_id, limit - done)
    return done


async def _redact(tx: Transaction, user_id: UUID, limit: int) -> int:
    await tx.accounts.lock(user_id)  # a concurrent redaction waits here, and then continues with the next entries
    done = 0
    while done < limit and (log := await tx.privacy.next_log_to_redact(user_id)) is not None:
        done += await tx.privacy.redact(user_id, log, limit - done)
    return done


async def announce_expiring_secrets(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Queue an email about every secret that expires soon, in batches.

    The transaction that queues the email also marks the secret, so every announcement is queued once. Return how many
    emails there are by kind, or None if another process holds the lease.
    """

    async def process(kind: email_queue.NoticedSecret, tx: Transaction, now: datetime) -> int:
        announced = await tx.expiring_secrets.claim(kind, housekeeping.ANNOUNCED_DAYS, now, housekeeping.EXPIRY_BATCH)
        for secret in announced:
            await tx.email_queue.add(
                email_queue.new_email(email_queue.EmailKind.SECRET_EXPIRES, secret.recipient, now, secret=secret.to_notice())
            )
        return len(announced)

    batches = {kind.value: partial(process, kind) for kind in email_queue.NoticedSecret}
    return await process_in_batches(
        ports, holder, housekeeping.EXPIRY_LEASE_NAME, housekeeping.EXPIRY_LEASE, housekeeping.EXPIRY_BATCH, batches
    )
