"""Counting wrong guesses at a secret, per account and from wherever they come (security.md A-3, M-2, V-2).

A guess is charged before the secret is looked at, in one atomic statement, so that parallel guesses cannot outrun the count; the right
answer clears it, whatever comes of it. Charging stands outside the transactions of use cases, because it must survive the refusal it
leads to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ports import Ports
from core.accounts.attempt_limits_rules import SecretKind, attempt_limit, raise_if_locked


async def count_attempt(ports: Ports, secret: SecretKind, subject: bytes) -> None:
    """Count one more guess at the secret of `subject`. Raises TooManyGuesses instead while it must wait."""
    now = ports.clock.now()
    async with ports.storage.autocommit() as count:
        blocked_until = await count.attempt_limits.count_attempt(secret, subject, attempt_limit(ports.policy, secret), now)
    raise_if_locked(secret, blocked_until, now)


async def clear(ports: Ports, secret: SecretKind, subject: bytes) -> None:
    """The right answer was given: forget the wrong ones."""
    async with ports.storage.autocommit() as count:
        await count.attempt_limits.clear(secret, subject)


async def uncount(ports: Ports, secret: SecretKind, subject: bytes) -> None:
    """A guess that was counted was right: have it not count, while those before it do."""
    async with ports.storage.autocommit() as count:
        await count.attempt_limits.uncount(secret, subject, attempt_limit(ports.policy, secret))
