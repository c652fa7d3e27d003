"""What is asked of storage about the queue of mails."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.mails import NOTHING_HELD_BACK, HeldBack, Mail, MailKind, Outcome
from core.values import Email


class Mails(Protocol):
    """The queue of mails. Tokens in it are sealed."""

    async def queue(self, mail: Mail) -> None:
        """Also wakes the mailers of all processes, when the transaction commits."""
        ...

    async def queue_within(self, mail: Mail, per_day: int) -> None:
        """The same for one that the directory of its organization causes: it is due as soon as there are no more than so many of those in
        the 24 hours before. The organization is locked."""
        ...

    async def is_waiting(self, kind: MailKind, address: Email, org_id: UUID) -> bool:
        """Whether one of this kind to this address, of this organization, has not gone out yet."""
        ...

    async def withdraw(self, kind: MailKind, address: Email, org_id: UUID, now: datetime) -> None:
        """Drop those of this kind to this address, of this organization, that have not gone out yet."""
        ...

    async def claim(self, now: datetime, lease_until: datetime, limit: int, held_back: HeldBack = NOTHING_HELD_BACK) -> list[Mail]:
        """Due mails, oldest first, that nobody else holds and that are not held back; they fall due again at `lease_until`.

        A token whose seal is broken counts as not made yet, so that one bad row does not hold up all others.
        """
        ...

    async def keep_token(self, mail: Mail, token: str | None, now: datetime) -> bool:
        """Keep the token, if the mail has one, for further attempts, and that it was let through. False, and nothing kept, when the mail
        has been claimed again since, or withdrawn."""
        ...

    async def token_mails_since(self, address: Email, kinds: Collection[MailKind], since: datetime) -> int:
        """How many mails of these kinds to this address have had their token prepared, or were let through, since then."""
        ...

    async def lock_recipient(self, address: Email) -> None:
        """Make others who would count what this address gets wait; for mails to whom there may be no account to lock."""
        ...

    async def finish(self, mail: Mail, outcome: Outcome, now: datetime, *, reason: str | None = None) -> None:
        """The mail is done with; its token is forgotten.

        Without effect when it has been claimed again since, unless it was sent: that is true whoever holds it now.
        """
        ...

    async def postpone(self, mail: Mail, due_at: datetime, reason: str) -> None:
        """An attempt failed. Without effect when the mail has been claimed again since: its lease ended, and it is another's now."""
        ...
