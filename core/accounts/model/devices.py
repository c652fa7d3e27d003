"""The devices that users sign in from, their errors, and the rules for trusting them."""

import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.accounts.model.risk import LoginHistory, LoginRisk
from core.kernel.errors import Forbidden, Invalid, NotFound
from core.kernel.values import digest

CLIENT_ID_LENGTH = 200  # characters; longer client ids are ignored
GUESSABLE_CLIENT_ID_LENGTH: Final = 21  # characters; 22 characters of base64 have 128 bits
TRUST_TOKEN_LENGTH = 200  # characters; longer trust tokens are ignored, because ours are shorter
TRUST_TOKEN_TTL: Final = timedelta(days=90)
TRUST_DAYS = 30  # the default if no organization sets a period
NAME_LENGTH = 100


class DeviceNotFound(NotFound):
    """This device does not exist or has been revoked."""


class DeviceOfAnotherUser(Forbidden):
    """This device belongs to another user."""


class DeviceIsCurrent(Invalid):
    """You are using this device. Sign out to end its session."""


class DeviceType(StrEnum):
    """The kind of client that a device is."""

    BROWSER = "browser"
    MOBILE = "mobile"
    DESKTOP = "desktop"
    CLI = "cli"


@dataclass(frozen=True, slots=True)
class ParsedUserAgent:
    """The browser and the operating system that a User-Agent header names, or placeholders for unknown ones."""

    browser: str
    browser_version: str | None
    os: str
    os_version: str | None
    device_type: DeviceType


@dataclass(frozen=True, slots=True)
class Location:
    """The location of an IP address."""

    city: str | None  # in English
    country: str  # ISO 3166-1 alpha-2 code


@dataclass(frozen=True, slots=True)
class PresentedDevice:
    """The device data that a client sends with a sign-in."""

    device_id: str | None = field(default=None, repr=False)  # stored by the client; from X-Device-Id or a cookie of our pages
    token: str | None = field(default=None, repr=False)  # a trust token
    name: str | None = None  # chosen by the user
    device_type: DeviceType | None = None  # set if the sign-in method implies it
    needs_second_factor: bool = False  # the application requires all factors, so a trusted device skips none


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device that a user signs in from. Times are UTC. `last_ip`, `location` and `risk` are those of the last login."""

    id: UUID
    user_id: UUID
    client_hash: bytes | None  # SHA-256 of the client's device id; None if it sends none
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
    mfa_at: datetime | None  # the last time that the second factor was verified on this device
    trust_hash: bytes | None  # SHA-256 of the trust token
    trust_expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    revoked_at: datetime | None = None

    def has_trust_token(self, trust_hash: bytes | None) -> bool:
        """Return whether this is the hash of the device's trust token, which may have expired."""
        return trust_hash is not None and self.trust_hash is not None and hmac.compare_digest(trust_hash, self.trust_hash)

    def remembers_second_factor(self, trust_days: int, now: datetime) -> bool:
        """Return whether a sign-in with the trust token may skip the second factor.

        The token must not have expired, and the second factor must have been verified on this
        device less than `trust_days` ago.
        """
        return (
            self.revoked_at is None
            and self.trust_expires_at is not None
            and now < self.trust_expires_at
            and self.mfa_at is not None
            and now < self.mfa_at + timedelta(days=trust_days)
        )


@dataclass(frozen=True, slots=True)
class DeviceFingerprint:
    """The properties of a device that sends a sign-in request."""

    trust_hash: bytes | None  # SHA-256 of the trust token
    client_hash: bytes | None  # SHA-256 of the client's device id
    name: str | None  # as in PresentedDevice
    declared_type: DeviceType | None  # PresentedDevice.device_type
    user_agent: ParsedUserAgent
    address: str | None
    location: Location | None
    is_anonymized: bool = False  # the address belongs to a VPN or a proxy
    needs_second_factor: bool = False  # as in PresentedDevice

    @property
    def device_type(self) -> DeviceType:
        """The declared type, or else the type derived from the User-Agent header."""
        return self.declared_type or self.user_agent.device_type


@dataclass(frozen=True, slots=True)
class KnownDevice:
    """The stored device that a fingerprint belongs to, with the data to decide about its trust."""

    device: Device | None  # None if the fingerprint matches no device of the user
    trust_days: int  # the shortest trust period of the user's organizations and of the service's organization
    history: LoginHistory


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """A device in a user's list."""

    device: Device
    is_current: bool  # the device of the caller's session
    trusted: bool  # a sign-in with its trust token skips the second factor


@dataclass(frozen=True, slots=True)
class KnownBy:
    """What makes a client a known device of an account, in which the account has signed in before (security A-3)."""

    trust_hash: bytes | None = None  # SHA-256 of the trust token
    client_hash: bytes | None = None  # SHA-256 of an unguessable device id


@dataclass(frozen=True, slots=True)
class DeviceMatch:
    """The device of a sign-in, new or known, with the values that it has after the sign-in."""

    device: Device
    is_trusted: bool  # the request has a valid trust token, and the risk is not high


def trust_hash_of(client: PresentedDevice) -> bytes | None:
    """Return the hash of the trust token, or None without a token of acceptable length."""
    return _hash_of(client.token, TRUST_TOKEN_LENGTH)


def client_hash_of(client: PresentedDevice) -> bytes | None:
    """Return the hash of the client's device id, or None without an id of acceptable length."""
    return _hash_of(client.device_id, CLIENT_ID_LENGTH)


def known_by(client: PresentedDevice) -> KnownBy:
    """Return what makes this client known to an account, without a device id that a stranger could guess."""
    is_guessable = len(client.device_id or "") <= GUESSABLE_CLIENT_ID_LENGTH
    return KnownBy(trust_hash_of(client), None if is_guessable else client_hash_of(client))


def _hash_of(secret: str | None, max_length: int) -> bytes | None:
    return digest(secret) if secret and len(secret) <= max_length else None
