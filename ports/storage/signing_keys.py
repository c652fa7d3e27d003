"""What is asked of storage about signing keys."""

from datetime import datetime
from typing import Protocol

from core.signing_keys import SigningKey


class SigningKeysRead(Protocol):
    async def live(self, now: datetime) -> list[SigningKey]:
        """Keys that are believed now, newest first."""
        ...


class SigningKeys(SigningKeysRead, Protocol):
    async def lock(self) -> None:
        """Make others who would rotate wait."""
        ...

    async def has_active(self) -> bool: ...

    async def add(self, key: SigningKey) -> None:
        """Also tells all processes, when the transaction commits."""
        ...

    async def retire_all(self, retires_at: datetime) -> None: ...
