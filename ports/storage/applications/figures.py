"""Storage for the figures in charts."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Protocol
from uuid import UUID

from core.applications.model import figures


class FiguresRead(Protocol):
    """The figures of an organization, or with an `org_id` of None the platform's figures.

    Successful sign-ins by day are the totals that `AnalyticsRead` reads.
    """

    async def by_result(self, org_id: UUID | None, period: figures.FigurePeriod) -> dict[str, list[int]]:
        """Return the sign-ins by SUCCESS and by failure reason."""

    async def by_method(self, org_id: UUID | None, period: figures.FigurePeriod) -> dict[str, list[int]]:
        """Return the successful sign-ins by method, the most frequent first."""

    async def by_application(self, org_id: UUID, period: figures.FigurePeriod, most: int) -> list[figures.ApplicationSignIns]:
        """Return the successful sign-ins by application: the `most` frequent applications first, then the rest together."""

    async def users(self, org_id: UUID | None, period: figures.FigurePeriod) -> tuple[list[int], list[int]]:
        """Return how many users were active and how many were new."""

    async def weekly_users(self, org_id: UUID | None, weeks: Sequence[datetime]) -> list[figures.WeeklyUsers]:
        """Return how many users were active per week, by the start of its Monday."""

    async def populations(self, org_id: UUID | None, since: date) -> list[figures.Population]:
        """Return how many users there were, and how many had a second factor, for every counted day."""

    async def traffic(self, org_id: UUID | None, kind: figures.TrafficKind, period: figures.FigurePeriod) -> list[figures.TrafficCount]: ...


class FigureCounting(Protocol):
    """Counting figures from the records. Callers have the lease: only a single process counts.

    A statement that counts may take ten minutes, and needs a transaction.
    """

    async def next_hour(self, since: datetime, now: datetime) -> datetime:
        """Return the first hour since `since` that is not final and has sign-ins, or else the hour that contains `now`."""

    async def count_hour(self, hour: datetime) -> None:
        """Count an hour's sign-ins and users again, and then the figures for its day. Runs nine statements."""

    async def mark_final(self, until: datetime) -> None:
        """Record that the hours before `until` are final."""

    async def sum_traffic(self, since: datetime) -> None:
        """Sum all organizations' traffic for the platform, from the hour and the day that contain `since`. Runs three statements."""

    async def count_populations(self, now: datetime) -> None:
        """Count the users and their second factors for today, unless this was done in the present hour."""

    async def remove(self, hours_before: datetime, days_before: datetime, limit: int) -> int:
        """Delete up to `limit` old rows per table, and return how many."""
