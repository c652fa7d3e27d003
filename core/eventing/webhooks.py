"""Outbound webhooks: to which addresses of its own an organization has what happens told (organizations.md sections 2.7 and 4.8; decisions,
points 214 to 225). How it is told is in `core/deliveries.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core.eventing import deliveries_rules, events
from core.eventing.deliveries_rules import PING, DeliveryNotFound
from core.kernel.errors import refuse
from core.kernel.outbound import parse_target
from core.kernel.principals import Capability
from core.kernel.values import KEEP, Keep, provided, new_id
from core.tenancy import organizations, organizations_rules

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from core.eventing.deliveries_rules import Delivery
    from core.kernel.principals import Member
    from core.kernel.values import PageResult, Page
    from ports import Ports
from core.eventing.webhooks_rules import (
    OVERLAP,
    NoWebhookChanges,
    TooManyWebhooks,
    Webhook,
    WebhookInactive,
    WebhookNotFound,
    new_signing_secret,
    subscribable,
)


async def create(ports: Ports, caller: Member, name: str, url: str, event_types: Sequence[str]) -> tuple[Webhook, str]:
    """A webhook, and its secret, which nobody gets to see again.

    Raises TargetInvalid, NoEvents, EventTypeUnknown, TooManyWebhooks, WebhookNameTaken, and what organizations.lock_organization_for raises.
    """
    url, wanted = parse_target(url), subscribable(event_types)
    now, secret = ports.clock.now(), new_signing_secret()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.WEBHOOKS_MANAGE)
        if len(await tx.webhooks.of_org(organization.id)) >= ports.policy.webhooks_per_organization:
            raise TooManyWebhooks(ports.policy.webhooks_per_organization)
        webhook = Webhook(
            id=new_id(), org_id=organization.id, name=name, url=url, events=wanted, is_active=True, created_at=now, updated_at=now
        )
        await tx.webhooks.add(webhook, secret)
        tx.record(events.webhook_created(webhook))
    return webhook, secret


async def listed(ports: Ports, caller: Member) -> list[Webhook]:
    """All webhooks of the organization, the oldest first."""
    async with ports.storage.reading() as read:
        return await read.webhooks.of_org(caller.acts_in.id)


async def find(ports: Ports, caller: Member, webhook_id: UUID) -> Webhook:
    """One webhook of the organization. Raises WebhookNotFound."""
    async with ports.storage.reading() as read:
        return await read.webhooks.by_id(caller.acts_in.id, webhook_id) or refuse(WebhookNotFound)


async def update(
    ports: Ports,
    caller: Member,
    webhook_id: UUID,
    *,
    name: str | Keep = KEEP,
    url: str | Keep = KEEP,
    event_types: Sequence[str] | Keep = KEEP,
    is_active: bool | Keep = KEEP,
) -> Webhook:
    """The webhook with what was changed of it. What waits to be delivered goes to the new address.

    Raises NoWebhookChanges, TargetInvalid, NoEvents, EventTypeUnknown, WebhookNotFound, WebhookNameTaken, and what organizations.lock_organization_for raises.
    """
    wanted = provided(
        name=name,
        url=KEEP if url is KEEP else parse_target(url),
        events=KEEP if event_types is KEEP else subscribable(event_types),
        is_active=is_active,
    )
    if not wanted:
        raise NoWebhookChanges
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.WEBHOOKS_MANAGE)
        old = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(WebhookNotFound)
        new = replace(old, **wanted)
        if new != old:
            new = replace(new, updated_at=ports.clock.now())
            await tx.webhooks.save(new)
            tx.record(events.webhook_updated(old, new))
    return new


async def rotate_secret(ports: Ports, caller: Member, webhook_id: UUID) -> tuple[Webhook, str]:
    """The webhook with another secret, which nobody gets to see again; the one that it had signs beside it for OVERLAP, and so do
    those before it for what is left of theirs.

    Raises WebhookNotFound, and what organizations.lock_organization_for raises.
    """
    now, secret = ports.clock.now(), new_signing_secret()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.WEBHOOKS_MANAGE)
        old = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(WebhookNotFound)
        webhook = replace(old, updated_at=now)
        await tx.webhooks.rotate(webhook, secret, now + OVERLAP)
        tx.record(events.webhook_secret_rotated(webhook))
    return webhook, secret


async def delete(ports: Ports, caller: Member, webhook_id: UUID) -> None:
    """Remove the webhook and its deliveries, those that wait included; of very many, the housekeeper removes the rest.

    Raises WebhookNotFound, and what organizations.lock_organization_for raises.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.WEBHOOKS_MANAGE)
        webhook = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(WebhookNotFound)
        await tx.webhooks.delete(organization.id, webhook.id, ports.clock.now())
        await tx.deliveries.purge(webhook.id, organizations_rules.IMMEDIATE_PURGE_LIMIT)
        tx.record(events.webhook_deleted(webhook))


# What was sent to it, and what is sent on demand


async def history(
    ports: Ports, caller: Member, webhook_id: UUID, page: Page, *, event_type: str | None, delivered: bool | None
) -> PageResult[Delivery]:
    """Deliveries of the webhook, the newest first. Raises WebhookNotFound."""
    async with ports.storage.reading() as read:
        webhook = await read.webhooks.by_id(caller.acts_in.id, webhook_id) or refuse(WebhookNotFound)
        return await read.deliveries.page(webhook.org_id, webhook.id, page, event_type=event_type, delivered=delivered)


async def test(ports: Ports, caller: Member, webhook_id: UUID) -> Delivery:
    """Send a ping to this webhook, whatever it subscribes to.

    Raises WebhookNotFound, WebhookInactive, and what organizations.lock_organization_for raises.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.WEBHOOKS_MANAGE)
        webhook = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(WebhookNotFound)
        if not webhook.is_active:
            raise WebhookInactive
        payload = deliveries_rules.ping_payload(webhook.org_id, webhook.id, webhook.name, caller, now)
        return await tx.deliveries.add(new_id(), webhook.org_id, webhook.id, PING, payload, caller.user_id, now)


async def replay(ports: Ports, caller: Member, webhook_id: UUID, delivery_id: UUID) -> Delivery:
    """Send what a delivery told once more, as another delivery.

    Raises WebhookNotFound, WebhookInactive, DeliveryNotFound, and what organizations.lock_organization_for raises.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.WEBHOOKS_MANAGE)
        webhook = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(WebhookNotFound)
        if not webhook.is_active:
            raise WebhookInactive
        again = await tx.deliveries.repeat(webhook.org_id, webhook.id, delivery_id, new_id(), ports.clock.now())
    return again or refuse(DeliveryNotFound)
