"""The repository for email address changes."""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.accounts.model.accounts import EmailChange
from core.kernel.values import Email

EMAIL_CHANGE: Final = Record(EmailChange, "c", old_email=Email, new_email=Email)
INSERT: Final = EMAIL_CHANGE.insert("email_changes")
SELECT: Final = f"select {EMAIL_CHANGE.columns} from email_changes c "
UNDOABLE: Final = f"{SELECT} where user_id = %(user_id)s and undo_until > %(now)s and undone_at is null"
PENDING: Final = "proved_at is null and cancelled_at is null and expires_at > %(now)s"


def reserved(email: LiteralString, user_id: LiteralString, now: LiteralString) -> LiteralString:
    """Return the SQL condition that the address is reserved for another account, which changed away from it (security A-9)."""
    return f"""exists (
        select 1 from email_changes c
        where c.old_email = {email} and c.user_id <> {user_id} and c.undone_at is null and c.undo_until > {now})"""


class EmailChanges(Repository):
    """Implements `ports.storage.accounts.accounts.EmailChanges`."""

    async def add(self, change: EmailChange) -> None:
        await self._run(INSERT, **EMAIL_CHANGE.values(change))

    async def by_id(self, change_id: UUID) -> EmailChange | None:
        return await self._one(EMAIL_CHANGE.read, SELECT + "where id = %(change_id)s", change_id=change_id)

    async def pending(self, user_id: UUID, now: datetime) -> EmailChange | None:
        return await self._one(EMAIL_CHANGE.read, f"{SELECT} where user_id = %(user_id)s and {PENDING}", user_id=user_id, now=now)

    async def first_since(self, user_id: UUID, since: datetime) -> EmailChange | None:
        sql = f"""{SELECT} where user_id = %(user_id)s and requested_at >= %(since)s and undo_until is not null and undone_at is null
            order by position limit 1"""
        return await self._one(EMAIL_CHANGE.read, sql, user_id=user_id, since=since)

    async def first_undoable(self, user_id: UUID, now: datetime) -> EmailChange | None:
        return await self._one(EMAIL_CHANGE.read, f"{UNDOABLE} order by position limit 1", user_id=user_id, now=now)

    async def last_undoable(self, user_id: UUID, now: datetime) -> EmailChange | None:
        return await self._one(EMAIL_CHANGE.read, f"{UNDOABLE} order by position desc limit 1", user_id=user_id, now=now)

    async def nth_newest_at(self, user_id: UUID, number: int) -> datetime | None:
        sql = "select requested_at from email_changes where user_id = %(user_id)s order by position desc offset %(before)s limit 1"
        return await self._one(lambda row: row[0], sql, user_id=user_id, before=number - 1)

    async def is_taken(self, email: Email, user_id: UUID, now: datetime) -> bool:
        sql = f"""
            select 1 where exists (select 1 from users where email = %(email)s and id <> %(user_id)s)
                        or {reserved("%(email)s", "%(user_id)s", "%(now)s")}"""
        return await self._exists(sql, email=email, user_id=user_id, now=now)

    async def is_reserved(self, email: Email, now: datetime) -> bool:
        sql = """
            select 1 from email_changes c
            where c.old_email = %(email)s and c.undone_at is null and c.undo_until > %(now)s
              and not exists (select 1 from users u where u.id = c.user_id and u.email = c.old_email)
            limit 1"""
        return await self._exists(sql, email=email, now=now)

    async def cancel_pending(self, user_id: UUID, now: datetime) -> None:
        sql = f"update email_changes set cancelled_at = %(now)s where user_id = %(user_id)s and {PENDING}"
        await self._run(sql, user_id=user_id, now=now)

    async def mark_proved(self, change_id: UUID, now: datetime) -> None:
        await self._run("update email_changes set proved_at = %(now)s where id = %(change_id)s", change_id=change_id, now=now)

    async def undo(self, change: EmailChange, now: datetime) -> None:
        sql = """
            update email_changes set undone_at = coalesce(undone_at, %(now)s),
                                     cancelled_at = case when proved_at is null then coalesce(cancelled_at, %(now)s) end
            where user_id = %(user_id)s and position >= (select c.position from email_changes c where c.id = %(change_id)s)"""
        await self._run(sql, user_id=change.user_id, change_id=change.id, now=now)

    async def end_all(self, user_id: UUID, now: datetime) -> None:
        sql = """
            update email_changes set undo_until = case when undo_until > %(now)s then %(now)s else undo_until end,
                                     cancelled_at = case when proved_at is null then coalesce(cancelled_at, %(now)s) end
            where user_id = %(user_id)s and (undo_until > %(now)s or proved_at is null and cancelled_at is null)"""
        await self._run(sql, user_id=user_id, now=now)
