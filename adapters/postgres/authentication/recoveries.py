"""Storage for account recoveries. The secret for an authenticator app is sealed."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Record
from core.authentication.model.recovery import AccountRecovery, CountedAttempt
from core.kernel.values import Email
from ports.crypto import SecretContext

RECOVERY: Final = Record(AccountRecovery, "r")


def secret_context(recovery_id: UUID) -> SecretContext:
    return SecretContext("account_recoveries", str(recovery_id), "secret")


class Recoveries(statements.SealingRepository):
    """Implements `ports.storage.authentication.sign_ins.Recoveries`."""

    async def of_user(self, user_id: UUID, now: datetime, org_id: UUID | None = None) -> AccountRecovery | None:
        of_organization = "" if org_id is None else "and r.org_id = %(org_id)s"
        sql = f"""
            select {RECOVERY.columns} from account_recoveries r
            where r.user_id = %(user_id)s and r.expires_at > %(now)s {of_organization}"""
        return await self._one(RECOVERY.read, sql, user_id=user_id, now=now, org_id=org_id)

    async def of_address(self, email: Email, now: datetime) -> AccountRecovery | None:
        sql = f"""
            select {RECOVERY.columns} from account_recoveries r join users u on u.id = r.user_id
            where u.email = %(email)s and r.expires_at > %(now)s and r.browser_hash is null"""
        return await self._one(RECOVERY.read, sql, email=email, now=now)

    async def open_in(self, browser_hash: bytes, now: datetime) -> UUID | None:
        sql = """
            select id from account_recoveries where browser_hash = %(browser_hash)s and expires_at > %(now)s
            order by created_at desc, id limit 1"""
        return await self._one(lambda row: UUID(str(row[0])), sql, browser_hash=browser_hash, now=now)

    async def of_browser(self, recovery_id: UUID, browser_hash: bytes, now: datetime) -> tuple[AccountRecovery, str] | None:
        def read(row: statements.Row) -> tuple[AccountRecovery, str]:
            return RECOVERY.read(row), self._vault.open(row[RECOVERY.width], secret_context(recovery_id)).decode()

        sql = f"""
            select {RECOVERY.columns}, r.secret from account_recoveries r
            where r.id = %(id)s and r.browser_hash = %(browser_hash)s and r.expires_at > %(now)s"""
        return await self._one(read, sql, id=recovery_id, browser_hash=browser_hash, now=now)

    async def put(self, recovery: AccountRecovery, code_hash: bytes) -> None:
        await self._run("delete from account_recoveries where user_id = %(user_id)s", user_id=recovery.user_id)
        sql = """
            insert into account_recoveries (id, user_id, org_id, issuer_id, code_salt, code_hash, created_at, expires_at)
            values (%(id)s, %(user_id)s, %(org_id)s, %(issuer_id)s, %(code_salt)s, %(code_hash)s, %(created_at)s, %(expires_at)s)"""
        await self._run(sql, **RECOVERY.values(recovery), code_hash=code_hash)

    async def count_attempt(self, recovery_id: UUID, limit: int, now: datetime) -> CountedAttempt | None:
        sql = """
            update account_recoveries set attempts = attempts + 1
            where id = %(id)s and attempts < %(limit)s and browser_hash is null and expires_at > %(now)s
            returning attempts, code_hash"""
        return await self._one(lambda row: CountedAttempt(row[0], bytes(row[1])), sql, id=recovery_id, limit=limit, now=now)

    async def open(self, recovery: AccountRecovery, browser_hash: bytes, secret: str, now: datetime) -> bool:
        sql = """
            update account_recoveries set browser_hash = %(browser_hash)s, secret = %(secret)s
            where id = %(id)s and browser_hash is null and expires_at > %(now)s"""
        sealed = self._vault.seal(secret.encode(), secret_context(recovery.id))
        return await self._run(sql, id=recovery.id, browser_hash=browser_hash, secret=sealed, now=now) == 1

    async def end(self, recovery_id: UUID) -> bool:
        return await self._run("delete from account_recoveries where id = %(id)s", id=recovery_id) == 1

    async def remove(self, user_id: UUID, org_id: UUID | None = None) -> AccountRecovery | None:
        of_organization = "" if org_id is None else "and r.org_id = %(org_id)s"
        sql = f"delete from account_recoveries r where r.user_id = %(user_id)s {of_organization} returning {RECOVERY.columns}"
        return await self._one(RECOVERY.read, sql, user_id=user_id, org_id=org_id)

    async def take(self, recovery_id: UUID, browser_hash: bytes, now: datetime) -> UUID | None:
        sql = """
            delete from account_recoveries where id = %(id)s and browser_hash = %(browser_hash)s and expires_at > %(now)s
            returning user_id"""
        return await self._one(lambda row: UUID(str(row[0])), sql, id=recovery_id, browser_hash=browser_hash, now=now)
