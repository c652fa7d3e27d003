"""What is asked of storage about how often people sign in."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.analytics import Days, LoginsOfDay, LoginsOfProvider, LoginsOfService, RecentLogin, Use


class AnalyticsRead(Protocol):
    """Successful logins to the services that an organization has, counted by day in UTC; of one of them, where `service_id` is given."""

    async def by_day(self, org_id: UUID, service_id: UUID | None, days: Days) -> list[LoginsOfDay]:
        """Of each day that had any, the earliest first."""
        ...

    async def by_service(self, org_id: UUID, days: Days) -> list[LoginsOfService]:
        """To each service that had any, most first."""
        ...

    async def by_provider(self, org_id: UUID, service_id: UUID | None, days: Days) -> list[LoginsOfProvider]:
        """Through each external identity provider that had any, most first."""
        ...

    async def recent(self, org_id: UUID, before: RecentLogin | None, limit: int) -> list[RecentLogin]:
        """The latest, or those right before that one, the newest first."""
        ...

    async def use(self, org_id: UUID, service_id: UUID, since: datetime) -> Use:
        """Users and logins of a service; new and active are the users who began to use it, or signed in to it, since then."""
        ...
