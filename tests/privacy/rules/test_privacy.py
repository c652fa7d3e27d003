"""Tests for the placeholder address of anonymized accounts (decision 148)."""

from datetime import UTC, datetime, timedelta, timezone

from core.kernel.values import Email
from core.privacy.model.personal_data import NO_ADDRESS, NO_AGENT, placeholder_at
from tests.tables import table

NOW = datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC)


def test_the_placeholder_contains_the_time_in_microseconds() -> None:
    assert placeholder_at(NOW) == "anonymized-1773500966535897@deleted.local"
    assert placeholder_at(NOW.astimezone(timezone(timedelta(hours=5)))) == placeholder_at(NOW)


@table("microseconds", [0, 1, 999_999, 10**15 + 1])
def test_two_times_give_two_placeholders(microseconds: int) -> None:
    """Also at late times, where a floating-point number would be rounded."""
    later = NOW + timedelta(microseconds=microseconds)
    assert (placeholder_at(later) == placeholder_at(NOW)) == (microseconds == 0)
    assert placeholder_at(later + timedelta(microseconds=1)) != placeholder_at(later)


def test_the_placeholder_is_a_canonical_email_address() -> None:
    assert Email.parse(placeholder_at(NOW)) == placeholder_at(NOW)


def test_redacted_values_are_the_documented_ones() -> None:
    assert (NO_ADDRESS, NO_AGENT) == ("0.0.0.0", "anonymized")  # noqa: S104
