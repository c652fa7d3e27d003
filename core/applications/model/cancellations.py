"""Subscriptions to cancel at the payment provider, and the limits of trying it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from core.kernel.errors import AuditFailed

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

# Longer than the deadline of a call to the provider, so that no other process repeats a call that
# is still running.
LEASE: Final = timedelta(seconds=60)
IMMEDIATE_LIMIT: Final = 5  # cancellations that the request which caused them waits for; the reconciler does the rest
IMMEDIATE_TIMEOUT: Final = timedelta(seconds=10)  # for all of these together
RETRY_INTERVAL: Final = timedelta(minutes=10)  # after a cancellation failed in the background
# If the provider does not know a subscription, either it is over, or the API key belongs to another
# account than the one that created it. An operator has this long to notice and correct the key.
GIVE_UP_AFTER: Final = timedelta(days=3)


class CancellationNotRecorded(AuditFailed):
    """The change was made, also at the payment provider, but the cancellation there is not recorded yet. It will be recorded soon."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A subscription to cancel at the payment provider. Its organization and service may no longer exist."""

    provider_subscription_id: str
    subscription_id: UUID
    org_id: UUID
    service_id: UUID
    asked_at: datetime
