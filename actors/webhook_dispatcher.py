"""Delivers what webhooks are to be told: claims what is due, sends it, and records what became of each."""

import random
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from actors.grace import grace
from actors.mailbox import Mailbox, jittered
from actors.supervisor import said
from core.eventing import deliveries, deliveries_rules
from core.eventing.deliveries_rules import GONE, ClaimedDelivery, DeliveryFailure, DeliveryOutcome, DispatchCapacity
from core.kernel.errors import Outage
from ports import Ports

if TYPE_CHECKING:
    from uuid import UUID

log = structlog.get_logger("webhook_dispatcher")

SLOTS: Final = 100  # deliveries under way at once
POLL: Final = 30.0  # seconds
OUTAGE_PAUSE: Final = 5.0  # seconds
GATHERING: Final = 0.005  # seconds in which more may end, while something is under way, before the next turn
GRACE: Final = 5.0  # seconds that attempts which have begun are given to end when the process is stopped


async def webhook_dispatcher(ports: Ports, inbox: Mailbox, *, slots: int = SLOTS) -> NoReturn:
    """Deliver for ever; `inbox` is posted to when there may be something."""
    desk = _Desk(ports, inbox)
    async with trio.open_nursery() as attempts:
        try:
            while True:
                pause = await _turn(ports, desk, attempts, slots)
                if desk.under_way:
                    await trio.sleep(GATHERING)
                if pause:
                    await inbox.wait(at_most=pause)
        finally:
            desk.is_closing = True
            with trio.move_on_after(GRACE, shield=True):
                await desk.record()


class _Desk:
    """What this process has under way, and what has ended of it and is not recorded yet.

    What ends while a turn is taken is recorded by the next one, all of it in one statement: the busier the dispatcher is, the fewer round
    trips a delivery costs.
    """

    def __init__(self, ports: Ports, inbox: Mailbox) -> None:
        self._ports = ports
        self._inbox = inbox
        self.under_way: dict[UUID, ClaimedDelivery] = {}
        self.ended: list[DeliveryOutcome] = []
        self.is_closing = False  # nobody takes turns any more

    def end(self, outcome: DeliveryOutcome) -> None:
        self.ended.append(outcome)
        self._inbox.post()

    async def record(self) -> None:
        """What has ended, without claiming anything. Where the database is away, the leases end, and it is sent once more."""
        outcomes, self.ended = self.ended, []
        if outcomes:
            try:
                await deliveries.record_outcomes(self._ports, outcomes)
            except Outage as outage:
                log.warning("outcomes_not_recorded", count=len(outcomes), outage=said(outage))


async def _turn(ports: Ports, desk: _Desk, attempts: trio.Nursery, slots: int) -> float:
    """Record what has ended, begin what there is room for; after how many seconds to look again, if nothing happens before."""
    outcomes = list(desk.ended)
    try:
        turn = await deliveries.record_and_claim(ports, outcomes, DispatchCapacity.remaining(slots, tuple(desk.under_way.values())))
    except Outage as outage:
        # Not for the supervisor, whose restart would cut off what is under way. What has ended stays at the desk, however long it takes:
        # nobody else knows of it, and without it everything would be sent twice.
        log.warning("deliveries_not_claimed", outcomes=len(outcomes), outage=said(outage))
        return jittered(OUTAGE_PAUSE)
    del desk.ended[: len(outcomes)]
    for delivery in turn.claimed:
        desk.under_way[delivery.id] = delivery
        attempts.start_soon(_attempt, ports, desk, delivery)
    if turn.claimed and len(desk.under_way) < slots:
        return 0  # there may be more, of which it had enough locked for once, or that another process had locked
    if turn.next_due is None:
        return jittered(POLL)
    # A moment later, so that it is due by then whatever the clocks' grain is.
    return min(jittered(POLL), max((turn.next_due - ports.clock.now()).total_seconds(), 0) + 0.05)


async def _attempt(ports: Ports, desk: _Desk, delivery: ClaimedDelivery) -> None:
    started = trio.current_time()
    try:
        with structlog.contextvars.bound_contextvars(
            job="webhook_delivery", job_id=str(delivery.id), webhook=str(delivery.webhook_id), organization=str(delivery.org_id)
        ):
            async with grace(GRACE):
                await _deliver(ports, desk, delivery)
                if desk.is_closing:
                    await desk.record()
    finally:
        desk.under_way.pop(delivery.id, None)
        ports.metrics.job_done("webhook_delivery", trio.current_time() - started)


async def _deliver(ports: Ports, desk: _Desk, delivery: ClaimedDelivery) -> None:
    spread = random.random()  # noqa: S311  (spreads load, guards nothing)
    try:
        outcome = await deliveries.attempt(ports, delivery, spread)
    except Exception:
        log.exception("delivery_not_made")
        outcome = deliveries_rules.failed_outcome(ports.policy, delivery, DeliveryFailure.NOT_MADE, ports.clock.now(), spread)
    _tell(ports, outcome)
    if outcome.status == GONE:
        await _turn_off(ports, delivery)
    # Before it is at the desk, whose next turn must not count it among those under way.
    desk.under_way.pop(delivery.id, None)
    desk.end(outcome)


async def _turn_off(ports: Ports, delivery: ClaimedDelivery) -> None:
    try:
        await deliveries.deactivate_webhook(ports, delivery)
    except Outage as outage:
        log.warning("webhook_not_turned_off", outage=said(outage))  # the next attempt is answered in the same way
    else:
        log.info("webhook_turned_off")


def _tell(ports: Ports, outcome: DeliveryOutcome) -> None:
    """What became of an attempt, in the log; never where it went, or what it held (security.md L-3)."""
    attempt = outcome.delivery.attempts + 1
    if outcome.delivered:
        ports.metrics.webhook_delivered((outcome.at - outcome.delivery.created_at).total_seconds())
        log.info("webhook_delivered", attempt=attempt, status=outcome.status)
    elif outcome.next_retry_at is None:
        log.warning("delivery_given_up", attempt=attempt, status=outcome.status, reason=outcome.error)
    else:
        seconds = (outcome.next_retry_at - outcome.at).total_seconds()
        log.info("delivery_attempt_failed", attempt=attempt, status=outcome.status, reason=outcome.error, next_in=round(seconds))
