"""Asking the payment provider, with a line in the log for each subscription that was repaired, that somebody has to look after, or that it
failed at."""

from collections.abc import Mapping
from uuid import UUID

import structlog

from core.billing import reconciliation
from core.billing.provider_events_rules import TROUBLE, Effect
from ports import Ports

log = structlog.get_logger("billing")


async def reconcile(ports: Ports, holder: UUID) -> Mapping[str, int] | None:
    """`core.reconciliation.reconcile`, with a line for each that it tells of."""
    return await reconciliation.reconcile(ports, holder, _tell)


def _tell(subscription: str, org_id: UUID | None, effect: Effect) -> None:
    told = log.warning if effect in TROUBLE else log.info
    told("billing_learnt", subscription=subscription, org_id=org_id and str(org_id), effect=effect.value)
