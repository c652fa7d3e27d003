"""A sign-in in progress: what waits for it, and what was proved so far."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from core.accounts.model.accounts import Account
from core.accounts.model.devices import Location
from core.accounts.model.mfa import MfaEnrollment
from core.authentication.model.identities import PendingIdentity
from core.authentication.model.login import MAX_CODE_ATTEMPTS
from core.kernel.callers import ServiceContext
from core.kernel.connections import FederatedIdentity
from core.kernel.errors import Invalid
from core.kernel.proofs import Proofs
from core.kernel.values import Email, new_id

T = TypeVar("T")

FLOW_TTL: Final = timedelta(hours=24)  # of a browser, after the last step that was stored
CLOSED_TTL: Final = timedelta(hours=1)  # in which a closed flow still knows where its browser can go on
MAX_OPEN: Final = 20  # flows per browser; the oldest is removed


class FlowEnded(Invalid):
    """This sign-in is no longer open: it is finished, took too long, belongs to another browser, or the application does not accept it."""


class WaitingApplication(NamedTuple):
    """The application that a sign-in is for. All are None for the platform itself."""

    org_id: UUID | None = None
    service_id: UUID | None = None  # None for an external client that may not be stored yet
    external_client: str | None = None  # its host, or that it registered itself; None for an application of the organization


class FlowTarget(StrEnum):
    """What a sign-in is for. The area of a target reads `Flow.request`; here it is opaque."""

    PAGE = "page"
    API = "api"
    OAUTH = "oauth"
    SAML = "saml"
    LINK = "link"
    REAUTHENTICATION = "reauthentication"
    TEST = "test"  # of a connection: it signs no user in
    SETUP_TEST = "setup_test"  # of a connection that a set-up link proposes


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A sign-in in progress, in a browser or by an API client.

    Times are UTC.

    The id is no secret: every statement about a browser's flow also names the browser.
    """

    id: UUID
    browser_hash: bytes | None  # SHA-256 of the device cookie; None: an API client
    target: FlowTarget
    request: str = field(repr=False)
    secret_hash: bytes | None = field(default=None, repr=False)  # SHA-256 of the secret with which clients name it
    org_id: UUID | None = None
    service_id: UUID | None = None  # the application that waits, or None for the platform itself
    external_client: str | None = None  # the external client that waits, as in `WaitingApplication`
    wants_fresh: bool = False  # an identity provider must authenticate the user again
    keeps_trust: bool = True  # a trusted device skips the second factor
    first_session_id: UUID | None = None  # the session of the browser when the flow began: never fresh
    user_id: UUID | None = None  # proved by `proofs`
    proofs: Proofs = ()
    proofs_expire_at: datetime | None = None
    failures: int = 0  # attempts that were counted since the proofs or the challenge were stored
    identity: PendingIdentity | None = None  # to link when all required factors are proved (security A-10)
    # A link to an organization's connection, which waits for a sign-in of the account's own. `core.federation.connections` reads it.
    connection_link: Mapping[str, Any] | None = field(default=None, repr=False)
    session_id: UUID | None = None  # the session that the flow is for, or that an API client started for it
    ticket_hash: bytes | None = field(default=None, repr=False)  # SHA-256 of the API client's ticket
    begun_at: datetime
    expires_at: datetime
    closed_at: datetime | None = None
    is_stored: bool = True
    service: ServiceContext | None = None  # of the session that the flow starts, for an API client

    @property
    def application(self) -> WaitingApplication:
        """The application that the sign-in is for."""
        if self.service is not None:
            return WaitingApplication(self.service.org_id, self.service.id)
        return WaitingApplication(self.org_id, self.service_id, self.external_client)

    @property
    def in_browser(self) -> bool:
        """Whether the sign-in uses our own pages."""
        return self.target is not FlowTarget.API

    @property
    def is_sign_on(self) -> bool:
        """Whether the flow continues with SAML. An API client's request is the sign-on that waits for the flow."""
        return self.target is FlowTarget.SAML or (self.target is FlowTarget.API and self.request != "")

    def is_open(self, now: datetime) -> bool:
        return self.closed_at is None and self.expires_at > now

    def waits_for_code(self, now: datetime) -> bool:
        """Return whether a first factor was proved, the second factor is still missing, and tries are left."""
        return self.proofs_expire_at is not None and self.proofs_expire_at > now and self.failures < MAX_CODE_ATTEMPTS


def new_flow(now: datetime, target: FlowTarget, request: str, browser_hash: bytes | None = None, **values: Any) -> Flow:
    """Return a flow that is not stored yet."""
    times = {"begun_at": now, "expires_at": now + FLOW_TTL}
    return Flow(id=new_id(), browser_hash=browser_hash, target=target, request=request, is_stored=False, **(times | values))


def read_stored(kind: type[T], stored: object, **convert: Callable[[Any], object]) -> T:
    """Return the dataclass from its stored JSON.

    Raises: FlowEnded if the fields or values differ, because a different release stored them.
    """
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(stored, dict) or stored.keys() != names:
        raise FlowEnded
    try:
        values = {name: value if value is None or name not in convert else convert[name](value) for name, value in stored.items()}
    except ValueError:
        raise FlowEnded from None
    return kind(**values)


@dataclass(frozen=True, slots=True)
class CodeAttempt:
    """A counted attempt at the second factor of a flow, with the data to check the code."""

    flow: Flow
    account: Account
    enrollment: MfaEnrollment
    blocked_until: datetime | None  # UTC; set if the attempt must be refused without a check


# Challenges: only a flow's newest challenge counts


@dataclass(frozen=True, slots=True)
class ChallengeOrigin:
    """The client that asked for an email."""

    address: str | None
    agent: str | None
    location: Location | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailChallenge:
    """The newest email of a flow. The address may have no account. Times are UTC."""

    id: UUID  # also the id of the email
    flow: Flow
    email: Email
    origin: ChallengeOrigin
    begun_at: datetime
    expires_at: datetime
    user_id: UUID | None = None  # None until the email is prepared, and for an address without an account


@dataclass(frozen=True, slots=True)
class EmailAttempt:
    """A counted attempt at the code of an email."""

    challenge: EmailChallenge
    code: str | None = field(repr=False)  # None until the email is prepared
    subject: bytes  # the key of the counter
    blocked_until: datetime | None  # UTC; set if the attempt must be refused without a check


class ProviderHints(NamedTuple):
    """Hints about the user, for the sign-in page of the identity provider."""

    login: str | None = None
    domain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequest:
    """A browser's provider request, or the ticket for a provider request. Times are UTC.

    With the target TEST, the answer is only shown, to the user who began the test. With SETUP_TEST, it is shown to the reader of the link.
    """

    flow: Flow
    connection_id: UUID
    scopes: tuple[str, ...] | None = None  # configured for the service, or None for the connection's scopes
    user_id: UUID | None = None  # the user who must return, to link an account, to reauthenticate or to see the result of a test
    begun_at: datetime
    expires_at: datetime
    hints: ProviderHints | None = field(default=None, repr=False)  # not stored: no answer is checked against them

    @property
    def org_id(self) -> UUID | None:
        """The organization of the service for which an identity is found and linked."""
        return None if self.flow.target is FlowTarget.SAML else self.flow.org_id

    @property
    def service_id(self) -> UUID | None:
        """The service for which the identity is found and linked. None: the platform, also if the user goes on with SAML."""
        return None if self.flow.target is FlowTarget.SAML else self.flow.service_id

    def to_link(self, identity: FederatedIdentity, *, known_elsewhere: bool) -> PendingIdentity:
        """Return the identity to link in the context of this provider request."""
        return PendingIdentity(
            self.service_id, identity.provider, identity.issuer, identity.subject, identity.email, identity.tokens, known_elsewhere
        )
