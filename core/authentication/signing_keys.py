"""The keys that sign access tokens: made, rotated with overlap, published (security.md J-1, L-2; decisions, point 34)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from core.kernel.principals import SYSTEM

if TYPE_CHECKING:
    from core.kernel.principals import Claims, PreAuthClaims
    from ports import Ports
from core.authentication.signing_keys_rules import UnknownKey


async def load(ports: Ports) -> None:
    """Make the keys in the database the keys in use; the very first call ever makes the first key."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        keys = await read.signing_keys.live(now)
    if not any(key.retires_at is None for key in keys):
        await rotate(ports, only_if_none=True)
        async with ports.storage.reading() as read:
            keys = await read.signing_keys.live(now)
    ports.tokens.use(keys, now)


async def rotate(ports: Ports, *, only_if_none: bool = False) -> str | None:
    """The id of a new signing key; the old one is believed for as long as what it has signed may live. With `only_if_none`, None if there
    is a key.

    All processes hear of it at once, and one that has not heard yet looks again when it meets the new key id (`read_token`).
    """
    key = await ports.tokens.new_key(ports.clock.now())
    overlap = max(ports.policy.access_token_ttl, ports.policy.pre_auth_ttl) + timedelta(minutes=1)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.lock()
        if only_if_none and await tx.signing_keys.has_active():
            return None
        await tx.signing_keys.retire_all(key.created_at + overlap)
        await tx.signing_keys.add(key)
    return key.kid


async def read_token(ports: Ports, token: str) -> Claims:
    """What an access token says. Raises TokenInvalid, WrongToken, TokenExpired, UnknownKey."""
    now = ports.clock.now()
    try:
        return ports.tokens.read(token, now)
    except UnknownKey:
        await _look_again(ports, now)
        return ports.tokens.read(token, now)


async def read_pre_auth(ports: Ports, token: str) -> PreAuthClaims:
    """What a pre-auth token says. Raises TokenInvalid, WrongToken, PreAuthExpired, UnknownKey."""
    now = ports.clock.now()
    try:
        return ports.tokens.read_pre_auth(token, now)
    except UnknownKey:
        await _look_again(ports, now)
        return ports.tokens.read_pre_auth(token, now)


async def _look_again(ports: Ports, now: datetime) -> None:
    """Read the keys: another process may have rotated them this instant. Strangers can make up key ids, so one look a second is enough."""
    if now - ports.tokens.loaded_at < timedelta(seconds=1):
        raise UnknownKey
    await load(ports)
