"""The actor that delivers events to webhooks."""

from typing import Final, NoReturn

import structlog

from actors import dispatching
from actors.mailbox import Mailbox
from actors.supervisor import describe_error
from core.eventing import deliveries
from core.eventing.model import webhooks
from core.kernel.errors import Outage
from ports import Ports

log = structlog.get_logger("webhook_dispatcher")

SLOTS: Final = 100  # deliveries in flight


async def webhook_dispatcher(ports: Ports, inbox: Mailbox, *, slots: int = SLOTS) -> NoReturn:
    """Deliver forever. A message in `inbox` says that deliveries may be due or attempts have ended."""
    await dispatching.dispatch(QUEUE, ports, inbox, slots)


async def _finish(ports: Ports, outcome: webhooks.DeliveryOutcome[webhooks.ClaimedDelivery]) -> None:
    """Report the outcome. Deactivate the webhook if it is gone."""
    if outcome.delivered:
        ports.metrics.webhook_delivered((outcome.at - outcome.delivery.created_at).total_seconds())
        log.info("webhook_delivered", attempt=outcome.delivery.attempts + 1, status=outcome.status)
    else:
        dispatching.log_failure(outcome)
    if outcome.status == webhooks.GONE:
        await _deactivate_webhook(ports, outcome.delivery)


async def _deactivate_webhook(ports: Ports, delivery: webhooks.ClaimedDelivery) -> None:
    try:
        await deliveries.deactivate_webhook(ports, delivery)
    except Outage as outage:
        log.warning("webhook_not_turned_off", outage=describe_error(outage))  # the next attempt gets the same response
    else:
        log.info("webhook_turned_off")


QUEUE: Final = dispatching.DeliveryQueue(
    job="webhook_delivery",
    record_and_claim=deliveries.record_and_claim,
    record_outcomes=deliveries.record_outcomes,
    attempt=deliveries.attempt,
    describe=lambda delivery: {"webhook": str(delivery.webhook_id)},
    finish=_finish,
)
