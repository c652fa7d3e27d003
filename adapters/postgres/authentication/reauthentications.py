"""Storage for reauthentications that are not complete yet."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.authentication.model.sessions import EmailedCode, PendingReauthentication
from core.kernel.connections import ConnectionSlug

CODE: Final = Record(EmailedCode, "r", salt="r.code_salt", expires_at="r.code_expires_at")
SAVE_CODE: Final = f"""
    {CODE.insert("reauthentications", "session_id")}
    on conflict (session_id) do update set {CODE.overwrites(without=())}, failures = 0"""


class Reauthentications(Repository):
    """Implements `ports.storage.authentication.sign_ins.Reauthentications` and `ReauthenticationCodeAttempts`."""

    async def save_code(self, session_id: UUID, code: EmailedCode) -> None:
        await self._run(SAVE_CODE, **CODE.values(code), session_id=session_id)

    async def save_provider(self, session_id: UUID, provider: ConnectionSlug, now: datetime) -> None:
        sql = """
            insert into reauthentications (session_id, provider, provider_at) values (%(session_id)s, %(provider)s, %(now)s)
            on conflict (session_id) do update set provider = excluded.provider, provider_at = excluded.provider_at"""
        await self._run(sql, session_id=session_id, provider=provider, now=now)

    async def load(self, session_id: UUID) -> PendingReauthentication | None:
        sql = "select provider, provider_at from reauthentications where session_id = %(session_id)s and provider is not null"
        return await self._one(lambda row: PendingReauthentication(row[0], row[1]), sql, session_id=session_id)

    async def count_code_attempt(self, session_id: UUID, tries: int, now: datetime) -> EmailedCode | None:
        sql = f"""
            update reauthentications r set failures = failures + 1
            where session_id = %(session_id)s and failures < %(tries)s and code_expires_at > %(now)s
            returning {CODE.columns}"""
        return await self._one(CODE.read, sql, session_id=session_id, tries=tries, now=now)

    async def consume_code(self, session_id: UUID, code_hash: bytes, now: datetime) -> bool:
        sql = """
                update reauthentications set code_expires_at = %(now)s
                where session_id = %(session_id)s and code_hash = %(code_hash)s and code_expires_at > %(now)s"""
        return await self._run(sql, session_id=session_id, code_hash=code_hash, now=now) == 1

    async def remove(self, session_id: UUID) -> None:
        await self._run("delete from reauthentications where session_id = %(session_id)s", session_id=session_id)
