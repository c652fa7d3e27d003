"""Entities, refusals and pure rules of `core.federation.oauth.device_flow`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from core.kernel.errors import GrantInvalid, Invalid

if TYPE_CHECKING:
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.kernel.principals import OrganizationStatus, ServiceContext

VERIFY_PATH: Final = "/auth/device/verify"
CODE_TTL: Final = timedelta(minutes=5)  # of both codes (organizations.md section 8)
POLL_INTERVAL: Final = 5  # seconds between two polls, ...
SLOW_DOWN_STEP: Final = 5  # ... and by how many of them each poll that comes too early adds to that (RFC 8628 section 3.5)
MAX_FAILURES: Final = 5  # how many end a device code (security.md V-2)
# No vowels, of which words are made, and nothing that looks like a digit (RFC 8628 section 6.1): 20 to the power of 8 codes.
USER_CODE_ALPHABET: Final = "BCDFGHJKLMNPQRSTVWXZ"
USER_CODE_LENGTH: Final = 8
USER_CODE_ATTEMPTS: Final = 5  # to be given a user code that no other device has, which is had at once but in one of some million cases
MAX_TYPED_LENGTH: Final = 64  # characters of what is typed, with whatever stands between the letters


class ApplicationMissing(Invalid):
    """Say which application it is: send client_id, or org and service."""


class UserCodeUnknown(Invalid):
    """No device waits with this code. Type it as the device shows it, or let the device begin again."""


class DeviceCodeExpired(Invalid):
    """The code has expired. Let the device begin again."""

    code = "DEVICE_CODE_EXPIRED"
    oauth_error = "expired_token"


class DeviceCodePending(Invalid):
    """Nobody has approved this device yet. Ask again after the interval."""

    code = "DEVICE_CODE_PENDING"
    oauth_error = "authorization_pending"


class SlowDown(Invalid):
    """You asked too early. From now on wait five seconds longer each time."""

    code = "DEVICE_CODE_PENDING"  # whoever reads this one only goes on asking, too
    oauth_error = "slow_down"


class DeviceCodeDenied(Invalid):
    """This device was not let in. Begin again at POST /auth/device/code."""

    oauth_error = "access_denied"


class DeviceCodeInvalid(GrantInvalid):
    """The device code is unknown, was used, or is another client's or needs another code_verifier. Begin again at /auth/device/code."""


class DeviceRequestStatus(StrEnum):
    """What became of a request; whether it has expired is another question."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    REDEEMED = "redeemed"


class DeviceDecision(StrEnum):
    """What a person says to it."""

    APPROVE = "approve"
    DENY = "deny"

    @property
    def status(self) -> DeviceRequestStatus:
        """What the request is then."""
        return DeviceRequestStatus.APPROVED if self is DeviceDecision.APPROVE else DeviceRequestStatus.DENIED


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """A request of a device, as it begins: both codes by their SHA-256, the service, the S256 challenge if it sent one, and from
    where it came. Times are UTC."""

    device_code_hash: bytes = field(repr=False)
    user_code_hash: bytes = field(repr=False)
    service: ServiceContext
    code_challenge: str | None
    address: str | None
    agent: str | None
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class DeviceAuthorization:
    """What the device is told, once. `user_code` is written XXXX-XXXX; `verification_uri` is None where our own page is meant."""

    device_code: str = field(repr=False)
    user_code: str = field(repr=False)
    verification_uri: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """A request, as it is shown to whoever has its user code. Times are UTC; `is_dead` says that too many errors were made with it."""

    service: str  # by name, ...
    org_id: UUID
    organization: str  # ... as this
    organization_status: OrganizationStatus
    address: str | None
    agent: str | None
    created_at: datetime
    expires_at: datetime
    status: DeviceRequestStatus
    is_dead: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePoll:
    """A request, as one poll of its device finds it. Times are UTC.

    `fits`: the client and the verifier are those that the code is for. `is_early`: the interval since the poll before was not over.
    `account`, `session_id` and `provider` are those of whoever approved it, None before that.
    """

    service: ServiceContext
    status: DeviceRequestStatus
    expires_at: datetime
    is_dead: bool
    fits: bool
    is_early: bool
    session_id: UUID | None
    provider: str | None
    account: Account | None


def verification_url(user_code: str, at: str = VERIFY_PATH) -> str:
    """Where a request is approved, with its code filled in: on our page, or on a service's own one."""
    return f"{at}{'&' if '?' in at else '?'}{urlencode({'user_code': user_code})}"


def normalize_user_code(user_code: str) -> str | None:
    """What of a typed code counts: its eight letters, without case and whatever stands between them (RFC 8628 section 6.1); None if it can
    be none."""
    if len(user_code) > MAX_TYPED_LENGTH:
        return None
    letters = "".join(letter for letter in user_code.upper() if letter.isalnum())
    return letters if len(letters) == USER_CODE_LENGTH and set(letters) <= set(USER_CODE_ALPHABET) else None


def format_user_code(user_code: str) -> str:
    """A code as people read it: XXXX-XXXX; whatever can be none, as it is."""
    letters = normalize_user_code(user_code)
    return user_code if letters is None else f"{letters[:4]}-{letters[4:]}"
