"""The world beyond the process: mail, for now."""

from dataclasses import dataclass
from typing import Protocol

from core.mails import Mail
from core.values import Email


@dataclass(frozen=True, slots=True)
class Letter:
    """A mail ready to go. `message_id` is the same at every attempt, so that a receiver can tell a duplicate."""

    message_id: str
    to: Email
    subject: str
    text: str
    html: str


class Letters(Protocol):
    """Wording and design of mails."""

    def compose(self, mail: Mail) -> Letter:
        """The letter for a prepared mail; every link is on the configured base URL (security.md E-2)."""
        ...


class MailRefused(Exception):
    """The mail server could not be reached or did not take the letter; the text says why, without secrets, for the operator."""


class Mailbox(Protocol):
    """Where letters leave the house."""

    async def send(self, letter: Letter) -> None:
        """Hand the letter over. Raises MailRefused. Returns within 60 s."""
        ...
