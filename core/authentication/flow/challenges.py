"""The newest email of a sign-in in progress, with a code and a link. Only one of them can be used, once."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from core.accounts.model.devices import Location
from core.authentication.flow.model import Flow, Target
from core.kernel.connections import ConnectionSlug
from core.kernel.values import Email


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTrip:
    """The trip of a browser to an identity provider, or the ticket for one. Times are UTC."""

    flow: Flow
    provider: ConnectionSlug
    scopes: tuple[str, ...] | None = None  # configured for the service, or None for the default
    user_id: UUID | None = None  # the user who must return, to link an account or to reauthenticate
    begun_at: datetime
    expires_at: datetime

    @property
    def org_id(self) -> UUID | None:
        """The organization of the service for which the identity is found and linked."""
        return None if self.flow.target is Target.SAML else self.flow.org_id

    @property
    def service_id(self) -> UUID | None:
        """That service, or None for the platform, also if the user goes on with SAML."""
        return None if self.flow.target is Target.SAML else self.flow.service_id
