"""What is asked before somebody acts as somebody else."""

from datetime import datetime
from uuid import UUID

from adapters.postgres.statements import Repository


class Impersonations(Repository):
    """ports.storage.Impersonations."""

    async def organization(self, slug: str) -> UUID | None:
        return await self._one(lambda row: row[0], "select id from organizations where slug = %(slug)s", slug=slug)

    async def ends_at(self, session_id: UUID, user_id: UUID, now: datetime) -> datetime | None:
        return await self._one(
            lambda row: row[0],
            """
            select ends_at from sessions
            where id = %(session_id)s and user_id = %(user_id)s and ended_at is null and expires_at > %(now)s""",
            session_id=session_id,
            user_id=user_id,
            now=now,
        )
