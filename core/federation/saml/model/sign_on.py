"""SAML sign-ons and single logout."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.authentication.model.sessions import Session
from core.federation.saml.model import messages
from core.kernel import errors
from core.kernel.values import digest

LOGIN_PROVIDER: Final = "saml"  # as the login records name it
STATE_TTL: Final = timedelta(minutes=15)


class AuthnRequestReplayed(messages.SamlMessageInvalid):
    """This SAML request has already been used. Start again at the application."""


class SignOnNotFound(errors.Invalid):
    """This sign-in has expired or is already finished, or it was started in another browser. Start again at the application."""


class SubjectMismatch(errors.Forbidden):
    """The application asked for another user. Sign in as that user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlSignOn:
    """A service's request to sign a user in, or a sign-in that starts here."""

    request_id: str | None  # None: the service sent no request
    relay_state: str | None
    force_authn: bool = False
    is_passive: bool = False
    status: messages.SamlStatus | None = None  # set if we refuse the request for every user
    subject: messages.NameId | None = None  # the requested user, or None for any
    context_class: str | None = None  # to state for a sign-in with a password; None for the default


@dataclass(frozen=True, slots=True)
class SignOnStarted:
    """A new sign-on. The browser continues at the path, and must present the state and the cookie there."""

    path: str
    state: str = field(repr=False)
    cookie: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOnReturn:
    """The return of a browser to a sign-on: the service and the state in its path, and the browser's secrets and session."""

    org_slug: str
    service_slug: str
    state: str = field(repr=False)
    cookie: str | None = field(repr=False)  # of this sign-on
    device_cookie: str | None = field(repr=False)
    session_id: UUID | None


@dataclass(frozen=True, slots=True)
class SignOnResult:
    """The form that the browser posts to the service."""

    acs_url: str
    saml_response: str = field(repr=False)
    relay_state: str | None
    is_error: bool = False  # the response has no assertion
    # The browser session that started with this sign-on, and the secret for its cookie.
    signed_in: tuple[Session, str] | None = field(default=None, repr=False)


LOGOUT_TTL: Final = timedelta(minutes=15)
MAX_SESSION_INDEXES: Final = 100  # in one request; a browser has one at each service


class SloUrlMissing(errors.Invalid):
    """This application has no registered address to return to after signing out. You are still signed in. Sign out on your account page."""


class LogoutNotFound(errors.Invalid):
    """No sign-out is in progress in this browser, or it took too long. Sign out again at the application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlSession:
    """A service that a browser session has signed its user in to, and the user's name there."""

    org_id: UUID
    service_id: UUID
    session_index: str
    name_id: messages.NameId
    former_names: tuple[str, ...] = ()

    @property
    def names(self) -> list[messages.NameId]:
        """The current name and the former ones. The service may know the user by any of them."""
        return [self.name_id, *(replace(self.name_id, value=name) for name in self.former_names)]


@dataclass(frozen=True, slots=True)
class EndedSessions:
    """The browser sessions that a logout has ended without their browsers."""

    count: int
    have_other_services: bool  # which cannot be notified


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutInitiator:
    """The initiator of a logout, which gets the result.

    It is either a service, with the id and the RelayState of its LogoutRequest, or our own page,
    which continues at the path `after`.
    """

    org_id: UUID | None = None
    service_id: UUID | None = None
    request_id: str | None = None
    relay_state: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlLogout:
    """A logout in progress. Times are UTC."""

    id: UUID
    browser_hash: bytes
    initiator: LogoutInitiator
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class InitiatingRequest:
    """A valid LogoutRequest of a service, which becomes the initiator of a logout."""

    initiator: LogoutInitiator
    session_indexes: tuple[str, ...]
    name_id: messages.NameId | None  # None matches no session
    is_signed: bool = False  # with the registered certificate of the service

    @property
    def is_everywhere(self) -> bool:
        """Whether the request ends the user's sessions in all browsers, and not only in the one that delivers it."""
        return self.is_signed and not self.session_indexes

    def select_named(self, sessions: Sequence[SamlSession]) -> list[SamlSession]:
        """Return the sessions among these that the request names. Without a SessionIndex, the name alone decides."""
        return [
            session
            for session in sessions
            if session.service_id == self.initiator.service_id
            and (not self.session_indexes or session.session_index in self.session_indexes)
            and self.name_id is not None
            and any(self.name_id.matches(name) for name in session.names)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutCookies:
    """The logout cookie and the session cookie of a browser, or None where it has none.

    A logout that ends a browser session uses the secret of that session cookie as its own. So we
    recognize a browser that sent several requests at once, for example after a double click, and
    ignored the response that replaced its cookies. The secret has no other use after the session
    ended.
    """

    logout: str | None = field(repr=False)
    session: str | None = field(repr=False)

    def secret_of(self, logout: SamlLogout) -> str:
        """Return the secret that identifies this logout, which was found or started with one of the cookies."""
        return next(secret for secret in (self.logout, self.session) if secret is not None and digest(secret) == logout.browser_hash)


@dataclass(frozen=True, slots=True)
class Redirect:
    """The next URL or path of the browser. The secret identifies the logout in progress. It is None after the last step."""

    url: str
    secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class LogoutAnswered:
    """The URL with the response to a LogoutRequest that starts no logout. A logout in progress continues unchanged."""

    url: str


@dataclass(frozen=True, slots=True)
class LogoutFinished:
    """The end of a logout that our own page reports. The page continues at the path `after`."""

    is_partial: bool  # the user may still be signed in at some service
    after: str | None
