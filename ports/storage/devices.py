"""What is asked of storage about devices."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.devices import Device, Look, Recognised, Seen


class DevicesRead(Protocol):
    """From where people sign in, looked at. `org_id` is the organization of the service that it is about, None without one: its trust
    period counts beside those of the organizations in which the person takes part (decisions, point 81)."""

    async def of_person(
        self, user_id: UUID, session_id: UUID, org_id: UUID | None, now: datetime, after: Device | None, limit: int
    ) -> list[Seen]:
        """Those that are not revoked, as they are seen in this session, the one that was used last first, or those that follow `after`."""
        ...

    async def by_id(self, device_id: UUID, session_id: UUID, org_id: UUID | None, now: datetime) -> Seen | None:
        """This one, whosever it is, revoked or not."""
        ...


class Devices(DevicesRead, Protocol):
    """The same, changed. The account is locked before any of these."""

    async def recognise(self, user_id: UUID, look: Look, org_id: UUID | None, now: datetime) -> Recognised:
        """The device, not revoked, that has this trust token; else this id of the client's; else, if the client keeps none, one without an
        id that says the same of itself, of several the one that was used last. And what is known of earlier logins, as it concerns one
        from this place."""
        ...

    async def of_client(self, user_id: UUID, client_hash: bytes) -> Device | None:
        """The device, not revoked, whose client's id has this hash."""
        ...

    async def keep(self, device: Device) -> None:
        """Add it, or write all but its owner, the id of its client and when it was first seen; a revoked one stays as it is."""
        ...

    async def rename(self, user_id: UUID, device_id: UUID, name: str, now: datetime) -> None: ...

    async def revoke(self, user_id: UUID, device_id: UUID, now: datetime) -> None:
        """Its trust ends as well."""
        ...

    async def distrust(self, user_id: UUID, now: datetime) -> None:
        """All device trust of the person ends."""
        ...
