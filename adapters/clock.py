"""The system clock."""

from datetime import UTC, datetime


class SystemClock:
    """Implements `ports.observe.Clock` with the operating system's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)
