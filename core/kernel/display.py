"""Display formats shared by emails and pages."""

from datetime import UTC, datetime
from typing import Final

PRODUCT: Final = "Gatehouse"
PLATFORM_SUPPORT: Final = "Platform support"  # an impersonation, as the user sees it
_TO_SPACES: Final = str.maketrans("_.:", "   ")


def to_words(value: str) -> str:
    """Return a value of an enumeration as words, such as "Past due" for `past_due`."""
    words = value.translate(_TO_SPACES).strip()
    return words[:1].upper() + words[1:]


def format_utc(time: datetime) -> str:
    """Return a point in time in UTC, such as "5 March 2026 at 14:05 UTC". The month is a word, so that readers know it from the day."""
    time = time.astimezone(UTC)
    return f"{time.day} {time:%B %Y at %H:%M} UTC"
