"""Password hashing with Argon2id in separate threads."""

import base64
import secrets
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import argon2

from adapters.low_priority_threads import LowPriorityThreads

_SALT = struct.Struct(">III")  # memory in KiB, time cost, parallelism; random bytes follow
_SALT_BYTES = 16


class Argon2Passwords:
    """Implements `ports.crypto.Passwords` (security A-1, A-2, B-2).

    At most `concurrency` hashes run at once, and at most `queue` more wait. Further calls raise Limited immediately.
    """

    def __init__(self, memory_kib: int, time_cost: int, parallelism: int, concurrency: int, queue: int = 32) -> None:
        self._hasher = argon2.PasswordHasher(time_cost=time_cost, memory_cost=memory_kib, parallelism=parallelism)
        # Unknown accounts are verified against this hash. It has the parameters of new hashes, so
        # it takes as long (security B-2).
        self._dummy_hash = _make_dummy_hash(memory_kib, time_cost, parallelism)
        self._threads = LowPriorityThreads("argon2", concurrency, queue)

    async def hash(self, password: str) -> str:
        """Return a new hash as a PHC string. Raises: Limited."""
        return await self._threads.run(partial(self._hasher.hash, password.encode()))

    async def verify(self, password_hash: str | None, password: str) -> bool:
        """Return whether the password matches the hash. Without a hash, return False after the same time.

        Raises: Limited.
        """
        compared_hash = self._dummy_hash if password_hash is None else password_hash
        matches = await self._threads.run(partial(self._matches, compared_hash, password.encode()))
        return matches and password_hash is not None

    def is_outdated(self, password_hash: str) -> bool:
        """Return whether the hash was made with other parameters than the current ones."""
        return self._hasher.check_needs_rehash(password_hash)

    def new_salt(self) -> bytes:
        """Return a salt for `derive` with the current parameters.

        It contains them because a value can be derived again only with the same parameters.
        """
        hasher = self._hasher
        return _SALT.pack(hasher.memory_cost, hasher.time_cost, hasher.parallelism) + secrets.token_bytes(_SALT_BYTES)

    async def derive(self, secret: str, salt: bytes) -> bytes:
        """Return 32 bytes derived from this secret and this salt. Raises: Limited."""
        return await self._threads.run(partial(_derive, secret.encode(), salt))

    def close(self) -> None:
        """End the threads now instead of a minute after the last hash. For tests, which create many instances."""
        self._threads.close()

    def _matches(self, password_hash: str, password: bytes) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except argon2.exceptions.VerifyMismatchError:
            # Other errors, such as a damaged hash or too little memory, must not look like a wrong
            # password.
            return False


def _derive(secret: bytes, salt: bytes) -> bytes:
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


def _make_dummy_hash(memory_kib: int, time_cost: int, parallelism: int) -> str:
    """Return a random hash that matches no known password.

    Its text is composed of random bytes, and no hash is computed: the allocator would never return
    the memory of a computation in this thread to the system. The allocator also keeps the memory of
    each hashing thread between hashes. That is good there: with 19 MB of fresh pages from the
    system each time, a hash would take twice as long.
    """
    salt, digest = (base64.b64encode(secrets.token_bytes(size)).rstrip(b"=").decode() for size in (16, 32))
    return f"$argon2id$v={argon2.low_level.ARGON2_VERSION}$m={memory_kib},t={time_cost},p={parallelism}${salt}${digest}"


def verifications_per_second(memory_kib: int, time_cost: int, parallelism: int, threads: int, seconds: float = 0.5) -> float:
    """Measure how many passwords this machine verifies per second, with this many threads and no other load."""
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
