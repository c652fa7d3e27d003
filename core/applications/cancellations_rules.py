"""Entities, refusals and pure rules of `core.applications.cancellations`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.kernel.errors import AuditFailed

if TYPE_CHECKING:
    from uuid import UUID

    pass

# Longer than the provider is waited for, so that nobody else does it meanwhile.
LEASE: Final = timedelta(seconds=60)
AT_ONCE: Final = 5  # that somebody waits for who deletes a service; the others follow
PATIENCE: Final = timedelta(seconds=10)
TRIED_AGAIN: Final = timedelta(minutes=10)  # what failed, and nobody waits for
# What the provider does not know is over, or the key is not the one that it was made with: until then somebody may notice.
UNKNOWN_FOR: Final = timedelta(days=3)


class NotRecorded(AuditFailed):
    """It was done, and ended at the payment provider as well, but that could not be recorded yet. It will be."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A subscription that is to be cancelled at the provider, and whose it was, or was to be."""

    provider_subscription_id: str
    subscription_id: UUID
    org_id: UUID
    service_id: UUID
    asked_at: datetime
