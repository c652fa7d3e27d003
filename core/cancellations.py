"""Ending at the payment provider what was ended here (decisions, points 115, 159 and 229).

A row says that it has to be done, written with the change that asks for it: by core.subscriptions, by core.billing for what was paid for
when its service was gone already, or by the database itself where a subscription is removed, with its service, its organization or the
account. Whoever asked for the change tries it at once; what does not work then, somebody tries again until it does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from core import events
from core.access import SYSTEM
from core.errors import AuditFailed, PaymentsFailed, StorageDown

if TYPE_CHECKING:
    from ports import Ports

# Longer than the provider is waited for, so that nobody else does it meanwhile.
LEASE: Final = timedelta(seconds=60)
AT_ONCE: Final = 5  # that somebody waits for who deletes a service; the others follow
PATIENCE: Final = timedelta(seconds=10)
BATCH: Final = 20
TRIED_AGAIN: Final = timedelta(minutes=10)  # what failed, and nobody waits for
# What the provider does not know is over, or the key is not the one that it was made with: until then somebody may notice.
UNKNOWN_FOR: Final = timedelta(days=3)
AWAY: Final = 3  # failures in a row, after which the provider is taken to be away

T = TypeVar("T")


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


async def at_once(ports: Ports, org_id: UUID, service_id: UUID) -> None:
    """Cancel some of what was just ended of this service. What fails, or is too much, is done later.

    Raises NotRecorded.
    """
    if not ports.payments.is_on:
        return
    started = ports.clock.now()
    try:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            due = await tx.cancellations.claim_of_service(org_id, service_id, started, started + LEASE, AT_ONCE)
        for each in due:
            if ports.clock.now() < started + PATIENCE and await ports.payments.cancel(each.provider_subscription_id):
                await _record_at_once(ports, each)
    except (PaymentsFailed, StorageDown):
        pass  # what asked for it was done; adapters tell the log of the provider's failures


async def _record_at_once(ports: Ports, done: Cancellation) -> None:
    try:
        await _record(ports, done)
    except StorageDown as error:
        raise NotRecorded from error


async def work_off(ports: Ports) -> int:
    """Cancel a batch of what is due; how many it were. Raises what `one_by_one` raises."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        due = await tx.cancellations.claim(now, now + TRIED_AGAIN, BATCH)

    async def cancel(each: Cancellation) -> None:
        if await ports.payments.cancel(each.provider_subscription_id):
            await _record(ports, each)
        elif each.asked_at < now - UNKNOWN_FOR:
            async with ports.storage.transaction(by=SYSTEM) as tx:
                await tx.cancellations.done(each)

    await one_by_one(due, cancel)
    return len(due)


async def one_by_one(due: Sequence[T], act: Callable[[T], Awaitable[None]]) -> None:
    """Do this for each of what was claimed. What the provider fails at falls due again, and holds back nothing else.

    Raises PaymentsFailed where it fails at several in a row.
    """
    failures = 0
    for each in due:
        try:
            await act(each)
            failures = 0
        except PaymentsFailed:
            failures += 1
            if failures == AWAY:
                raise


async def _record(ports: Ports, done: Cancellation) -> None:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        # What an event tells of it meanwhile waits here, and finds it over.
        await tx.billing.end(done.provider_subscription_id, ports.clock.now())
        organization = await tx.organizations.lock(done.org_id)
        is_first = await tx.cancellations.done(done)
        # The entry of one that is still here was written when it was ended; of an organization that is gone there is no log.
        if is_first and organization is not None and not await tx.subscriptions.exists(done.org_id, done.subscription_id):
            tx.record(events.subscription_canceled_at_provider(done))
