"""Tokens that an organization gives to programs: SCIM tokens and registration tokens."""

from datetime import datetime
from typing import Final

from core.kernel.errors import Invalid

MAX_TOKENS: Final = 100  # that work, per kind


class TokenExpiryPast(Invalid):
    """The expiry of the token must be in the future. Choose a later time."""


class TooManyTokens(Invalid):
    """The organization already has 100 tokens of this kind that work. Delete one that is no longer used."""

    audited = True


def check_expiry(expires_at: datetime | None, now: datetime) -> None:
    """Check a new token's expiry."""
    if expires_at is not None and expires_at <= now:
        raise TokenExpiryPast


def is_expired(expires_at: datetime | None, now: datetime) -> bool:
    """Return whether a token with this expiry has ended."""
    return expires_at is not None and expires_at <= now
