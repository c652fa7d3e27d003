"""The machine's clock."""

from datetime import UTC, datetime


class SystemClock:
    """ports.observe.Clock, as the operating system has it."""

    def now(self) -> datetime:
        """The time in UTC, aware."""
        return datetime.now(UTC)
