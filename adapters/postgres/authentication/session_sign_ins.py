"""Storage of the sign-in of a session, and of the browser that it belongs to."""

from typing import Final
from uuid import UUID

from adapters.postgres.authentication.session_contexts import BROWSER_SESSION
from adapters.postgres.authentication.sign_in_proofs import NAMES, STRENGTH, columns_of
from adapters.postgres.engine.statements import Repository
from core.kernel.callers import BrowserSession
from core.kernel.proofs import Proofs

REAUTHENTICATE: Final = f"""
    update sessions set {", ".join(f"{name} = %({name})s" for name in NAMES)}, mfa_missing = mfa_missing and not %(second_factor)s
    where id = %(session_id)s and user_id = %(user_id)s"""


class SessionSignIns(Repository):
    """Implements `ports.storage.authentication.sessions.SessionSignIns`."""

    async def is_of_browser(self, session_id: UUID, user_id: UUID, client_name: str | None, browser_hash: bytes) -> bool:
        sql = """
            select 1 from sessions s
            join sessions b on b.id = s.browser_session_id and b.user_id = s.user_id and b.browser_hash = %(browser_hash)s
            left join services v on v.id = s.service_id
            where s.id = %(session_id)s and s.user_id = %(user_id)s
              and coalesce(v.client_uri, v.client_id::text) is not distinct from %(client_name)s
              and (s.service_id is null) = (%(client_name)s::text is null)"""
        return await self._exists(sql, session_id=session_id, user_id=user_id, client_name=client_name, browser_hash=browser_hash)

    async def load_factors(self, session_id: UUID, user_id: UUID) -> BrowserSession | None:
        sql = f"select {BROWSER_SESSION.columns} from sessions s where s.id = %(session_id)s and s.user_id = %(user_id)s"
        return await self._one(BROWSER_SESSION.read, sql, session_id=session_id, user_id=user_id)

    async def require_mfa_again(self, user_id: UUID, session_id: UUID, *, is_proved: bool) -> None:
        sql = f"""
            update sessions s set mfa_missing = true
            where s.user_id = %(user_id)s and s.ended_at is null and s.service_id is null and not s.mfa_missing
              and case when s.id = %(session_id)s then not %(is_proved)s and {STRENGTH} < 2 else {STRENGTH} < 3 end"""
        await self._run(sql, user_id=user_id, session_id=session_id, is_proved=is_proved)

    async def browser_of(self, session_id: UUID, user_id: UUID) -> UUID | None:
        sql = """
            select case when browser_hash is null then browser_session_id else id end
            from sessions where id = %(session_id)s and user_id = %(user_id)s"""
        return await self._one(lambda row: row[0], sql, session_id=session_id, user_id=user_id)

    async def reauthenticate(self, session_id: UUID, user_id: UUID, proofs: Proofs) -> None:
        await self._run(REAUTHENTICATE, session_id=session_id, user_id=user_id, **columns_of(proofs))
