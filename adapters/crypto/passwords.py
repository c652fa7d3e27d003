"""Password hashing with Argon2id in separate threads."""

import base64
import hmac
import secrets
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import argon2

from adapters.crypto import argon2id
from adapters.threads import LowPriorityThreads

_SALT = struct.Struct(">III")  # memory in KiB, time cost, parallelism; random bytes follow
_SALT_BYTES = 16


class Argon2Passwords:
    """Implements `ports.crypto.Passwords` (security A-1, A-2, B-2).

    At most `concurrency` hashes run at once, and at most `queue` more wait. Further calls raise Limited immediately.
    """

    def __init__(self, memory_kib: int, time_cost: int, parallelism: int, concurrency: int, queue: int = 32) -> None:
        self._cost = argon2id.Cost(memory_kib, time_cost, parallelism)
        # Unknown accounts are verified against this hash. The hash has the parameters for new
        # hashes, so verifying takes as long (security B-2). The hash is random, so it matches no
        # known password.
        self._dummy_hash = _to_phc(self._cost, secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(argon2id.HASH_LENGTH))
        self._threads = LowPriorityThreads("argon2", concurrency, queue)

    async def hash(self, password: str) -> str:
        return await self._threads.run(partial(_hash, password.encode(), self._cost))

    async def verify(self, password_hash: str | None, password: str) -> bool:
        """Return whether the password matches the hash. Without a hash, return False after the same time.

        Raises: Limited.
        """
        compared_hash = self._dummy_hash if password_hash is None else password_hash
        matches = await self._threads.run(partial(self._matches, compared_hash, password.encode()))
        return matches and password_hash is not None

    def is_outdated(self, password_hash: str) -> bool:
        return _parse_phc(password_hash)[0] != self._cost

    def new_salt(self) -> bytes:
        """Return a salt for `derive` with the current parameters.

        The salt contains the parameters because a value can be derived again only with the same parameters.
        """
        cost = self._cost
        return _SALT.pack(cost.memory_kib, cost.time_cost, cost.parallelism) + secrets.token_bytes(_SALT_BYTES)

    async def derive(self, secret: str, salt: bytes) -> bytes:
        return await self._threads.run(partial(_derive, secret.encode(), salt))

    def close(self) -> None:
        """End the threads as soon as no hash waits. For tests, which create many instances."""
        self._threads.close()

    @staticmethod
    def _matches(password_hash: str, password: bytes) -> bool:
        """Return whether the password matches.

        Raises: InvalidHashError if the hash is damaged, and the errors of `compute`. No error may look like a wrong password.
        """
        cost, salt, digest = _parse_phc(password_hash)
        return hmac.compare_digest(argon2id.compute(password, salt, cost, len(digest)), digest)


def _hash(password: bytes, cost: argon2id.Cost) -> str:
    salt = secrets.token_bytes(_SALT_BYTES)
    return _to_phc(cost, salt, argon2id.compute(password, salt, cost))


def _derive(secret: bytes, salt: bytes) -> bytes:
    return argon2id.compute(secret, salt[_SALT.size :], argon2id.Cost(*_SALT.unpack_from(salt)))


def _to_phc(cost: argon2id.Cost, salt: bytes, digest: bytes) -> str:
    parts = (base64.b64encode(part).rstrip(b"=").decode() for part in (salt, digest))
    return f"$argon2id$v={argon2.low_level.ARGON2_VERSION}$m={cost.memory_kib},t={cost.time_cost},p={cost.parallelism}${'$'.join(parts)}"


def _parse_phc(password_hash: str) -> tuple[argon2id.Cost, bytes, bytes]:
    """Return the parameters, the salt and the digest. Raises: InvalidHashError."""
    parameters = argon2.extract_parameters(password_hash)
    if parameters.type is not argon2.Type.ID or parameters.version != argon2.low_level.ARGON2_VERSION:
        raise argon2.exceptions.InvalidHashError(f"{parameters.type} {parameters.version}")
    try:
        salt, digest = (base64.b64decode(part + "=" * (-len(part) % 4), validate=True) for part in password_hash.split("$")[-2:])
    except ValueError as error:
        raise argon2.exceptions.InvalidHashError("The salt or the digest is not base64.") from error
    return argon2id.Cost(parameters.memory_cost, parameters.time_cost, parameters.parallelism), salt, digest


def verifications_per_second(memory_kib: int, time_cost: int, parallelism: int, threads: int, seconds: float = 0.5) -> float:
    """Measure how many passwords this machine verifies per second, with this thread count and no further load."""
    hashed = _hash(b"measured", argon2id.Cost(memory_kib, time_cost, parallelism))
    end = time.perf_counter() + seconds

    def verify_until_the_end(_: int) -> int:
        done = 0
        while time.perf_counter() < end:
            Argon2Passwords._matches(hashed, b"measured")
            done += 1
        return done

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(verify_until_the_end, range(threads)))
    return done / (time.perf_counter() - began)
