"""A webhook's health, and resending its failed deliveries."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

RECENT: Final = 100  # the deliveries with the newest attempts, which the health is calculated from
RESEND_LIMIT: Final = 1000  # deliveries that a request sends again
COUNTED_TO_RESEND: Final = 10_000  # failed deliveries are counted up to this number


class WebhookState(StrEnum):
    """A webhook's state, from the outcomes of its deliveries."""

    OFF = "off"
    UNUSED = "unused"  # no delivery has been attempted
    HEALTHY = "healthy"
    FAILING = "failing"  # the newest attempt failed
    BROKEN = "broken"  # all recent deliveries failed, and a delivery was given up


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookHealth:
    """The outcomes of the webhook's deliveries with the newest attempts, at most RECENT."""

    attempted: int = 0
    delivered: int = 0
    given_up: int = 0
    is_failing: bool = False  # whether the newest attempt failed
    last_failure_at: datetime | None = None  # UTC; None if no recent delivery failed
    last_failure_status: int | None = None  # the response's status, or None without a response
    last_failure_reason: str | None = None

    @property
    def success_rate(self) -> float | None:
        """Return which part of the attempted deliveries was delivered, or None without any."""
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
    """How many failed deliveries were queued again, and how many remain, at most COUNTED_TO_RESEND."""

    queued: int
    remaining: int
