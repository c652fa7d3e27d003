"""Figures of the whole installation, leases on work of which there is one, and the removal of what is past its use."""

from datetime import datetime
from typing import LiteralString
from uuid import UUID

from adapters.postgres.statements import Repository
from core.platform import Figures

# What each sweep removes: rows that were past their use at %(before)s, at most %(limit)s of them. Rows that somebody is using this
# moment are left for the next round.
SWEEPS: dict[str, LiteralString] = {
    "one_time_tokens": """
        delete from one_time_tokens where (purpose, token_hash) in (
            select purpose, token_hash from one_time_tokens where expires_at < %(before)s limit %(limit)s for update skip locked)""",
    "signing_keys": "delete from signing_keys where retires_at < %(before)s",
    "sessions": """
        delete from sessions where id in (
            select id from sessions where least(ended_at, expires_at) < %(before)s limit %(limit)s for update skip locked)""",
    "rates": """
        delete from rates where client in (
            select client from rates where expires_at < %(before)s limit %(limit)s for update skip locked)""",
    "guesses": """
        delete from guesses where (secret, subject) in (
            select secret, subject from guesses where expires_at < %(before)s limit %(limit)s for update skip locked)""",
    "mails": """
        delete from mails where id in (
            select id from mails where finished_at < %(before)s limit %(limit)s for update skip locked)""",
    "events": """
        delete from events where id in (
            select id from events where created_at < %(before)s limit %(limit)s for update skip locked)""",
    # Self-registered with a password, never proved, member of nothing (security.md A-7).
    "unverified_accounts": """
        delete from users where id in (
            select u.id from users u
            where u.first_verified_at is null and u.created_at < %(before)s and u.origin = 'platform' and u.password_hash is not null
              and u.deactivated_at is null and u.anonymized_at is null and not u.is_platform_owner
              and not exists (select 1 from memberships m where m.user_id = u.id)
            limit %(limit)s for update of u skip locked)""",
}


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


class Leases(Repository):
    """ports.storage.Leases."""

    async def take(self, name: str, holder: UUID, now: datetime, until: datetime) -> bool:
        return await self._exists(
            """
            insert into leases as l (name, holder, expires_at) values (%(name)s, %(holder)s, %(until)s)
            on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at
            where l.holder = excluded.holder or l.expires_at <= %(now)s
            returning 1""",
            name=name,
            holder=holder,
            now=now,
            until=until,
        )


class Housekeeping(Repository):
    """ports.storage.Housekeeping."""

    async def sweep(self, what: str, before: datetime, limit: int) -> int:
        return await self._run(SWEEPS[what], before=before, limit=limit)
