"""One-time tokens, which the links in emails contain."""

from enum import StrEnum


class TokenPurpose(StrEnum):
    """The purpose of a one-time token. Lookups include it, so that a token works for nothing else (security A-5)."""

    VERIFY_EMAIL = "verify_email"
    RESET_PASSWORD = "reset_password"  # noqa: S105  (a purpose, not a secret)
