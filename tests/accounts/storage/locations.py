"""Locations, and a device's fingerprint."""

from datetime import datetime, timedelta
from uuid import UUID

from core.accounts.model.devices import DeviceFingerprint, DeviceType, KnownDevice, Location, ParsedUserAgent
from core.kernel.values import digest
from ports.storage import Transaction

LISBON, PORTO, PORTUGAL, OSLO = Location("Lisbon", "PT"), Location("Porto", "PT"), Location(None, "PT"), Location("Oslo", "NO")
MINUTE = timedelta(minutes=1)


def fingerprint(
    token: str | None = None,
    client: str | None = None,
    location: Location | None = None,
    browser: str = "Firefox",
    os: str = "Linux",
    device_type: DeviceType = DeviceType.BROWSER,
) -> DeviceFingerprint:
    """Return the fingerprint for a device with these properties."""
    return DeviceFingerprint(
        trust_hash=None if token is None else digest(token),
        client_hash=None if client is None else digest(client),
        name=None,
        declared_type=None,
        user_agent=ParsedUserAgent(browser, None, os, None, device_type),
        address=None,
        location=location,
    )


async def find_device_of(
    tx: Transaction, user: UUID, presented: DeviceFingerprint, org: UUID | None, now: datetime, connection: UUID | None = None
) -> KnownDevice:
    """Return the device that matches, with a summary about the user's earlier logins."""
    found = await tx.devices.find_match(user, presented, org, now, connection)
    assert found is not None
    return found
