"""Times for people."""

from datetime import UTC, datetime

from core.kernel.display import format_local

TIME = datetime(2026, 7, 5, 23, 30, tzinfo=UTC)


def test_a_time_is_written_in_the_zone_of_its_reader() -> None:
    assert format_local(TIME, "Europe/Berlin") == "6 July 2026 at 01:30 CEST (Europe/Berlin)"
    assert format_local(TIME, "Europe/Atlantis") == "5 July 2026 at 23:30 UTC", "a zone that is gone"
