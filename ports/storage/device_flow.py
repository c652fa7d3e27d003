"""What is asked of storage about devices that wait to be signed in."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.access import ServiceContext
from core.device_flow import DeviceCode, Poll, RequestStatus, Waiting


class DeviceCodesRead(Protocol):
    """Requests of devices that wait for somebody to sign them in (core/device_flow.py), looked at."""

    async def waiting(self, user_code_hash: bytes) -> Waiting | None:
        """The request with this user code, whatever became of it."""
        ...


class DeviceCodes(DeviceCodesRead, Protocol):
    """The same, changed. The account of whoever does it, or whom it signs in, is locked before all but `add`."""

    async def add(self, code: DeviceCode) -> bool:
        """Add it, with nothing known of polls, unless there is another one with its user code, or its service is gone; whether it was
        added."""
        ...

    async def answer(self, user_code_hash: bytes, status: RequestStatus, session_id: UUID | None, now: datetime) -> bool:
        """Approve it in this session, or deny it in none, if it waits still; whether it did. Atomic."""
        ...

    async def redeem(self, device_code_hash: bytes, service: ServiceContext, now: datetime) -> bool:
        """Use up an approval for this service that has not expired; whether it was there to be used. Atomic."""
        ...


class Polls(Protocol):
    """Polls of devices (security.md V-4)."""

    async def poll(self, device_code_hash: bytes, client_id: UUID | None, challenge: str | None, now: datetime) -> Poll | None:
        """Count a poll with this client id, None if none was sent, and the S256 challenge of the verifier, None if none was sent; and find
        the request as it was before. Atomic.

        One that comes before the interval is over makes it longer, and one that does not fit is an error of the code.
        """
        ...
