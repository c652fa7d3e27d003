"""Passwords with argon2id, on threads of their own."""

import base64
import secrets
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import argon2

from adapters.threads import LowPriorityThreads

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
        self._threads = LowPriorityThreads("argon2", concurrency, queue)

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
