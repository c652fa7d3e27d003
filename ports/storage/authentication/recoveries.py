"""Storage for account recoveries."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.authentication.model.recovery import AccountRecovery, CountedAttempt
from core.kernel.values import Email


class RecoveriesRead(Protocol):
    """Read access to recoveries. Only unfinished recoveries are returned."""

    async def of_user(self, user_id: UUID, now: datetime, org_id: UUID | None = None) -> AccountRecovery | None:
        """Return an account's recovery, unless it has expired. With `org_id`, return it only if this organization issued it."""

    async def of_address(self, email: Email, now: datetime) -> AccountRecovery | None:
        """Return the recovery for the account with this address, unless it has expired or is open in a browser."""

    async def open_in(self, browser_hash: bytes, now: datetime) -> UUID | None:
        """Return the newest recovery that is open in this browser."""

    async def of_browser(self, recovery_id: UUID, browser_hash: bytes, now: datetime) -> tuple[AccountRecovery, str] | None:
        """Return a recovery that is open in this browser, with its secret for an authenticator app."""


class RecoveryAttempts(Protocol):
    """The counter for attempts at the code, which stays after a refusal."""

    async def count_attempt(self, recovery_id: UUID, limit: int, now: datetime) -> CountedAttempt | None:
        """Count an attempt, and return it, or None if the recovery takes no more attempts."""


class Recoveries(RecoveriesRead, Protocol):
    """Write access to recoveries. Callers lock the account first."""

    async def end(self, recovery_id: UUID) -> bool:
        """Remove this recovery, and return whether it was there."""

    async def put(self, recovery: AccountRecovery, code_hash: bytes) -> None:
        """Store the recovery in place of the account's earlier recovery."""

    async def open(self, recovery: AccountRecovery, browser_hash: bytes, secret: str, now: datetime) -> bool:
        """Open the recovery in this browser. Exactly one browser gets True."""

    async def remove(self, user_id: UUID, org_id: UUID | None = None) -> AccountRecovery | None:
        """Remove the account's recovery, and return it, or None. With `org_id`, return it only if this organization issued it."""

    async def take(self, recovery_id: UUID, browser_hash: bytes, now: datetime) -> UUID | None:
        """Use up a recovery that is open in this browser, and return its account's id. Exactly one concurrent call gets the id."""
