"""The statements about used DPoP proofs and nonce keys."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.authentication.model.dpop import NONCE_STEP, NonceKey, NonceKeyLost, ProofReplayed, ProofUse, nonce_period
from core.kernel.causes import SYSTEM
from core.kernel.errors import SessionEnded
from tests.support.builders import run_concurrently, run_sql
from tests.support.rows import NOW

STEP: Final = int(NOW.timestamp()) // NONCE_STEP


async def key_of(storage: Postgres, secret: bytes = b"a" * 32) -> NonceKey:
    async with storage.autocommit() as statements:
        return await statements.dpop_proofs.nonce_key(nonce_period(NOW), secret)


async def use(storage: Postgres, proof: ProofUse) -> None:
    async with storage.reading(using=proof) as read:
        assert await read.signing_keys.live(NOW) == []


@asynccontextmanager
async def other_connections(pool: Pool) -> AsyncIterator[Pool]:
    """Additional connections to the test's database."""
    others = Pool(pool._conninfo, size=1)
    try:
        yield others
    finally:
        await others.aclose()


async def count(pool: Pool) -> int:
    [(number,)] = await run_sql(pool, "select count(*) from dpop_proofs")
    return int(number)


async def test_all_processes_get_one_key_of_a_period(storage: Postgres) -> None:
    secrets = [bytes([number]) * 32 for number in range(8)]
    keys = await run_concurrently(8, lambda number: key_of(storage, secrets[number]))
    assert len({key.secret for key in keys}) == 1
    assert keys[0] == await key_of(storage, b"later" * 7)


async def test_a_proof_can_be_used_once_by_twenty_at_the_same_time(storage: Postgres, pool: Pool) -> None:
    proof = ProofUse("thumb", "jti", STEP, await key_of(storage))

    async def attempt(_: int) -> bool:
        try:
            await use(storage, proof)
        except ProofReplayed:
            return False
        return True

    assert sum(await run_concurrently(20, attempt)) == 1
    for other in (ProofUse("thumb", "jti2", STEP, proof.key), ProofUse("thumb2", "jti", STEP, proof.key)):
        await use(storage, other)
    assert await count(pool) == 3


async def test_the_query_and_the_use_are_one_round_trip_and_the_commit_does_not_wait_for_the_disk(storage: Postgres, pool: Pool) -> None:
    proof = ProofUse("thumb", "jti", STEP, await key_of(storage))
    await run_sql(pool, "set synchronous_commit = on")  # it is off in the tests
    try:
        async with storage.reading(using=proof) as read:
            await read.signing_keys.live(NOW)
            async with other_connections(pool) as others:
                assert await count(others) == 1  # committed with the first query
        assert await run_sql(pool, "show synchronous_commit") == [("on",)]
    finally:
        await run_sql(pool, "reset synchronous_commit")
    [(persistence,)] = await run_sql(pool, "select distinct relpersistence from pg_class where relname like 'dpop_proofs\\__'")
    assert persistence in ("u", b"u")


async def test_a_block_without_a_query_uses_the_proof_and_an_error_before_the_query_does_not(storage: Postgres, pool: Pool) -> None:
    proof = ProofUse("thumb", "jti", STEP, await key_of(storage))
    with pytest.raises(SessionEnded):
        async with storage.reading(using=proof):
            raise SessionEnded
    assert await count(pool) == 0
    async with storage.reading(using=proof):
        pass
    assert await count(pool) == 1


async def test_a_statement_behind_the_proof_is_sent_when_the_block_ends(storage: Postgres) -> None:
    async with storage.reading(using=ProofUse("thumb", "jti", STEP, await key_of(storage))) as read:
        await read.signing_keys.live(NOW)  # uses the proof
        connections = read.oauth_credentials.list_connections()
    assert isinstance(await connections, list)


async def test_after_a_crash_no_proof_from_before_can_be_used(storage: Postgres, pool: Pool) -> None:
    """A crash empties unlogged tables. Then the key is gone or has changed."""
    proof = ProofUse("thumb", "jti", STEP, await key_of(storage))
    await use(storage, proof)
    for table in ("dpop_proofs", "dpop_nonce_keys"):
        await run_sql(pool, f"delete from {table}")  # noqa: S608
    for _ in range(2):
        with pytest.raises(NonceKeyLost):
            await use(storage, proof)
        await key_of(storage, b"b" * 32)
    assert await count(pool) == 0


async def test_the_housekeeper_empties_tables_and_deletes_keys_that_are_obsolete(storage: Postgres, pool: Pool) -> None:
    key = await key_of(storage)
    for minutes in range(10):
        await use(storage, ProofUse("thumb", "jti", STEP - 2 * minutes, key))
    assert await count(pool) == 10

    async def sweep(after: timedelta) -> int:
        async with storage.transaction(by=SYSTEM) as tx:
            return await tx.dpop_proofs.sweep(NOW + after)

    assert (await sweep(timedelta()), await count(pool)) == (4, 6)
    assert (await sweep(timedelta()), await count(pool)) == (0, 6)
    assert (await sweep(timedelta(minutes=4)), await count(pool)) == (4, 2)
    assert (await sweep(timedelta(minutes=66)), await count(pool)) == (2, 0)
    assert await key_of(storage, b"b" * 32) == key
    assert await sweep(timedelta(hours=2)) == 1
    assert await key_of(storage, b"b" * 32) != key


async def test_a_table_that_is_being_dumped_is_emptied_later(storage: Postgres, pool: Pool) -> None:
    await use(storage, ProofUse("thumb", "jti", STEP - 10, await key_of(storage)))
    async with pool.connection() as dump, dump.transaction():
        await dump.execute("lock table dpop_proofs in access share mode")
        async with other_connections(pool) as others, Postgres(others, None, None).transaction(by=SYSTEM) as tx:  # type: ignore[arg-type]
            assert await tx.dpop_proofs.sweep(NOW) == 0
    assert await count(pool) == 1
