"""Sign-ins: with a password, with an email code, and their outcome."""

import re
import secrets
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.accounts.model import devices
from core.accounts.model.accounts import Account
from core.accounts.model.mfa import CodeWrong
from core.accounts.model.passkeys import Json
from core.applications.model import users
from core.applications.model.plans import Entitlement
from core.authentication.model import policy, sessions
from core.authentication.model.dpop import KeyBinding
from core.authentication.model.identities import OtherIdentityLinked
from core.authentication.model.openid import OpenIdGrant, UserFacts
from core.kernel import access, callers, errors
from core.kernel.proofs import Method, Proofs, SessionProofs
from core.kernel.sign_in_policy.decision import Decision
from core.kernel.values import Email
from core.tenancy.model.invitations import ReceivedInvitation

# After this many wrong codes a pre-auth token is used up (security J-8).
MAX_CODE_ATTEMPTS = 5


class CredentialsInvalid(errors.Unauthenticated):
    """The email address or the password is wrong."""


class EmailNotVerified(errors.Unauthenticated):
    """This email address is not verified yet. Open the link in the verification email, or request a new one."""


class AccountInRecovery(access.AccountClosed):
    """This account is being recovered. Use the link in our email with the code, or ask the person who started this to cancel it."""


class NeedsCodeFlow(errors.Invalid):
    """This application signs users in only in a browser. Use the authorization code flow with PKCE."""


class PreAuthInvalid(errors.Unauthenticated):
    """This sign-in cannot be continued: it has expired, it was already used, or there were too many wrong codes. Sign in again."""

    token_sent = True


class OneSecondFactor(errors.Invalid):
    """Send either code or passkey."""


class LastCodeWrong(CodeWrong):
    """This code is wrong. There were too many wrong codes. Sign in again."""


# The errors that end a sign-in to a service although the user's secret was right.
SERVICE_REFUSALS = (
    errors.NotFound,
    errors.OrganizationNotActive,
    NeedsCodeFlow,
    access.BlockedByDirectory,
    users.NoAccessToService,
    *policy.POLICY_REFUSALS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedSignIn:
    """A sign-in after all required factors were verified. The account is locked and usable."""

    person: callers.Person  # its session_id becomes the id of the new session
    account: Account
    proofs: Proofs
    service: callers.ServiceContext | None  # None for the platform itself
    in_browser: bool  # on our own pages
    device: devices.DeviceMatch
    trusts_device: bool = False  # skip the second factor on this device for a while
    for_application: bool = False  # an application waits, also if the session is none of the application
    ends_by: datetime | None = None  # the end by a sign-in policy


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeemedGrant:
    """An authorization code or a device code that an application just redeemed. The account is locked and usable.

    All required factors were verified in the browser session that approved it.
    """

    person: callers.Person  # its session_id becomes the id of the new session
    account: Account
    service: callers.ServiceContext | None  # None for the platform's own frontend
    proofs: SessionProofs  # of the session that approved it
    device_id: UUID | None
    risk_is_high: bool  # in that session, or on the device that redeemed a device code
    grant: sessions.Grant
    entitlement: Entitlement  # to the service
    new_device: devices.Device | None = None  # the device that redeemed a device code
    browser_session_id: UUID | None = None
    openid: OpenIdGrant | None = None
    nonce: str | None = None
    key: KeyBinding | None = None
    ends_by: datetime | None = None  # the end by a sign-in policy


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """A counted attempt at a password."""

    account: Account | None  # None if no account has the email address
    subject: bytes  # the key of the counter
    blocked_until: datetime | None  # UTC; set if the attempt must be refused without a check


@dataclass(frozen=True, slots=True)
class SecondFactorOptions:
    """The second factors that a sign-in accepts."""

    methods: tuple[Method, ...]
    passkey_options: Json | None  # for `navigator.credentials.get`, if `methods` has PASSKEY
    left_out_for: Decision | None = None  # for which some second factors of the account are left out
    key_name: str = ""  # of the keys that the ceremony takes, for users


@dataclass(frozen=True, slots=True)
class PreAuthToken:
    """The token that continues a pending sign-in. `expires_in` is in whole seconds."""

    token: str = field(repr=False)
    expires_in: int
    options: SecondFactorOptions


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session that just started.

    `secret` is the first refresh token, or the cookie of a browser session on our own pages. With
    `device_token`, the device can skip the second factor for a while.
    """

    session: sessions.Session
    email: Email
    email_verified: bool
    entitlement: Entitlement  # to the service of the session
    secret: str = field(repr=False)
    device_token: str | None = field(repr=False)
    user_facts: Awaitable[UserFacts | None] | None = None  # for the ID token of a session with OpenID Connect
    nonce: str | None = None
    key_thumbprint: str | None = None  # of the key that the first access token is bound to
    request: str = field(default="", repr=False)  # of the flow that ended, for an API client
    enrollment: policy.DueEnrollment | None = None  # the factor that the sign-in policy requires later


# After this many wrong codes, only the link of the email still works.
MAX_EMAIL_CODE_ATTEMPTS: Final = 5
_LINK_CHARACTERS: Final = re.compile("[.:@/\\\\]")
_CODE: Final = re.compile("[0-9]{6}")


class EmailSignInOff(errors.NotFound):
    """Signing in by email is off here. Sign in another way."""


class EmailCodeMalformed(errors.Invalid):
    """This is not a code. Enter the 6 digits from the email."""


class EmailCodeWrong(errors.Unauthenticated):
    """This code is wrong. Enter the 6 digits from the newest email."""


class LastEmailCodeWrong(EmailCodeWrong):
    """This code is wrong. There were too many wrong codes. Request a new email."""


class EmailSignInEnded(errors.Unauthenticated):
    """This code can no longer be used: it has expired, was already used, or there were too many wrong codes. Request a new email."""


@dataclass(frozen=True, slots=True)
class EmailSignInOrigin:
    """The browser, place and time of a request to sign in by email, for the user to recognize."""

    browser: str
    location: str | None
    address: str | None
    at: datetime  # UTC


@dataclass(frozen=True, slots=True)
class IssuedEmailSignIn:
    """The contents of an email with a link and a code. The link's token is in the queued email."""

    code: str = field(repr=False)
    service_name: str | None  # None for the platform itself
    origin: EmailSignInOrigin


def safe_browser_name(name: str) -> str:
    """Return the name, or a placeholder if email programs could make a link of it. A stranger can send any name."""
    return "an unknown browser" if _LINK_CHARACTERS.search(name) else name


def new_code() -> str:
    """Return six random digits."""
    return f"{secrets.randbelow(10**6):06}"


def normalize_code(text: str) -> str:
    """Return the code without the spaces that users and clipboards add. Raises: EmailCodeMalformed."""
    code = text.replace(" ", "")
    if not _CODE.fullmatch(code):
        raise EmailCodeMalformed
    return code


class InviteeHasAccount(errors.Invalid):
    """There is an account with this address already. Accept the invitation, and sign in as usual."""


class InviteeNeedsPassword(errors.Invalid):
    """This organization accepts passwords now. Choose one to join."""


class InvitationAnswer(StrEnum):
    """How the recipient of an invitation accepts it in this browser."""

    SIGNED_IN = "signed_in"  # the recipient is signed in
    NEW_USER = "new_user"  # the email proves the mailbox, and the account has no user yet
    SIGN_IN = "sign_in"  # the email proves the mailbox, and the recipient signs in afterwards
    UNPROVED = "unproved"  # the token proves nothing, so the page must not say whether there is an account


@dataclass(frozen=True, slots=True)
class OpenInvitation:
    """A pending invitation, and how its recipient accepts it."""

    received: ReceivedInvitation
    answer: InvitationAnswer


class LoginFailure(StrEnum):
    """Why a sign-in failed: the reasons in the sign-in log, and the values of the metric label `reason`.

    They are few, and none contains user input (security L-4).
    """

    CREDENTIALS = "credentials"
    LOCKED = "locked"  # too many wrong attempts before
    UNVERIFIED = "unverified"
    CLOSED = "closed"  # the account is closed
    MFA = "mfa"
    PASSKEY = "passkey"  # refused, or unknown
    EMAIL_CODE = "email_code"  # the code of a sign-in by email
    AUTHORIZATION_CODE = "authorization_code"
    DEVICE_CODE = "device_code"
    STATE = "state"  # a browser returned from an identity provider with a wrong state
    PROVIDER = "provider"  # the identity provider did not authenticate a user
    ADDRESS = "address"  # the email address from the identity provider cannot be used
    ACCESS = "access"  # the access policy of the application refuses the user
    DIRECTORY = "directory"  # the directory of the organization blocks the user
    POLICY = "policy"  # the sign-in policy set by the organization or the application
    BLOCKED = "blocked"  # an admin of the organization blocks the user
    SAML = "saml"  # a signed-in user may not use the application
    LOGOUT = "logout"  # the message of an identity provider about a sign-out was refused


def failure_of(refusal: errors.Refusal) -> LoginFailure:
    """Return why a service or an API refused a user who had proved who they are."""
    if isinstance(refusal, access.BlockedByDirectory):
        return LoginFailure.DIRECTORY
    if isinstance(refusal, OtherIdentityLinked):
        return LoginFailure.ADDRESS
    if isinstance(refusal, policy.POLICY_REFUSALS):
        return LoginFailure.POLICY
    return LoginFailure.BLOCKED if isinstance(refusal, users.BlockedByAdmin) else LoginFailure.ACCESS
