"""Storage for the keys that sign access tokens. The private keys are encrypted."""

from datetime import datetime

from adapters.postgres.engine import statements
from adapters.postgres.engine.locks import NAMESPACE, ROTATION
from core.authentication.model.tokens import SigningKey
from ports.crypto import SecretContext
from ports.signals import Signal


def secret_context(kid: str) -> SecretContext:
    return SecretContext("signing_keys", kid, "private_key")


class SigningKeys(statements.SealingRepository):
    """Implements `ports.storage.authentication.credentials.SigningKeys`."""

    def _to_key(self, row: statements.Row) -> SigningKey:
        private_key = self._vault.open(row[1], secret_context(row[0]))
        return SigningKey(kid=row[0], private_key=private_key, created_at=row[2], retires_at=row[3], signs_at=row[4])

    async def live(self, now: datetime) -> list[SigningKey]:
        sql = """
            select kid, private_key, created_at, retires_at, signs_at from signing_keys
            where retires_at is null or retires_at > %(now)s order by created_at desc"""
        return await self._all(self._to_key, sql, now=now)

    async def lock(self) -> None:
        await self._run(f"select pg_advisory_xact_lock({NAMESPACE}, {ROTATION})")

    async def has_active(self) -> bool:
        return await self._exists("select 1 from signing_keys where retires_at is null")

    async def add(self, key: SigningKey) -> None:
        await self._run(
            """
            with added as (
                insert into signing_keys (kid, private_key, created_at, signs_at)
                values (%(kid)s, %(private_key)s, %(created_at)s, %(signs_at)s) returning kid)
            select pg_notify('signing_keys', '') from added""",
            kid=key.kid,
            private_key=self._vault.seal(key.private_key, secret_context(key.kid)),
            created_at=key.created_at,
            signs_at=key.signs_at,
        )
        self._signals.send(Signal.SIGNING_KEYS_ROTATED)

    async def retire_all(self, retires_at: datetime) -> None:
        await self._run("update signing_keys set retires_at = %(retires_at)s where retires_at is null", retires_at=retires_at)

    async def remove_all(self) -> None:
        await self._run("delete from signing_keys")

    async def issuer(self) -> str | None:
        return await self._one(lambda row: row[0], "select url from issuer")

    async def set_issuer(self, url: str) -> None:
        await self._run("insert into issuer (url) values (%(url)s) on conflict (is_only) do update set url = excluded.url", url=url)
