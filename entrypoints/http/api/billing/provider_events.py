"""Receives the payment provider's events."""

from typing import Final, Literal

import structlog
from pydantic import Field
from quart import Blueprint, request

from core.billing import provider_events
from core.billing.model import provider_events as provider_events_model
from core.billing.model.provider_events import NEEDS_ATTENTION
from entrypoints.http import kit
from entrypoints.http.edge.access import signed_by_billing

routes = Blueprint("billing", __name__)
log = structlog.get_logger("billing")

MAX_LOGGED_TYPE = 100  # characters


EVENT: Final = {
    "type": "object",
    "title": "BillingEventRequest",
    "description": "An event of the payment provider.",
    "required": ["id", "type", "created", "data"],
    "properties": {
        "id": {"type": "string", "description": "The id of the event. A repeated event has no effect.", "examples": ["evt_1"]},
        "type": {"type": "string", "description": "The type. Unknown types have no effect.", "examples": ["customer.subscription.updated"]},
        "created": {"type": "integer", "description": "The time of the event, in seconds since 1970.", "examples": [1767225600]},
        "livemode": {"type": "boolean", "description": "Whether the event is about real money. Events of the other mode have no effect."},
        "data": {
            "type": "object",
            "description": "The data of the event.",
            "required": ["object"],
            "properties": {"object": {"type": "object", "description": "The changed object, such as a subscription, as it was then."}},
        },
    },
}


class EventReceivedResponse(kit.ResponseModel):
    """The confirmation that an event was received."""

    status: Literal["success"] = Field(description="Always `success`. The event need not be sent again.")


@routes.post("/webhooks/billing")
@signed_by_billing
@kit.refuses(400)
@kit.describes({}, request_schema=EVENT)
async def receive() -> EventReceivedResponse:
    """Receive an event from the payment provider.

    The body is an event as Stripe sends it. The `billing-signature` header contains its time and
    HMAC-SHA-256 signature (`t=...,v1=...`). Repeated events have no effect.
    """
    event = provider_events_model.read_event(await request.get_json())
    effect = await provider_events.receive(kit.ports(), event)
    write = log.warning if effect in NEEDS_ATTENTION else log.info
    write("billing_event", type=event.type[:MAX_LOGGED_TYPE], event_id=event.id, effect=effect.value)
    return EventReceivedResponse(status="success")
