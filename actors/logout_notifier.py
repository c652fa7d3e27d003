"""The actor that notifies applications about ended sessions (OpenID Connect Back-Channel Logout 1.0)."""

from typing import Final, NoReturn

import structlog

from actors import dispatching
from actors.mailbox import Mailbox
from core.eventing import deliveries
from core.eventing.model import webhooks
from ports import Ports

log = structlog.get_logger("logout_notifier")

SLOTS: Final = 50  # notices in flight


async def logout_notifier(ports: Ports, inbox: Mailbox, *, slots: int = SLOTS) -> NoReturn:
    """Send notices forever. A message in `inbox` says that notices may be due or attempts have ended."""
    await dispatching.dispatch(QUEUE, ports, inbox, slots)


async def _finish(ports: Ports, outcome: webhooks.DeliveryOutcome[webhooks.ClaimedLogoutNotice]) -> None:
    if outcome.delivered:
        ports.metrics.logout_notified((outcome.at - outcome.delivery.created_at).total_seconds())
        log.info("logout_notice_delivered", attempt=outcome.delivery.attempts + 1, status=outcome.status)
    else:
        dispatching.log_failure(outcome)


QUEUE: Final = dispatching.DeliveryQueue(
    job="logout_notice",
    record_and_claim=deliveries.record_and_claim_notices,
    record_outcomes=deliveries.record_notice_outcomes,
    attempt=deliveries.attempt_notice,
    describe=lambda notice: {"service": str(notice.service_id)},
    finish=_finish,
)
