"""Storage for the email queue."""

from collections.abc import Awaitable, Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model import email_queue
from core.kernel.values import Email


class EmailLeases(Protocol):
    """Leases on queued emails, and the outcomes after attempts."""

    async def claim(
        self, now: datetime, lease_until: datetime, limit: int, busy: email_queue.BusyServers = email_queue.NO_BUSY_SERVERS
    ) -> list[email_queue.QueuedEmail]:
        """Lease due emails, oldest first. Leased emails fall due again at `lease_until`.

        Emails that another process has leased and emails for busy servers are left out. A token with a broken seal
        counts as not created yet, so that a single bad row does not stop the queue.
        """

    async def finish(
        self, email: email_queue.QueuedEmail, outcome: email_queue.EmailOutcome, now: datetime, *, reason: str | None = None
    ) -> None:
        """Record the final outcome and delete the token.

        The call is ignored if the email was claimed again, except for SENT: a sent email is sent, no matter which
        process has the lease now.
        """

    async def postpone(self, email: email_queue.QueuedEmail, due_at: datetime, reason: str) -> None:
        """Record a failed attempt. The call is ignored if the lease expired and the email was claimed again."""


class EmailQueue(EmailLeases, Protocol):
    """The email queue. Tokens are stored sealed."""

    async def add(self, email: email_queue.QueuedEmail) -> None:
        """Add an email. Every process's mailer is notified when the transaction commits."""

    async def add_within(self, email: email_queue.QueuedEmail, per_day: int) -> None:
        """Add an email that an organization's directory causes, due so that at most `per_day` go out in 24 hours.

        The caller locks the organization first.
        """

    async def is_waiting(self, kind: email_queue.EmailKind, address: Email, org_id: UUID) -> bool:
        """Return whether the organization has an unsent email of this kind to this address."""

    async def withdraw(self, kind: email_queue.EmailKind, address: Email, org_id: UUID, now: datetime) -> None:
        """Drop the organization's unsent emails of this kind to this address."""

    async def save_token(self, email: email_queue.QueuedEmail, token: str | None, now: datetime) -> None:
        """Store the token for further attempts, and count the email against the recipient's limit.

        Change nothing if the email was claimed again or withdrawn (see `is_claimed`).
        """

    def is_claimed(self, email: email_queue.QueuedEmail) -> Awaitable[bool]:
        """Return whether the email is still claimed as given, and not claimed again or withdrawn."""

    async def count_since(
        self, address: Email, kinds: Collection[email_queue.EmailKind], since: datetime, org_id: UUID | None = None
    ) -> int:
        """Return how many emails of these kinds were counted against the recipient's limit since then.

        With `org_id`, only this organization's emails count.
        """

    async def nth_newest_at(self, address: Email, kind: email_queue.EmailKind, n: int, org_id: UUID | None = None) -> datetime | None:
        """Return when the n-th newest email of this kind to this address was queued, sent or not, or None if there are fewer.

        With `org_id`, only this organization's emails count.
        """

    async def lock_recipient(self, address: Email) -> None:
        """Make concurrent transactions that count emails to this address wait. The address may have no account to lock."""
