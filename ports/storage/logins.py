"""What is asked of storage about logins."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.devices import Device, Place
from core.sessions import Session


class Logins(Protocol):
    """The lasting record of logins (identity.md section 2.8)."""

    async def succeeded(self, session: Session, provider: str, device: Device | None = None) -> None:
        """The login that began this session, how risky it was and where it came from, as the device says.

        One to a service also counts in the totals of its day.
        """
        ...

    async def remove(self, user_id: UUID, service_id: UUID | None = None) -> None:
        """Remove the record of the person's logins, or of those to this service. Also counts them out."""
        ...


class FailedLogins(Protocol):
    async def failed(
        self, user_id: UUID, provider: str, now: datetime, address: str | None, agent: str | None, place: Place | None = None
    ) -> None:
        """Recorded without waiting for the disk: a known account must not answer later than an unknown one (security.md B-2)."""
        ...
