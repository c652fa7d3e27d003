"""The repository for emails about ways into an account."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.accounts.model.security_notices import SecurityNotice
from core.kernel.values import Email

NOTICE: Final = Record(SecurityNotice, "n", address=Email)
INSERT: Final = NOTICE.insert("security_notices")
SELECT: Final = f"select {NOTICE.columns} from security_notices n "


class SecurityNotices(Repository):
    """Implements `ports.storage.accounts.security.SecurityNotices`."""

    async def by_token(self, token_hash: bytes) -> SecurityNotice | None:
        return await self._one(NOTICE.read, SELECT + "where undo_token_hash = %(token_hash)s", token_hash=token_hash)

    async def by_id(self, notice_id: UUID) -> SecurityNotice | None:
        return await self._one(NOTICE.read, SELECT + "where id = %(notice_id)s", notice_id=notice_id)

    async def live(self, user_id: UUID, now: datetime) -> list[SecurityNotice]:
        return await self._all(
            NOTICE.read,
            SELECT + "where user_id = %(user_id)s and undone_at is null and undo_until > %(now)s order by created_at, id",
            user_id=user_id,
            now=now,
        )

    async def add(self, notice: SecurityNotice) -> None:
        await self._write(INSERT, **NOTICE.values(notice))

    async def save_token(self, notice_id: UUID, token_hash: bytes) -> None:
        sql = "update security_notices set undo_token_hash = %(token_hash)s where id = %(id)s"
        await self._run(sql, token_hash=token_hash, id=notice_id)

    async def use_up(self, user_id: UUID, notice_id: UUID, since: datetime, now: datetime) -> None:
        sql = """
            update security_notices set
                undone_at = case when created_at >= %(since)s then %(now)s end,
                undo_token_hash = case when id <> %(notice_id)s then undo_token_hash end
            where user_id = %(user_id)s and (id = %(notice_id)s or created_at >= %(since)s) and undone_at is null"""
        await self._run(sql, user_id=user_id, notice_id=notice_id, since=since, now=now)

    async def end_all(self, user_id: UUID, now: datetime) -> None:
        sql = "update security_notices set undo_until = %(now)s where user_id = %(user_id)s and undo_until > %(now)s"
        await self._run(sql, user_id=user_id, now=now)
