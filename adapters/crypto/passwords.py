"""Passwords with argon2id, on threads of their own."""

import base64
import os
import secrets
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import argon2
import outcome
import trio

from core.errors import Limited

T = TypeVar("T")

IDLE_AFTER = 60.0  # seconds after which a thread without work ends; the next hash starts one again
NICENESS = 10

_SALT = struct.Struct(">III")  # memory in KiB, time cost, parallelism; the random bytes follow
_SALT_BYTES = 16


class Argon2Passwords:
    """ports.crypto.Passwords with argon2id (security.md A-1, A-2, B-2).

    At most `concurrency` hashes run at once and at most `queue` more wait; whoever comes then is refused at once with Limited.
    """

    def __init__(self, memory_kib: int, time_cost: int, parallelism: int, concurrency: int, queue: int = 32) -> None:
        self._hasher = argon2.PasswordHasher(time_cost=time_cost, memory_cost=memory_kib, parallelism=parallelism)
        # What an unknown account is verified against: its parameters are those of every new hash, so its price is the same too.
        self._dummy = _nobodys_hash(memory_kib, time_cost, parallelism)
        self._threads = _LowPriorityThreads(concurrency, queue)

    async def hash(self, password: str) -> str:
        """The PHC string of a new hash. Raises Limited."""
        return await self._threads.run(partial(self._hasher.hash, password.encode()))

    async def verify(self, password_hash: str | None, password: str) -> bool:
        """Whether the password is the one that was hashed; with None, false at the same price. Raises Limited."""
        compared = self._dummy if password_hash is None else password_hash
        matches = await self._threads.run(partial(self._matches, compared, password.encode()))
        return matches and password_hash is not None

    def is_outdated(self, password_hash: str) -> bool:
        """Whether the hash was made with other parameters than those in use now."""
        return self._hasher.check_needs_rehash(password_hash)

    def new_salt(self) -> bytes:
        """A salt for `derive`, with the parameters in use now: what was derived cannot be derived again by others."""
        parameters = self._hasher
        return _SALT.pack(parameters.memory_cost, parameters.time_cost, parameters.parallelism) + secrets.token_bytes(_SALT_BYTES)

    async def derive(self, secret: str, salt: bytes) -> bytes:
        """32 bytes that only this secret gives with this salt. Raises Limited."""
        return await self._threads.run(partial(_derived, secret.encode(), salt))

    def close(self) -> None:
        """Let the threads end now instead of a minute after their last hash. Only for who makes many instances, such as tests."""
        self._threads.close()

    def _matches(self, password_hash: str, password: bytes) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except argon2.exceptions.VerifyMismatchError:
            return False  # any other error is a fault (a damaged hash, no memory), which must not pass for a wrong password


def _derived(secret: bytes, salt: bytes) -> bytes:
    memory_kib, time_cost, parallelism = _SALT.unpack_from(salt)
    return argon2.low_level.hash_secret_raw(
        secret,
        salt[_SALT.size :],
        time_cost=time_cost,
        memory_cost=memory_kib,
        parallelism=parallelism,
        hash_len=32,
        type=argon2.low_level.Type.ID,
    )


def _nobodys_hash(memory_kib: int, time_cost: int, parallelism: int) -> str:
    """A hash of no known password, written down instead of computed: computing it would keep its memory in the heap for good.

    Between hashes the allocator keeps the memory of each hashing thread as well, and should: to ask the system for 19 MB of fresh pages
    each time doubles what a hash costs.
    """
    salt, digest = (base64.b64encode(secrets.token_bytes(size)).rstrip(b"=").decode() for size in (16, 32))
    return f"$argon2id$v={argon2.low_level.ARGON2_VERSION}$m={memory_kib},t={time_cost},p={parallelism}${salt}${digest}"


def verifications_per_second(memory_kib: int, time_cost: int, parallelism: int, threads: int, seconds: float = 0.5) -> float:
    """What this machine can verify on so many threads with nothing else to do; the ceiling of its logins per second."""
    hasher = argon2.PasswordHasher(time_cost=time_cost, memory_cost=memory_kib, parallelism=parallelism)
    hashed = hasher.hash("measured")
    end = time.perf_counter() + seconds

    def verify_until_the_end(_: int) -> int:
        done = 0
        while time.perf_counter() < end:
            hasher.verify(hashed, "measured")
            done += 1
        return done

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(verify_until_the_end, range(threads)))
    return done / (time.perf_counter() - began)


@dataclass(eq=False, slots=True, repr=False)
class _Job(Generic[T]):
    work: Callable[[], T]
    token: trio.lowlevel.TrioToken
    done: trio.Event
    result: outcome.Outcome[T] | None = None


class _LowPriorityThreads:
    """A few threads that give way to the one that serves requests, and a bounded queue before them.

    The threads of trio.to_thread serve everybody in turn, and a thread cannot take its niceness back, so these are separate ones.
    They start when there is work and end when there is none for a while.
    """

    def __init__(self, count: int, queue: int) -> None:
        self._count = count
        self._queue = queue
        self._changed = threading.Condition()
        self._waiting: deque[_Job[Any]] = deque()
        self._alive = 0
        self._busy = 0
        self._closed = False

    def close(self) -> None:
        """Let the threads end as soon as nothing waits; later work starts one that ends after it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def run(self, work: Callable[[], T]) -> T:
        job = _Job(work, trio.lowlevel.current_trio_token(), trio.Event())
        self._admit(job)
        try:
            await job.done.wait()
        finally:
            # Whoever stops waiting gives its place to the next. Work that has begun cannot be stopped; it keeps its thread to the end.
            if not job.done.is_set():
                with self._changed, suppress(ValueError):
                    self._waiting.remove(job)
        assert job.result is not None  # set before `done`
        return job.result.unwrap()

    def _admit(self, job: _Job[Any]) -> None:
        with self._changed:
            if self._busy + len(self._waiting) >= self._count + self._queue:
                raise Limited(1)
            if self._alive < self._count and self._alive - self._busy <= len(self._waiting):
                threading.Thread(target=self._serve, name="argon2", daemon=True).start()
                self._alive += 1
            self._waiting.append(job)
            self._changed.notify()

    def _serve(self) -> None:
        _yield_to_others()
        while True:
            with self._changed:
                while not self._waiting:
                    if self._closed or not (self._changed.wait(IDLE_AFTER) or self._waiting):
                        self._alive -= 1
                        return
                job = self._waiting.popleft()
                self._busy += 1
            job.result = outcome.capture(job.work)
            with self._changed:
                self._busy -= 1
            with suppress(trio.RunFinishedError):
                job.token.run_sync_soon(job.done.set)
            del job  # it holds a password; an idle thread must not


def _yield_to_others() -> None:
    """Let the scheduler prefer every other thread: on two cores, two hashes at equal priority would make each request wait for them."""
    if sys.platform == "linux":  # elsewhere niceness belongs to the whole process
        with suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS))
