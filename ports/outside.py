"""The world beyond the process: mail, for now."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from core.mails import Mail
from core.values import Email


@dataclass(frozen=True, slots=True)
class Letter:
    """A mail ready to go. The same mail gives the same `message_id` and `date` at every attempt, so that a receiver can tell a duplicate.

    `date` is UTC. The bodies hold one-time links, so they are not shown.
    """

    message_id: str
    date: datetime
    to: Email
    subject: str
    text: str = field(repr=False)
    html: str = field(repr=False)


class Letters(Protocol):
    """Wording and design of mails."""

    def compose(self, mail: Mail) -> Letter:
        """The letter for a prepared mail; every link is on the configured base URL (security.md E-2)."""
        ...


class MailRefused(Exception):
    """The mail server could not be reached or did not take the letter; the text says why, without secrets, for the operator."""


class MailTransport(Protocol):
    """Where letters leave the house."""

    async def send(self, letter: Letter) -> None:
        """Hand the letter over. Raises MailRefused. Returns within 60 s.

        A line break or another control character in a header is refused before anything is sent (security.md E-4). Cancellation
        leaves it open whether the letter went out.
        """
        ...
