"""Deliveries of webhooks: written in the transaction of the event, sent until they are taken or their attempts are used up.

The dispatcher claims, sends, records. Killed between any two of these, nothing is lost: the claim is a lease that ends. Killed between
sending and recording, the same delivery goes out once more, under the same id. In which order deliveries arrive is not promised.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core.eventing import events
from core.kernel.outbound import SendFailed
from core.kernel.principals import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ports import Ports
from core.eventing.deliveries_rules import (
    LEASE_MARGIN,
    MAX_LOST_CLAIMS,
    WOKEN_AT_ONCE,
    ClaimedDelivery,
    Failure,
    Outcome,
    Room,
    Turn,
    answered,
    failed,
    headers,
)


async def attempt(ports: Ports, delivery: ClaimedDelivery, spread: float) -> Outcome:
    """Send it once, and say what became of that. `spread` is a random number from 0 to 1, which the time of the next attempt depends on."""
    if delivery.claims - 1 - delivery.attempts >= MAX_LOST_CLAIMS:
        return failed(ports.policy, delivery, Failure.LOST, ports.clock.now(), spread)
    if not delivery.secrets:
        return failed(ports.policy, delivery, Failure.NOT_SIGNED, ports.clock.now(), spread)
    timeout = ports.policy.webhook_timeout.total_seconds()
    try:
        reply = await ports.sender.post(delivery.url, delivery.body, headers(delivery, ports.clock.now()), timeout)
    except SendFailed as failure:
        return failed(ports.policy, delivery, failure.trouble, ports.clock.now(), spread)
    return answered(ports.policy, delivery, reply, ports.clock.now(), spread)


async def take_turn(ports: Ports, outcomes: Sequence[Outcome], room: Room) -> Turn:
    """Record what became of attempts, and claim as many deliveries as there is room for: all in one transaction, since both are done again
    and again. What is claimed is leased to the caller: if nothing is heard of it, it falls due again."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        if outcomes:
            await tx.deliveries.record(outcomes)
        await tx.deliveries.wake(now, WOKEN_AT_ONCE)
        next_due = tx.deliveries.next_due()
        lease_until = now + ports.policy.webhook_timeout + LEASE_MARGIN
        claimed = await tx.deliveries.claim(now, lease_until, room) if room.free > 0 else []
    return Turn(claimed, next_due.value)


async def record(ports: Ports, outcomes: Sequence[Outcome]) -> None:
    """Record what became of attempts, and claim nothing."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.deliveries.record(outcomes)


async def turn_off(ports: Ports, delivery: ClaimedDelivery) -> None:
    """The receiver has said that it is gone for good (decisions, point 218): nothing is sent there any more, until a member says so."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.organizations.lock(delivery.org_id)
        old = await tx.webhooks.by_id(delivery.org_id, delivery.webhook_id)
        if old is not None and old.is_active and old.url == delivery.url:  # unless somebody was faster
            new = replace(old, is_active=False, updated_at=ports.clock.now())
            await tx.webhooks.save(new)
            tx.record(events.webhook_updated(old, new))
