"""The pages of a webhook's deliveries: the list, a delivery, a test, and a replay."""

import json
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.eventing import webhooks
from core.eventing.model.webhooks import SUBSCRIBABLE, Delivery, WebhookInactive
from core.kernel.roles import Capability
from entrypoints.http.api.eventing.webhooks import DeliveriesQuery
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import member_page
from entrypoints.http.pages.console import console_page, neighbors, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Form, accepts, on_refusal, once, ports_once
from entrypoints.http.pages.eventing.webhooks import API_OF_ONE, ONE, webhooks_path

routes = Blueprint("delivery_pages", __name__)

LIST: Final = f"{ONE}/deliveries"
API: Final = f"{API_OF_ONE}/deliveries"
TYPES: Final = [("", "All events"), *sorted((kind.name, kind.label) for kind in SUBSCRIBABLE.values()), ("webhook.ping", "Test")]
LABELS: Final = {kind.name: kind.label for kind in SUBSCRIBABLE.values()} | {"webhook.ping": "Test"}
RESULTS: Final = [("", "All states"), ("true", "Delivered"), ("false", "Not delivered")]
# What a receiver's operator looks at first, by the status of the last response.
CAUSES: Final = {
    400: "The receiver does not accept the body.",
    401: "Check that the receiver verifies the signature with the present secret.",
    403: "Check that the receiver allows requests from this service.",
    404: "Check the URL of the webhook.",
    405: "The receiver must accept POST.",
    413: "The receiver accepts only smaller bodies.",
    429: "The receiver limits the number of requests.",
}


def explain_failure(delivery: Delivery) -> str | None:
    """Return what to check after the last attempt, or None."""
    status = delivery.response_status_code
    if status is None or delivery.delivered:
        return None
    if 300 <= status < 400:
        return "Redirects are not followed. Enter the final URL."
    return CAUSES.get(status, "The receiver failed. Look at its log." if status >= 500 else None)


@routes.get(LIST)
@member_page(Capability.WEBHOOKS_MANAGE)
@shows(f"GET {API}", f"POST {API_OF_ONE}/test")
async def show_deliveries(org_slug: str, webhook_id: UUID, query_args: DeliveriesQuery) -> Response:
    """List the deliveries of a webhook."""
    return await console_page("eventing/deliveries.html", **await _list_values({}, webhook_id, query_args))


async def _list_values(_: Form, webhook_id: UUID, query: DeliveriesQuery | None = None) -> dict[str, Any]:
    webhook, query = await webhooks.find(ports(), acting_member(), webhook_id), query or DeliveriesQuery()
    result = await webhooks.list_deliveries(
        ports(), acting_member(), webhook.id, query.page_request(), event_type=query.event_type, delivered=query.delivered
    )
    return {
        "webhook": webhook,
        "path": f"{webhooks_path()}/{webhook.id}",
        "list_path": webhooks_path(),
        "deliveries": result.items,
        "chosen": {"event_type": query.event_type or "", "delivered": "" if query.delivered is None else str(query.delivered).lower()},
        "types": TYPES,
        "results": RESULTS,
        "labels": LABELS,
        **neighbors(query, result.total),
    }


async def _delivery_values(_: Form, webhook_id: UUID, delivery_id: UUID) -> dict[str, Any]:
    delivery = await webhooks.find_delivery(ports(), acting_member(), webhook_id, delivery_id)
    return {
        "delivery": delivery,
        "labels": LABELS,
        "path": f"{webhooks_path()}/{delivery.webhook_id}/deliveries",
        "cause": explain_failure(delivery),
        "payload": json.dumps(dict(delivery.payload), indent=2, ensure_ascii=False),
        "most_attempts": len(ports().policy.webhook_retry_delays),
    }


@routes.get(f"{LIST}/<delivery_id>")
@member_page(Capability.WEBHOOKS_MANAGE)
@shows(f"GET {API}/<delivery_id>", f"POST {API}/<delivery_id>/replay")
async def show_delivery(org_slug: str, webhook_id: UUID, delivery_id: UUID) -> Response:
    """Show a delivery, with its body and the last response."""
    return await console_page("eventing/delivery.html", **await _delivery_values({}, webhook_id, delivery_id))


@routes.post(f"{LIST}/<delivery_id>/replay")
@member_page(Capability.WEBHOOKS_MANAGE, outlives=False)
@accepts(f"POST {API}/<delivery_id>/replay")
@once(LIST, "Open deliveries", "The delivery is in the list. To send it again, open it there.")
@on_refusal("eventing/delivery.html", _delivery_values, refusals=(WebhookInactive,))
async def replay(org_slug: str, webhook_id: UUID, delivery_id: UUID, form: Form) -> Response:
    """Send the body of a delivery again."""
    await webhooks.replay(ports_once(), acting_member(), webhook_id, delivery_id)
    return redirect_with_notice("delivery-replayed", f"{webhooks_path()}/{webhook_id}/deliveries")


@routes.post(f"{ONE}/test")
@member_page(Capability.WEBHOOKS_MANAGE, outlives=False)
@accepts(f"POST {API_OF_ONE}/test")
@once(LIST, "Open deliveries", "The test is in the list. To send another one, use the button there.")
@on_refusal("eventing/deliveries.html", _list_values, refusals=(WebhookInactive,))
async def send_test(org_slug: str, webhook_id: UUID, form: Form) -> Response:
    """Send a test delivery."""
    await webhooks.send_ping(ports_once(), acting_member(), webhook_id)
    return redirect_with_notice("delivery-tested", f"{webhooks_path()}/{webhook_id}/deliveries")
