"""Entities, refusals and pure rules of `core.federation.saml.sign_on`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.federation.saml.messages import NameId, SamlMessageInvalid, SamlStatus
from core.kernel.errors import Forbidden, Invalid

if TYPE_CHECKING:
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.authentication.sessions_rules import Session
    from core.kernel.deferred import Deferred

LOGIN_PROVIDER: Final = "saml"  # what the records call this way to sign in
STATE_TTL: Final = timedelta(minutes=15)


class AuthnRequestReplayed(SamlMessageInvalid):
    """This SAML request has been used already. Start again at the application."""


class SignOnNotFound(Invalid):
    """This sign-in is unknown, was finished already, has expired, or was begun in another browser. Start again at the application."""


class NoAccessToService(Forbidden):
    """You have no access to this application. Ask those who run it, or sign in as somebody who has."""


class SubjectMismatch(Forbidden):
    """The application has asked for somebody else, which it is told, and not the person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlSignOn:
    """What a service asked a browser to sign in for. Times are UTC.

    `status` is why it gets no assertion, whoever is signed in; `subject` whom it has to be about, if somebody in particular; and
    `context_class` what it takes to hear of somebody who has signed in with a password, if not the usual.
    `vouched_for` is for whom an identity provider has vouched for it, having been asked to have them show again who they are.
    `session` is the one in which somebody has signed in for it over the interface, and `ticket_hash` the SHA-256 of what they were given to
    show for that.
    """

    state_hash: bytes
    browser_hash: bytes
    org_id: UUID
    service_id: UUID
    request_id: str
    relay_state: str | None
    force_authn: bool
    is_passive: bool
    status: SamlStatus | None = None
    subject: NameId | None = None
    context_class: str | None = None
    created_at: datetime
    expires_at: datetime
    user_id: UUID | None = None
    session_id: UUID | None = None
    ticket_hash: bytes | None = None
    vouched_for: UUID | None = None


@dataclass(frozen=True, slots=True)
class SignOnStarted:
    """Where the browser goes on, and the cookie that it must have there, besides the state."""

    path: str
    state: str = field(repr=False)
    cookie: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SignOnResult:
    """What the browser posts to the service. `is_error` says that it vouches for nobody; `signed_in` is the browser's session, if one has
    begun with it."""

    acs_url: str
    saml_response: str = field(repr=False)
    relay_state: str | None
    is_error: bool = False
    signed_in: tuple[Session, str] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class LoginRequired:
    """Somebody has to sign in before there is an answer, and to come back to this path."""

    path: str


@dataclass(frozen=True, slots=True)
class SignOnLocks:
    """Somebody's membership and account, locked in this order, and what was read after that: whether their session lives, and whether they
    use the service in their own right."""

    membership: Deferred[bool]
    account: Deferred[Account]
    session_lives: Deferred[bool]
    use: Deferred[bool]
