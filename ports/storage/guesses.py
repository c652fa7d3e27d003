"""What is asked of storage about wrong guesses."""

from datetime import datetime
from typing import Protocol

from core.guesses import Allowance, Secret
from core.login import Guess
from core.values import Email


class RightAnswers(Protocol):
    async def clear(self, secret: Secret, subject: bytes) -> None:
        """Forget the guesses that were counted."""
        ...


class Guesses(RightAnswers, Protocol):
    """Counters of wrong guesses (core/guesses.py)."""

    async def charge(self, secret: Secret, subject: bytes, allowance: Allowance, now: datetime) -> datetime | None:
        """Count one guess; or, when it must wait, count nothing and return until when. Atomic."""
        ...

    async def charge_password(self, email: Email, trust_hash: bytes | None, allowance: Allowance, now: datetime) -> Guess:
        """The same of a guess at the password of whoever has this address, which nobody need have.

        Where the account trusts the device with the trust token of this SHA-256, and the token is live, it is counted at the device.
        """
        ...

    async def take_back(self, secret: Secret, subject: bytes, allowance: Allowance) -> None:
        """Have a guess that was counted not count: it was right. Atomic."""
        ...
