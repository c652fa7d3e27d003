"""Figures of the whole installation."""

from datetime import datetime

from adapters.postgres.statements import Repository
from core.platform import Figures


class Platform(Repository):
    """ports.storage.PlatformRead."""

    async def figures(self) -> Figures:
        figures = await self._one(
            lambda row: Figures(active_users=row[0], organizations=row[1], mfa_enabled_users=row[2]),
            """
            select count(*), (select count(*) from organizations), count(mfa_enabled_at)
            from users where deactivated_at is null and anonymized_at is null""",
        )
        assert figures is not None, "an aggregate always has one row"
        return figures

    async def due_jobs(self, now: datetime) -> int:
        return (
            await self._one(lambda row: int(row[0]), "select count(*) from mails where finished_at is null and due_at <= %(now)s", now=now)
            or 0
        )
