"""The system clock."""

from datetime import UTC, datetime


class SystemClock:
    """Implements `ports.observe.Clock` with the clock of the operating system."""

    def now(self) -> datetime:
        return datetime.now(UTC)
