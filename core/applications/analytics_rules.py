"""Figures about the sign-ins that an organization sees, and the date range that they cover."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from core.kernel.providers import Provider

RECENT_LOGINS_BATCH: Final = 500  # clients may ask for any number of recent logins, so they are read in batches
DEFAULT_RANGE: Final = timedelta(days=30)  # the length of a date range without a start, and the period for "new" and "active" users


class DateRangeReversed(Invalid):
    """The range ends before it begins. Choose an end that is not before the start. Without an end, the range ends today (UTC)."""


@dataclass(frozen=True, slots=True)
class DateRange:
    """A range of days in UTC, both ends included."""

    first: date
    last: date

    @property
    def length(self) -> int:
        """Return the number of days."""
        return (self.last - self.first).days + 1


@dataclass(frozen=True, slots=True)
class DailyLogins:
    """The number of logins on one day."""

    day: date
    count: int


@dataclass(frozen=True, slots=True)
class ServiceLogins:
    """The number of logins to one service."""

    service_id: UUID
    service_name: str
    count: int


@dataclass(frozen=True, slots=True)
class ProviderLogins:
    """The number of logins through one identity provider."""

    provider: Provider
    count: int


@dataclass(frozen=True, slots=True)
class RecentLogin:
    """One login. `provider` is an identity provider, or of OwnMethod. Times are UTC."""

    id: UUID
    user_id: UUID
    service_id: UUID | None  # None for the sign-in of a member to the platform
    provider: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ServiceUsage:
    """The numbers of users and logins of one service."""

    users: int
    new_users: int  # users who first used the service within DEFAULT_RANGE
    active_users: int  # users who signed in within DEFAULT_RANGE
    logins: int  # of all time


def resolve_range(first: date | None, last: date | None, now: datetime) -> DateRange:
    """Return the range between these days. A missing end is today, a missing start is 30 days before the end.

    Raises: DateRangeReversed.
    """
    if last is None:
        last = now.astimezone(UTC).date()
    if first is None:
        first = last - min(DEFAULT_RANGE, last - date.min)
    if first > last:
        raise DateRangeReversed
    return DateRange(first, last)


def fill_days(logins: Sequence[DailyLogins], days: DateRange) -> list[DailyLogins]:
    """Return the logins of all days of the range. Days without logins are added with 0."""
    counts: dict[date, int] = {each.day: each.count for each in logins}
    return [DailyLogins(day, counts.get(day, 0)) for day in (days.first + timedelta(days=number) for number in range(days.length))]
