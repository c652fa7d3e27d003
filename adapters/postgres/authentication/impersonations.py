"""Storage for impersonations."""

from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from adapters.postgres.authentication.live_sessions import SESSION_IS_LIVE
from adapters.postgres.authentication.session_contexts import NOT_OF_SERVICE, SESSION_CONTEXT, SESSION_JOINS
from adapters.postgres.engine.statements import Repository
from core.kernel.access import OrganizationNotFound
from core.kernel.callers import SessionContext

LOAD_IMPERSONATION: Final = f"""
    select {SESSION_CONTEXT.columns}, s.id {SESSION_JOINS}
    where s.impersonator_session_id = %(session_id)s and {SESSION_IS_LIVE} {NOT_OF_SERVICE}
    order by s.created_at desc, s.id desc limit 1"""


class Impersonations(Repository):
    """Implements `ports.storage.authentication.sessions.Impersonations`."""

    constraints: ClassVar = {"impersonated_organizations_org_id_fkey": OrganizationNotFound}

    async def load(self, session_id: UUID, now: datetime) -> tuple[UUID, SessionContext] | None:
        return await self._one(
            lambda row: (row[SESSION_CONTEXT.width], SESSION_CONTEXT.read(row)),
            LOAD_IMPERSONATION,
            session_id=session_id,
            org_id=None,
            now=now,
        )

    async def started_in(self, session_id: UUID) -> UUID | None:
        sql = "select impersonator_session_id from sessions where id = %(session_id)s"
        return await self._one(lambda row: row[0], sql, session_id=session_id)

    async def begin_in(self, session_id: UUID, org_id: UUID) -> datetime | None:
        sql = """
            with begun as (
                insert into impersonated_organizations (session_id, org_id) values (%(session_id)s, %(org_id)s)
                on conflict do nothing returning session_id)
            select s.ends_at from begun join sessions s on s.id = begun.session_id"""
        return await self._one(lambda row: row[0], sql, session_id=session_id, org_id=org_id)

    async def end(self, user_id: UUID, now: datetime) -> None:
        sql = """
            update sessions set ended_at = %(now)s
            where (impersonator_id = %(user_id)s or user_id = %(user_id)s and impersonator_id is not null) and ended_at is null"""
        await self._run(sql, user_id=user_id, now=now)
