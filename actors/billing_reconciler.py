"""The job that asks the payment provider about subscriptions in doubt. The actor logs repairs and problems for the operator."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import structlog

from actors.sweeper import SweepJob
from core.billing import reconciliation
from core.billing.model.provider_events import NEEDS_ATTENTION, Effect
from ports import Ports

log = structlog.get_logger("billing")


async def reconcile(ports: Ports, holder: UUID) -> Mapping[str, int] | None:
    """Run a single reconciliation and log every effect that an operator should know."""
    return await reconciliation.reconcile(ports, holder, _log_effect)


JOB: Final = SweepJob("billing_reconciliation", reconcile, period=60.0, next_due=reconciliation.next_due)


def _log_effect(subscription: str, org_id: UUID | None, effect: Effect) -> None:
    write = log.warning if effect in NEEDS_ATTENTION else log.info
    write("billing_checked", subscription=subscription, org_id=org_id and str(org_id), effect=effect.value)
