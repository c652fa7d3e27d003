"""The repository of changes of the email address."""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from core.accounts.model.accounts import EmailChange
from core.kernel.values import Email

# In the order of `to_email_change`.
SELECT: Final = """
    select id, user_id, session_id, old_email, new_email, requested_at, expires_at, undo_until, proved_at, cancelled_at, undone_at
    from email_changes """
PENDING: Final = "proved_at is null and cancelled_at is null and expires_at > %(now)s"


def reserved(email: LiteralString, user_id: LiteralString, now: LiteralString) -> LiteralString:
    """Return the SQL condition that the address is reserved for another account, which changed away from it (security A-9)."""
    return f"""exists (
        select 1 from email_changes c
        where c.old_email = {email} and c.user_id <> {user_id} and c.undone_at is null and c.undo_until > {now})"""


def to_email_change(row: Row) -> EmailChange:
    return EmailChange(
        id=row[0],
        user_id=row[1],
        session_id=row[2],
        old_email=Email(row[3]),
        new_email=Email(row[4]),
        requested_at=row[5],
        expires_at=row[6],
        undo_until=row[7],
        proved_at=row[8],
        cancelled_at=row[9],
        undone_at=row[10],
    )


class EmailChanges(Repository):
    """Implements `ports.storage.accounts.accounts.EmailChanges`."""

    async def add(self, change: EmailChange) -> None:
        await self._run(
            """
            insert into email_changes (id, user_id, session_id, old_email, new_email, requested_at, expires_at, undo_until, proved_at,
                                       cancelled_at, undone_at)
            values (%(id)s, %(user_id)s, %(session_id)s, %(old_email)s, %(new_email)s, %(requested_at)s, %(expires_at)s, %(undo_until)s,
                    %(proved_at)s, %(cancelled_at)s, %(undone_at)s)""",
            id=change.id,
            user_id=change.user_id,
            session_id=change.session_id,
            old_email=change.old_email,
            new_email=change.new_email,
            requested_at=change.requested_at,
            expires_at=change.expires_at,
            undo_until=change.undo_until,
            proved_at=change.proved_at,
            cancelled_at=change.cancelled_at,
            undone_at=change.undone_at,
        )

    async def by_id(self, change_id: UUID) -> EmailChange | None:
        return await self._one(to_email_change, SELECT + "where id = %(change_id)s", change_id=change_id)

    async def pending(self, user_id: UUID, now: datetime) -> EmailChange | None:
        return await self._one(to_email_change, f"{SELECT} where user_id = %(user_id)s and {PENDING}", user_id=user_id, now=now)

    async def first_since(self, user_id: UUID, since: datetime) -> EmailChange | None:
        sql = f"""{SELECT} where user_id = %(user_id)s and requested_at >= %(since)s and undo_until is not null and undone_at is null
            order by position limit 1"""
        return await self._one(to_email_change, sql, user_id=user_id, since=since)

    async def first_undoable(self, user_id: UUID, now: datetime) -> EmailChange | None:
        return await self._one(
            to_email_change,
            f"{SELECT} where user_id = %(user_id)s and undo_until > %(now)s and undone_at is null order by position limit 1",
            user_id=user_id,
            now=now,
        )

    async def nth_newest_at(self, user_id: UUID, number: int) -> datetime | None:
        return await self._one(
            lambda row: row[0],
            "select requested_at from email_changes where user_id = %(user_id)s order by position desc offset %(before)s limit 1",
            user_id=user_id,
            before=number - 1,
        )

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
        await self._run(
            f"update email_changes set cancelled_at = %(now)s where user_id = %(user_id)s and {PENDING}", user_id=user_id, now=now
        )

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
