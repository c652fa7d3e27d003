"""The receiver of the payment provider's events (organizations.md section 4.2)."""

from typing import Literal

import structlog
from quart import Blueprint, request
from quart_schema import validate_response

from core.billing import provider_events, provider_events_rules
from core.billing.provider_events_rules import TROUBLE
from entrypoints.http.edge.access import signed_by_billing
from entrypoints.http.edge.bodies import ResponseModel
from entrypoints.http.edge.context import ports
from entrypoints.http.edge.openapi import refuses

routes = Blueprint("billing", __name__)
log = structlog.get_logger("billing")

LONGEST_TYPE = 100


class Received(ResponseModel):
    """The event was received, and need not be sent again."""

    status: Literal["success"]


@routes.post("/webhooks/billing")
@signed_by_billing
@refuses(400, 415)
@validate_response(Received)
async def receive() -> Received:
    """Take an event of the payment provider: an object with id, type, created, livemode and data, signed in billing-signature."""
    event = provider_events_rules.read_event(await request.get_json())
    effect = await provider_events.receive(ports(), event)
    told = log.warning if effect in TROUBLE else log.info
    told("billing_event", type=event.type[:LONGEST_TYPE], event_id=event.id, effect=effect.value)
    return Received(status="success")
