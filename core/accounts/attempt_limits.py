"""Counters of failed attempts to guess a secret, per account and from all addresses together (security A-3, M-2, V-2).

A single atomic statement counts an attempt before the secret is checked, so that parallel attempts cannot get past the
limit. The correct secret clears the count, even if the operation fails later. Counting happens outside the transactions
of use cases, because it must survive the refusal that it causes.
"""

from core.accounts.model import attempt_limits
from ports import Ports


async def count_attempt(ports: Ports, secret: attempt_limits.SecretKind, subject: bytes) -> None:
    """Count an attempt to guess the secret of `subject`. Raises: TooManyAttempts if the attempt must wait; it is then not counted."""
    now = ports.clock.now()
    async with ports.storage.autocommit() as statements:
        blocked_until = await statements.attempt_limits.count_attempt(
            secret, subject, attempt_limits.attempt_limit(ports.policy, secret), now
        )
    attempt_limits.raise_if_locked(secret, blocked_until, now)


async def clear(ports: Ports, secret: attempt_limits.SecretKind, subject: bytes) -> None:
    """Reset the count after a correct attempt."""
    async with ports.storage.autocommit() as statements:
        await statements.attempt_limits.clear(secret, subject)


async def uncount(ports: Ports, secret: attempt_limits.SecretKind, subject: bytes) -> None:
    """Take back a counted attempt that was correct. Earlier failed attempts stay counted."""
    async with ports.storage.autocommit() as statements:
        await statements.attempt_limits.uncount(secret, subject, attempt_limits.attempt_limit(ports.policy, secret))
