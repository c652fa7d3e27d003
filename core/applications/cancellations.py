"""Ending at the payment provider what was ended here (decisions, points 115, 159 and 229).

A row says that it has to be done, written with the change that asks for it: by core.subscriptions, by core.billing for what was paid for
when its service was gone already, or by the database itself where a subscription is removed, with its service, its organization or the
account. Whoever asked for the change tries it at once; what does not work then, somebody tries again until it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.applications import events
from core.kernel.errors import PaymentsFailed, StorageDown
from core.kernel.principals import SYSTEM

if TYPE_CHECKING:
    from uuid import UUID

    from ports import Ports
from core.applications.cancellations_rules import AT_ONCE, LEASE, PATIENCE, TRIED_AGAIN, UNKNOWN_FOR, Cancellation, NotRecorded


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


async def work_off(ports: Ports) -> bool:
    """Cancel the one that has been due for the longest; whether there was one. Where that fails, it falls due again after a while.

    Raises PaymentsFailed.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        due = await tx.cancellations.claim(now, now + TRIED_AGAIN)
    if due is None:
        return False
    if await ports.payments.cancel(due.provider_subscription_id):
        await _record(ports, due)
    elif due.asked_at < now - UNKNOWN_FOR:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.cancellations.done(due)
    return True


async def _record(ports: Ports, done: Cancellation) -> None:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        # What an event tells of it meanwhile waits here, and finds it over.
        await tx.billing.end(done.provider_subscription_id, ports.clock.now())
        organization = await tx.organizations.lock(done.org_id)
        ours = await tx.subscriptions.lock_of_provider(done.org_id, done.provider_subscription_id)
        if ours is not None and ours.status.is_live:
            # A key has made it live again while it was being cancelled, when it was too late for that there (core.subscriptions.change).
            await tx.subscriptions.let_go(ours.org_id, ours.id, ports.clock.now())
        is_first = await tx.cancellations.done(done)
        # The entry of one that is still here was written when it was ended; of an organization that is gone there is no log.
        if is_first and organization is not None and not await tx.subscriptions.exists(done.org_id, done.subscription_id):
            tx.record(events.subscription_canceled_at_provider(done))
