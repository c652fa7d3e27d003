"""The actors that deliver from a queue: webhook deliveries, and logout notices (OpenID Connect Back-Channel Logout 1.0).

Their loop claims due deliveries, sends them, and stores the outcomes, also while the process stops.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, NoReturn, TypeVar
from uuid import UUID

import structlog
import trio

from actors import mailbox
from actors.supervisor import describe_error
from core.eventing import deliveries
from core.eventing.model import webhooks
from core.kernel import shares
from core.kernel.errors import Outage
from ports import Ports

T = TypeVar("T", bound=webhooks.LeasedDelivery)
log = structlog.get_logger("dispatcher")

POLL: Final = 30.0  # seconds
OUTAGE_PAUSE: Final = 5.0  # seconds
GATHERING: Final = 0.005  # seconds to wait for more outcomes before the next batch, while attempts are in flight
GRACE: Final = 5.0  # seconds to finish attempts that are running when the process is stopped


@dataclass(frozen=True, slots=True)
class DeliveryQueue(Generic[T]):
    """A queue with deliveries, and how they are sent."""

    job: str  # the name in metrics and logs
    record_and_claim: Callable[
        [Ports, Sequence[webhooks.DeliveryOutcome[T]], webhooks.DispatchCapacity], Awaitable[webhooks.DeliveryBatch[T]]
    ]
    record_outcomes: Callable[[Ports, Sequence[webhooks.DeliveryOutcome[T]]], Awaitable[None]]
    attempt: Callable[[Ports, T, float], Awaitable[webhooks.DeliveryOutcome[T]]]
    describe: Callable[[T], Mapping[str, str]]  # for logs
    finish: Callable[[Ports, webhooks.DeliveryOutcome[T]], Awaitable[None]]  # reports the outcome


async def dispatch(queue: DeliveryQueue[T], ports: Ports, inbox: mailbox.Mailbox, slots: int) -> NoReturn:
    """Deliver forever. A message in `inbox` says that deliveries may be due or attempts have ended."""
    state = _DispatchState(queue, ports, inbox)
    async with trio.open_nursery() as attempts:
        try:
            while True:
                pause = await _run_batch(ports, state, attempts, slots)
                if state.in_flight:
                    await trio.sleep(GATHERING)
                if pause:
                    await inbox.wait(at_most=pause)
        finally:
            state.is_closing = True
            with trio.move_on_after(GRACE, shield=True):
                await state.store_outcomes()


class _DispatchState(Generic[T]):
    """The deliveries in flight, and the outcomes that are not stored yet.

    All outcomes that arrive during a batch are stored by the next batch, in a single statement. So a delivery costs
    fewer round trips when the dispatcher is busy.
    """

    def __init__(self, queue: DeliveryQueue[T], ports: Ports, inbox: mailbox.Mailbox) -> None:
        self.queue = queue
        self._ports = ports
        self._inbox = inbox
        self.in_flight: dict[UUID, T] = {}
        self.outcomes: list[webhooks.DeliveryOutcome[T]] = []
        self.is_closing = False  # no more batches will run

    def end(self, outcome: webhooks.DeliveryOutcome[T]) -> None:
        self.outcomes.append(outcome)
        self._inbox.post()

    async def store_outcomes(self) -> None:
        """Store the outcomes, but claim no more deliveries. After an outage the leases expire, and the deliveries are sent again."""
        outcomes, self.outcomes = self.outcomes, []
        if outcomes:
            try:
                await self.queue.record_outcomes(self._ports, outcomes)
            except Outage as outage:
                log.warning("outcomes_not_recorded", job=self.queue.job, count=len(outcomes), outage=describe_error(outage))


async def _run_batch(ports: Ports, state: _DispatchState[T], attempts: trio.Nursery, slots: int) -> float:
    """Store the outcomes, and start as many due deliveries as there are free slots.

    Return the seconds until the next batch. A message can start it earlier.
    """
    outcomes = list(state.outcomes)
    try:
        capacity = webhooks.DispatchCapacity.remaining(slots, tuple(state.in_flight.values()))
        batch = await state.queue.record_and_claim(ports, outcomes, capacity)
    except Outage as outage:
        # Do not let this reach the supervisor: its restart would cancel the attempts in flight. The
        # outcomes stay in `state` until they are stored. No other process has them, and if they
        # were lost, these deliveries would be sent twice.
        log.warning("deliveries_not_claimed", job=state.queue.job, outcomes=len(outcomes), outage=describe_error(outage))
        return mailbox.jittered(OUTAGE_PAUSE)
    del state.outcomes[: len(outcomes)]
    for delivery in batch.claimed:
        state.in_flight[delivery.id] = delivery
        attempts.start_soon(_attempt, ports, state, delivery)
    if batch.claimed and len(state.in_flight) < slots:
        return 0  # more may be due: a batch is limited, and concurrent processes lock rows only for a moment
    if batch.next_due is None:
        return mailbox.jittered(POLL)
    return min(mailbox.jittered(POLL), max((batch.next_due - ports.clock.now()).total_seconds(), 0) + mailbox.CLOCK_GRAIN)


async def _attempt(ports: Ports, state: _DispatchState[T], delivery: T) -> None:
    started, queue = trio.current_time(), state.queue
    try:
        with (
            structlog.contextvars.bound_contextvars(
                job=queue.job, job_id=str(delivery.id), **queue.describe(delivery), organization=str(delivery.org_id)
            ),
            shares.working_for(shares.of_organization(delivery.org_id)),
        ):
            async with shutdown_grace(GRACE):
                await _deliver(ports, state, delivery)
                if state.is_closing:
                    await state.store_outcomes()
    finally:
        state.in_flight.pop(delivery.id, None)
        ports.metrics.job_done(queue.job, trio.current_time() - started)


async def _deliver(ports: Ports, state: _DispatchState[T], delivery: T) -> None:
    spread = random.random()  # noqa: S311  (spreads load, guards nothing)
    try:
        outcome = await state.queue.attempt(ports, delivery, spread)
    except Exception:
        log.exception("delivery_not_made")
        outcome = webhooks.failed_outcome(ports.policy, delivery, webhooks.DeliveryFailure.NOT_SENT, ports.clock.now(), spread)
    await state.queue.finish(ports, outcome)
    # Remove the delivery before its outcome is added, because the next batch must not count it as
    # in flight.
    state.in_flight.pop(delivery.id, None)
    state.end(outcome)


def log_failure(outcome: webhooks.DeliveryOutcome[Any]) -> None:
    """Log a failed attempt, but never the URL or the content (security L-3)."""
    attempt = outcome.delivery.attempts + 1
    if outcome.next_retry_at is None:
        log.warning("delivery_given_up", attempt=attempt, status=outcome.status, reason=outcome.error)
    else:
        seconds = (outcome.next_retry_at - outcome.at).total_seconds()
        log.info("delivery_attempt_failed", attempt=attempt, status=outcome.status, reason=outcome.error, next_in=round(seconds))


R = TypeVar("R")

LONGEST_PAUSE: Final = 5.0  # seconds


async def retry_until_stored(store: Callable[[], Awaitable[R]], report: Callable[[Outage], object]) -> R:
    """Return the result from `store` once it succeeds, and call `report` for every outage before that.

    Use this for outcomes that only this process has. If such an outcome is lost, the same work is done twice.
    """
    pause = 0.1
    while True:
        try:
            return await store()
        except Outage as outage:
            report(outage)
        await trio.sleep(mailbox.jittered(pause))
        pause = min(pause * 2, LONGEST_PAUSE)


@asynccontextmanager
async def shutdown_grace(seconds: float) -> AsyncIterator[None]:
    """Let a block run for up to `seconds` after a cancellation from outside. Without a cancellation, there is no limit.

    Use this for steps that must store their outcome once they have started, such as sending an email.
    """
    async with trio.open_nursery() as nursery:
        with trio.CancelScope(shield=True) as shielded:

            async def watch() -> None:
                try:
                    await trio.sleep_forever()
                finally:  # only a cancellation ends sleep_forever
                    shielded.deadline = trio.current_time() + seconds

            nursery.start_soon(watch)
            yield
        nursery.cancel_scope.cancel()


# Events to webhooks

webhook_log = structlog.get_logger("webhook_dispatcher")

WEBHOOK_SLOTS: Final = 100  # deliveries in flight


async def webhook_dispatcher(ports: Ports, inbox: mailbox.Mailbox, *, slots: int = WEBHOOK_SLOTS) -> NoReturn:
    """Deliver forever. A message in `inbox` says that deliveries may be due or attempts have ended."""
    await dispatch(WEBHOOK_QUEUE, ports, inbox, slots)


async def _finish_delivery(ports: Ports, outcome: webhooks.DeliveryOutcome[webhooks.ClaimedDelivery]) -> None:
    """Report the outcome. Deactivate the webhook if it is gone."""
    if outcome.delivered:
        ports.metrics.webhook_delivered((outcome.at - outcome.delivery.created_at).total_seconds())
        webhook_log.info("webhook_delivered", attempt=outcome.delivery.attempts + 1, status=outcome.status)
    else:
        log_failure(outcome)
    if outcome.status == webhooks.GONE:
        await _deactivate_webhook(ports, outcome.delivery)


async def _deactivate_webhook(ports: Ports, delivery: webhooks.ClaimedDelivery) -> None:
    try:
        await deliveries.deactivate_webhook(ports, delivery)
    except Outage as outage:
        webhook_log.warning("webhook_not_turned_off", outage=describe_error(outage))  # the next attempt gets the same response
    else:
        webhook_log.info("webhook_turned_off")


WEBHOOK_QUEUE: Final = DeliveryQueue(
    job="webhook_delivery",
    record_and_claim=deliveries.record_and_claim,
    record_outcomes=deliveries.record_outcomes,
    attempt=deliveries.attempt,
    describe=lambda delivery: {"webhook": str(delivery.webhook_id)},
    finish=_finish_delivery,
)

# Notices about ended sessions, to applications

notice_log = structlog.get_logger("logout_notifier")

NOTICE_SLOTS: Final = 50  # notices in flight


async def logout_notifier(ports: Ports, inbox: mailbox.Mailbox, *, slots: int = NOTICE_SLOTS) -> NoReturn:
    """Send notices forever. A message in `inbox` says that notices may be due or attempts have ended."""
    await dispatch(NOTICE_QUEUE, ports, inbox, slots)


async def _finish_notice(ports: Ports, outcome: webhooks.DeliveryOutcome[webhooks.ClaimedLogoutNotice]) -> None:
    if outcome.delivered:
        ports.metrics.logout_notified((outcome.at - outcome.delivery.created_at).total_seconds())
        notice_log.info("logout_notice_delivered", attempt=outcome.delivery.attempts + 1, status=outcome.status)
    else:
        log_failure(outcome)


NOTICE_QUEUE: Final = DeliveryQueue(
    job="logout_notice",
    record_and_claim=deliveries.record_and_claim_notices,
    record_outcomes=deliveries.record_notice_outcomes,
    attempt=deliveries.attempt_notice,
    describe=lambda notice: {"service": str(notice.service_id)},
    finish=_finish_notice,
)
