"""Display formats shared by emails and pages."""

from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

PRODUCT: Final = "Gatehouse"
PLATFORM_SUPPORT: Final = "Platform support"  # an impersonation, as the user sees it
_UNITS: Final = (("minute", 60, 3_600), ("hour", 3_600, 86_400), ("day", 86_400, 30 * 86_400))  # name, seconds, seconds in the next unit
_TO_SPACES: Final = str.maketrans("_.:", "   ")


def to_words(value: str) -> str:
    """Return an enumeration value as words, such as "Past due" for `past_due`."""
    words = value.translate(_TO_SPACES).strip()
    return words[:1].upper() + words[1:]


def format_utc(time: datetime) -> str:
    """Return a point in time in UTC, such as "5 March 2026 at 14:05 UTC". The month is a word, so that readers know it from the day."""
    time = time.astimezone(UTC)
    return f"{time.day} {time:%B %Y at %H:%M} UTC"


def format_local(time: datetime, zone: str) -> str:
    """Return a point in time in an IANA time zone, such as "5 March 2026 at 15:05 CET (Europe/Berlin)".

    An unknown zone counts as UTC.
    """
    try:
        time = time.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError):  # it was known when it was stored
        return format_utc(time)
    return f"{time.day} {time:%B %Y at %H:%M %Z} ({zone})"


def format_ago(time: datetime, now: datetime) -> str:
    """Return a point in time as seen from `now`, such as "3 minutes ago" or "in 2 days".

    A time at least 30 days away becomes its UTC day.
    """
    distance = abs((now - time).total_seconds())
    if distance < _UNITS[0][1]:
        return "just now"
    for unit, seconds, end in _UNITS:
        if distance < end:
            number = int(distance // seconds)
            text = f"{number} {unit}{'' if number == 1 else 's'}"
            return f"{text} ago" if time <= now else f"in {text}"
    return format_day(time)


def format_day(time: datetime) -> str:
    """Return a time's UTC day, such as "5 March 2026"."""
    time = time.astimezone(UTC)
    return f"{time.day} {time:%B %Y}"
