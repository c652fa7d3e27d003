"""Password hashing (security A-1, A-2, B-2)."""

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import HashingError, InvalidHashError
from argon2.low_level import Type, hash_secret_raw

from adapters.crypto import Argon2Passwords, argon2id
from adapters.crypto.argon2id import Cost, compute
from core.kernel.errors import Limited
from tests.support.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from ports.crypto import Passwords


def small_passwords(concurrency: int = 2, queue: int = 32) -> Argon2Passwords:
    """Argon2 with its lowest cost. These tests are about the code around the hash."""
    return Argon2Passwords(memory_kib=8, time_cost=1, parallelism=1, concurrency=concurrency, queue=queue)


class Gate:
    """A replacement for the C library. All verifications report their start and then wait."""

    def __init__(self, passwords: Argon2Passwords, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = threading.Semaphore(0)
        self.open = threading.Semaphore(0)
        self.verified: list[bytes] = []
        monkeypatch.setattr(passwords, "_matches", self.matches)

    def matches(self, password_hash: str, password: bytes) -> bool:
        self.started.release()
        assert self.open.acquire(timeout=PATIENCE)
        self.verified.append(password)
        return True

    async def wait_begun(self, count: int) -> None:
        for _ in range(count):
            assert await trio.to_thread.run_sync(self.started.acquire, True, PATIENCE)


async def test_only_the_right_password_verifies() -> None:
    passwords: Passwords = small_passwords()
    password_hash = await passwords.hash("correct horse")
    assert password_hash.startswith("$argon2id$v=19$m=8,t=1,p=1$")
    assert await passwords.verify(password_hash, "correct horse")
    for other in ("correct hors", "correct horse ", " correct horse", "Correct horse", "", "correct\u00a0horse"):
        assert not await passwords.verify(password_hash, other)


async def test_passwords_are_compared_byte_for_byte() -> None:
    passwords = small_passwords()
    composed, decomposed = "caf\u00e9-caf\u00e9", "cafe\u0301-cafe\u0301"
    assert not await passwords.verify(await passwords.hash(composed), decomposed)
    assert not await passwords.verify(await passwords.hash("before\0after"), "before\0other")  # a NUL does not end the password
    long = "x" * 127
    assert not await passwords.verify(await passwords.hash(long + "a"), long + "b")


async def test_two_hashes_of_one_password_differ() -> None:
    passwords = small_passwords()
    assert await passwords.hash("correct horse") != await passwords.hash("correct horse")


async def test_an_unknown_account_is_verified_against_a_hash_with_the_same_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = Argon2Passwords(memory_kib=64, time_cost=3, parallelism=2, concurrency=1)
    compared: list[str] = []
    matches = passwords._matches

    def watched(password_hash: str, password: bytes) -> bool:
        compared.append(password_hash)
        return matches(password_hash, password)

    monkeypatch.setattr(passwords, "_matches", watched)
    assert not await passwords.verify(None, "correct horse")
    assert extract_parameters(compared[0]) == extract_parameters(await passwords.hash("correct horse"))


async def test_an_unknown_account_never_verifies_even_if_the_dummy_hash_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = small_passwords()
    monkeypatch.setattr(passwords, "_matches", lambda password_hash, password: True)
    assert not await passwords.verify(None, "correct horse")


async def test_a_derived_value_depends_only_on_the_secret_and_the_salt() -> None:
    passwords = small_passwords()
    salt, other = passwords.new_salt(), passwords.new_salt()
    derived = await passwords.derive("ABCD-EFGH", salt)
    assert len(derived) == 32
    assert await passwords.derive("ABCD-EFGH", salt) == derived
    assert len({salt, other}) == 2
    assert derived not in (await passwords.derive("ABCD-EFGH", other), await passwords.derive("ABCD-EFGJ", salt))


async def test_a_value_can_be_derived_again_after_the_parameters_changed() -> None:
    older = Argon2Passwords(memory_kib=16, time_cost=3, parallelism=2, concurrency=1)
    salt = older.new_salt()
    assert await small_passwords().derive("ABCD-EFGH", salt) == await older.derive("ABCD-EFGH", salt)


async def test_deriving_uses_the_parameters_of_hashes() -> None:
    passwords = Argon2Passwords(memory_kib=64, time_cost=3, parallelism=2, concurrency=1)
    salt = passwords.new_salt()
    raw = hash_secret_raw(b"ABCD-EFGH", salt[12:], time_cost=3, memory_cost=64, parallelism=2, hash_len=32, type=Type.ID)
    assert await passwords.derive("ABCD-EFGH", salt) == raw
    assert len(salt[12:]) == 16


async def test_deriving_uses_the_same_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = small_passwords(concurrency=1, queue=0)
    gate = Gate(passwords, monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(passwords.verify, None, "running")
        await gate.wait_begun(1)
        with pytest.raises(Limited):
            await passwords.derive("ABCD-EFGH", passwords.new_salt())
        gate.open.release()


async def test_hashes_are_those_of_argon2_cffi() -> None:
    for memory_kib, time_cost, parallelism in ((8, 1, 1), (5000, 2, 1), (100, 3, 4), (8000, 1, 2)):
        passwords = Argon2Passwords(memory_kib, time_cost, parallelism, concurrency=1)
        hasher = PasswordHasher(time_cost, memory_kib, parallelism)
        password_hash = await passwords.hash("correct horse")
        assert hasher.verify(password_hash, "correct horse")
        assert not hasher.check_needs_rehash(password_hash)
        assert await passwords.verify(hasher.hash("correct horse"), "correct horse")
        assert not await passwords.verify(hasher.hash("correct horse"), "another horse")


def test_one_thread_computes_hashes_of_different_sizes_in_the_same_memory() -> None:
    salt = b"salt" * 4
    for memory_kib, lanes in ((8, 1), (5000, 1), (100, 4), (8000, 2), (8, 1)):
        expected = hash_secret_raw(b"secret", salt, time_cost=2, memory_cost=memory_kib, parallelism=lanes, hash_len=32, type=Type.ID)
        assert compute(b"secret", salt, Cost(memory_kib, 2, lanes)) == expected


def test_the_memory_of_a_thread_returns_to_the_system_when_it_ends() -> None:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(compute, b"secret", b"salt" * 4, Cost(64, 1, 1)).result()
        memory = thread.submit(lambda: weakref.ref(argon2id._memory.pages)).result()
        assert memory() is not None
    assert memory() is None


def test_parameters_out_of_range_raise_an_error() -> None:
    for cost in (Cost(7, 1, 1), Cost(8, 0, 1), Cost(8, 1, 2)):
        with pytest.raises(HashingError):
            compute(b"secret", b"salt" * 4, cost)


async def test_a_hash_with_other_parameters_is_outdated() -> None:
    passwords = small_passwords()
    assert not passwords.is_outdated(await passwords.hash("correct horse"))
    for other in (PasswordHasher(2, 8, 1), PasswordHasher(1, 16, 1), PasswordHasher(1, 16, 2)):
        older = other.hash("correct horse")
        assert passwords.is_outdated(older)
        assert await passwords.verify(older, "correct horse")  # an outdated hash still verifies


async def test_a_damaged_hash_raises_an_error() -> None:
    passwords = small_passwords()
    with pytest.raises(InvalidHashError):
        await passwords.verify("", "correct horse")
    for part in ("c2FsdA$", "c2FsdA$c2FsdA", "c2FsdHNhbHQ$====", "c2FsdHNhbHQ$!!!!!!"):
        with pytest.raises((HashingError, InvalidHashError)):
            await passwords.verify(f"$argon2id$v=19$m=8,t=1,p=1${part}", "correct horse")
    for prefix in ("$argon2id$v=16", "$argon2i$v=19"):
        with pytest.raises(InvalidHashError):
            await passwords.verify(f"{prefix}$m=8,t=1,p=1$c2FsdHNhbHQ$c2FsdHNhbHQ", "correct horse")


async def test_concurrent_hashes_are_limited_and_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = small_passwords(concurrency=2, queue=3)
    gate = Gate(passwords, monkeypatch)
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(passwords.verify, None, f"password {number}")
        await gate.wait_begun(2)
        await trio.testing.wait_all_tasks_blocked()
        assert not gate.started.acquire(blocking=False)
        gate.open.release(5)
    assert len(gate.verified) == 5


async def test_a_full_queue_refuses_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = small_passwords(concurrency=2)
    gate = Gate(passwords, monkeypatch)
    async with trio.open_nursery() as nursery:
        for _ in range(2 + 32):
            nursery.start_soon(passwords.verify, None, "correct horse")
        await gate.wait_begun(2)
        await trio.testing.wait_all_tasks_blocked()
        for attempt in (passwords.verify(None, "correct horse"), passwords.hash("correct horse")):
            with pytest.raises(Limited) as refusal:  # immediately: no verification has ended yet
                await attempt
            assert refusal.value.retry_after == 1
        gate.open.release(2 + 32)
    assert len(gate.verified) == 2 + 32
    gate.open.release()
    assert not await passwords.verify(None, "correct horse")  # the queue has room again


async def test_a_canceled_call_frees_its_place_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = small_passwords(concurrency=1, queue=1)
    gate = Gate(passwords, monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(passwords.verify, None, "running")
        await gate.wait_begun(1)
        async with trio.open_nursery() as leaving:
            leaving.start_soon(passwords.verify, None, "left")
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(Limited):
                await passwords.verify(None, "too many")
            leaving.cancel_scope.cancel()
        nursery.start_soon(passwords.verify, None, "next")
        await trio.testing.wait_all_tasks_blocked()
        gate.open.release(2)
    assert gate.verified == [b"running", b"next"]


async def test_a_canceled_hash_keeps_its_thread_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = small_passwords(concurrency=1, queue=0)
    gate = Gate(passwords, monkeypatch)
    async with trio.open_nursery() as leaving:
        leaving.start_soon(passwords.verify, None, "given up")
        await gate.wait_begun(1)
        leaving.cancel_scope.cancel()
    with pytest.raises(Limited):
        await passwords.verify(None, "too many")
    gate.open.release(2)

    async def verified() -> bool:
        with suppress(Limited):  # the thread is still busy
            assert not await passwords.verify(None, "next")
            return True
        return False

    await eventually(verified)
    assert gate.verified == [b"given up", b"next"]


def test_one_instance_serves_several_event_loops() -> None:
    passwords = small_passwords(concurrency=1)
    password_hash = trio.run(passwords.hash, "correct horse")
    assert trio.run(passwords.verify, password_hash, "correct horse")


def test_an_event_loop_can_end_while_a_hash_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = small_passwords(concurrency=1, queue=1)
    gate = Gate(passwords, monkeypatch)

    async def leave() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(passwords.verify, None, "left behind")
            await gate.wait_begun(1)
            nursery.cancel_scope.cancel()

    trio.run(leave)
    gate.open.release(2)
    assert not trio.run(passwords.verify, None, "later")
    assert gate.verified == [b"left behind", b"later"]


async def test_idle_threads_end_and_new_work_starts_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.threads.IDLE_AFTER", 0.0)
    passwords = small_passwords(concurrency=1)
    for _ in range(3):
        assert not await passwords.verify(None, "correct horse")
        await eventually(lambda: not passwords._threads._alive, "the threads have ended")


async def test_close_ends_all_threads() -> None:
    passwords = small_passwords(concurrency=1)
    await passwords.hash("correct horse")
    passwords.close()
    for _ in range(2):
        await eventually(lambda: not passwords._threads._alive, "the threads have ended")
        assert not await passwords.verify(None, "correct horse")  # work that has started still ends
