"""What time it is, and what operators get to see."""

from datetime import datetime
from typing import Protocol

from core.authentication.login_failures import LoginFailure


class Clock(Protocol):
    """The time. Nothing in core asks the machine; tests own it."""

    def now(self) -> datetime:
        """The time in UTC, aware."""
        ...


class Metrics(Protocol):
    """The figures of organizations.md section 4.11. Labels come from fixed sets (security.md L-4); nothing here fails or waits."""

    def http(self, method: str, route: str, status: int, seconds: float) -> None:
        """An exchange ended. `route` is the route's template, never a path."""
        ...

    def login_failed(self, reason: LoginFailure) -> None:
        """A login was refused."""
        ...

    def token_issued(self) -> None:
        """An access token was issued."""
        ...

    def job_done(self, job_type: str, seconds: float) -> None:
        """A piece of background work ended, well or not."""
        ...

    def siem_failed(self, reason: str) -> None:
        """Forwarding a log to the SIEM of an organization failed; `reason` is from a fixed set."""
        ...

    def siem_dropped(self, entries: int) -> None:
        """So many entries have waited for the SIEM of their organization too long, and were dropped."""
        ...

    def webhook_delivered(self, seconds: float) -> None:
        """A webhook took what it was told, so long after it happened."""
        ...

    def queue_depth(self, depth: int) -> None:
        """How many pieces of background work are due."""
        ...

    def pool(self, total: int, idle: int, maximum: int) -> None:
        """Database connections of this process."""
        ...

    def platform(self, active_users: int, organizations: int, mfa_enabled_users: int) -> None:
        """The platform's gauges."""
        ...
