"""Every statement on signing keys: fields, conditions, and that only one key is active."""

from dataclasses import replace

import psycopg
import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.authentication.model.tokens import SigningKey
from core.kernel.causes import SYSTEM
from tests.support.builders import run_concurrently, run_sql
from tests.support.rows import DAY, HOUR, MICROSECOND, NOW, in_another_task, within


async def test_signing_keys_are_read_with_every_field_newest_first(storage: Postgres, pool: Pool) -> None:
    old, new = SigningKey("old", b"old pem", NOW - DAY, None), SigningKey("new", b"new pem", NOW, None, NOW + HOUR)
    async with storage.transaction(by=SYSTEM) as tx:
        assert not await tx.signing_keys.has_active()
        await tx.signing_keys.add(old)
        assert await tx.signing_keys.has_active()
        await tx.signing_keys.retire_all(NOW + HOUR)
        assert not await tx.signing_keys.has_active()
        await tx.signing_keys.add(new)
    async with storage.reading() as read:
        assert await read.signing_keys.live(NOW) == [new, replace(old, retires_at=NOW + HOUR)]
        assert await read.signing_keys.live(NOW + HOUR - MICROSECOND) == [new, replace(old, retires_at=NOW + HOUR)]
        assert await read.signing_keys.live(NOW + HOUR) == [new]
    sealed_keys = await run_sql(pool, "select private_key from signing_keys")
    assert all(b"pem" not in bytes(value) for (value,) in sealed_keys)


async def test_only_one_key_can_be_active(storage: Postgres) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.add(SigningKey("one", b"pem", NOW, None))
    with pytest.raises(psycopg.errors.UniqueViolation):
        await within(storage, lambda tx: tx.signing_keys.add(SigningKey("two", b"pem", NOW, None)))


async def test_retiring_again_does_not_extend_a_key(storage: Postgres) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.add(SigningKey("one", b"pem", NOW, None))
        await tx.signing_keys.retire_all(NOW + HOUR)
        await tx.signing_keys.retire_all(NOW + DAY)
        assert await tx.signing_keys.live(NOW + HOUR) == []


async def test_all_keys_can_be_removed(storage: Postgres) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.add(SigningKey("one", b"pem", NOW, None))
        await tx.signing_keys.retire_all(NOW + HOUR)
        await tx.signing_keys.add(SigningKey("two", b"pem", NOW, None))
        await tx.signing_keys.remove_all()
        assert await tx.signing_keys.live(NOW) == []


async def test_rotations_run_one_at_a_time_while_reads_continue(storage: Postgres) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.lock()
        await tx.signing_keys.add(SigningKey("one", b"pem", NOW, None))

        async def read() -> list[SigningKey]:
            async with storage.reading() as read:
                return await read.signing_keys.live(NOW)

        assert await in_another_task(read) == []

    running = 0

    async def rotate(_: int) -> int:
        nonlocal running
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.signing_keys.lock()
            running += 1
            most = running
            await tx.signing_keys.has_active()
            running -= 1
            return most

    assert await run_concurrently(6, rotate) == [1] * 6


async def test_a_new_key_is_notified_to_all_processes(storage: Postgres, conninfo: str) -> None:
    listening = await connect(conninfo, timeout=5.0)
    try:
        await listening.execute("listen signing_keys")
        await within(storage, lambda tx: tx.signing_keys.add(SigningKey("one", b"pem", NOW, None)))
        assert [note.channel async for note in listening.notifies(timeout=1.0, stop_after=1)] == ["signing_keys"]
    finally:
        await listening.close()
