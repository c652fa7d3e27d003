"""Entities, refusals and pure rules of `core.privacy`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from core.kernel.errors import Forbidden
from core.kernel.values import Batches, Email

if TYPE_CHECKING:
    from uuid import UUID

    from core.kernel.principals import Role
    from core.kernel.providers import Provider

T = TypeVar("T")

BATCH = 500  # of an export, at once
# What logs say afterwards of where the person came from, and with what.
NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104  (nothing listens there)
NO_AGENT: Final = "anonymized"
ANONYMIZED: Final = "user_anonymized"  # what the log of privacy says of an anonymization (decisions, point 143)
# How often an anonymization begins again because somebody else was faster: at the placeholder, or by making the person a member.
LOST_RACES = 100


class ExportNotAllowed(Forbidden):
    """You can export what is kept about yourself, and about people who take part in an organization that you own."""


class AnonymizationNotAllowed(Forbidden):
    """You can anonymize people who belong to organizations, take part in each of them, and you own them all."""


class PlatformOwnerStays(Forbidden):
    """Platform owners cannot be anonymized. Demote this one first."""


@dataclass(frozen=True, slots=True)
class KeptMembership:
    """A membership, in an export. Times are UTC here and below."""

    id: UUID
    org_id: UUID
    org_slug: str
    role: Role
    joined_at: datetime


@dataclass(frozen=True, slots=True)
class KeptLogin:
    """A login or a failed attempt at one. `risk_score` is in hundredths, 0 to 100 (decisions, point 84)."""

    id: UUID
    at: datetime
    address: str | None
    agent: str | None
    provider: str
    success: bool
    risk_score: int
    risk_factors: tuple[str, ...]
    city: str | None
    country: str | None


@dataclass(frozen=True, slots=True)
class KeptIdentity:
    """A linked account at an external provider, without what the provider gave with it."""

    id: UUID
    provider: Provider
    provider_user_id: str
    linked_at: datetime


@dataclass(frozen=True, slots=True)
class KeptMfaEvent:
    """What happened with the second factor."""

    id: UUID
    event_type: str
    at: datetime
    success: bool


@dataclass(frozen=True, slots=True)
class KeptPasskey:
    """A passkey, without its key."""

    id: UUID
    name: str
    aaguid: UUID
    backup_eligible: bool
    created_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class Export:
    """What is kept about a person (identity.md section 2.8). The lists are read little by little: of `login_events` the newest, as many as
    the policy says, of `login_events_count`; they and `mfa_events` are newest first, the others oldest first."""

    user_id: UUID
    email: Email
    created_at: datetime
    memberships: Batches[KeptMembership]
    login_events_count: int
    login_events: Batches[KeptLogin]
    oauth_identities: Batches[KeptIdentity]
    mfa_events: Batches[KeptMfaEvent]
    passkeys: Batches[KeptPasskey]


@dataclass(frozen=True, slots=True)
class Belonging:
    """Somebody's membership, as it counts for who may anonymize them: in which organization, confirmed or not, and whether the one who asks
    owns that organization."""

    org_id: UUID
    confirmed: bool
    owned: bool

    @property
    def gives_a_say(self) -> bool:
        """Whether it lets the one who asks decide about the person (security.md R-5)."""
        return self.confirmed and self.owned


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def placeholder_at(time: datetime) -> Email:
    """The address of an account that became unknown at this time (decisions, point 148). Mail goes nowhere from there."""
    return Email(f"anonymized-{(time - _EPOCH) // timedelta(microseconds=1)}@deleted.local")
