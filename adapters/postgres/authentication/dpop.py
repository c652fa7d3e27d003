"""Storage for DPoP: used proofs, and nonce keys."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine import statements
from adapters.postgres.engine.statements import ASYNC_COMMIT
from core.authentication.model import dpop

# A database crash empties these tables. Then the key is missing too, so a proof from before the crash cannot be used a
# second time.
USE: Final = f"""
    with {ASYNC_COMMIT},
    known as (select 1 from dpop_nonce_keys where period = %(period)s and secret = %(secret)s),
    used as (
        insert into dpop_proofs (slot, id) select %(slot)s, %(id)s from known, async_commit on conflict do nothing returning 1)
    select exists (select from known), exists (select from used)"""


def _check_use(row: statements.Row) -> None:
    """Check what USE returned. Raises: NonceKeyLost, ProofReplayed."""
    is_key_known, is_new = row
    if not is_key_known:
        raise dpop.NonceKeyLost
    if not is_new:
        raise dpop.ProofReplayed


class UsedProofs(statements.Repository):
    """Implements `ports.storage.authentication.credentials.UsedProofs`."""

    def use(self, use: dpop.ProofUse) -> statements.Answer[None]:
        """Use up a proof. Raises: NonceKeyLost, ProofReplayed."""
        return self._one(_check_use, USE, period=use.key.period, secret=use.key.secret, slot=use.table, id=UUID(bytes=use.id))

    async def nonce_key(self, period: int, secret: bytes) -> dpop.NonceKey:
        sql = """
            insert into dpop_nonce_keys as k (period, secret) values (%(period)s, %(secret)s)
            on conflict (period) do update set secret = k.secret returning secret"""
        key = await self._one(lambda row: dpop.NonceKey(period, bytes(row[0])), sql, period=period, secret=secret)
        assert key is not None, "the statement returns the new row or the old one"
        return key

    async def sweep(self, now: datetime) -> int:
        sql = "select empty_dpop_proofs(slot) from unnest(%(slots)s::int[]) slot"
        had_rows = await self._all(lambda row: bool(row[0]), sql, slots=dpop.tables_to_empty(now))
        deleted_keys = await self._run("delete from dpop_nonce_keys where period < %(period)s", period=dpop.nonce_period(now) - 1)
        return sum(had_rows) + deleted_keys
