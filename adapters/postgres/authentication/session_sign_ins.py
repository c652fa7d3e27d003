"""Storage of the sign-in of a session, and of the browser that it belongs to."""

from datetime import datetime
from uuid import UUID

from adapters.postgres.authentication.session_contexts import BROWSER_SESSION
from adapters.postgres.engine.statements import Repository
from core.authentication.model.sessions import Reauthentication
from core.kernel.callers import BrowserSession


class SessionSignIns(Repository):
    """Implements `ports.storage.authentication.sessions.SessionSignIns`."""

    async def is_of_browser(self, session_id: UUID, user_id: UUID, client_id: UUID | None, browser_hash: bytes) -> bool:
        sql = """
            select 1 from sessions s
            join sessions b on b.id = s.browser_session_id and b.user_id = s.user_id and b.browser_hash = %(browser_hash)s
            left join services v on v.id = s.service_id
            where s.id = %(session_id)s and s.user_id = %(user_id)s
              and v.client_id is not distinct from %(client_id)s and (s.service_id is null) = (%(client_id)s::uuid is null)"""
        return await self._exists(sql, session_id=session_id, user_id=user_id, client_id=client_id, browser_hash=browser_hash)

    async def load_start(self, session_id: UUID, user_id: UUID) -> tuple[datetime, UUID | None, bool] | None:
        sql = """
            select created_at, device_id, coalesce(second_factor, false) from sessions
            where id = %(session_id)s and user_id = %(user_id)s"""
        return await self._one(lambda row: (row[0], row[1], row[2]), sql, session_id=session_id, user_id=user_id)

    async def load_factors(self, session_id: UUID, user_id: UUID) -> BrowserSession | None:
        sql = f"select {BROWSER_SESSION.columns} from sessions s where s.id = %(session_id)s and s.user_id = %(user_id)s"
        return await self._one(BROWSER_SESSION.read, sql, session_id=session_id, user_id=user_id)

    async def require_mfa_again(self, user_id: UUID, except_session_id: UUID) -> None:
        sql = """
            update sessions set mfa_missing = id <> %(except_session_id)s, second_factor = second_factor or id = %(except_session_id)s
            where user_id = %(user_id)s and ended_at is null and service_id is null
              and (mfa_missing <> (id <> %(except_session_id)s) or id = %(except_session_id)s)"""
        await self._run(sql, user_id=user_id, except_session_id=except_session_id)

    async def browser_of(self, session_id: UUID, user_id: UUID) -> UUID | None:
        sql = """
            select case when browser_hash is null then browser_session_id else id end
            from sessions where id = %(session_id)s and user_id = %(user_id)s"""
        return await self._one(lambda row: row[0], sql, session_id=session_id, user_id=user_id)

    async def reauthenticate(self, session_id: UUID, user_id: UUID, sign_in: Reauthentication) -> None:
        # Without a method, only the second factor was verified, and the sign-in stays as old as it is.
        await self._run(
            """
            update sessions set
                authenticated_at = case when %(method)s::text is null then authenticated_at else %(at)s end,
                provider = coalesce(%(method)s, provider),
                fresh = case when %(method)s::text is null then fresh else %(is_fresh)s end,
                second_factor = %(second_factor)s, mfa_missing = mfa_missing and not %(second_factor)s
            where id = %(session_id)s and user_id = %(user_id)s""",
            session_id=session_id,
            user_id=user_id,
            method=sign_in.method,
            at=sign_in.at,
            is_fresh=sign_in.is_fresh,
            second_factor=sign_in.second_factor,
        )
