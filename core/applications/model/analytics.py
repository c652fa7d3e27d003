"""Analytics, and the figures in the overview."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Self
from uuid import UUID

from core.accounts.model.email_queue import NoticedSecret
from core.kernel import roles
from core.kernel.connections import ConnectionSlug
from core.kernel.errors import Invalid

RECENT_LOGINS_BATCH: Final = 500  # clients may ask for any number of recent logins, so they are read in batches
DEFAULT_RANGE: Final = timedelta(days=30)  # how long a date range without a start is, and the period for "new" and "active" users


class DateRangeReversed(Invalid):
    """The range ends before it begins. Choose an end that is not before the start. Without an end, the range ends today (UTC)."""


@dataclass(frozen=True, slots=True)
class DateRange:
    """A range of days in UTC, both ends included."""

    first: date
    last: date

    @property
    def length(self) -> int:
        """Return how many days the range has."""
        return (self.last - self.first).days + 1


@dataclass(frozen=True, slots=True)
class DailyLogins:
    """How many logins there were on a day."""

    day: date
    count: int


@dataclass(frozen=True, slots=True)
class ServiceLogins:
    """How many logins there were to a service."""

    service_id: UUID
    service_name: str
    count: int


@dataclass(frozen=True, slots=True)
class ProviderLogins:
    """How many logins there were through an identity provider."""

    provider: ConnectionSlug
    count: int


@dataclass(frozen=True, slots=True)
class RecentLogin:
    """A login. `provider` is an identity provider, or our own method. Times are UTC."""

    id: UUID
    user_id: UUID
    service_id: UUID | None  # None if a member signed in to the platform
    service_name: str | None
    provider: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ServiceUsage:
    """How many users and logins a service has."""

    users: int
    new_users: int  # users who first used the service within DEFAULT_RANGE
    active_users: int  # users who signed in within DEFAULT_RANGE
    logins: int  # since the beginning


def resolve_range(first: date | None, last: date | None, now: datetime) -> DateRange:
    """Return the range between these days. A missing end is today, a missing start is 30 days before the end."""
    if last is None:
        last = now.astimezone(UTC).date()
    if first is None:
        first = last - min(DEFAULT_RANGE, last - date.min)
    if first > last:
        raise DateRangeReversed
    return DateRange(first, last)


def fill_days(logins: Sequence[DailyLogins], days: DateRange) -> list[DailyLogins]:
    """Return the logins for all days in the range. Days without logins are added with 0."""
    counts: dict[date, int] = {each.day: each.count for each in logins}
    return [DailyLogins(day, counts.get(day, 0)) for day in (days.first + timedelta(days=number) for number in range(days.length))]


DAYS: Final = 30  # for the sign-ins, with today
MOST_COUNTED: Final = 100  # per task
# The last attempt is searched in this many newest deliveries to a webhook.
DELIVERIES_CHECKED: Final = 20


class PendingTask(StrEnum):
    """A state that an admin should change. The most urgent states come first."""

    capability: roles.Capability | None  # required by the next step; other roles do not see the task

    def __new__(cls, value: str, capability: roles.Capability | None = None) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.capability = value, capability
        return member

    CONNECTIONS_FAILING = "connections_failing", roles.Capability.INTEGRATIONS_MANAGE
    CERTIFICATES_EXPIRING = "certificates_expiring", roles.Capability.INTEGRATIONS_MANAGE
    CONNECTION_CERTIFICATES_EXPIRING = "connection_certificates_expiring", roles.Capability.INTEGRATIONS_MANAGE
    SERVICE_ACCOUNTS_ENDING = "service_accounts_ending", roles.Capability.SERVICE_ACCOUNTS_MANAGE
    WEBHOOKS_FAILING = "webhooks_failing", roles.Capability.WEBHOOKS_MANAGE
    GROUP_ROLES_STOPPED = "group_roles_stopped", roles.Capability.ROLES_MANAGE
    SIEM_FAILING = "siem_failing", roles.Capability.INTEGRATIONS_MANAGE
    SIEM_PAUSED = "siem_paused", roles.Capability.INTEGRATIONS_MANAGE
    DOMAIN_UNVERIFIED = "domain_unverified", roles.Capability.INTEGRATIONS_MANAGE
    CONNECTIONS_WITHOUT_DOMAIN = "connections_without_domain", roles.Capability.INTEGRATIONS_MANAGE
    ADMINS_WITHOUT_MFA = "admins_without_mfa", roles.Capability.MEMBERS_MANAGE
    ADMINS_WITH_PASSWORD_ALONE = "admins_with_password_alone", roles.Capability.MEMBERS_MANAGE
    INVITATIONS_PENDING = "invitations_pending", roles.Capability.MEMBERS_MANAGE
    API_KEYS_TO_REVIEW = "api_keys_to_review", roles.Capability.API_KEYS_MANAGE
    SCIM_TOKENS_TO_REVIEW = "scim_tokens_to_review", roles.Capability.INTEGRATIONS_MANAGE
    REGISTRATION_TOKENS_TO_REVIEW = "registration_tokens_to_review", roles.Capability.SERVICES_CREATE


@dataclass(frozen=True, slots=True)
class CredentialToReview:
    """The organization's credential, after its creator has left or may no longer create it (security J-12).

    The credential still works, except a registration token.
    """

    kind: NoticedSecret
    id: UUID
    name: str
    created_by: UUID
    application: str | None  # the application's name, for an API key
    application_slug: str | None

    @property
    def task(self) -> PendingTask:
        return REVIEWS[self.kind]


REVIEWS: Final[Mapping[NoticedSecret, PendingTask]] = MappingProxyType(
    {
        NoticedSecret.API_KEY: PendingTask.API_KEYS_TO_REVIEW,
        NoticedSecret.SCIM_TOKEN: PendingTask.SCIM_TOKENS_TO_REVIEW,
        NoticedSecret.REGISTRATION_TOKEN: PendingTask.REGISTRATION_TOKENS_TO_REVIEW,
    }
)
# The tasks that the statement for the figures counts
COUNTED_TASKS: Final = tuple(task for task in PendingTask if task not in REVIEWS.values())


@dataclass(frozen=True, slots=True)
class OrganizationFigures:
    """How many members, services, and objects with a pending task the organization has. A task without objects is left out."""

    members: int
    services: int
    has_sign_ins: bool  # at a service, ever
    tasks: Mapping[PendingTask, int]  # counted up to MOST_COUNTED


@dataclass(frozen=True, slots=True)
class Overview:
    """An organization's overview, as a member may see it."""

    members: int
    services: int
    has_sign_ins: bool  # at a service, ever
    sign_ins: Sequence[DailyLogins]  # an entry for every day in the last DAYS days, earliest first
    tasks: Mapping[PendingTask, int]  # in the order that PendingTask has
    to_review: Sequence[CredentialToReview] = ()  # for the tasks


def compute_days(now: datetime) -> DateRange:
    """Return the days on which the overview shows sign-ins. The last day is today (UTC)."""
    today = now.astimezone(UTC).date()
    return DateRange(today - timedelta(days=DAYS - 1), today)


def select_tasks(tasks: Mapping[PendingTask, int], rights: roles.Rights) -> dict[PendingTask, int]:
    """Return the tasks that a member with these rights can do, in the order that PendingTask has."""
    return {task: tasks[task] for task in PendingTask if task in tasks and task.capability in rights}
