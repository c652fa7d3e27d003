"""The devices that users sign in from, the rules for trusting them, and the risk of a login (decision 83).

The risk adds up the points for everything unusual about the login, at most 100.
"""

import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.kernel import errors
from core.kernel.values import digest

NEW_DEVICE, UNKNOWN_LOCATION, UNUSUAL_TIME, VPN_OR_PROXY, FAILED_ATTEMPT = 30, 20, 10, 10, 20
HIGHEST = 100
HIGH = 70  # above this, device trust is ignored, and the sign-in alone proves no habit

# The periods in which logins count, and how many logins there must be before an hour can be
# unusual.
FAILURE_PERIOD: Final = timedelta(hours=24)
HABIT_PERIOD: Final = timedelta(days=30)
MIN_LOGINS_FOR_HABIT = 10
# More failures do not raise the score, so the query stops counting here.
MAX_COUNTED_FAILURES = HIGHEST // FAILED_ATTEMPT
# The reasons for failures that count: values of `LoginFailure`. Attempts while the account is locked prove nothing.
WRONG_PROOFS: Final = ("credentials", "email_code", "mfa")


@dataclass(frozen=True, slots=True)
class LoginRisk:
    """A login's risk score, and the unusual properties that added to it."""

    score: int  # 0 to 100
    factors: tuple[str, ...]

    @property
    def is_high(self) -> bool:
        """Return whether device trust is ignored, and users without a second factor are notified by email."""
        return self.score > HIGH


@dataclass(frozen=True, slots=True)
class LoginHistory:
    """A summary of a user's earlier logins, to compare a new login with.

    Successful logins count unless their risk was high: otherwise the same password, sent again, would be usual.
    """

    failures: int  # in the last 24 hours, since the last success and the last second factor, at most MAX_COUNTED_FAILURES
    logins: int  # successful logins in the last 30 days, at most MIN_LOGINS_FOR_HABIT
    at_this_hour: bool  # a successful login in the last 30 days was in the same UTC hour
    known_location: bool  # a successful login at any time came from the same location


def assess(history: LoginHistory, *, is_new_device: bool, location_is_known: bool, is_anonymized: bool) -> LoginRisk:
    """Return the risk of a login by a user with this history.

    An unknown location adds no points. `is_anonymized` means that the address belongs to a VPN or a proxy.
    """
    contributions = {
        "new_device": NEW_DEVICE if is_new_device else 0,
        "unknown_location": UNKNOWN_LOCATION if location_is_known and not history.known_location else 0,
        "unusual_time": UNUSUAL_TIME if history.logins >= MIN_LOGINS_FOR_HABIT and not history.at_this_hour else 0,
        "vpn_or_proxy": VPN_OR_PROXY if is_anonymized else 0,
        "failed_attempts": FAILED_ATTEMPT * history.failures,
    }
    return LoginRisk(min(HIGHEST, sum(contributions.values())), tuple(name for name, points in contributions.items() if points > 0))


CLIENT_ID_LENGTH = 200  # characters; longer client ids are ignored
GUESSABLE_CLIENT_ID_LENGTH: Final = 21  # characters; 22 characters of base64 have 128 bits
TRUST_TOKEN_LENGTH = 200  # characters; longer trust tokens are ignored, because ours are shorter
TRUST_TOKEN_TTL: Final = timedelta(days=90)
TRUST_DAYS = 30  # the default if no organization sets a period
NAME_LENGTH = 100


class DeviceNotFound(errors.NotFound):
    """This device does not exist or has been revoked."""


class DeviceOfAnotherUser(errors.Forbidden):
    """This device belongs to another user."""


class DeviceIsCurrent(errors.Invalid):
    """You are using this device. Sign out to end its session."""


class DeviceType(StrEnum):
    """The kind of client that a device is."""

    BROWSER = "browser"
    MOBILE = "mobile"
    DESKTOP = "desktop"
    CLI = "cli"


@dataclass(frozen=True, slots=True)
class ParsedUserAgent:
    """The browser and the operating system from a User-Agent header, or placeholders for unknown names."""

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

    device_id: str | None = field(default=None, repr=False)  # stored by the client; from X-Device-Id or a cookie from our pages
    token: str | None = field(default=None, repr=False)  # a trust token
    name: str | None = None  # chosen by the user
    device_type: DeviceType | None = None  # set if the sign-in method implies it
    needs_second_factor: bool = False  # the application requires all factors, so a trusted device skips none


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device that a user signs in from. Times are UTC. `last_ip`, `location` and `risk` are from the last login."""

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
    methods: tuple[str, ...] = ()  # of the last sign-in, as in the login records; empty for an impersonation

    @property
    def is_unproved(self) -> bool:
        """Return whether the risk of the last sign-in here was high, and no second factor has been verified here since."""
        return self.risk.is_high and (self.mfa_at is None or self.mfa_at < self.last_used_at)

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
    trust_days: int  # the shortest trust period of the user's organizations
    trust_days_there: int  # the same, but also counting the service's organization, if any
    has_recovery: bool  # whether the user's account has an open recovery
    is_member: bool  # whether the user has a confirmed membership
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
    """The device behind a sign-in, new or known, with the values that it has after the sign-in."""

    device: Device
    is_trusted: bool  # the request has a valid trust token, and the risk is not high
    is_trusted_there: bool  # the same by the trust period of the service's organization, which only the service's users may learn
    is_new: bool = False
    was_unproved: bool = False  # before this sign-in (`Device.is_unproved`)
    has_recovery: bool = False  # whether the account has an open recovery, so that sign-ins need no second statement to know
    is_member: bool = True  # whether the user has a confirmed membership, for the same reason


def trust_hash_of(client: PresentedDevice) -> bytes | None:
    """Return the trust token's hash, or None if there is no token with an acceptable length."""
    return _hash_of(client.token, TRUST_TOKEN_LENGTH)


def client_hash_of(client: PresentedDevice) -> bytes | None:
    """Return the hash of the client's device id, or None if there is no id with an acceptable length."""
    return _hash_of(client.device_id, CLIENT_ID_LENGTH)


def known_by(client: PresentedDevice) -> KnownBy:
    """Return what makes this client known to an account, without a device id that a stranger could guess."""
    is_guessable = len(client.device_id or "") <= GUESSABLE_CLIENT_ID_LENGTH
    return KnownBy(trust_hash_of(client), None if is_guessable else client_hash_of(client))


def _hash_of(secret: str | None, max_length: int) -> bytes | None:
    return digest(secret) if secret and len(secret) <= max_length else None
