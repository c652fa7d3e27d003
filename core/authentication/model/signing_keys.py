"""Signing keys: the entity, the choice of the key that signs, and the refusal."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from core.kernel.errors import TokenInvalid


class UnknownKey(TokenInvalid):
    """The access token is signed with a key that is not in use. Sign in again."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An RSA key pair. All keys verify until they retire, and `choose_signing_key` says which one signs. Times are UTC."""

    kid: str
    private_key: bytes = field(repr=False)  # PKCS #8 in PEM
    created_at: datetime
    retires_at: datetime | None
    signs_at: datetime | None = None  # None: since its creation

    @property
    def starts_at(self) -> datetime:
        """The time from which the key signs."""
        return self.signs_at or self.created_at


@dataclass(frozen=True, slots=True)
class Rotation:
    """The newest signing key after a rotation, and whether the rotation created it."""

    kid: str
    signs_at: datetime | None  # None: it signs already
    is_new: bool


def choose_signing_key(keys: Sequence[SigningKey], now: datetime) -> SigningKey | None:
    """Return the key that signs at this time, or None if no key is without a retirement time.

    Every process applies this rule to its own clock. Before the newest key starts, the one before
    it signs. If the clock is behind the start of all keys, the first of them signs.
    """
    newest = newest_key(keys)
    if newest is None or newest.starts_at <= now:
        return newest
    started = [key for key in keys if key.starts_at <= now]
    return max(started, key=_start) if started else min(keys, key=_start)


def newest_key(keys: Sequence[SigningKey]) -> SigningKey | None:
    """Return the key without a retirement time, which signs now or next, or None."""
    return max((key for key in keys if key.retires_at is None), key=_start, default=None)


def _start(key: SigningKey) -> datetime:
    return key.starts_at
