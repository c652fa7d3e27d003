"""One-time tokens: what the links of mails carry."""

from enum import StrEnum


class TokenPurpose(StrEnum):
    """What a one-time token is good for; part of the key it is looked up by, so that no token opens another door (A-5)."""

    VERIFY_EMAIL = "verify_email"
    RESET_PASSWORD = "reset_password"  # noqa: S105  (a purpose, not a secret)
