"""The health of a webhook, and the resending of its failed deliveries."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

RECENT: Final = 100  # the deliveries with the newest attempts, which the health is calculated from
RESEND_LIMIT: Final = 1000  # deliveries that one request sends again
COUNTED_TO_RESEND: Final = 10_000  # the largest number of failed deliveries that is counted


class WebhookState(StrEnum):
    """The state of a webhook, from the outcomes of its deliveries."""

    OFF = "off"
    UNUSED = "unused"  # no delivery has been attempted
    HEALTHY = "healthy"
    FAILING = "failing"  # the newest attempt failed
    BROKEN = "broken"  # all recent deliveries failed, and one was given up


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookHealth:
    """The outcomes of the deliveries of a webhook with the newest attempts, at most RECENT."""

    attempted: int = 0
    delivered: int = 0
    given_up: int = 0
    is_failing: bool = False  # whether the newest attempt failed
    last_failure_at: datetime | None = None  # UTC; None if no recent delivery failed
    last_failure_status: int | None = None  # of the response, or None without one
    last_failure_reason: str | None = None

    @property
    def success_rate(self) -> float | None:
        """The part of the attempted deliveries that was delivered, or None without any."""
        return self.delivered / self.attempted if self.attempted else None

    def state(self, *, is_active: bool) -> WebhookState:
        if not is_active:
            return WebhookState.OFF
        if not self.attempted:
            return WebhookState.UNUSED
        if not self.delivered and self.given_up:
            return WebhookState.BROKEN
        return WebhookState.FAILING if self.is_failing else WebhookState.HEALTHY


NO_ATTEMPTS: Final = WebhookHealth()


@dataclass(frozen=True, slots=True)
class Resent:
    """The number of failed deliveries that were queued again, and of those that remain, at most COUNTED_TO_RESEND."""

    queued: int
    remaining: int
