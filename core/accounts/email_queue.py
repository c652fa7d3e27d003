"""The email queue: claiming due emails, and recording how every attempt ended.

Use cases add an email in the transaction that causes it. The row has the kind, the address and ids,
but no text. The mailer claims the email, prepares it (`core.mailing.preparation`), sends it and
records the outcome. A crash between any two of these steps loses nothing, because the claim is a
lease that expires. After a crash between sending and recording, the same message is sent again,
with the same Message-ID.
"""

from collections.abc import Callable
from datetime import datetime

from core.accounts.model import email_queue
from core.kernel.errors import Limited
from ports import Ports


def require_within_limit(nth_newest_at: datetime | None, now: datetime, refusal: Callable[[float], Limited]) -> None:
    """Check that a further email, or a change that sends an email, stays within n per hour (security E-5).

    `nth_newest_at` is when the n-th newest email or change was made, or None if there are fewer. To let at most n concurrent calls per hour
    pass, the caller locks the recipient or the account before it reads this time, until the next email or change is stored.

    Raises: `refusal`, with the seconds until the next email or change is within the limit.
    """
    if nth_newest_at is not None and now < nth_newest_at + email_queue.LIMIT_WINDOW:
        raise refusal((nth_newest_at + email_queue.LIMIT_WINDOW - now).total_seconds())


async def claim_due(ports: Ports, limit: int, busy: email_queue.BusyServers = email_queue.NO_BUSY_SERVERS) -> list[email_queue.QueuedEmail]:
    """Lease at most `limit` due emails to the caller. Emails without a recorded outcome fall due again."""
    now = ports.clock.now()
    async with ports.storage.autocommit() as statements:
        return await statements.email_queue.claim(now, now + email_queue.LEASE, limit, busy)


async def measure_backlog(ports: Ports) -> email_queue.EmailBacklog:
    """Return how many emails wait, and for how long."""
    async with ports.storage.reading() as read:
        return await read.platform.email_backlog(ports.clock.now())


async def record_sent(ports: Ports, email: email_queue.QueuedEmail) -> None:
    """Record that the mail server accepted the email."""
    async with ports.storage.autocommit() as statements:
        await statements.email_queue.finish(email, email_queue.EmailOutcome.SENT, ports.clock.now())


async def record_failure(ports: Ports, email: email_queue.QueuedEmail, reason: str, spread: float) -> datetime | None:
    """Record a failed attempt. Return when the email falls due again, or None if it is given up.

    `spread` is a random number from 0 to 1 (see `compute_backoff`).
    """
    now = ports.clock.now()
    attempts = email.attempts + 1
    async with ports.storage.autocommit() as statements:
        if attempts >= email_queue.MAX_ATTEMPTS:
            await statements.email_queue.finish(email, email_queue.EmailOutcome.GIVEN_UP, now, reason=reason)
            return None
        due_at = now + email_queue.compute_backoff(attempts, spread)
        await statements.email_queue.postpone(email, due_at, reason)
    return due_at
