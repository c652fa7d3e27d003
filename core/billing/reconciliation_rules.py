"""Entities, refusals and pure rules of `core.billing.reconciliation`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.billing.provider_events_rules import Effect

NAME: Final = "billing_reconciler"  # of the lease
# Longer than a question can take, and than the usual pause between two rounds, so that one process goes on doing it while it lives.
LEASE: Final = timedelta(minutes=5)
AWAY: Final = 3  # failures of one kind in a row, after which the provider is taken to be away
ASKED_AGAIN: Final = timedelta(hours=1)  # what nobody has said anything else of, such as a checkout that nobody has completed yet
# What the provider fails at is due again after this: behind what else was due by then, and not in each round, since it may always fail.
PUT_BACK: Final = timedelta(minutes=5)
CHECKOUTS_ASKED_FOR: Final = timedelta(days=3)  # a session at the provider is open for a day at most


# What the operator hears of: what was repaired, and people who may pay for nothing, or twice, or not at all.
TOLD: Final = {
    Effect.DONE: "changed",
    Effect.ORPHANED: "orphaned",
    Effect.DUPLICATE_SUBSCRIPTION: "second",
    Effect.MISMATCH: "disagreed",
    Effect.UNKNOWN: "unknown",
}
# Hears of each of those, and of what the provider failed at, by its name there; and whose it is, if it says so.
Tell = Callable[[str, UUID | None, Effect], object]


@dataclass(frozen=True, slots=True)
class OpenCheckouts:
    """An organization's checkouts of which nothing was heard: which, since when, and who the provider takes it to be, if it knows it."""

    ids: tuple[UUID, ...]
    since: datetime
    customer_id: str | None
