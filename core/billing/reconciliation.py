"""Reconciliation: asks the payment provider about subscriptions and checkouts in case events were lost.

Our subscriptions are checked once a day, and when their period is over without an event. A checkout is checked until it
has a result or is too old. The provider's answer is applied like an event (core.billing.provider_state).
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from core.applications import cancellations
from core.billing.model import provider_events, provider_facts, provider_objects
from core.billing.provider_state import apply_provider_state
from core.kernel.causes import SYSTEM
from core.kernel.errors import PaymentsFailed
from core.maintenance.model import housekeeping
from ports import Ports


async def reconcile(ports: Ports, holder: UUID, report: provider_events.Report = lambda *_: None) -> Mapping[str, int] | None:
    """Ask the provider about everything that is due. Return the counts by kind and effect, or None if another process holds the lease.

    If no provider is configured and only its events are received, subscriptions that were not
    renewed end after their period.

    A failed check is retried in the next round, after all checks that were due before; a failed cancellation after some
    minutes. After MAX_CONSECUTIVE_FAILURES of the same kind, the provider is treated as down: the rest of that kind
    waits for the next round, which may be delayed. A single failure delays nothing.
    """
    counts = Counter[str]()
    for step in (_cancel, _check_checkouts, _check_subscription) if ports.payments.is_on else (_check_subscription,):
        is_due, failures = True, 0
        while is_due and failures < provider_events.MAX_CONSECUTIVE_FAILURES:
            now = ports.clock.now()
            async with ports.storage.transaction(by=SYSTEM) as tx:
                if not await tx.leases.take(provider_events.LEASE_NAME, holder, now, now + provider_events.LEASE):
                    return counts or None
            try:
                is_due = await step(ports, counts, report)
                failures = 0
            except PaymentsFailed:
                counts[housekeeping.FAILED] += 1
                failures += 1
        # Failing cancellations do not count as an outage: the provider may refuse them forever, and
        # still answer everything else.
        if failures >= provider_events.MAX_CONSECUTIVE_FAILURES and step is not _cancel:
            counts[housekeeping.BACKED_OFF] += 1
    return counts


async def next_due(ports: Ports) -> datetime | None:
    """Return when `reconcile` has something to do again, or None if nothing is planned."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        times = [await tx.billing.next_check()]
        if ports.payments.is_on:
            times += [await tx.checkouts.next_check(), await tx.cancellations.next_due()]
    return min((at for at in times if at is not None), default=None)


# Every check is claimed alone, right before the request, and rescheduled if the request fails.
# Checks therefore stay due while the provider is down, and a check that crashes this process is not
# repeated at once.


async def _cancel(ports: Ports, counts: Counter[str], _: provider_events.Report) -> bool:
    is_due = await cancellations.cancel_next(ports)
    if is_due:
        counts["cancelled"] += 1
    return is_due


async def _check_subscription(ports: Ports, counts: Counter[str], report: provider_events.Report) -> bool:
    now = ports.clock.now()
    until = now + provider_events.RECHECK_INTERVAL
    async with ports.storage.transaction(by=SYSTEM) as tx:
        due = await tx.billing.claim_check(now, until)
    if due is None:
        return False
    counts["subscriptions"] += 1
    try:
        snapshot = await ports.payments.subscription(due) if ports.payments.is_on else None
    except PaymentsFailed:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.billing.reschedule_check(due, until, ports.clock.now() + provider_events.RETRY_INTERVAL)
        report(due, None, provider_events.Effect.FAILED)
        raise
    if snapshot is None:
        await _apply_unknown(ports, due, counts, report)
    elif await _apply_snapshot(ports, snapshot, counts, report) is provider_events.Effect.MISMATCH:
        async with ports.storage.transaction(by=SYSTEM) as tx:  # reported once a day until an operator resolves it
            await tx.billing.reschedule_check(due, until, now + provider_facts.CHECK_INTERVAL)
    return True


async def _check_checkouts(ports: Ports, counts: Counter[str], report: provider_events.Report) -> bool:
    """Check a customer's open checkouts, all with one request. Return whether any were due."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        due = await tx.checkouts.claim(
            now, now + provider_events.RECHECK_INTERVAL, now - provider_events.CHECKOUT_CHECK_PERIOD, now - provider_facts.SOON
        )
    if due is None:
        return False
    if due.customer_id is not None:
        counts["checkouts"] += len(due.ids)
        try:
            snapshots = await ports.payments.subscriptions_of(due.customer_id, due.since)
        except PaymentsFailed:
            async with ports.storage.transaction(by=SYSTEM) as tx:
                await tx.checkouts.reschedule(
                    due.ids, ports.clock.now() + provider_events.RETRY_INTERVAL, now - provider_events.CHECKOUT_CHECK_PERIOD
                )
            raise
        for snapshot in reversed(snapshots):  # oldest first, because a newer subscription waits until the older subscription has ended
            # The customer's other subscriptions are checked and reported once a day, even if this
            # check runs more often.
            async with ports.storage.transaction(by=SYSTEM) as tx:
                is_checked_separately = await tx.billing.is_checked_separately(
                    snapshot.subscription.id, now - provider_facts.CHECK_INTERVAL
                )
            if not is_checked_separately:
                await _apply_snapshot(ports, snapshot, counts, report)
    return True


async def _apply_snapshot(
    ports: Ports, snapshot: provider_objects.ProviderSnapshot, counts: Counter[str], report: provider_events.Report
) -> provider_events.Effect:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        # Treat the snapshot like a creation event, which precedes all other events in the same
        # second. The other events may be about a later moment, and must win.
        now = ports.clock.now()
        locked = await tx.billing.lock_subscription(snapshot.subscription.id, now)
        effect = await apply_provider_state(tx, locked, snapshot.subscription, snapshot.at, now, at_creation=True)
    if effect in provider_events.REPORTED_EFFECTS:
        counts[provider_events.REPORTED_EFFECTS[effect]] += 1
        metadata = snapshot.subscription.metadata
        report(snapshot.subscription.id, None if metadata is None else metadata.org_id, effect)
    return effect


async def _apply_unknown(ports: Ports, id_: str, counts: Counter[str], report: provider_events.Report) -> None:
    """Handle a subscription that the provider does not know, or that we cannot ask about.

    The subscription stays live until its period is over: with an API key for another account or mode, the provider
    knows none of our subscriptions. Until the period is over, every check reports the subscription.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        locked = await tx.billing.lock_subscription(id_, now)
        facts, subscription = locked.facts, locked.subscription
        wait = timedelta(0) if ports.payments.is_on else provider_facts.LATE_EVENTS
        end = None if facts.derived_state is None else facts.derived_state.period_end
        if facts.org_id is None:
            await tx.billing.save_facts(facts, now, check_at=None)
            return
        if end is None or end + wait > now:
            await tx.billing.save_facts(facts, now, check_at=now + provider_facts.CHECK_INTERVAL)
            is_live = subscription is not None and subscription.status.is_live
            effect = provider_events.Effect.UNKNOWN if ports.payments.is_on and is_live else provider_events.Effect.UNCHANGED
        else:
            lapsed = provider_objects.ProviderSubscription(
                id=id_,
                customer_id=facts.customer_id,
                status=provider_objects.LAPSED_STATUS,
                price_id=facts.price_id,
                period_end=None,  # keeps the known period
                metadata=None,
            )
            effect = await apply_provider_state(tx, locked, lapsed, now, now)
            counts["lapsed"] += 1
    if effect is provider_events.Effect.UNKNOWN:
        counts[provider_events.REPORTED_EFFECTS[effect]] += 1
    if effect in provider_events.REPORTED_EFFECTS:
        report(id_, facts.org_id, effect)
