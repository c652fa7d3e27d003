"""Privacy: exporting a user's data, and the rules for anonymization."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.accounts.model.profiles import Profile
from core.eventing.model.audit import AuditActor
from core.kernel import values
from core.kernel.display import format_utc
from core.kernel.errors import Forbidden

BATCH = 500  # rows that an export reads at once
# The values that replace the IP address and the user agent in logs.
NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104  (nothing listens there)
NO_AGENT: Final = "anonymized"
# The event types in the privacy log.
ANONYMIZED: Final = "user_anonymized"
EXPORTED: Final = "user_exported"
MAX_LISTED: Final = 10_000  # how many entries in a user's log have pages
# An anonymization starts over if a concurrent request took its placeholder, or made the user a
# member in another organization.
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


class ExportedList(StrEnum):
    """A list in an export, with its name in the response, in the response's order."""

    MEMBERSHIPS = "memberships"
    LOGIN_EVENTS = "login_events"  # successful and failed sign-ins
    OAUTH_IDENTITIES = "oauth_identities"
    MFA_EVENTS = "mfa_events"
    PASSKEYS = "passkeys"
    EMAIL_CHANGES = "email_changes"
    SECURITY_NOTICES = "security_notices"
    CONSENTS = "consents"
    APPLICATION_BLOCKS = "application_blocks"  # by organizations' admins
    FORMER_MEMBERSHIPS = "former_memberships"  # with the address and name that the organization keeps
    APPLICATION_ROLES = "application_roles"
    GROUPS = "groups"  # in organizations
    ATTRIBUTES = "attributes"  # in organizations
    SERVICE_ACCOUNTS = "service_accounts"  # service accounts that the user answers for
    PERSONAL_TOKENS = "personal_tokens"


# The other lists begin with their oldest item.
NEWEST_FIRST: Final = frozenset(
    {ExportedList.LOGIN_EVENTS, ExportedList.MFA_EVENTS, ExportedList.EMAIL_CHANGES, ExportedList.SECURITY_NOTICES}
)
# The other lists belong to the account alone, and are empty in a part.
OF_ORGANIZATIONS: Final = frozenset(
    {
        ExportedList.MEMBERSHIPS,
        ExportedList.LOGIN_EVENTS,
        ExportedList.OAUTH_IDENTITIES,
        ExportedList.CONSENTS,
        ExportedList.APPLICATION_BLOCKS,
        ExportedList.FORMER_MEMBERSHIPS,
        ExportedList.APPLICATION_ROLES,
        ExportedList.GROUPS,
        ExportedList.ATTRIBUTES,
    }
)


@dataclass(frozen=True, slots=True)
class ExportedItem:
    """An item in a list. Lists are ordered by `at` (UTC) and `id`. `fields` are the values by their names in the response."""

    at: datetime
    id: UUID
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PersonalDataExport:
    """A user's stored data. The lists are read in batches while they are sent.

    The login list has the newest logins, up to the limit in the policy. `login_events_count` counts all logins.
    """

    user_id: UUID
    email: values.Email
    created_at: datetime
    profile: Profile  # empty in a part
    picture_file: bytes | None  # the uploaded picture, as PNG
    login_events_count: int
    lists: Mapping[ExportedList, values.Batches[ExportedItem]]


def closure_message(erase_at: datetime) -> str:
    """Return the response when an account is deleted, but only closed until then (UTC)."""
    return f"The account is closed. Its data is erased on {format_utc(erase_at)}. Until then, the link in our email opens it."


@dataclass(frozen=True, slots=True)
class MfaLogEntry:
    """An entry in a user's second-factor log. Times are UTC.

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
    """An entry in the privacy log: a user's data was exported, or the user was anonymized. Times are UTC."""

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


def placeholder_at(time: datetime) -> values.Email:
    """Return the email address for an account that was anonymized at this time. The address's domain receives no email."""
    return values.Email(f"anonymized-{(time - _EPOCH) // timedelta(microseconds=1)}@deleted.local")
