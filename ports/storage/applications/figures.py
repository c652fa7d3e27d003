"""Storage of the figures for charts."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Protocol
from uuid import UUID

from core.applications.model.figures import ApplicationSignIns, FigurePeriod, Population, TrafficCount, TrafficKind, WeeklyUsers


class FiguresRead(Protocol):
    """The figures of an organization, or with an `org_id` of None those of the platform.

    Successful sign-ins by day are the totals that `AnalyticsRead` reads.
    """

    async def by_result(self, org_id: UUID | None, period: FigurePeriod) -> dict[str, list[int]]:
        """Return the sign-ins by SUCCESS and the reasons of failures."""

    async def by_method(self, org_id: UUID | None, period: FigurePeriod) -> dict[str, list[int]]:
        """Return the successful sign-ins by method, the most frequent first."""

    async def by_application(self, org_id: UUID, period: FigurePeriod, most: int) -> list[ApplicationSignIns]:
        """Return the successful sign-ins by application, the `most` frequent first, then all others together."""

    async def users(self, org_id: UUID | None, period: FigurePeriod) -> tuple[list[int], list[int]]:
        """Return the numbers of active and of new users."""

    async def weekly_users(self, org_id: UUID | None, weeks: Sequence[datetime]) -> list[WeeklyUsers]:
        """Return the number of active users of each week, by the start of its Monday."""

    async def populations(self, org_id: UUID | None, since: date) -> list[Population]:
        """Return the numbers of users, and of those with a second factor, of the days that were counted."""

    async def traffic(self, org_id: UUID | None, kind: TrafficKind, period: FigurePeriod) -> list[TrafficCount]: ...


class FigureCounting(Protocol):
    """Counting of figures from the records. Callers have the lease: only one process counts.

    The statements that count may take ten minutes each, and need a transaction.
    """

    async def next_hour(self, since: datetime, now: datetime) -> datetime:
        """Return the first hour of `since` or later that is not final and has sign-ins, or else the hour of `now`."""

    async def count_hour(self, hour: datetime) -> None:
        """Count the sign-ins and users of an hour again, and then those of its day. Runs nine statements."""

    async def mark_final(self, until: datetime) -> None:
        """Record that the hours before `until` are final."""

    async def sum_traffic(self, since: datetime) -> None:
        """Sum the traffic of all organizations for the platform, from the hour and the day of `since`. Runs three statements."""

    async def count_populations(self, now: datetime) -> None:
        """Count the users and their second factors for today, unless this was done in the present hour."""

    async def remove(self, hours_before: datetime, days_before: datetime, limit: int) -> int:
        """Delete up to `limit` old rows of each table, and return their number."""
