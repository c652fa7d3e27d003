"""Values and refusals of SAML sign-ons."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.authentication.model.sessions import Session
from core.federation.saml.model.messages import NameId, SamlMessageInvalid, SamlStatus
from core.kernel.errors import Forbidden, Invalid
from core.kernel.providers import OwnMethod

LOGIN_PROVIDER: Final = OwnMethod.SAML.value
STATE_TTL: Final = timedelta(minutes=15)


class AuthnRequestReplayed(SamlMessageInvalid):
    """This SAML request has already been used. Start again at the application."""


class SignOnNotFound(Invalid):
    """This sign-in has expired or is already finished, or it was started in another browser. Start again at the application."""


class SubjectMismatch(Forbidden):
    """The application asked for another user. Sign in as that user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlSignOn:
    """A service's request to sign a user in, pending in one browser. Times are UTC."""

    state_hash: bytes
    browser_hash: bytes
    org_id: UUID
    service_id: UUID
    request_id: str
    relay_state: str | None
    force_authn: bool
    is_passive: bool
    status: SamlStatus | None = None  # set if we refuse the request for every user
    subject: NameId | None = None  # the requested user, or None for any
    context_class: str | None = None  # to state for a sign-in with a password; None for the default
    created_at: datetime
    expires_at: datetime
    # Set by a sign-in through the API: its user and session, and the SHA-256 of the ticket that the
    # browser must present.
    user_id: UUID | None = None
    session_id: UUID | None = None
    ticket_hash: bytes | None = None
    vouched_for: UUID | None = None  # the user that an identity provider reauthenticated for this sign-on


@dataclass(frozen=True, slots=True)
class SignOnStarted:
    """A new pending sign-on. The browser continues at the path, and must present the state and the cookie there."""

    path: str
    state: str = field(repr=False)
    cookie: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOnReturn:
    """The return of a browser to a pending sign-on: the service and the state in its path, and the browser's secrets."""

    org_slug: str
    service_slug: str
    state: str = field(repr=False)
    cookie: str | None = field(repr=False)
    ticket: str | None = field(repr=False)  # from a sign-in through the API
    session_cookie: str | None = field(repr=False)  # of the browser session that a sign-in through the API replaces


@dataclass(frozen=True, slots=True)
class SignOnResult:
    """The form that the browser posts to the service."""

    acs_url: str
    saml_response: str = field(repr=False)
    relay_state: str | None
    is_error: bool = False  # the response has no assertion
    # The browser session that started with this sign-on, and the secret for its cookie.
    signed_in: tuple[Session, str] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class LoginRequired:
    """The user must sign in first and then return to this path."""

    path: str
