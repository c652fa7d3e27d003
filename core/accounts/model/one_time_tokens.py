"""One-time tokens, which the links in emails contain."""

from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID


class TokenPurpose(StrEnum):
    """The purpose of a one-time token. Lookups include it, so that a token works for nothing else (security A-5)."""

    VERIFY_EMAIL = "verify_email"
    RESET_PASSWORD = "reset_password"  # noqa: S105  (a purpose, not a secret)
    RECOVER_OWNER = "recover_owner"  # the command line shows this link, and no email contains it


@dataclass(frozen=True, slots=True)
class LinkContinuation:
    """Where the browser continues after the link in an email."""

    next_path: str | None = None  # a path of our pages; None for the account page
    # SHA-256 of the device cookie of the browser in which the user signed up and chose the password.
    # None for all other links.
    browser_hash: bytes | None = field(default=None, repr=False)
    # The application that the user signed up for on that page, or that a welcome email named.
    service_id: UUID | None = None


TO_ACCOUNT_PAGE = LinkContinuation()
