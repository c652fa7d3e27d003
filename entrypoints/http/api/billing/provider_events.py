"""Receiver of the payment provider's events."""

from typing import Literal

import structlog
from pydantic import Field
from quart import Blueprint, request

from core.billing import provider_events, provider_events_rules
from core.billing.provider_events_rules import NEEDS_ATTENTION
from entrypoints.http.edge.access import signed_by_billing
from entrypoints.http.edge.bodies import ResponseModel
from entrypoints.http.edge.context import ports
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.responses import returns

routes = Blueprint("billing", __name__)
log = structlog.get_logger("billing")

MAX_LOGGED_TYPE = 100  # characters


class EventReceivedResponse(ResponseModel):
    """The confirmation that an event was received."""

    status: Literal["success"] = Field(description="Always `success`. The event need not be sent again.")


@routes.post("/webhooks/billing")
@signed_by_billing
@refuses(400, 415)
@returns(EventReceivedResponse)
async def receive() -> EventReceivedResponse:
    """Receive an event of the payment provider.

    The body is a JSON object with id, type, created, livemode and data, as Stripe sends it. The
    `billing-signature` header contains its time and HMAC-SHA-256 signature (`t=...,v1=...`).
    Repeated events have no effect.
    """
    event = provider_events_rules.read_event(await request.get_json())
    effect = await provider_events.receive(ports(), event)
    write = log.warning if effect in NEEDS_ATTENTION else log.info
    write("billing_event", type=event.type[:MAX_LOGGED_TYPE], event_id=event.id, effect=effect.value)
    return EventReceivedResponse(status="success")
