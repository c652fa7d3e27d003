"""The keys that sign access tokens: creation, and rotation with overlap (security J-1, L-2; decision 34)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from core.authentication.tokens.signing_keys_rules import UnknownKey
from core.kernel.principals import SYSTEM
from core.programs.api_resources_rules import MAX_TOKEN_SECONDS

if TYPE_CHECKING:
    from core.kernel.principals import Claims, PreAuthClaims, ProgramClaims
    from ports import Ports


async def load(ports: Ports) -> None:
    """Load the keys from the database into the token port. The first call on an empty database creates the first key."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        keys = await read.signing_keys.live(now)
    if not any(key.retires_at is None for key in keys):
        await rotate(ports, only_if_none=True)
        async with ports.storage.reading() as read:
            keys = await read.signing_keys.live(now)
    ports.tokens.use(keys, now)


async def rotate(ports: Ports, *, only_if_none: bool = False) -> str | None:
    """Create a signing key and return its id. The old key still verifies until all tokens that it signed have expired.

    With `only_if_none`, do nothing and return None if an active key exists. All processes are
    notified. A process that gets a token with the new key id before the notification reloads the
    keys (`read_token`).
    """
    key = await ports.tokens.new_key(ports.clock.now())
    longest = max(ports.policy.access_token_ttl, ports.policy.pre_auth_ttl, timedelta(seconds=MAX_TOKEN_SECONDS))
    overlap = longest + timedelta(minutes=1)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.lock()
        if only_if_none and await tx.signing_keys.has_active():
            return None
        await tx.signing_keys.retire_all(key.created_at + overlap)
        await tx.signing_keys.add(key)
    return key.kid


async def read_token(ports: Ports, token: str, *, for_any_audience: bool = False) -> Claims | ProgramClaims:
    """Return the claims of an access token of a user or a program.

    A token for a resource other than our API and the userinfo endpoint is refused, unless `for_any_audience`.

    Raises: TokenInvalid, WrongToken, TokenExpired, UnknownKey.
    """
    now = ports.clock.now()
    try:
        return ports.tokens.read(token, now, for_any_audience=for_any_audience)
    except UnknownKey:
        await _reload(ports, now)
        return ports.tokens.read(token, now, for_any_audience=for_any_audience)


async def read_pre_auth(ports: Ports, token: str) -> PreAuthClaims:
    """Return the claims of a pre-auth token. Raises: TokenInvalid, WrongToken, PreAuthExpired, UnknownKey."""
    now = ports.clock.now()
    try:
        return ports.tokens.read_pre_auth(token, now)
    except UnknownKey:
        await _reload(ports, now)
        return ports.tokens.read_pre_auth(token, now)


async def _reload(ports: Ports, now: datetime) -> None:
    """Reload the keys, because another process may have just rotated them.

    This happens at most once per second, because attackers can send tokens with made-up key ids.

    Raises: UnknownKey if the keys were loaded less than a second ago.
    """
    if now - ports.tokens.loaded_at < timedelta(seconds=1):
        raise UnknownKey
    await load(ports)
