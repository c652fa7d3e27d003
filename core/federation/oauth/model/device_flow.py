"""Values and rules of the device flow (RFC 8628)."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.accounts.model.accounts import Account
from core.applications.model.client_settings import client_host
from core.authentication.model.openid import OpenIdGrant, ResourceGrant, Scope
from core.kernel import callers, errors, uris
from core.kernel.proofs import SessionProofs
from core.programs.model.api_resources import ResourceAccess

VERIFY_PATH: Final = "/auth/device/verify"
CODE_TTL: Final = timedelta(minutes=5)  # for the device code and the user code
POLL_INTERVAL: Final = 5  # seconds between two polls
SLOW_DOWN_STEP: Final = 5  # seconds that each early poll adds to the interval (RFC 8628 section 3.5)
MAX_FAILURES: Final = 5  # polls with a wrong client id or code verifier that lock a device code (security V-2)
# No vowels, so that codes form no words, and no letter that looks like a digit (RFC 8628 section
# 6.1). This gives 20 ** 8 codes.
USER_CODE_ALPHABET: Final = "BCDFGHJKLMNPQRSTVWXZ"
USER_CODE_LENGTH: Final = 8
USER_CODE_ATTEMPTS: Final = 5  # to find an unused user code; the first attempt almost always succeeds
MAX_TYPED_LENGTH: Final = 64  # characters of a typed user code, including spaces and dashes


class ApplicationMissing(errors.Invalid):
    """The application is missing. Send client_id, or org and service."""


class DeviceFlowRefused(errors.Invalid):
    """This application cannot use the device flow. Use the authorization code flow with PKCE in a browser."""

    oauth_error = "unauthorized_client"


class UserCodeUnknown(errors.Invalid):
    """No device is waiting for this code. Enter the code exactly as the device shows it, or start again on the device."""


class DeviceCodeExpired(errors.Invalid):
    """The code has expired. Start again on the device."""

    code = "DEVICE_CODE_EXPIRED"
    oauth_error = "expired_token"


class DeviceCodePending(errors.Invalid):
    """The user has not approved this device yet. Poll again after the interval."""

    code = "DEVICE_CODE_PENDING"
    oauth_error = "authorization_pending"


class SlowDown(errors.Invalid):
    """You polled too early. Wait five seconds longer between polls from now on."""

    code = "DEVICE_CODE_PENDING"  # a client that does not know `slow_down` must keep polling too
    oauth_error = "slow_down"


class DeviceCodeDenied(errors.Invalid):
    """The user denied this device, or the session that approved it has ended. Start again at POST /auth/device/code."""

    oauth_error = "access_denied"


class DeviceCodeInvalid(errors.GrantInvalid):
    """The device code is unknown or used, or belongs to another client_id or code_verifier. Start again at POST /auth/device/code."""


class DeviceRequestStatus(StrEnum):
    """The status of a device's request. An expired request keeps its status."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    REDEEMED = "redeemed"


class DeviceDecision(StrEnum):
    """The decision of a user about the request of a device."""

    APPROVE = "approve"
    DENY = "deny"

    @property
    def status(self) -> DeviceRequestStatus:
        """The status of the request after this decision."""
        return DeviceRequestStatus.APPROVED if self is DeviceDecision.APPROVE else DeviceRequestStatus.DENIED


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """A new request of a device, with the SHA-256 of both codes.

    `address` and `agent` are the IP address and user agent of the device. Times are UTC.
    """

    device_code_hash: bytes = field(repr=False)
    user_code_hash: bytes = field(repr=False)
    service: callers.ServiceContext
    code_challenge: str | None  # S256, or None if the device sent none
    address: str | None
    agent: str | None
    created_at: datetime
    expires_at: datetime
    openid: OpenIdGrant | None = None  # None without OpenID Connect and API resource


@dataclass(frozen=True, slots=True)
class DeviceAuthorization:
    """The codes that a device receives once. `user_code` has the form XXXX-XXXX."""

    device_code: str = field(repr=False)
    user_code: str = field(repr=False)
    verification_uri: str | None  # the service's own page, or None for our page


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """A device's request as shown to the person who entered its user code. Times are UTC."""

    service_id: UUID
    service: str  # its name
    client_uri: str | None  # the address of an external client, or None for an application
    org_id: UUID
    organization: str  # its name
    organization_status: callers.OrganizationStatus
    address: str | None
    agent: str | None
    created_at: datetime
    expires_at: datetime
    status: DeviceRequestStatus
    is_locked: bool  # after too many failures
    scope: tuple[Scope, ...]  # with `openid`, or empty
    api: ResourceAccess | None = None  # to an API resource, if it still exists

    @property
    def is_external(self) -> bool:
        """Whether this is an external client, and not an application of the organization."""
        return self.client_uri is not None

    @property
    def client_host(self) -> str | None:
        """The host of an external client, or None for an application, and for a client that registered itself."""
        return None if self.client_uri is None else client_host(self.client_uri)

    @property
    def openid(self) -> OpenIdGrant | None:
        """The grant that the approval gives the device, or None without OpenID Connect and API resource."""
        if self.api is None:
            return OpenIdGrant(self.scope) if self.scope else None
        api = ResourceGrant(self.api.id, tuple(scope.name for scope in self.api.scopes), None)
        return OpenIdGrant(self.scope, resource=self.api.identifier, api=api)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePoll:
    """A device's request at the time of one poll. Times are UTC.

    `session_id`, `account`, `proofs` and `risk_is_high` belong to the session that approved the request. They are
    None or empty before the approval.
    """

    service: callers.ServiceContext
    status: DeviceRequestStatus
    expires_at: datetime
    is_locked: bool  # after too many failures
    is_matching: bool  # the poll has the right code verifier, and the right client id or none
    is_early: bool  # the interval since the previous poll has not passed
    session_id: UUID | None
    account: Account | None
    openid: OpenIdGrant | None = None  # None without OpenID Connect and API resource
    proofs: SessionProofs = ()
    risk_is_high: bool = False


def verification_url(user_code: str, page: str = VERIFY_PATH) -> str:
    """Return the URL of a page for user codes, with this user code filled in. `page` is our own page, or the service's own page."""
    return uris.add_parameters(page, {"user_code": user_code})


def normalize_user_code(text: str) -> str | None:
    """Return the eight letters of a typed user code, or None if the text cannot be a user code.

    Case, spaces and punctuation do not matter (RFC 8628 section 6.1).
    """
    if len(text) > MAX_TYPED_LENGTH:
        return None
    letters = "".join(letter for letter in text.upper() if letter.isalnum())
    return letters if len(letters) == USER_CODE_LENGTH and set(letters) <= set(USER_CODE_ALPHABET) else None


def format_user_code(text: str) -> str:
    """Return a user code as XXXX-XXXX, or the text itself if it cannot be a user code."""
    letters = normalize_user_code(text)
    return text if letters is None else f"{letters[:4]}-{letters[4:]}"
