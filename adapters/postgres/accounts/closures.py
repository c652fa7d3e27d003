"""Closing accounts.

The platform, the directory and a deletion close an account independently. `deactivated_at` is set while the account is
closed. `directory_deactivated_at` has the directory's time while the account is also closed by the platform or a
deletion. Otherwise `deactivated_at` has the directory's time.
"""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.statements import Repository
from ports.signals import Signal

ONLY_DIRECTORY: Final = "platform_deactivated_at is null and closed_at is null"
DIRECTORY_TIME: Final = f"case when {ONLY_DIRECTORY} then deactivated_at else directory_deactivated_at end"
WITHOUT_DIRECTORY: Final = "deactivated_at = least(platform_deactivated_at, closed_at), directory_deactivated_at = null"


class AccountClosures(Repository):
    """A part of the port `ports.storage.accounts.accounts.Accounts`."""

    async def deactivate(self, user_id: UUID, now: datetime) -> None:
        await self._set_closure(
            f"""
            deactivated_at = case when {ONLY_DIRECTORY} then %(now)s else deactivated_at end,
            directory_deactivated_at = case when not ({ONLY_DIRECTORY}) then %(now)s end""",
            user_id,
            now,
        )

    async def reactivate(self, user_id: UUID, now: datetime) -> None:
        await self._set_closure(WITHOUT_DIRECTORY, user_id, now)

    async def deactivate_by_platform(self, user_id: UUID, now: datetime) -> None:
        await self._set_closure(
            f"""
            deactivated_at = coalesce(deactivated_at, %(now)s), platform_deactivated_at = %(now)s,
            directory_deactivated_at = {DIRECTORY_TIME}""",
            user_id,
            now,
        )

    async def reactivate_by_platform(self, user_id: UUID, now: datetime) -> None:
        await self._set_closure(
            """
            deactivated_at = least(directory_deactivated_at, closed_at), platform_deactivated_at = null,
            directory_deactivated_at = case when closed_at is not null then directory_deactivated_at end""",
            user_id,
            now,
        )

    async def close_until(self, user_id: UUID, erase_at: datetime, now: datetime) -> None:
        await self._set_closure(
            f"""
            deactivated_at = coalesce(deactivated_at, %(now)s), closed_at = %(now)s, erase_at = %(erase_at)s,
            directory_deactivated_at = {DIRECTORY_TIME}""",
            user_id,
            now,
            erase_at=erase_at,
        )

    async def reopen(self, user_id: UUID, now: datetime) -> None:
        await self._set_closure(
            """
            deactivated_at = least(directory_deactivated_at, platform_deactivated_at), closed_at = null, erase_at = null,
            directory_deactivated_at = case when platform_deactivated_at is not null then directory_deactivated_at end""",
            user_id,
            now,
        )

    async def _set_closure(self, columns: LiteralString, user_id: UUID, now: datetime, **parameters: object) -> None:
        # The foreign keys copy `deactivated` to the same two tables as the address: see
        # `change_email` for the lock order.
        sql = f"""
            with held as materialized (
                select 1 from service_users where user_id = %(user_id)s order by service_id for no key update)
            update users set {columns}, updated_at = %(now)s
            from (select count(*) from held) before where id = %(user_id)s"""
        await self._run(sql, user_id=user_id, now=now, **parameters)
        self._signals.send(Signal.FIGURES_CHANGED)
