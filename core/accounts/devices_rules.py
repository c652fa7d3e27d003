"""Entities, refusals and pure rules of `core.accounts.devices`."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Forbidden, Invalid, NotFound
from core.kernel.values import digest

if TYPE_CHECKING:
    from uuid import UUID

    from core.accounts.risk import LoginHistory, LoginRisk

CLIENT_ID_LENGTH = 200  # characters; an id that is longer is not looked at
TRUST_TOKEN_LENGTH = 200  # as is a trust token, of which ours are shorter
TRUST_TOKEN_TTL: Final = timedelta(days=90)  # identity.md section 5, rule 3
TRUST_DAYS = 30  # where no organization says for how long
NAME_LENGTH = 100


class DeviceNotFound(NotFound):
    """There is no such device."""


class DeviceOfAnotherUser(Forbidden):
    """This device belongs to somebody else."""


class DeviceIsCurrent(Invalid):
    """You are using this device. Sign out to end its session."""


class DeviceType(StrEnum):
    """What kind of a client it is (decisions, point 79)."""

    BROWSER = "browser"
    MOBILE = "mobile"
    DESKTOP = "desktop"
    CLI = "cli"


@dataclass(frozen=True, slots=True)
class ParsedUserAgent:
    """What a User-Agent header says; what it does not say is called unknown."""

    browser: str
    browser_version: str | None
    os: str
    os_version: str | None
    device_type: DeviceType


@dataclass(frozen=True, slots=True)
class Location:
    """Where an address is: a city by its English name, if it is known, and a country by its code (ISO 3166-1)."""

    city: str | None
    country: str


@dataclass(frozen=True, slots=True)
class PresentedDevice:
    """What a sign-in shows of its device.

    `device_id` is an id that the client keeps, in the header X-Device-Id or a cookie of our pages; `token` a trust token. `name` and
    `device_type` are given where somebody has named the device, and where the way of signing in tells what it is.
    """

    device_id: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    name: str | None = None
    device_type: DeviceType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """From where somebody signs in. Times are UTC; `risk` is that of the last login, `location` and `last_ip` where it came from.

    `client_hash` is the SHA-256 of the id that the client keeps; without one it is recognised by what it says of itself. `mfa_at` is when
    somebody last showed the second factor on it. `trust_hash` is the SHA-256 of its trust token, which is none from `trust_expires_at` on.
    """

    id: UUID
    user_id: UUID
    client_hash: bytes | None
    name: str
    device_type: DeviceType
    browser: str
    browser_version: str | None
    os: str
    os_version: str | None
    last_used_at: datetime
    last_ip: str | None
    location: Location | None
    risk: LoginRisk
    mfa_at: datetime | None
    trust_hash: bytes | None
    trust_expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    revoked_at: datetime | None = None

    def has_trust_token(self, trust_hash: bytes | None) -> bool:
        """Whether this is the SHA-256 of its trust token; whether that counts still is another question."""
        return trust_hash is not None and self.trust_hash is not None and hmac.compare_digest(trust_hash, self.trust_hash)

    def remembers_second_factor(self, trust_days: int, now: datetime) -> bool:
        """Whether the second factor that was shown on it counts still, for whoever has its trust token: while the token lives and so many
        days have not gone by (decisions, point 81)."""
        return (
            self.revoked_at is None
            and self.trust_expires_at is not None
            and now < self.trust_expires_at
            and self.mfa_at is not None
            and now < self.mfa_at + timedelta(days=trust_days)
        )


@dataclass(frozen=True, slots=True)
class DeviceFingerprint:
    """What there is to see of a device that somebody comes from: SHA-256 of its trust token and of the id that the client keeps, what it
    says of itself, and where it is. `name` and `told_type` are those of `Client`."""

    trust_hash: bytes | None
    client_hash: bytes | None
    name: str | None
    declared_type: DeviceType | None
    agent: ParsedUserAgent
    address: str | None
    location: Location | None

    @property
    def device_type(self) -> DeviceType:
        """What kind of a client it is, as well as can be seen."""
        return self.declared_type or self.agent.device_type


@dataclass(frozen=True, slots=True)
class KnownDevice:
    """What one statement knows of who comes: the device, if it is one that is there; for how many days the second factor may be remembered,
    which is the shortest period of the person's organizations; and the person's earlier logins."""

    device: Device | None
    trust_days: int
    history: LoginHistory


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """A device, as somebody's list shows it."""

    device: Device
    is_current: bool  # the one of the session that asks
    trusted: bool  # whether whoever has its trust token is not asked for the second factor


@dataclass(frozen=True, slots=True)
class DeviceMatch:
    """Somebody signs in from a device, as it will be. `is_trusted`: its trust token was shown, and is honoured now."""

    device: Device
    is_trusted: bool


def trust_hash_of(client: PresentedDevice) -> bytes | None:
    """By what the device is known that brings a trust token."""
    return _hash_of(client.token, TRUST_TOKEN_LENGTH)


def _hash_of(secret: str | None, longest: int) -> bytes | None:
    return digest(secret) if secret and len(secret) <= longest else None
