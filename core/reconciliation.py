"""Repairing what events that never came have left behind: the payment provider is asked how things are (decisions, points 165 and 169).

Each subscription of ours is asked about once a day, and when its period is over and nothing was heard; each checkout, until something came
of it or it is too old. What the provider says is learnt as if an event had told it (core.billing).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from core import billing, cancellations
from core.access import SYSTEM
from core.billing import Effect
from core.payments import EVERY, LAPSED, UNHEARD, ProviderSubscription, Seen

if TYPE_CHECKING:
    from ports import Ports

NAME: Final = "billing_reconciler"  # of the lease
# Longer than a batch can take, and than the pause between two rounds, so that one process goes on doing it while it lives.
LEASE: Final = timedelta(minutes=5)
BATCH: Final = 20  # each of which may take ten seconds
CHECKOUTS: Final = 200
ASKED_AGAIN: Final = timedelta(hours=1)  # where nothing is learnt, such as of a checkout that nobody has completed yet
CHECKOUTS_ASKED_FOR: Final = timedelta(days=3)  # a session at the provider is open for a day at most


# What the operator hears of: what was repaired, and people who pay for nothing, or twice.
TOLD: Final = {Effect.DONE: "changed", Effect.ORPHANED: "orphaned", Effect.SECOND: "second"}


@dataclass(frozen=True, slots=True)
class OpenCheckout:
    """A checkout of which nothing was heard, and whose the provider takes it to be."""

    customer_id: str
    created_at: datetime


async def reconcile(ports: Ports, holder: UUID) -> Mapping[str, int] | None:
    """Ask the provider about what is due: how many of what it were, where there were any, and how many of them changed by what it said.
    Where there is none that can be asked, and only its events are received, what was not prolonged ends after its period.

    None while another holder is at it.

    Raises PaymentsFailed, and what was not done is due again after a while.
    """
    done = Counter[str]()
    for what, batch in (("cancelled", _cancellations), ("checkouts", _checkouts), ("subscriptions", _subscriptions)):
        if batch is not _subscriptions and not ports.payments.is_on:
            continue
        count = BATCH
        while count >= BATCH:
            now = ports.clock.now()
            async with ports.storage.transaction(by=SYSTEM) as tx:
                if not await tx.leases.take(NAME, holder, now, now + LEASE):
                    return done or None
            count = await batch(ports, done)
            done[what] += count
    return +done


async def _cancellations(ports: Ports, _: Counter[str]) -> int:
    return await cancellations.work_off(ports)


async def _subscriptions(ports: Ports, done: Counter[str]) -> int:
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        due = await tx.billing.claim_checks(now, now + ASKED_AGAIN, BATCH)

    async def ask(id_: str) -> None:
        seen = await ports.payments.subscription(id_) if ports.payments.is_on else None
        if seen is not None:
            await _learn(ports, seen, done)
        else:
            await _unknown(ports, id_, done)

    await cancellations.one_by_one(due, ask)
    return len(due)


async def _checkouts(ports: Ports, done: Counter[str]) -> int:
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        due = await tx.billing.claim_checkouts(now, now + ASKED_AGAIN, now - CHECKOUTS_ASKED_FOR, CHECKOUTS)
    # One question for each customer, however many checkouts its people have begun.
    since: dict[str, datetime] = {}
    for checkout in due:
        since[checkout.customer_id] = min(checkout.created_at, since.get(checkout.customer_id, checkout.created_at))

    async def ask(customer: tuple[str, datetime]) -> None:
        for seen in await ports.payments.subscriptions_of(*customer):
            await _learn(ports, seen, done)

    await cancellations.one_by_one(list(since.items()), ask)
    return len(due)


async def _learn(ports: Ports, seen: Seen, done: Counter[str]) -> None:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        # What an event says of the same second may be of a later moment of it, as it is of news of a creation.
        effect = await billing.learn(tx, seen.subscription, seen.at, ports.clock.now(), at_creation=True)
    if effect in TOLD:
        done[TOLD[effect]] += 1


async def _unknown(ports: Ports, id_: str, done: Counter[str]) -> None:
    """The provider does not know it any more, or not with this key, or cannot be asked. It lives until its period is over."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        facts = await tx.billing.lock_facts(id_, now)
        if facts.org_id is None:
            await tx.billing.keep_facts(facts, now, check_at=None)
            return
        implied, patience = facts.implied, timedelta(0) if ports.payments.is_on else UNHEARD
        if implied is None or implied.period_end is None or implied.period_end + patience > now:
            await tx.billing.keep_facts(facts, now, check_at=now + EVERY)
            return
        lapsed = ProviderSubscription(
            id=id_,
            customer_id=facts.customer_id,
            status=LAPSED,
            price_id=facts.price_id,
            period_end=facts.period_end,
            meant=None,
        )
        await billing.learn(tx, lapsed, now, now)
    done["lapsed"] += 1
