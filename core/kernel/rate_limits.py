"""Rate limits per client address, and for directories per organization, as token buckets. A few are windows."""

from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket with at most `burst` tokens. The bucket gets a token every `period` seconds. `name` is unique per client."""

    name: str
    period: float
    burst: int

    def scaled(self, factor: float) -> "Bucket":
        """Return the bucket with `factor` times the rate and the burst."""
        return Bucket(self.name, self.period / factor, max(1, round(self.burst * factor)))


@dataclass(frozen=True, slots=True)
class Window:
    """At most `count` requests in any `seconds`. A bucket allows up to twice as many, because it refills.

    The latest `count` times are all stored, so windows are for small counts. `name` is unique per client, as in `Bucket`.
    """

    name: str
    seconds: float
    count: int


@dataclass(slots=True)
class RequestTokens:
    """The tokens that a request takes from its client's buckets. A browser request gives them back if it signs in."""

    client: str
    buckets: tuple[Bucket, ...]
    at: datetime  # UTC
    browser: str | None = field(default=None, repr=False)  # the secret in its device cookie
    join_reading: bool = False  # the first query takes the tokens, in its round trip
    are_taken: bool = False  # or refused
    can_refuse: bool = True  # False: the request says why a sign-in fails, even if a bucket is empty


# For the current request; None outside a request with a limit. The edge sets these tokens, and storage takes them and gives them back.
request_tokens: Final[ContextVar[RequestTokens | None]] = ContextVar("request_tokens", default=None)


def per_minute(name: str, count: int) -> Bucket:
    """Return a bucket with `count` tokens that is refilled evenly within a minute."""
    return Bucket(name, 60 / count, count)


AUTH = Bucket("auth", 1.0, 20)  # /auth/* and /api/auth/*
DEVICE = Bucket("device", 5.0, 10)  # /auth/device/*, and device polls at /auth/token
CLIENT_REGISTRATION = per_minute("client-registration", 20)  # POST /auth/register
PROVIDER_LOGOUT = Bucket("provider-logout", 0.1, 200)  # sign-outs that identity providers report: 10 a second, 200 at once
REGISTER = per_minute("register", 10)
LOGIN = per_minute("login", 10)
FORGOT_PASSWORD = per_minute("forgot-password", 5)
EMAIL_SIGN_IN = per_minute("email-sign-in", 5)  # requests for an email
EMAIL_SIGN_IN_VERIFICATION = per_minute("email-sign-in-verification", 10)  # its code and its link together
RESEND_VERIFICATION = per_minute("resend-verification", 3)
IMPERSONATE = per_minute("impersonate", 10)
# The second factor. Confirmation has a separate bucket, so that an enrollment does not use up the
# group's bucket.
MFA_SETUP = Bucket("mfa-setup", 300.0, 5)  # setup, disable and regenerate together
MFA_CONFIRMATION = Bucket("mfa-confirmation", 60.0, 5)  # POST /api/user/mfa/verify: five in five minutes
PASSKEYS = Bucket("passkeys", 180.0, 20)  # the start and the end together: ten registrations in an hour
PASSKEY_OPTIONS = per_minute("passkey-options", 30)  # pages with conditional UI ask for options when they are shown
PASSKEY_SIGN_IN = per_minute("passkey-sign-in", 20)  # a passkey cannot be guessed
MFA_VERIFICATION = Bucket("mfa-verification", 1.0, 3)  # POST /api/user/mfa/verify and POST /api/auth/mfa/verify together
IMAGE = Bucket("image", 0.05, 600)  # /images/*: 20 a second, 600 at once. Browsers keep the images
IMAGE_UPLOAD = per_minute("image-upload", 20)
DOCUMENTATION_SEARCH = per_minute("documentation-search", 60)  # a search reads all texts
POLICY_PREVIEW = per_minute("policy-preview", 20)  # it judges every member
BILLING = Bucket("billing", 0.06, 100)  # POST /webhooks/billing: 1000 a minute, 100 at once
METADATA_FETCH = per_minute("metadata-fetch", 10)  # metadata at URLs that an organization chose, and test sign-ins there, per organization
SCIM = Bucket("scim", 0.02, 500)  # /scim/v2/*, per organization: 50 a second, 500 at once. Entra ID sends up to 25 a second
