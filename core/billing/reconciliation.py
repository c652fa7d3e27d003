"""Repairing what events that never came have left behind: the payment provider is asked how things are (decisions, points 165 and 169).

Each subscription of ours is asked about once a day, and when its period is over and nothing was heard; each checkout, until something came
of it or it is too old. What the provider says is learnt as if an event had told it (core.billing).
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from core.applications import cancellations
from core.billing import provider_events
from core.billing.payments import EVERY, LAPSED_STATUS, SOON, UNHEARD, ProviderSubscription, ProviderSnapshot
from core.billing.provider_events_rules import Effect
from core.kernel.errors import PaymentsFailed
from core.kernel.principals import SYSTEM
from core.maintenance.housekeeping_rules import FAILED, BACKED_OFF

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from ports import Ports
from core.billing.reconciliation_rules import ASKED_AGAIN, AWAY, CHECKOUTS_ASKED_FOR, LEASE, NAME, PUT_BACK, TOLD, Tell


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
            done[BACKED_OFF] += 1
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
    elif await _learn(ports, seen, done, tell) is Effect.MISMATCH:
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


async def _learn(ports: Ports, seen: ProviderSnapshot, done: Counter[str], tell: Tell) -> Effect:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        # What an event says of the same second may be of a later moment of it, as it is of news of a creation.
        effect = await provider_events.apply_provider_state(tx, seen.subscription, seen.at, ports.clock.now(), at_creation=True)
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
            await tx.billing.save_facts(facts, now, check_at=None)
            return
        if end is None or end + patience > now:
            await tx.billing.save_facts(facts, now, check_at=now + EVERY)
            ours = await tx.billing.subscription(id_)
            effect = Effect.UNKNOWN if ports.payments.is_on and ours is not None and ours.status.is_live else Effect.UNCHANGED
        else:
            lapsed = ProviderSubscription(
                id=id_,
                customer_id=facts.customer_id,
                status=LAPSED_STATUS,
                price_id=facts.price_id,
                period_end=None,  # what is known of it stays
                meant=None,
            )
            effect = await provider_events.apply_provider_state(tx, lapsed, now, now)
            done["lapsed"] += 1
    if effect is Effect.UNKNOWN:
        done[TOLD[effect]] += 1
    if effect in TOLD:
        tell(id_, facts.org_id, effect)
