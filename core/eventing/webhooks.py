"""An organization's webhooks: HTTP endpoints that receive its events.

Deliveries show what the audit log shows. Setting up a webhook and reading its deliveries therefore need the right to read the log, too.
Sending is in `core.eventing.deliveries`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from core.eventing import audit, events
from core.eventing.model import webhooks
from core.kernel.access import require_view
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.outbound import parse_target
from core.kernel.roles import Capability
from core.kernel.values import KEEP, Keep, Page, PageResult, new_id, provided
from core.tenancy import organizations
from core.tenancy.model import organizations as organizations_model
from ports import Ports


async def create(ports: Ports, caller: OrganizationCaller, name: str, url: str, event_types: Sequence[str]) -> tuple[webhooks.Webhook, str]:
    """Create a webhook. Return it with its secret, which is never returned again.

    Raises: TargetInvalid, NoEvents, EventTypeUnknown, TooManyWebhooks, WebhookNameTaken; the errors
    of `lock_organization_to_forward`.
    """
    target, types = parse_target(url), webhooks.parse_event_types(event_types)
    now, secret = ports.clock.now(), webhooks.new_signing_secret()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await audit.lock_organization_to_forward(tx, caller, Capability.WEBHOOKS_MANAGE)
        if len(await tx.webhooks.of_org(organization.id)) >= ports.policy.webhooks_per_organization:
            raise webhooks.TooManyWebhooks(ports.policy.webhooks_per_organization)
        webhook = webhooks.Webhook(
            id=new_id(), org_id=organization.id, name=name, url=target, events=types, is_active=True, created_at=now, updated_at=now
        )
        await tx.webhooks.add(webhook, secret)
        tx.record(events.webhook_created(webhook))
    return webhook, secret


async def search(ports: Ports, caller: OrganizationCaller, text: str) -> list[webhooks.Webhook]:
    """Return the organization's webhooks with `text` in their names, oldest first. Case is ignored."""
    async with ports.storage.reading() as read:
        webhooks = await read.webhooks.of_org(caller.acts_in.id)
    return [webhook for webhook in webhooks if text.lower() in webhook.name.lower()]


async def find(ports: Ports, caller: OrganizationCaller, webhook_id: UUID) -> webhooks.Webhook:
    """Return the organization's webhook with this id."""
    async with ports.storage.reading() as read:
        return await read.webhooks.by_id(caller.acts_in.id, webhook_id) or refuse(webhooks.WebhookNotFound)


async def list_webhooks(ports: Ports, caller: OrganizationCaller) -> list[tuple[webhooks.Webhook, webhooks.WebhookHealth]]:
    """Return all the organization's webhooks with their health, oldest first."""
    async with ports.storage.reading() as read:
        listed = await read.webhooks.of_org(caller.acts_in.id)
        health = await read.deliveries.health(caller.acts_in.id, [webhook.id for webhook in listed])
    return [(webhook, health.get(webhook.id, webhooks.NO_ATTEMPTS)) for webhook in listed]


async def find_with_health(ports: Ports, caller: OrganizationCaller, webhook_id: UUID) -> tuple[webhooks.Webhook, webhooks.WebhookHealth]:
    """Return the organization's webhook with its health."""
    async with ports.storage.reading() as read:
        webhook = await read.webhooks.by_id(caller.acts_in.id, webhook_id) or refuse(webhooks.WebhookNotFound)
        health = await read.deliveries.health(webhook.org_id, [webhook.id])
    return webhook, health.get(webhook.id, webhooks.NO_ATTEMPTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookChanges:
    """A webhook's new values. Fields that are KEEP stay as they are."""

    name: str | Keep = KEEP
    url: str | Keep = KEEP
    event_types: Sequence[str] | Keep = KEEP
    is_active: bool | Keep = KEEP


async def update(ports: Ports, caller: OrganizationCaller, webhook_id: UUID, changes: WebhookChanges) -> webhooks.Webhook:
    """Change a webhook. Deliveries that wait go to the new URL.

    Raises: NoWebhookChanges, TargetInvalid, NoEvents, EventTypeUnknown, WebhookNotFound,
    WebhookNameTaken; the errors of `lock_organization_to_forward`.
    """
    values = provided(
        name=changes.name,
        url=KEEP if changes.url is KEEP else parse_target(changes.url),
        events=KEEP if changes.event_types is KEEP else webhooks.parse_event_types(changes.event_types),
        is_active=changes.is_active,
    )
    if not values:
        raise webhooks.NoWebhookChanges
    async with ports.storage.transaction(by=caller) as tx:
        organization = await audit.lock_organization_to_forward(tx, caller, Capability.WEBHOOKS_MANAGE)
        old = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(webhooks.WebhookNotFound)
        new = replace(old, **values)
        if new != old:
            new = replace(new, updated_at=ports.clock.now())
            await tx.webhooks.save(new)
            tx.record(events.webhook_updated(old, new))
    return new


async def rotate_secret(ports: Ports, caller: OrganizationCaller, webhook_id: UUID) -> tuple[webhooks.Webhook, str]:
    """Replace a webhook's secret.

    Return the webhook with the new secret, which is never returned again.

    The old secret signs beside the new secret for OVERLAP. Secrets that were replaced earlier sign until their own
    overlap ends.
    """
    now, secret = ports.clock.now(), webhooks.new_signing_secret()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.WEBHOOKS_MANAGE)
        old = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(webhooks.WebhookNotFound)
        webhook = replace(old, updated_at=now)
        await tx.webhooks.rotate(webhook, secret, now + webhooks.OVERLAP)
        tx.record(events.webhook_secret_rotated(webhook))
    return webhook, secret


async def delete(ports: Ports, caller: OrganizationCaller, webhook_id: UUID) -> None:
    """Delete a webhook and its deliveries, including deliveries that wait.

    If the history is long, the housekeeper deletes the rest.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.WEBHOOKS_MANAGE)
        webhook = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(webhooks.WebhookNotFound)
        await tx.webhooks.delete(organization.id, webhook.id, ports.clock.now())
        await tx.deliveries.purge(webhook.id, organizations_model.IMMEDIATE_PURGE_LIMIT)
        tx.record(events.webhook_deleted(webhook))


# Deliveries


async def list_deliveries(
    ports: Ports, caller: OrganizationCaller, webhook_id: UUID, page: Page, *, event_type: str | None, delivered: bool | None
) -> PageResult[webhooks.Delivery]:
    """Return a page with a webhook's deliveries, newest first."""
    require_view(caller, Capability.AUDIT_VIEW)
    async with ports.storage.reading() as read:
        webhook = await read.webhooks.by_id(caller.acts_in.id, webhook_id) or refuse(webhooks.WebhookNotFound)
        return await read.deliveries.page(webhook.org_id, webhook.id, page, event_type=event_type, delivered=delivered)


async def find_delivery(ports: Ports, caller: OrganizationCaller, webhook_id: UUID, delivery_id: UUID) -> webhooks.Delivery:
    """Return a webhook's delivery, with its attempts."""
    require_view(caller, Capability.AUDIT_VIEW)
    async with ports.storage.reading() as read:
        return await read.deliveries.by_id(caller.acts_in.id, webhook_id, delivery_id) or refuse(webhooks.DeliveryNotFound)


async def send_ping(ports: Ports, caller: OrganizationCaller, webhook_id: UUID) -> webhooks.Delivery:
    """Queue a test delivery to a webhook, whatever its event types are."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.WEBHOOKS_MANAGE)
        webhook = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(webhooks.WebhookNotFound)
        if not webhook.is_active:
            raise webhooks.WebhookInactive
        payload = webhooks.build_ping_payload(webhook.org_id, webhook.id, webhook.name, caller, now)
        return await tx.deliveries.add(new_id(), webhook.org_id, webhook.id, webhooks.PING, payload, caller.actor_id, now)


async def replay(ports: Ports, caller: OrganizationCaller, webhook_id: UUID, delivery_id: UUID) -> webhooks.Delivery:
    """Queue a new delivery with an earlier delivery's payload, which `resend_failed` then leaves out."""
    require_view(caller, Capability.AUDIT_VIEW)
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.WEBHOOKS_MANAGE)
        webhook = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(webhooks.WebhookNotFound)
        if not webhook.is_active:
            raise webhooks.WebhookInactive
        copy = await tx.deliveries.add_copy(webhook.org_id, webhook.id, delivery_id, new_id(), ports.clock.now())
    return copy or refuse(webhooks.DeliveryNotFound)


async def count_failed(ports: Ports, caller: OrganizationCaller, webhook_id: UUID) -> int:
    """Return how many deliveries `resend_failed` would queue without a limit, at most COUNTED_TO_RESEND."""
    async with ports.storage.reading() as read:
        return await read.deliveries.count_to_resend(caller.acts_in.id, webhook_id, None)


async def resend_failed(ports: Ports, caller: OrganizationCaller, webhook_id: UUID, since: datetime | None) -> webhooks.Resent:
    """Queue new deliveries with the payloads from deliveries that failed in all attempts.

    The oldest come first, and at most RESEND_LIMIT are queued. Every failed delivery is sent again once. `since` (UTC)
    leaves out older events. Tests are left out.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.WEBHOOKS_MANAGE)
        webhook = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(webhooks.WebhookNotFound)
        if not webhook.is_active:
            raise webhooks.WebhookInactive
        queued = await tx.deliveries.resend(webhook.org_id, webhook.id, since, ports.clock.now())
        remaining = await tx.deliveries.count_to_resend(webhook.org_id, webhook.id, since)
    return webhooks.Resent(queued, remaining)
