"""Emails about secrets that expire soon (decision 291)."""

from datetime import datetime
from functools import partial
from uuid import UUID

from core.accounts.model import email_queue
from core.maintenance import housekeeping
from core.maintenance.model import expiring_secrets
from ports import Ports
from ports.storage import Transaction


async def announce(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Queue an email about every secret that expires soon, in batches.

    The transaction that queues the email also marks the secret, so every announcement is queued once. Return how many
    emails there are by kind, or None if another process holds the lease.
    """

    async def process(kind: email_queue.NoticedSecret, tx: Transaction, now: datetime) -> int:
        announced = await tx.expiring_secrets.claim(kind, expiring_secrets.ANNOUNCED_DAYS, now, expiring_secrets.BATCH)
        for secret in announced:
            await tx.email_queue.add(
                email_queue.new_email(email_queue.EmailKind.SECRET_EXPIRES, secret.recipient, now, secret=secret.to_notice())
            )
        return len(announced)

    batches = {kind.value: partial(process, kind) for kind in email_queue.NoticedSecret}
    return await housekeeping.process_in_batches(
        ports, holder, expiring_secrets.LEASE_NAME, expiring_secrets.LEASE, expiring_secrets.BATCH, batches
    )
