"""Sessions, their refresh tokens, and reauthentication.

Reauthentication proves that the user is here (security A-12). The forms that wait for it are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.accounts.model.passkeys import Json
from core.applications.model.plans import Entitlement
from core.authentication.model.dpop import KeyBinding
from core.authentication.model.identities import LinkedPlace
from core.authentication.model.openid import OpenIdGrant, UserFacts
from core.kernel import callers, errors, values
from core.kernel.access import NotAMember
from core.kernel.causes import Caller
from core.kernel.connections import ConnectionSlug
from core.kernel.proofs import Method, SessionProofs
from core.kernel.roles import RoleName

# A race is lost when another request refreshes the tokens of the same session at the same moment.
# In practice a few retries are enough.
MAX_LOST_RACES = 100
MAX_LISTED_SESSIONS = 100
NO_ENTITLEMENT = Entitlement()


class RefreshTokenInvalid(errors.Unauthenticated):
    """The refresh token is not valid. Sign in again."""


class RefreshTokenNotYours(RefreshTokenInvalid):
    """This refresh token belongs to another application, or its application must send its client secret with it at POST /auth/token."""


class RefreshTokenReused(RefreshTokenInvalid):
    """The refresh token was used before, so its session was ended. Sign in again."""


class RefreshTokenBound(RefreshTokenInvalid):
    """This refresh token, or its application, needs a DPoP proof. Send the token to POST /auth/token with a proof of its key."""


class MembershipEnded(NotAMember):
    """You are no longer a member of this organization. Sign in again."""


class Grant(StrEnum):
    """The kind of code that an application exchanged for its first tokens (RFC 6749 section 4.1, RFC 8628)."""

    AUTHORIZATION_CODE = "authorization_code"
    DEVICE_CODE = "device_code"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStart:
    """A session to start. `caller` is the request that starts it: the session stores its address and user agent."""

    user_id: UUID
    caller: Caller
    service: callers.ServiceContext | None = None  # None for the platform itself
    device_id: UUID | None = None
    proofs: SessionProofs = ()
    grant: Grant | None = None
    id: UUID = field(default_factory=values.new_id)
    browser_session_id: UUID | None = None  # the session in which the user authorized the application
    openid: OpenIdGrant | None = None
    key_thumbprint: str | None = None  # of the key that the refresh tokens are bound to
    ends_by: datetime | None = None  # the end by a sign-in policy
    risk_is_high: bool = False  # as in Session


@dataclass(frozen=True, slots=True)
class Session:
    """A sign-in on a device. It lives until it ends or expires. Times are UTC."""

    id: UUID
    user_id: UUID
    created_at: datetime
    expires_at: datetime  # moves forward when the session is refreshed
    ends_at: datetime  # never moves (security S-3)
    address: str | None
    agent: str | None
    impersonator_id: UUID | None = None
    service: callers.ServiceContext | None = None  # set if an application holds the tokens
    device_id: UUID | None = None
    impersonator_session_id: UUID | None = None  # the session in which the impersonator started this session
    impersonated_in: UUID | None = None  # the only organization that an impersonation may act in; None: all organizations of the user
    org_id: UUID | None = None  # its first context; for a session of a service, the service's organization
    proofs: SessionProofs = ()
    grant: Grant | None = None  # None if the user signed in to the application directly
    browser_session_id: UUID | None = None
    openid: OpenIdGrant | None = None  # None if the application did not ask for OpenID Connect
    key_thumbprint: str | None = None  # of the key that its refresh tokens are bound to (RFC 9449 section 5)
    request_id: str | None = None  # of the request that started it; only the sign-in log has it
    risk_is_high: bool = False  # of its sign-in, until the session ends


@dataclass(frozen=True, slots=True)
class ReplacedSession:
    """The live browser session that the same user's new session has replaced. Times are UTC."""

    proofs: SessionProofs
    expires_at: datetime
    ends_at: datetime


class TokenNotRevocable(errors.Invalid):
    """A program's token cannot be revoked alone. Revoke the credential that it was issued for, or replace the client secret."""

    oauth_error = "unsupported_token_type"


@dataclass(frozen=True, slots=True)
class Presenter:
    """The application that presents a token. `is_authenticated`: it sent its client secret, or it is a public client."""

    is_named: bool = False
    service_id: UUID | None = None  # None for the platform itself
    is_authenticated: bool = False
    key: KeyBinding | None = None  # of its DPoP proof


UNNAMED_PRESENTER: Final = Presenter()


@dataclass(frozen=True, slots=True)
class TokenPair:
    """An access token and its refresh token. `expires_in` is the remaining life of the access token in whole seconds.

    With OpenID Connect, there are an ID token and the granted scopes too.
    """

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_in: int
    id_token: str | None = field(default=None, repr=False)
    scope: str | None = None
    is_bound: bool = False  # the access token is bound to a key (RFC 9449)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSubject:
    """The session that a token pair is issued for, and its user as they are now."""

    session_id: UUID
    user_id: UUID
    email: values.Email
    email_verified: bool
    ends_at: datetime  # UTC; the absolute end of the session
    org_id: UUID | None = None
    org_slug: str = ""
    service: callers.ServiceContext | None = None
    entitlement: Entitlement = NO_ENTITLEMENT  # to the service
    impersonator_id: UUID | None = None
    proofs: SessionProofs = ()
    openid: OpenIdSubject | None = None
    key_thumbprint: str | None = None  # of the key that the access token is bound to


@dataclass(frozen=True, slots=True)
class OpenIdSubject:
    """The OpenID Connect part of a token pair: the grant, and the facts about the user. `facts` is None if the user was deleted since."""

    grant: OpenIdGrant
    facts: UserFacts | None
    nonce: str | None = None

    def seen_by(self, restricted_to: UUID | None) -> OpenIdSubject:
        """Return the subject with the facts that an application sees in a session with this restriction, if any."""
        return self if restricted_to is None or self.facts is None else replace(self, facts=self.facts.seen_by(restricted_to))

    @classmethod
    def narrowed(
        cls, grant: OpenIdGrant | None, scope: Collection[str] | None, facts: UserFacts | None, nonce: str | None = None
    ) -> OpenIdSubject | None:
        """Return the subject, narrowed to `scope`. Return None if the grant is for neither OpenID Connect nor an API."""
        return cls(grant.narrow(scope), facts, nonce) if grant is not None and grant.is_of_openid_or_api else None


@dataclass(frozen=True, slots=True)
class RotatedSession:
    """The session of a refresh token that was just rotated. Its `subject` has neither `openid` nor the key."""

    subject: TokenSubject
    openid: OpenIdGrant | None = None
    facts: UserFacts | None = None  # None without OpenID Connect
    keeps_refresh_token: bool = False  # the same refresh token works again


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A live session, as its user sees it. Times are UTC.

    `organization` and `service` are the names of its context, or None. `by_support`: an impersonator holds it. `in_browser`: it is a
    browser session on our own pages. `connection` names the organization's connection through which the user signed in, or None.
    """

    id: UUID
    created_at: datetime
    expires_at: datetime
    address: str | None
    agent: str | None
    organization: str | None
    service: str | None
    by_support: bool
    in_browser: bool
    is_external: bool = False  # held by an external client, which uses an organization's API
    connection: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntrospectedSession:
    """The live session of an application's token. Times are UTC."""

    id: UUID
    user_id: UUID
    email: values.Email
    expires_at: datetime
    openid: OpenIdGrant  # its scopes; empty without OpenID Connect
    api_scope: tuple[str, ...] | None  # of the API resource; None if the grant has none
    refresh_token_created_at: datetime | None  # None for an access token
    facts: UserFacts | None = None  # None if the application has no claims document

    @property
    def scope(self) -> tuple[str, ...]:
        return (*self.openid.scope, *(self.api_scope or ()))


@dataclass(frozen=True, slots=True)
class RefreshTokenState:
    """A refresh token that could not be rotated, with the facts that explain why."""

    session_id: UUID
    user_id: UUID
    rotated_at: datetime | None
    is_previous: bool  # only one token is newer
    session_is_live: bool
    org_id: UUID | None
    organization_status: callers.OrganizationStatus | None
    role: RoleName | None
    service_id: UUID | None
    may_use_service: bool  # the service exists, the user uses it and is not blocked, and the session has a required second factor
    fits: bool  # the presenter may use the token
    policy_is_met: bool  # the session has a pass of the sign-in policy, or there is none
    has_key: bool = True  # the presenter has the key that the token is bound to, and any key if its service demands a key


CODE_TTL: Final = timedelta(minutes=15)
MAX_CODE_ATTEMPTS: Final = 5


class FirstFactorMissing(errors.Invalid):
    """Send `passkey`. Or send `password` or `email_code`, with `code` if your account has a second factor."""


class PasswordWrong(errors.Unauthenticated):
    """The password is wrong. Try again."""


class EmailedCodeWrong(errors.Unauthenticated):
    """This code is wrong, has expired or was already used. Enter the 6 digits from the newest email, or request another one."""


class SecondFactorMissing(errors.Unauthenticated):
    """Enter a code of your authenticator app too, or a backup code, or use a passkey or security key."""


class NoVerifiedAddress(errors.Invalid):
    """Your email address is not verified, so no code can be sent to it. Use another way to confirm that it's you."""


class ProviderNotLinked(errors.Invalid):
    """You can't confirm that it's you at this identity provider. Use another way."""


class OtherIdentity(errors.Unauthenticated):
    """This account at the identity provider is not linked to yours. Sign in there with the linked one."""


@dataclass(frozen=True, slots=True)
class ReauthenticationOptions:
    """The ways in which the user of a session can prove that they are here."""

    needs_first_factor: bool  # the last first factor in this session is too old
    password: bool
    email_code: bool
    passkey: bool  # it stands for all factors
    security_key: bool  # the account has a security key: it is a second factor, if `second_methods` has passkeys
    providers: tuple[LinkedPlace, ...]  # one place per provider
    needs_second_factor: bool
    second_methods: tuple[Method, ...]  # for the second factor
    connection: bool = True  # another sign-in at the connection of the session
    is_for_policy: bool = True  # False: they only make the sign-in newer, and a way that the policy accepts follows


@dataclass(frozen=True, slots=True, kw_only=True)
class ReauthenticationProof:
    """The factors that a user presents. `code` is a second-factor code. `passkey` stands for both factors, or for the second factor."""

    password: str | None = field(default=None, repr=False)
    email_code: str | None = field(default=None, repr=False)
    code: str | None = field(default=None, repr=False)
    passkey: Json | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class EmailedCode:
    """An emailed code, as a slow salted hash, and the SHA-256 of the address that it was sent to. `expires_at` is UTC."""

    address_hash: bytes
    salt: bytes = field(repr=False)
    code_hash: bytes = field(repr=False)
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class PendingReauthentication:
    """The identity provider at which the user of a session signed in again, and the time in UTC. The second factor is still missing."""

    provider: ConnectionSlug
    at: datetime


KEPT_FOR: Final = timedelta(minutes=15)
MAX_KEPT: Final = 5  # per session


class KeptFormEnded(errors.Invalid):
    """This form was already sent, or has expired. Open its page to check the result, and fill it in again if necessary."""


@dataclass(frozen=True, slots=True)
class KeptForm:
    """A form of our pages that was sent in a session, and is sent again after a reauthentication. Times are UTC."""

    id: UUID
    session_id: UUID
    path: str  # that it was sent to
    label: str  # what the form does
    fields: Mapping[str, str] = field(repr=False)
    created_at: datetime
    expires_at: datetime
