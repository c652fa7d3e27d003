"""Webhooks of an organization (organizations.md section 4.8)."""

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, WithJsonSchema
from quart import Blueprint
from quart_schema import validate_querystring, validate_request, validate_response

from core.eventing import webhooks
from core.eventing.deliveries_rules import ATTEMPTS, Delivery
from core.eventing.webhooks_rules import SUBSCRIBABLE, Webhook
from core.kernel.outbound import LONGEST_URL
from core.kernel.principals import Capability
from core.kernel.values import KEEP
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import Body, Name, Nothing, Shown, Text, Timestamp, maybe
from entrypoints.http.edge.context import acting_member, ports
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.queries import Flag, PageQuery, Pagination, pagination, path_id

routes = Blueprint("webhooks", __name__)

# Strings, because the use case says which there are; the same of the address.
EventTypes = Annotated[
    list[Text],
    Field(max_length=100),
    WithJsonSchema({"type": "array", "items": {"type": "string", "enum": list(SUBSCRIBABLE)}, "minItems": 1}),
]
Url = Annotated[Text, WithJsonSchema({"type": "string", "format": "uri", "maxLength": LONGEST_URL})]


class NewWebhook(Body):
    """What the webhook is called, where it is, and of which events it is told."""

    name: Name
    url: Url
    events: EventTypes


class WebhookChanges(Body):
    """What is to change of it. While `is_active` is false nothing is queued for it, and nothing is sent."""

    name: Name = maybe()
    url: Url = maybe()
    events: EventTypes = maybe()
    is_active: bool = maybe()


class WebhookShown(Shown):
    """A webhook, without its secret."""

    id: UUID
    name: str
    url: str
    events: list[str]
    is_active: bool
    created_at: Timestamp
    updated_at: Timestamp


class WebhookWithSecret(WebhookShown):
    """A webhook, and the secret that its deliveries are signed with, which is told only here."""

    secret: str


class DeliveryShown(Shown):
    """What a webhook was told, or will be. Of the answer, the first 4 KiB are kept; `delivery_error` says why the last attempt failed."""

    id: UUID
    webhook_id: UUID
    webhook_name: str
    event_type: str
    payload: dict[str, Any]
    response_status_code: int | None
    response_body: str | None
    attempt_count: int
    max_attempts: int
    next_retry_at: Timestamp | None
    delivered: bool
    delivery_error: str | None
    created_at: Timestamp
    updated_at: Timestamp


def _show(webhook: Webhook) -> WebhookShown:
    return WebhookShown(
        id=webhook.id,
        name=webhook.name,
        url=webhook.url,
        events=list(webhook.events),
        is_active=webhook.is_active,
        created_at=webhook.created_at,
        updated_at=webhook.updated_at,
    )


def _show_delivery(delivery: Delivery) -> DeliveryShown:
    return DeliveryShown(
        id=delivery.id,
        webhook_id=delivery.webhook_id,
        webhook_name=delivery.webhook_name,
        event_type=delivery.event_type,
        payload=dict(delivery.payload),
        response_status_code=delivery.response_status_code,
        response_body=delivery.response_body,
        attempt_count=delivery.attempt_count,
        max_attempts=ATTEMPTS,
        next_retry_at=delivery.next_retry_at,
        delivered=delivery.delivered,
        delivery_error=delivery.delivery_error,
        created_at=delivery.created_at,
        updated_at=delivery.updated_at,
    )


@routes.post("/api/organizations/<org_slug>/webhooks")
@member(Capability.WEBHOOKS_MANAGE, impersonated=False)
@validate_request(NewWebhook)
@validate_response(WebhookWithSecret)
async def create(org_slug: str, data: NewWebhook) -> WebhookWithSecret:
    """Have an address of yours told of events.

    Deliveries are signed as Standard Webhooks says, with the secret that is in this answer, and nowhere
    else.
    """
    webhook, secret = await webhooks.create(ports(), acting_member(), data.name, data.url, data.events)
    return WebhookWithSecret(**dict(_show(webhook)), secret=secret)


class WebhooksListed(Shown):
    """All webhooks, the oldest first, and how many there are."""

    webhooks: list[WebhookShown]
    total: int


@routes.get("/api/organizations/<org_slug>/webhooks")
@member(Capability.WEBHOOKS_MANAGE)
@validate_response(WebhooksListed)
async def listed(org_slug: str) -> WebhooksListed:
    """List the webhooks of the organization."""
    found = await webhooks.listed(ports(), acting_member())
    return WebhooksListed(webhooks=[_show(webhook) for webhook in found], total=len(found))


class WebhookEventType(Shown):
    """Something that can happen: its name, its name for people, and what it belongs to."""

    value: str
    label: str
    category: str


@routes.get("/api/organizations/<org_slug>/webhooks/event-types")
@member(Capability.WEBHOOKS_MANAGE)
@validate_response(list[WebhookEventType])
async def event_types(org_slug: str) -> list[WebhookEventType]:
    """What webhooks can be told of."""
    return [WebhookEventType(value=kind.name, label=kind.label, category=kind.category) for kind in SUBSCRIBABLE.values()]


@routes.get("/api/organizations/<org_slug>/webhooks/<webhook_id>")
@member(Capability.WEBHOOKS_MANAGE)
@validate_response(WebhookShown)
async def webhook(org_slug: str, webhook_id: str) -> WebhookShown:
    """One webhook of the organization."""
    return _show(await webhooks.find(ports(), acting_member(), path_id(webhook_id)))


@routes.patch("/api/organizations/<org_slug>/webhooks/<webhook_id>")
@member(Capability.WEBHOOKS_MANAGE)
@validate_request(WebhookChanges)
@validate_response(WebhookShown)
async def update(org_slug: str, webhook_id: str, data: WebhookChanges) -> WebhookShown:
    """Change a webhook. What waits to be delivered goes to the new address; retries of one that is not active wait until it is again."""
    changed = await webhooks.update(
        ports(),
        acting_member(),
        path_id(webhook_id),
        name=data.name,
        url=data.url,
        event_types=data.events if "events" in data.model_fields_set else KEEP,
        is_active=data.is_active,
    )
    return _show(changed)


@routes.delete("/api/organizations/<org_slug>/webhooks/<webhook_id>")
@member(Capability.WEBHOOKS_MANAGE)
@validate_response(Nothing)
async def delete(org_slug: str, webhook_id: str) -> Nothing:
    """Delete a webhook, and what is known of its deliveries. What waits to be delivered is not sent any more."""
    await webhooks.delete(ports(), acting_member(), path_id(webhook_id))
    return Nothing()


@routes.post("/api/organizations/<org_slug>/webhooks/<webhook_id>/rotate-secret")
@member(Capability.WEBHOOKS_MANAGE, impersonated=False)
@validate_response(WebhookWithSecret)
async def rotate_secret(org_slug: str, webhook_id: str) -> WebhookWithSecret:
    """Replace the secret of a webhook.

    For 24 hours deliveries have two signatures, with a space between them: of the new secret, and of the one that it replaced. If it is
    replaced again in that time, they have one of each, up to ten beside the newest.
    """
    rotated, secret = await webhooks.rotate_secret(ports(), acting_member(), path_id(webhook_id))
    return WebhookWithSecret(**dict(_show(rotated)), secret=secret)


class DeliveriesPage(Shown):
    """A page of deliveries, the newest first."""

    deliveries: list[DeliveryShown]
    pagination: Pagination


class DeliveriesQuery(PageQuery):
    """Which deliveries."""

    event_type: Text | None = None
    delivered: Flag | None = None


@routes.get("/api/organizations/<org_slug>/webhooks/<webhook_id>/deliveries")
@member(Capability.WEBHOOKS_MANAGE)
@refuses(400)
@validate_querystring(DeliveriesQuery)
@validate_response(DeliveriesPage)
async def deliveries(org_slug: str, webhook_id: str, query_args: DeliveriesQuery) -> DeliveriesPage:
    """What the webhook was told, and what became of it. Deliveries are kept for 30 days."""
    page = query_args.wanted()
    found = await webhooks.history(
        ports(), acting_member(), path_id(webhook_id), page, event_type=query_args.event_type, delivered=query_args.delivered
    )
    return DeliveriesPage(deliveries=[_show_delivery(each) for each in found.items], pagination=pagination(page, found.total))


@routes.post("/api/organizations/<org_slug>/webhooks/<webhook_id>/test")
@member(Capability.WEBHOOKS_MANAGE)
@refuses(400)
@validate_response(DeliveryShown)
async def test(org_slug: str, webhook_id: str) -> DeliveryShown:
    """Send a delivery of type `webhook.ping` to this webhook, whatever it subscribes to. Nothing subscribes to that type."""
    return _show_delivery(await webhooks.test(ports(), acting_member(), path_id(webhook_id)))


@routes.post("/api/organizations/<org_slug>/webhooks/<webhook_id>/deliveries/<delivery_id>/replay")
@member(Capability.WEBHOOKS_MANAGE)
@refuses(400)
@validate_response(DeliveryShown)
async def replay(org_slug: str, webhook_id: str, delivery_id: str) -> DeliveryShown:
    """Send the payload of a delivery once more, as another delivery: with an id, and attempts, of its own."""
    return _show_delivery(await webhooks.replay(ports(), acting_member(), path_id(webhook_id), path_id(delivery_id)))
