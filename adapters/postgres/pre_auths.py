"""Sign-ins that wait for the second factor."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.accounts import COLUMNS as ACCOUNT
from adapters.postgres.accounts import to_account
from adapters.postgres.statements import Repository, Row
from core.accounts import Account
from core.login import Pending

COLUMNS: Final = "id, user_id, service_id, provider, created_at, expires_at"
WIDTH: Final = 6


def to_pending(row: Row) -> Pending:
    return Pending(id=row[0], user_id=row[1], service_id=row[2], provider=row[3], created_at=row[4], expires_at=row[5])


class PreAuths(Repository):
    """ports.storage.PreAuths and Tries."""

    async def add(self, pending: Pending) -> None:
        self._later(
            f"""
            insert into pre_auths ({COLUMNS})
            values (%(id)s, %(user_id)s, %(service_id)s, %(provider)s, %(created_at)s, %(expires_at)s)""",
            id=pending.id,
            user_id=pending.user_id,
            service_id=pending.service_id,
            provider=pending.provider,
            created_at=pending.created_at,
            expires_at=pending.expires_at,
        )

    async def take_try(self, pre_auth_id: UUID, tries: int, now: datetime) -> tuple[Pending, Account] | None:
        return await self._one(
            lambda row: (to_pending(row), to_account(row[WIDTH:])),
            f"""
            with tried as (
                update pre_auths set failures = failures + 1
                where id = %(id)s and failures < %(tries)s and expires_at > %(now)s returning {COLUMNS})
            select tried.*, {ACCOUNT} from tried join users u on u.id = tried.user_id""",
            id=pre_auth_id,
            tries=tries,
            now=now,
        )

    async def give_back_try(self, pre_auth_id: UUID) -> None:
        await self._run("update pre_auths set failures = failures - 1 where id = %(id)s and failures > 0", id=pre_auth_id)

    async def remove_all(self, user_id: UUID) -> None:
        await self._run("delete from pre_auths where user_id = %(user_id)s", user_id=user_id)
