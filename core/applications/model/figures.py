"""Figures for charts: sign-ins, users, webhook deliveries and SCIM requests by hour or day (decision 450)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
WEEK: Final = timedelta(weeks=1)
# Figures by hour are for the last 24 hours, and figures by day for the last 90 days and their weeks.
HOURS_KEPT: Final = timedelta(hours=48)
DAYS_KEPT: Final = timedelta(days=98)
# A sign-in is stored shortly after its time. An hour is final this long after its end.
SETTLED_AFTER: Final = timedelta(minutes=10)
MOST_APPLICATIONS: Final = 5  # per chart; all other applications are one series
FEWEST_WEEKS: Final = 4
SUCCESS: Final = "success"  # the result of a sign-in; other results are failure reasons
# The platform's id in the figures: as an organization for all figures, as an application for Gatehouse itself.
PLATFORM_ID: Final = UUID(int=0)


class FigureRange(StrEnum):
    """A range for figures that ends now."""

    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"
    QUARTER = "90d"

    @property
    def days(self) -> int:
        return {FigureRange.DAY: 1, FigureRange.WEEK: 7, FigureRange.MONTH: 30, FigureRange.QUARTER: 90}[self]


class FigureSpan(StrEnum):
    """The time that one figure is about."""

    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        return HOUR if self is FigureSpan.HOUR else DAY


class TrafficKind(StrEnum):
    """Requests that are counted with their outcome and duration."""

    WEBHOOK = "webhook"  # attempts to deliver
    SCIM = "scim"


@dataclass(frozen=True, slots=True)
class FigurePeriod:
    """The hours or days in a range, in UTC. The last hour or day is not over."""

    span: FigureSpan
    first: datetime  # when the first hour or day starts
    count: int

    @property
    def starts(self) -> list[datetime]:
        return [self.first + number * self.span.length for number in range(self.count)]

    def spread(self, counts: Mapping[datetime, int]) -> list[int]:
        """Return the number per hour or day, by its start. If a number is missing, it is 0."""
        return [counts.get(start, 0) for start in self.starts]


@dataclass(frozen=True, slots=True)
class ApplicationSignIns:
    """The sign-ins to one application. Without an id and a name, the sign-ins to all remaining applications."""

    service_id: UUID | None
    service_name: str | None
    counts: Sequence[int]
    is_platform: bool = False  # to Gatehouse itself


@dataclass(frozen=True, slots=True)
class SignInFigures:
    """The sign-ins in a period. Every sequence has a number per hour or day."""

    period: FigurePeriod
    by_result: Mapping[str, Sequence[int]] | None  # by SUCCESS and failure reasons; None if the caller may not see failures
    by_method: Mapping[str, Sequence[int]]  # successes, the most frequent first
    by_application: Sequence[ApplicationSignIns]  # successes, the most frequent first


@dataclass(frozen=True, slots=True)
class WeeklyUsers:
    """How many users signed in during a week, which starts on this Monday (UTC)."""

    monday: date
    active: int


@dataclass(frozen=True, slots=True)
class Population:
    """How many confirmed members an organization had, or how many users there were in all, on a day."""

    day: date
    users: int
    second_factor: int  # users with a second factor
    passkeys: int  # users with a passkey
    password_alone: int  # users whose password alone signs in
    organizations: int | None  # on the whole platform


@dataclass(frozen=True, slots=True)
class UserFigures:
    """The users who signed in during a period. Every sequence has a number per hour or day."""

    period: FigurePeriod
    active: Sequence[int]
    new: Sequence[int]  # which of the active users joined on this day
    weeks: Sequence[WeeklyUsers]  # earliest first; the last week is not over
    populations: Sequence[Population] | None  # on the days that were counted; None if the caller may not see them, or does not need them


@dataclass(frozen=True, slots=True)
class TrafficCount:
    """The requests in one hour or day with the same outcome. Times are in milliseconds."""

    start: datetime
    outcome: str
    total: int
    milliseconds: int  # for all requests together
    slowest: int


@dataclass(frozen=True, slots=True)
class TrafficFigures:
    """The requests in a period by outcome, with their duration. Every sequence has an entry per hour or day."""

    period: FigurePeriod
    outcomes: Mapping[str, Sequence[int]]
    average: Sequence[int | None]  # milliseconds; None without a request
    slowest: Sequence[int | None]


def period_of(range_: FigureRange, now: datetime) -> FigurePeriod:
    """Return the hours or days in the range that ends at `now`."""
    now = now.astimezone(UTC)
    if range_ is FigureRange.DAY:
        return FigurePeriod(FigureSpan.HOUR, start_of_hour(now) - 23 * HOUR, 24)
    return FigurePeriod(FigureSpan.DAY, start_of_day(now) - (range_.days - 1) * DAY, range_.days)


def start_of_hour(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def start_of_day(time: datetime) -> datetime:
    return start_of_hour(time).replace(hour=0)


def start_of_week(time: datetime) -> datetime:
    """Return when the week's Monday starts (UTC)."""
    day = start_of_day(time)
    return day - day.weekday() * DAY


def weeks_of(period: FigurePeriod, now: datetime) -> list[datetime]:
    """Return when the period's weeks start, and at least FEWEST_WEEKS."""
    last = start_of_week(now)
    first = min(start_of_week(period.first), last - (FEWEST_WEEKS - 1) * WEEK)
    return [first + number * WEEK for number in range((last - first) // WEEK + 1)]


def summarize_traffic(period: FigurePeriod, counts: Sequence[TrafficCount], outcomes: Sequence[str]) -> TrafficFigures:
    """Return the counts by outcome, in the order that `outcomes` has, and the durations for all."""
    by_outcome: dict[str, dict[datetime, int]] = {outcome: {} for outcome in outcomes}
    totals: dict[datetime, tuple[int, int, int]] = {}
    for each in counts:
        by_outcome.setdefault(each.outcome, {})[each.start] = each.total
        total, milliseconds, slowest = totals.get(each.start, (0, 0, 0))
        totals[each.start] = total + each.total, milliseconds + each.milliseconds, max(slowest, each.slowest)
    averages = {start: round(milliseconds / total) for start, (total, milliseconds, _) in totals.items() if total}
    return TrafficFigures(
        period,
        {outcome: period.spread(of_outcome) for outcome, of_outcome in by_outcome.items()},
        [averages.get(start) for start in period.starts],
        [totals[start][2] if start in totals else None for start in period.starts],
    )
