"""An organization's webhooks, and their deliveries."""

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, WithJsonSchema
from quart import Blueprint

from core.eventing import webhooks
from core.eventing.model.webhooks import SUBSCRIBABLE, Delivery, Webhook, WebhookHealth, WebhookState
from core.eventing.webhooks import WebhookChanges
from core.kernel.outbound import LONGEST_URL
from core.kernel.roles import Capability
from core.kernel.values import KEEP
from entrypoints.http import kit

routes = Blueprint("webhooks", __name__)

# Plain strings, because the use case checks event types and URLs, and its errors list the valid
# values.
EventTypes = Annotated[
    list[kit.Text],
    Field(max_length=200),
    WithJsonSchema({"type": "array", "items": {"type": "string", "enum": list(SUBSCRIBABLE)}, "minItems": 1, "maxItems": 200}),
]
Url = Annotated[kit.Text, WithJsonSchema({"type": "string", "format": "uri", "maxLength": LONGEST_URL})]

_NAME: dict[str, Any] = {"description": "The name of the webhook, unique in the organization.", "examples": ["Billing system"]}
_URL: dict[str, Any] = {"description": "The URL that receives the deliveries.", "examples": ["https://example.com/hooks/gatehouse"]}
_EVENTS: dict[str, Any] = {"description": "The event types to send. `GET .../webhooks/event-types` lists all of them."}
_IS_ACTIVE = "Whether events are sent. While this is false, no event is queued and nothing is sent."


class WebhookRequest(kit.RequestModel):
    """A new webhook."""

    name: kit.Name = Field(**_NAME)
    url: Url = Field(**_URL)
    events: EventTypes = Field(**_EVENTS)


class WebhookChangeRequest(kit.RequestModel):
    """A webhook's new values. Fields that are left out stay as they are."""

    model_config = kit.AT_LEAST_ONE_FIELD

    name: kit.Name = kit.optional(**_NAME)
    url: Url = kit.optional(**_URL)
    events: EventTypes = kit.optional(**_EVENTS)
    is_active: bool = kit.optional(description=_IS_ACTIVE)


class WebhookResponse(kit.ResponseModel):
    """A webhook without its secret."""

    id: UUID = Field(description="The id of the webhook.")
    name: str = Field(**_NAME)
    url: str = Field(**_URL)
    events: list[str] = Field(description="The event types that are sent.", examples=[["user.invited", "user.joined"]])
    is_active: bool = Field(description=_IS_ACTIVE)
    created_at: kit.Timestamp = Field(description="The time when the webhook was created.")
    updated_at: kit.Timestamp = Field(description="The time of the last change.")


class WebhookFailureResponse(kit.ResponseModel):
    """The last failed attempt among the recent deliveries."""

    at: kit.Timestamp = Field(description="The end of the attempt.")
    status: int | None = Field(description="The HTTP status of the response, or null without a response.")
    error: str | None = Field(description="The reason of the failure.")


class WebhookHealthResponse(kit.ResponseModel):
    """The outcomes of the webhook's 100 deliveries with the newest attempts."""

    state: WebhookState = Field(
        description="`off`: nothing is sent. `unused`: nothing was attempted. `healthy`: the newest attempt succeeded. "
        "`failing`: it failed. `broken`: no recent delivery succeeded, and all attempts of a delivery failed."
    )
    attempted: int = Field(description="The number of these deliveries.", examples=[100])
    delivered: int = Field(description="The deliveries that the receiver accepted.", examples=[98])
    success_rate: float | None = Field(description="`delivered` divided by `attempted`, or null without an attempt.", examples=[0.98])
    last_failure: WebhookFailureResponse | None = Field(description="The last failure, or null if none of them failed.")


class WebhookWithHealthResponse(WebhookResponse):
    """A webhook and how its deliveries go."""

    health: WebhookHealthResponse = Field(description="How its recent deliveries went.")


def _with_health(webhook: Webhook, health: WebhookHealth) -> WebhookWithHealthResponse:
    failure = health.last_failure_at and WebhookFailureResponse(
        at=health.last_failure_at, status=health.last_failure_status, error=health.last_failure_reason
    )
    response = WebhookHealthResponse(
        state=health.state(is_active=webhook.is_active),
        attempted=health.attempted,
        delivered=health.delivered,
        success_rate=health.success_rate,
        last_failure=failure or None,
    )
    return WebhookWithHealthResponse.of(webhook, health=response)


class WebhookWithSecretResponse(WebhookResponse):
    """A webhook with its secret. Only this response contains the secret."""

    secret: str = Field(description="The secret that signs the deliveries, in the format of Standard Webhooks (`whsec_...`).")


class DeliveryAttemptResponse(kit.ResponseModel):
    """A finished attempt to send a delivery."""

    at: kit.Timestamp = Field(description="The end of the attempt.")
    status: int | None = Field(description="The HTTP status of the response, or null without a response.")
    error: str | None = Field(description="The reason of the failure, or null.")
    milliseconds: int | None = Field(description="The duration of the attempt, or null if nothing was sent.")


class DeliveryResponse(kit.ResponseModel):
    """An event's delivery to a webhook."""

    id: UUID = Field(description="The id of the delivery, as in the header `webhook-id`.")
    webhook_id: UUID = Field(description="The id of the webhook.")
    webhook_name: str = Field(description="The name of the webhook.")
    event_type: str = Field(description="The event type.", examples=["user.invited"])
    payload: dict[str, Any] = Field(description="The JSON body of the request.")
    response_status_code: int | None = Field(description="The HTTP status of the last response, or null without a response.")
    response_body: str | None = Field(description="The first 4 KiB of the last response, or null without a response.")
    attempt_count: int = Field(description="The number of finished attempts.")
    max_attempts: int = Field(description="The largest number of attempts.")
    next_retry_at: kit.Timestamp | None = Field(description="The time of the next attempt, or null if there is none.")
    delivered: bool = Field(description="Whether the receiver accepted the delivery.")
    delivery_error: str | None = Field(description="The reason for the last failure, or null.")
    created_at: kit.Timestamp = Field(description="The time of the event.")
    updated_at: kit.Timestamp = Field(description="The time of the last attempt, or of the event before the first attempt.")
    attempts: list[DeliveryAttemptResponse] = Field(description="The finished attempts, oldest first.")


def _to_delivery_response(delivery: Delivery) -> DeliveryResponse:
    return DeliveryResponse.of(delivery, max_attempts=len(kit.ports().policy.webhook_retry_delays))


@routes.post("/api/organizations/<org_slug>/webhooks")
@kit.member(Capability.WEBHOOKS_MANAGE, kit.GIVES)
async def create(org_slug: str, data: WebhookRequest) -> WebhookWithSecretResponse:
    """Create a webhook.

    Events are sent as POST requests, signed according to Standard Webhooks. The secret is returned only once. A
    delivery that fails is repeated, and deliveries can arrive in any order. Deliveries name users, groups and changes
    as the audit log does, so this also needs `audit.view`.
    """
    webhook, secret = await webhooks.create(kit.ports(), kit.acting(), data.name, data.url, data.events)
    return WebhookWithSecretResponse.of(webhook, secret=secret)


class WebhookListResponse(kit.ResponseModel):
    """An organization's webhooks."""

    webhooks: list[WebhookWithHealthResponse] = Field(description="All webhooks, oldest first.")
    total: int = Field(description="The number of webhooks.")


@routes.get("/api/organizations/<org_slug>/webhooks")
@kit.member(Capability.WEBHOOKS_MANAGE)
async def list_webhooks(org_slug: str) -> WebhookListResponse:
    """List the organization's webhooks.

    The list is complete; it has no pages. Secrets are not returned.
    """
    all_webhooks = await webhooks.list_webhooks(kit.ports(), kit.acting())
    return WebhookListResponse(webhooks=[_with_health(*each) for each in all_webhooks], total=len(all_webhooks))


class WebhookEventTypeResponse(kit.ResponseModel):
    """An event type that webhooks can subscribe to."""

    value: str = Field(description="The event type, as in the field `events` of a webhook.", examples=["user.invited"])
    label: str = Field(description="The name to show to people.", examples=["User invited"])
    category: str = Field(description="The category, for grouping in a user interface.", examples=["User management"])


@routes.get("/api/organizations/<org_slug>/webhooks/event-types")
@kit.member(Capability.WEBHOOKS_MANAGE)
async def list_event_types(org_slug: str) -> list[WebhookEventTypeResponse]:
    """List the event types that webhooks can subscribe to.

    The list is the same for all organizations.
    """
    return [WebhookEventTypeResponse(value=kind.name, label=kind.label, category=kind.category) for kind in SUBSCRIBABLE.values()]


@routes.get("/api/organizations/<org_slug>/webhooks/<webhook_id>")
@kit.member(Capability.WEBHOOKS_MANAGE)
async def get(org_slug: str, webhook_id: UUID) -> WebhookWithHealthResponse:
    """Get a webhook.

    The secret is not returned.
    """
    return _with_health(*await webhooks.find_with_health(kit.ports(), kit.acting(), webhook_id))


@routes.patch("/api/organizations/<org_slug>/webhooks/<webhook_id>")
@kit.member(Capability.WEBHOOKS_MANAGE, kit.GIVES)
async def update(org_slug: str, webhook_id: UUID, data: WebhookChangeRequest) -> WebhookResponse:
    """Change a webhook.

    Deliveries that wait for their next attempt go to the new URL. Deliveries to an inactive webhook
    wait until it is active again. This also needs `audit.view`.
    """
    changes = WebhookChanges(
        name=data.name, url=data.url, event_types=data.events if "events" in data.model_fields_set else KEEP, is_active=data.is_active
    )
    return WebhookResponse.of(await webhooks.update(kit.ports(), kit.acting(), webhook_id, changes))


@routes.delete("/api/organizations/<org_slug>/webhooks/<webhook_id>")
@kit.member(Capability.WEBHOOKS_MANAGE, kit.GIVES)
async def delete(org_slug: str, webhook_id: UUID) -> kit.Empty:
    """Delete a webhook and its deliveries.

    Deliveries that wait for their next attempt are not sent.
    """
    await webhooks.delete(kit.ports(), kit.acting(), webhook_id)
    return kit.Empty()


@routes.post("/api/organizations/<org_slug>/webhooks/<webhook_id>/rotate-secret")
@kit.member(Capability.WEBHOOKS_MANAGE, kit.GIVES)
async def rotate_secret(org_slug: str, webhook_id: UUID) -> WebhookWithSecretResponse:
    """Replace a webhook's secret.

    The new secret is returned only once. For 24 hours, the header `webhook-signature` has two signatures with a space
    between them: by the new secret and by the old secret. After several rotations in 24 hours it has a signature for
    every secret, at most eleven.
    """
    webhook, secret = await webhooks.rotate_secret(kit.ports(), kit.acting(), webhook_id)
    return WebhookWithSecretResponse.of(webhook, secret=secret)


class DeliveryListResponse(kit.ResponseModel):
    """A page of a webhook's deliveries."""

    deliveries: list[DeliveryResponse] = Field(description="The deliveries, newest first.")
    pagination: kit.Pagination = Field(description="The page, and the number of deliveries.")


class DeliveriesQuery(kit.PageQuery):
    """The delivery filters."""

    event_type: kit.Text | None = Field(default=None, description="Only deliveries of this event type.")
    delivered: kit.Flag | None = Field(default=None, description="Only deliveries that were accepted (`true`) or not (`false`).")


@routes.get("/api/organizations/<org_slug>/webhooks/<webhook_id>/deliveries")
@kit.member(Capability.WEBHOOKS_MANAGE)
async def list_deliveries(org_slug: str, webhook_id: UUID, query_args: DeliveriesQuery) -> DeliveryListResponse:
    """List a webhook's deliveries.

    Deliveries are sorted by time, newest first, and kept for 30 days. This also needs `audit.view`.
    """
    deliveries = await webhooks.list_deliveries(
        kit.ports(), kit.acting(), webhook_id, query_args.page_request(), event_type=query_args.event_type, delivered=query_args.delivered
    )
    return DeliveryListResponse(
        deliveries=[_to_delivery_response(delivery) for delivery in deliveries.items], pagination=query_args.pagination(deliveries.total)
    )


@routes.get("/api/organizations/<org_slug>/webhooks/<webhook_id>/deliveries/<delivery_id>")
@kit.member(Capability.WEBHOOKS_MANAGE)
async def get_delivery(org_slug: str, webhook_id: UUID, delivery_id: UUID) -> DeliveryResponse:
    """Get a webhook's delivery, with its attempts.

    Every attempt has its time, the status or the error, and how long it took. This also needs `audit.view`.
    """
    return _to_delivery_response(await webhooks.find_delivery(kit.ports(), kit.acting(), webhook_id, delivery_id))


@routes.post("/api/organizations/<org_slug>/webhooks/<webhook_id>/test")
@kit.member(Capability.WEBHOOKS_MANAGE, kit.SHOWS)
@kit.refuses(400)
async def send_ping(org_slug: str, webhook_id: UUID) -> DeliveryResponse:
    """Send a test delivery to a webhook.

    Its event type is `webhook.ping`, to which webhooks cannot subscribe. It is queued like any delivery.
    """
    return _to_delivery_response(await webhooks.send_ping(kit.ports(), kit.acting(), webhook_id))


@routes.post("/api/organizations/<org_slug>/webhooks/<webhook_id>/deliveries/<delivery_id>/replay")
@kit.member(Capability.WEBHOOKS_MANAGE, kit.SHOWS)
@kit.refuses(400)
async def replay(org_slug: str, webhook_id: UUID, delivery_id: UUID) -> DeliveryResponse:
    """Send a delivery's payload again.

    This queues a new delivery with the same payload. It has its own id and its own attempts. This also needs
    `audit.view`.
    """
    return _to_delivery_response(await webhooks.replay(kit.ports(), kit.acting(), webhook_id, delivery_id))


@kit.before_body
async def existing_webhook(webhook_id: UUID, **_: object) -> None:
    """Answer 404 if the organization has no webhook `<webhook_id>`."""
    await webhooks.find(kit.ports(), kit.acting(), webhook_id)


class ResendRequest(kit.RequestModel):
    """Which failed deliveries to send again."""

    since: kit.DateTime | None = Field(default=None, description="Only events at or after this time. Without it, all that are kept.")


class ResendResponse(kit.ResponseModel):
    """How many deliveries are queued again."""

    queued: int = Field(description="The number of new deliveries, at most 1,000.", examples=[23])
    remaining: int = Field(description="The failed deliveries that are left for another request, counted up to 10,000.", examples=[0])


@routes.post("/api/organizations/<org_slug>/webhooks/<webhook_id>/deliveries/resend-failed")
@kit.member(Capability.WEBHOOKS_MANAGE, kit.SHOWS)
@existing_webhook
@kit.refuses(400)
async def resend_failed(org_slug: str, webhook_id: UUID, data: ResendRequest) -> ResendResponse:
    """Send all failed deliveries to a webhook again, oldest first.

    These are the deliveries without further attempts, except tests. Every delivery is sent again once, as a new delivery with the same
    payload.
    """
    resent = await webhooks.resend_failed(kit.ports(), kit.acting(), webhook_id, data.since)
    return ResendResponse(queued=resent.queued, remaining=resent.remaining)
