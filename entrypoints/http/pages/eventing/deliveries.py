"""The pages for a webhook's deliveries: the list, a delivery, a test, and a replay."""

import json
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import trio
from pydantic import Field
from quart import Blueprint, Response

from core.eventing import webhooks
from core.eventing.model.webhooks import COUNTED_TO_RESEND, PING, RESEND_LIMIT, SUBSCRIBABLE, Delivery, WebhookInactive
from core.kernel.roles import Capability
from core.maintenance.model.housekeeping import DELIVERIES_KEPT
from entrypoints.http import kit
from entrypoints.http.api.eventing.webhooks import DeliveriesQuery
from entrypoints.http.pages import console, console_forms
from entrypoints.http.pages.eventing.webhooks import API_OF_ONE, ONE, webhooks_path

routes = Blueprint("delivery_pages", __name__)

LIST: Final = f"{ONE}/deliveries"
API: Final = f"{API_OF_ONE}/deliveries"
TYPES: Final = [("", "All events"), *sorted((kind.name, kind.label) for kind in SUBSCRIBABLE.values()), (PING, "Test")]
LABELS: Final = {kind.name: kind.label for kind in SUBSCRIBABLE.values()} | {PING: "Test"}
RESULTS: Final = [("", "All states"), ("true", "Delivered"), ("false", "Not delivered")]
# What a receiver's operator looks at first, by the last response's status.
CAUSES: Final = {
    400: "The receiver does not accept the body.",
    401: "Check that the receiver verifies the signature with the present secret.",
    403: "Check that the receiver allows requests from this service.",
    404: "Check the URL of the webhook.",
    405: "The receiver must accept POST.",
    413: "The receiver accepts only smaller bodies.",
    429: "The receiver limits the number of requests.",
}


# How far back "Resend all failed" looks. None: as far as deliveries are kept.
PERIODS: Final[dict[str, tuple[str, timedelta | None]]] = {
    "all": (f"of the last {DELIVERIES_KEPT.days} days", None),
    "week": ("of the last 7 days", timedelta(days=7)),
    "day": ("of the last 24 hours", timedelta(days=1)),
    "hour": ("of the last hour", timedelta(hours=1)),
}
# How long a test's page waits for its outcome, and how old the test may be.
LONGEST_WAIT: Final = 4.0
POLL_PAUSE: Final = 0.2
NEW: Final = timedelta(seconds=30)


class DeliveryQuery(kit.Query):
    """Whether the delivery is a test that was just sent."""

    tested: kit.Flag | None = Field(None, description="Whether the page waits some seconds for the outcome.")


def explain_failure(delivery: Delivery) -> str | None:
    """Return what to check after the last attempt, or None."""
    status = delivery.response_status_code
    if status is None or delivery.delivered:
        return None
    if 300 <= status < 400:
        return "Redirects are not followed. Enter the final URL."
    return CAUSES.get(status, "The receiver failed. Look at its log." if status >= 500 else None)


async def _list_values(typed: console_forms.Form, webhook_id: UUID, query_args: DeliveriesQuery | None = None) -> dict[str, Any]:
    webhook, query = await webhooks.find(kit.ports(), kit.acting_member(), webhook_id), query_args or DeliveriesQuery()
    result = await webhooks.list_deliveries(
        kit.ports(), kit.acting_member(), webhook.id, query.page_request(), event_type=query.event_type, delivered=query.delivered
    )
    return {
        "webhook": webhook,
        "path": f"{webhooks_path()}/{webhook.id}",
        "list_path": webhooks_path(),
        "typed": typed,
        "deliveries": result.items,
        "failed": await webhooks.count_failed(kit.ports(), kit.acting_member(), webhook.id),
        "most_counted": COUNTED_TO_RESEND,
        "resend_limit": RESEND_LIMIT,
        "periods": [(name, text) for name, (text, _) in PERIODS.items()],
        "chosen": {"event_type": query.event_type or "", "delivered": "" if query.delivered is None else str(query.delivered).lower()},
        "types": TYPES,
        "results": RESULTS,
        "labels": LABELS,
        **console.neighbors(query, result.total),
    }


async def _delivery_values(_: console_forms.Form, webhook_id: UUID, delivery_id: UUID) -> dict[str, Any]:
    delivery = await webhooks.find_delivery(kit.ports(), kit.acting_member(), webhook_id, delivery_id)
    return {
        "delivery": delivery,
        "labels": LABELS,
        "path": f"{webhooks_path()}/{delivery.webhook_id}/deliveries",
        "cause": explain_failure(delivery),
        "is_test": delivery.event_type == PING,
        "payload": json.dumps(dict(delivery.payload), indent=2, ensure_ascii=False),
        "most_attempts": len(kit.ports().policy.webhook_retry_delays),
    }


@routes.get(f"{LIST}/<delivery_id>")
@kit.member_page(Capability.WEBHOOKS_MANAGE)
@console.shows(f"GET {API}/<delivery_id>", f"POST {API}/<delivery_id>/replay")
async def show_delivery(org_slug: str, webhook_id: UUID, delivery_id: UUID, query_args: DeliveryQuery) -> Response:
    """Show a delivery, with its body and the last response. A new test's page waits some seconds for its outcome."""
    if query_args.tested:
        await _wait_for_attempt(webhook_id, delivery_id)
    return await console.console_page("eventing/delivery.html", **await _delivery_values({}, webhook_id, delivery_id))


async def _wait_for_attempt(webhook_id: UUID, delivery_id: UUID) -> None:
    """Wait until a new delivery's first attempt has ended, at most LONGEST_WAIT seconds."""
    deadline = trio.current_time() + LONGEST_WAIT
    while trio.current_time() < deadline:
        delivery = await webhooks.find_delivery(kit.ports(), kit.acting_member(), webhook_id, delivery_id)
        if delivery.attempt_count or delivery.created_at + NEW < kit.ports().clock.now():
            return
        await trio.sleep(POLL_PAUSE)


@routes.post(f"{LIST}/<delivery_id>/replay")
@kit.member_page(Capability.WEBHOOKS_MANAGE, kit.SHOWS)
@console_forms.accepts(f"POST {API}/<delivery_id>/replay")
@console_forms.once(LIST, "Open deliveries", "The delivery is in the list. To send it again, open it there.")
@console_forms.on_refusal("eventing/delivery.html", _delivery_values, refusals=(WebhookInactive,))
async def replay(org_slug: str, webhook_id: UUID, delivery_id: UUID, form: console_forms.Form) -> Response:
    """Send a delivery's body again."""
    await webhooks.replay(console_forms.ports_once(), kit.acting_member(), webhook_id, delivery_id)
    return console.redirect_with_notice("delivery-replayed", f"{webhooks_path()}/{webhook_id}/deliveries")


@routes.post(f"{ONE}/test")
@kit.member_page(Capability.WEBHOOKS_MANAGE, kit.SHOWS)
@console_forms.accepts(f"POST {API_OF_ONE}/test", page=f"{ONE}/deliveries")
@console_forms.once(LIST, "Open deliveries", "The test is in the list. To send another one, use the button there.")
@console_forms.on_refusal("eventing/deliveries.html", _list_values, refusals=(WebhookInactive,))
async def send_test(org_slug: str, webhook_id: UUID, form: console_forms.Form) -> Response:
    """Send a test delivery."""
    delivery = await webhooks.send_ping(console_forms.ports_once(), kit.acting_member(), webhook_id)
    return kit.redirect(f"{webhooks_path()}/{webhook_id}/deliveries/{delivery.id}?tested=true")


@console_forms.serves_form(routes, LIST, f"GET {API}", f"POST {API_OF_ONE}/test", f"POST {API}/resend-failed", query=DeliveriesQuery)
@kit.member_page(Capability.WEBHOOKS_MANAGE, kit.SHOWS)
@console_forms.accepts(f"POST {API}/resend-failed")
@console_forms.once(LIST, "Open deliveries", "The deliveries are in the list. To send other failed ones again, use the button there.")
@console_forms.on_refusal("eventing/deliveries.html", _list_values, refusals=(WebhookInactive,))
async def resend_failed(org_slug: str, webhook_id: UUID, form: console_forms.Form) -> Response:
    """Send all failed deliveries to a webhook again.

    The form is sent to its page's own address. A path below it would be a delivery's address.
    """
    _, age = PERIODS.get(form.get("period", ""), PERIODS["all"])
    since = None if age is None else kit.ports().clock.now() - age
    resent = await webhooks.resend_failed(console_forms.ports_once(), kit.acting_member(), webhook_id, since)
    notice = "deliveries-resent-in-part" if resent.remaining else "deliveries-resent"
    return console.redirect_with_notice(notice, f"{webhooks_path()}/{webhook_id}/deliveries", count=resent.queued)
