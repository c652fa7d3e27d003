"""Storage of the recoveries of accounts."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.authentication.model.recovery import AccountRecovery, CountedAttempt
from core.kernel.values import Email


class RecoveriesRead(Protocol):
    """Read access to recoveries. All of them are unfinished."""

    async def of_user(self, user_id: UUID, now: datetime) -> AccountRecovery | None:
        """Return the recovery of an account, unless it has expired."""

    async def of_address(self, email: Email, now: datetime) -> AccountRecovery | None:
        """Return the recovery of the account with this address, unless it has expired or is open in a browser."""

    async def of_browser(self, recovery_id: UUID, browser_hash: bytes, now: datetime) -> tuple[AccountRecovery, str] | None:
        """Return a recovery that is open in this browser, with its secret for an authenticator app."""


class RecoveryAttempts(Protocol):
    """The counter of attempts at the code, which stays after a refusal."""

    async def count_attempt(self, recovery_id: UUID, limit: int, now: datetime) -> CountedAttempt | None:
        """Count an attempt, and return it, or None if the recovery takes no more attempts."""


class Recoveries(RecoveriesRead, Protocol):
    """Write access to recoveries. Callers lock the account first."""

    async def end(self, recovery_id: UUID) -> bool:
        """Remove this recovery, and return whether it was there."""

    async def put(self, recovery: AccountRecovery, code_hash: bytes) -> None:
        """Store the recovery in place of an earlier one of the account."""

    async def open(self, recovery: AccountRecovery, browser_hash: bytes, secret: str, now: datetime) -> bool:
        """Open the recovery in this browser. Of all browsers, one gets True."""

    async def remove(self, user_id: UUID, org_id: UUID | None = None) -> bool:
        """Remove the recovery of the account, and return whether there was one. With `org_id`: one that this organization issued."""

    async def take(self, recovery_id: UUID, browser_hash: bytes, now: datetime) -> UUID | None:
        """Use up a recovery that is open in this browser, and return the id of its account. Of several concurrent calls, one gets it."""
