"""Repairing what events that never came have left behind: the payment provider is asked how things are (decisions, points 165 and 169).

Each subscription of ours is asked about once a day, and when its period is over and nothing was heard; each checkout, until something came
of it or it is too old. What the provider says is learnt as if an event had told it (core.billing).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from core import billing, cancellations
from core.access import SYSTEM
from core.billing import Effect
from core.errors import PaymentsFailed
from core.housekeeping import FAILED, HELD_UP
from core.payments import EVERY, LAPSED, SOON, UNHEARD, ProviderSubscription, Seen

if TYPE_CHECKING:
    from ports import Ports

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
    Effect.SECOND: "second",
    Effect.DISAGREES: "disagreed",
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


async def reconcile(ports: Ports, holder: UUID, tell: Tell = lambda *_: None) -> Mapping[str, int] | None:
    """Ask the provider about what is due: how many of what it were, where there were any, and how many of them changed by what it said.
    Where there is none that can be asked, and only its events are received, what was not prolonged ends after its period.

    None while another holder is at it. What it fails to tell is due again the next time, after all that was due before; what it fails to
    cancel, after some minutes. When it fails at several of one kind in a row it is away, or does not take that from us: then the others of
    that kind wait for the next time, which begins there, and may be further away. Failing at a single one holds up nothing.
    """
    done = Counter[str]()
    for step in (_cancellation, _checkouts, _subscription) if ports.payments.is_on else (_subscription,):
        is_due, failures = True, 0
        while is_due and failures < AWAY:
            now = ports.clock.now()
            async with ports.storage.transaction(by=SYSTEM) as tx:
                if not await tx.leases.take(NAME, holder, now, now + LEASE):
                    return done or None
            try:
                is_due = await step(ports, done, tell)
                failures = 0
            except PaymentsFailed:
                done[FAILED] += 1
                failures += 1
        if failures >= AWAY and step is not _cancellation:  # which it may refuse for ever, and tell all that it is asked
            done[HELD_UP] += 1
    return done


# Each of these is claimed by itself, right before the provider is asked, and what it was to tell is put back if it fails. So those that it
# comes to be away before are due as they were, and whatever takes this process down with it is not asked about again at once.


async def _cancellation(ports: Ports, done: Counter[str], _: Tell) -> bool:
    is_due = await cancellations.work_off(ports)
    if is_due:
        done["cancelled"] += 1
    return is_due


async def _subscription(ports: Ports, done: Counter[str], tell: Tell) -> bool:
    now = ports.clock.now()
    until = now + ASKED_AGAIN
    async with ports.storage.transaction(by=SYSTEM) as tx:
        due = await tx.billing.claim_check(now, until)
    if due is None:
        return False
    done["subscriptions"] += 1
    try:
        seen = await ports.payments.subscription(due) if ports.payments.is_on else None
    except PaymentsFailed:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.billing.put_back_check(due, until, ports.clock.now() + PUT_BACK)
        tell(due, None, Effect.FAILED)
        raise
    if seen is None:
        await _unknown(ports, due, done, tell)
    elif await _learn(ports, seen, done, tell) is Effect.DISAGREES:
        async with ports.storage.transaction(by=SYSTEM) as tx:  # told of once a day, until somebody has looked after it
            await tx.billing.put_back_check(due, until, now + EVERY)
    return True


async def _checkouts(ports: Ports, done: Counter[str], tell: Tell) -> bool:
    """One question for each customer, however many checkouts its people have begun."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        due = await tx.billing.claim_checkouts(now, now + ASKED_AGAIN, now - CHECKOUTS_ASKED_FOR, now - SOON)
    if due is None:
        return False
    if due.customer_id is not None:
        done["checkouts"] += len(due.ids)
        try:
            found = await ports.payments.subscriptions_of(due.customer_id, due.since)
        except PaymentsFailed:
            async with ports.storage.transaction(by=SYSTEM) as tx:
                await tx.billing.put_back_checkouts(due.ids, ports.clock.now() + PUT_BACK, now - CHECKOUTS_ASKED_FOR)
            raise
        for seen in reversed(found):  # the oldest first, which others wait for
            # What else the customer has is asked about, and told of, once a day, however often this is asked.
            async with ports.storage.transaction(by=SYSTEM) as tx:
                is_known = await tx.billing.is_asked_about(seen.subscription.id, now - EVERY)
            if not is_known:
                await _learn(ports, seen, done, tell)
    return True


async def _learn(ports: Ports, seen: Seen, done: Counter[str], tell: Tell) -> Effect:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        # What an event says of the same second may be of a later moment of it, as it is of news of a creation.
        effect = await billing.learn(tx, seen.subscription, seen.at, ports.clock.now(), at_creation=True)
    if effect in TOLD:
        done[TOLD[effect]] += 1
        meant = seen.subscription.meant
        tell(seen.subscription.id, None if meant is None else meant.org_id, effect)
    return effect


async def _unknown(ports: Ports, id_: str, done: Counter[str], tell: Tell) -> None:
    """The provider does not know it any more, or not with this key, or cannot be asked. It lives until its period is over. That it is not
    known is told each time until then: with the key of another account or mode, none is."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        facts = await tx.billing.lock_facts(id_, now)
        patience = timedelta(0) if ports.payments.is_on else UNHEARD
        end = None if facts.implied is None else facts.implied.period_end
        if facts.org_id is None:
            await tx.billing.keep_facts(facts, now, check_at=None)
            return
        if end is None or end + patience > now:
            await tx.billing.keep_facts(facts, now, check_at=now + EVERY)
            ours = await tx.billing.subscription(id_)
            effect = Effect.UNKNOWN if ports.payments.is_on and ours is not None and ours.status.is_live else Effect.UNCHANGED
        else:
            lapsed = ProviderSubscription(
                id=id_,
                customer_id=facts.customer_id,
                status=LAPSED,
                price_id=facts.price_id,
                period_end=None,  # what is known of it stays
                meant=None,
            )
            effect = await billing.learn(tx, lapsed, now, now)
            done["lapsed"] += 1
    if effect is Effect.UNKNOWN:
        done[TOLD[effect]] += 1
    if effect in TOLD:
        tell(id_, facts.org_id, effect)
