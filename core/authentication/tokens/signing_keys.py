"""The keys that sign access tokens: creation, and rotation (security J-1, L-2; decision 380)."""

from dataclasses import replace
from datetime import datetime, timedelta

from core.authentication import events
from core.authentication.model import tokens
from core.kernel import claims
from core.kernel.causes import SYSTEM
from core.programs.model.api_resources import MAX_TOKEN_SECONDS
from ports import Ports


async def load(ports: Ports) -> tokens.SigningKey:
    """Load the keys from the database into the token port, and return the newest key.

    Retired keys are loaded while a session from their time can last. They verify only the hints of
    applications. The first call on an empty database creates the first key.
    """
    while True:
        now = ports.clock.now()
        async with ports.storage.reading() as read:
            number = ports.tokens.begin_load()
            keys = await read.signing_keys.live(now - ports.policy.session_absolute_ttl)
        newest = tokens.newest_key(keys)
        if newest is not None:
            ports.tokens.use(keys, now, number)
            return newest
        await _create_first(ports)


async def _create_first(ports: Ports) -> None:
    """Create a key that signs at once, unless a key exists."""
    key = await ports.tokens.new_key(ports.clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.lock()
        if not await tx.signing_keys.has_active():
            await tx.signing_keys.add(key)


async def rotate(ports: Ports, operator: str | None = None, *, min_age: timedelta = timedelta()) -> tokens.Rotation:
    """Publish a new signing key, which signs after the lead time of the policy. Until then, the present key signs.

    The first key signs at once. Nothing is created if a new key already waits, or if the present key
    has signed for less than `min_age`. The present key verifies until all tokens that it signs have
    expired. All processes are notified. A process that gets a token with the new key id before the
    notification reloads the keys (`read_token`). `operator` is their name in the operating system,
    or None if the rotation is automatic.
    """
    key = await ports.tokens.new_key(ports.clock.now())
    longest = max(ports.policy.access_token_ttl, ports.policy.pre_auth_ttl, timedelta(seconds=MAX_TOKEN_SECONDS))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.lock()
        now = ports.clock.now()
        newest = tokens.newest_key(await tx.signing_keys.live(now))
        if newest is not None and newest.starts_at > now - min_age:
            return tokens.Rotation(newest.kid, newest.starts_at if newest.starts_at > now else None, is_new=False)
        key = replace(key, created_at=now, signs_at=None if newest is None else now + ports.policy.signing_key_lead_time)
        await tx.signing_keys.retire_all(key.starts_at + longest + timedelta(minutes=1))
        await tx.signing_keys.add(key)
        tx.record(events.signing_key_rotated(key, operator))
    return tokens.Rotation(key.kid, key.signs_at, is_new=True)


async def replace_compromised(ports: Ports, operator: str) -> tokens.Rotation:
    """Remove all signing keys, also a waiting key, and create a key that signs at once.

    Every token that the removed keys signed becomes invalid in a process as soon as it is notified: access tokens, ID
    tokens, and sign-ins that wait for a second factor. Sessions and refresh tokens stay.
    """
    key = await ports.tokens.new_key(ports.clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.lock()
        key = replace(key, created_at=ports.clock.now())
        await tx.signing_keys.remove_all()
        await tx.signing_keys.add(key)
        tx.record(events.signing_key_compromised(key, operator))
    return tokens.Rotation(key.kid, None, is_new=True)


async def read_token(ports: Ports, token: str, *, accepts: claims.Accepts = claims.Accepts.OWN) -> claims.Claims | claims.ProgramClaims:
    """Return the claims in an access token for a user or a program.

    A token that the place does not accept is refused.

    Raises: TokenInvalid, WrongToken, TokenExpired, UnknownKey.
    """
    now = ports.clock.now()
    try:
        return ports.tokens.read(token, now, accepts=accepts)
    except tokens.UnknownKey:
        await _reload(ports, now)
        return ports.tokens.read(token, now, accepts=accepts)


async def read_pre_auth(ports: Ports, token: str) -> claims.PreAuthClaims:
    """Return the claims of a pre-auth token. Raises: TokenInvalid, WrongToken, PreAuthExpired, UnknownKey."""
    now = ports.clock.now()
    try:
        return ports.tokens.read_pre_auth(token, now)
    except tokens.UnknownKey:
        await _reload(ports, now)
        return ports.tokens.read_pre_auth(token, now)


async def _reload(ports: Ports, now: datetime) -> None:
    """Reload the keys, because another process may have just rotated them.

    This happens at most once per second, because attackers can send tokens with made-up key ids.

    Raises: UnknownKey if the keys were loaded less than a second ago.
    """
    if now - ports.tokens.loaded_at < timedelta(seconds=1):
        raise tokens.UnknownKey
    await load(ports)
