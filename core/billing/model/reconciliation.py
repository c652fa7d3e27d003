"""Intervals, limits and reports of the billing reconciliation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.billing.model.provider_events import Effect

LEASE_NAME: Final = "billing_reconciler"
# Longer than one request to the provider, and longer than the usual pause between rounds, so that
# one process keeps the lease while it runs.
LEASE: Final = timedelta(minutes=5)
MAX_CONSECUTIVE_FAILURES: Final = 3  # of one kind, after which the provider is treated as down
RECHECK_INTERVAL: Final = timedelta(hours=1)  # if nothing else sets the next check, for example for a checkout that is still open
# The wait after a failed check. The retry comes after all checks that were due before. It does not
# come in every round, because it may always fail.
RETRY_INTERVAL: Final = timedelta(minutes=5)
CHECKOUT_CHECK_PERIOD: Final = timedelta(days=3)  # checkout sessions at the provider are open for one day at most


# The effects that are reported to the operator, with their names in the counts of a round: repairs,
# and users who may pay for nothing, pay twice, or use a service without paying.
REPORTED_EFFECTS: Final = {
    Effect.DONE: "changed",
    Effect.ORPHANED: "orphaned",
    Effect.DUPLICATE_SUBSCRIPTION: "duplicate_subscription",
    Effect.MISMATCH: "mismatch",
    Effect.UNKNOWN: "unknown",
}
# Receives each of these effects and each failed check: the subscription's id at the provider, its
# organization if known, and the effect.
Report = Callable[[str, UUID | None, Effect], object]


@dataclass(frozen=True, slots=True)
class OpenCheckouts:
    """Checkouts of one customer without a known result."""

    ids: tuple[UUID, ...]
    since: datetime  # when the oldest checkout was started
    customer_id: str | None  # None if the provider does not know the organization yet
