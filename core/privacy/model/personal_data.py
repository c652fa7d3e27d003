"""Privacy: the export of a user's data, and the rules for anonymization."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from core.kernel.display import format_utc
from core.kernel.errors import Forbidden
from core.kernel.values import Batches, Email

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from core.accounts.model.profiles import Profile
    from core.accounts.model.security_notices import SecurityNotice
    from core.authentication.model.openid import Scope
    from core.eventing.model.audit import AuditActor
    from core.kernel.api_scopes import ApiScope
    from core.kernel.providers import Provider
    from core.kernel.roles import Role
    from core.programs.model.api_resources import ResourceAccess

T = TypeVar("T")

BATCH = 500  # rows of an export that are read at once
# The values that replace the IP address and the user agent in logs.
NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104  (nothing listens there)
NO_AGENT: Final = "anonymized"
# The event types of the privacy log.
ANONYMIZED: Final = "user_anonymized"
EXPORTED: Final = "user_exported"
MAX_LISTED: Final = 10_000  # the number of entries of a user's log that have pages
# An anonymization starts over if a concurrent request took its placeholder, or made the user a
# member of another organization.
MAX_LOST_RACES = 100


class ExportNotAllowed(Forbidden):
    """You can export your own data, and the data of confirmed members of an organization that you own."""


class AnonymizationNotAllowed(Forbidden):
    """You can only anonymize users of organizations that you own, with confirmed memberships there alone and no use elsewhere."""


class CannotAnonymizePlatformOwner(Forbidden):
    """This user is a platform owner and cannot be anonymized. Remove their platform ownership first."""


class PlatformOwnerCannotDelete(Forbidden):
    """You are a platform owner. Ask another platform owner to end your rights as one, and then delete your account."""


class OwnerCannotDelete(Forbidden):
    """You own an organization. Transfer its ownership to another member, or delete the organization, and then delete your account."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f"You own {' and '.join(names)}. Transfer the ownership to another member, or delete the organization, and then delete your "
            "account."
        )


@dataclass(frozen=True, slots=True)
class ExportedMembership:
    """A membership in an export. Times in an export are UTC."""

    id: UUID
    org_id: UUID
    org_slug: str
    role: Role
    joined_at: datetime


@dataclass(frozen=True, slots=True)
class ExportedLogin:
    """A successful or failed login. `risk_score` is between 0 and 100."""

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
class ExportedIdentity:
    """A linked account at an identity provider, without its tokens."""

    id: UUID
    provider: Provider
    provider_user_id: str
    linked_at: datetime


@dataclass(frozen=True, slots=True)
class ExportedMfaEvent:
    """An entry of the second-factor log."""

    id: UUID
    event_type: str
    at: datetime
    success: bool


@dataclass(frozen=True, slots=True)
class ExportedPasskey:
    """A passkey without its key."""

    id: UUID
    name: str
    aaguid: UUID
    backup_eligible: bool
    created_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class ExportedEmailChange:
    """A change of the email address that the user requested. `proved_at` is when it took effect."""

    id: UUID
    old_email: Email
    new_email: Email
    requested_at: datetime
    proved_at: datetime | None
    undone_at: datetime | None


@dataclass(frozen=True, slots=True)
class ExportedConsent:
    """The user's consent to an application."""

    service_id: UUID
    service_slug: str
    org_id: UUID
    org_slug: str
    scope: tuple[Scope, ...]
    granted_at: datetime
    apis: tuple[ResourceAccess, ...] = ()  # the API resources that the application may use on the user's behalf


@dataclass(frozen=True, slots=True)
class ExportedServiceAccount:
    """A service account that the user answers for. The organization is None for one of the platform."""

    id: UUID
    name: str
    org_id: UUID | None
    org_slug: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ExportedPersonalToken:
    """A personal access token without its secret. `ended_at` is when it was ended before it expired."""

    id: UUID
    name: str
    prefix: str
    scopes: tuple[ApiScope, ...]
    org_id: UUID | None  # the only organization that it acts in; None if it acts on the user's own account
    org_slug: str | None
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class PersonalDataExport:
    """The stored data of a user. The lists are read in batches while they are sent.

    `login_events` contains the newest logins, up to the limit of the policy. `login_events_count`
    is the number of all logins. Logins, `mfa_events`, `email_changes` and `security_notices` are newest first,
    the other lists oldest first.
    """

    user_id: UUID
    email: Email
    created_at: datetime
    profile: Profile  # empty in a part
    memberships: Batches[ExportedMembership]
    login_events_count: int
    login_events: Batches[ExportedLogin]
    oauth_identities: Batches[ExportedIdentity]
    mfa_events: Batches[ExportedMfaEvent]
    passkeys: Batches[ExportedPasskey]
    email_changes: Batches[ExportedEmailChange]
    security_notices: Batches[SecurityNotice]
    consents: Batches[ExportedConsent]
    service_accounts: Batches[ExportedServiceAccount]
    personal_tokens: Batches[ExportedPersonalToken]


def closure_message(erase_at: datetime) -> str:
    """Return the response to the deletion of an account that is only closed until then (UTC)."""
    return f"The account is closed. Its data is erased on {format_utc(erase_at)}. Until then, the link in our email opens it."


@dataclass(frozen=True, slots=True)
class MfaLogEntry:
    """An entry of a user's second-factor log. Times are UTC.

    `actor` is the platform owner who acted, or None if the user did, or someone who signed in as the user.
    """

    id: UUID
    event_type: str
    success: bool
    at: datetime
    address: str | None
    agent: str | None
    reason: str | None
    actor: AuditActor | None
    impersonator: AuditActor | None


@dataclass(frozen=True, slots=True)
class PrivacyLogEntry:
    """An export or the anonymization of a user's data. Times are UTC."""

    id: UUID
    event_type: str
    at: datetime
    address: str | None
    agent: str | None
    actor: AuditActor


@dataclass(frozen=True, slots=True)
class MembershipControl:
    """A user's membership, and whether the caller owns its organization."""

    org_id: UUID
    confirmed: bool
    owned: bool

    @property
    def gives_control(self) -> bool:
        """Return whether this membership lets the caller export or anonymize the user (security R-5)."""
        return self.confirmed and self.owned


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def placeholder_at(time: datetime) -> Email:
    """Return the email address of an account that was anonymized at this time. Its domain receives no email."""
    return Email(f"anonymized-{(time - _EPOCH) // timedelta(microseconds=1)}@deleted.local")
