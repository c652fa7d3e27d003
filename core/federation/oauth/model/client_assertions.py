"""The rules of client assertions (RFC 7523 section 3, and its update on audiences)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from core.kernel.errors import ClientInvalid
from core.kernel.values import is_printable, read_time

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"  # RFC 7523 section 2.2
MAX_LIFETIME: Final = timedelta(minutes=10)
LEEWAY: Final = timedelta(seconds=30)  # tolerated difference between the client's clock and ours
MAX_ID_LENGTH: Final = 255


class ClientAssertionInvalid(ClientInvalid):
    """The client assertion is not valid. Check its claims and its signature."""

    def __init__(self, reason: str) -> None:
        """`reason` continues a sentence, and quotes nothing from the assertion."""
        super().__init__(f"The client assertion is not valid: {reason}.")


class AssertionKeyUnknown(ClientAssertionInvalid):
    """The client assertion is not signed with a registered key. Register its key, or sign with a registered one."""

    def __init__(self) -> None:
        ClientInvalid.__init__(self)


def check_claims(claims: Mapping[str, Any], client_id: str, audiences: Collection[str], now: datetime) -> tuple[str, datetime]:
    """Check the claims of an assertion of this client. Return its `jti`, and the time from which it is refused as expired.

    `aud` must be one of the audiences. An assertion with several values is refused, because another
    server among them could present it here.

    Raises: ClientAssertionInvalid.
    """
    get = claims.get
    if get("iss") != client_id or get("sub") != client_id:
        raise ClientAssertionInvalid("its iss and sub must be the client id")
    audience = get("aud")
    values = [audience] if isinstance(audience, str) else audience
    if not isinstance(values, list) or len(values) != 1 or not isinstance(values[0], str) or values[0] not in audiences:
        raise ClientAssertionInvalid("its aud must be exactly one value, the issuer of this server")
    expires_at, token_id = read_time(get("exp")), get("jti")
    if expires_at is None or expires_at + LEEWAY <= now:
        raise ClientAssertionInvalid("its exp is missing or has passed")
    if expires_at > now + MAX_LIFETIME + LEEWAY:
        raise ClientAssertionInvalid("its exp must be at most 10 minutes ahead")
    for name in ("iat", "nbf"):
        starts_at = read_time(claims[name]) if name in claims else now
        if starts_at is None or starts_at > now + LEEWAY:
            raise ClientAssertionInvalid("its iat or nbf is not a time, or is in the future")
    issued_at = read_time(get("iat"))
    if issued_at is not None and expires_at > issued_at + MAX_LIFETIME + LEEWAY:
        raise ClientAssertionInvalid("its exp must be at most 10 minutes after its iat")
    if not isinstance(token_id, str) or not 0 < len(token_id) <= MAX_ID_LENGTH or not is_printable(token_id):
        raise ClientAssertionInvalid(f"its jti must be a text with 1 to {MAX_ID_LENGTH} characters")
    return token_id, expires_at + LEEWAY
