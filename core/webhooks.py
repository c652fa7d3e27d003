"""Outbound webhooks: to which addresses of its own an organization has what happens told (organizations.md sections 2.7 and 4.8; decisions,
points 214 to 225). How it is told is in `core/deliveries.py`.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from uuid import UUID

from core import deliveries, events, organizations
from core.access import Capability
from core.deliveries import PING, DeliveryNotFound
from core.errors import Invalid, NotFound, refuse
from core.events import CATALOGUE, Kind
from core.outbound import target
from core.values import KEEP, Keep, given, new_id

if TYPE_CHECKING:
    from core.access import Member
    from core.deliveries import Delivery
    from core.values import Listed, Page
    from ports import Ports

# How long a secret that was replaced goes on signing beside the new one, so that nothing is lost while receivers learn that.
OVERLAP: Final = timedelta(hours=24)
# So that whoever rotates all day long does not have us sign, and send, without bounds.
FORMER_SECRETS_KEPT: Final = 10
SECRET_PREFIX: Final = "whsec_"  # noqa: S105  (of Standard Webhooks)

# What webhooks can be told of (decisions, points 216 and 226).
SUBSCRIBABLE: Final[Mapping[str, Kind]] = MappingProxyType({name: kind for name, kind in CATALOGUE.items() if not kind.platform_only})


class WebhookNotFound(NotFound):
    """There is no such webhook."""


class NameTaken(Invalid):
    """A webhook of the organization has this name already. Choose another one."""


class NoEvents(Invalid):
    """A webhook is told of one type of event at least. Name which."""


class EventTypeUnknown(Invalid):
    """There is no such type of event."""

    def __init__(self) -> None:
        super().__init__(f"There is no such type of event. There are: {', '.join(SUBSCRIBABLE)}.")


class TooManyWebhooks(Invalid):
    """The organization has as many webhooks as it can have."""

    def __init__(self, most: int) -> None:
        super().__init__(f"The organization has as many webhooks as it can have, which is {most}. Delete one that is not needed any more.")


class NothingToChange(Invalid):
    """Say what to change: name, url, events or is_active."""


class WebhookInactive(Invalid):
    """The webhook is not active, so nothing is sent to it. Set is_active first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Whom an organization has told of events of these types. Times are UTC. Its secret is nobody's but the receiver's."""

    id: UUID
    org_id: UUID
    name: str
    url: str
    events: tuple[str, ...]
    is_active: bool
    created_at: datetime
    updated_at: datetime


def new_signing_secret() -> str:
    """256 bits in the form of Standard Webhooks (security.md W-5)."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def subscribable(names: Sequence[str]) -> tuple[str, ...]:
    """The types of these names, each once. Raises NoEvents, EventTypeUnknown."""
    if not names:
        raise NoEvents
    if not set(names) <= SUBSCRIBABLE.keys():
        raise EventTypeUnknown
    return tuple(dict.fromkeys(names))


async def create(ports: Ports, caller: Member, name: str, url: str, event_types: Sequence[str]) -> tuple[Webhook, str]:
    """A webhook, and its secret, which nobody gets to see again.

    Raises TargetInvalid, NoEvents, EventTypeUnknown, TooManyWebhooks, NameTaken, and what organizations.enter raises.
    """
    url, wanted = target(url), subscribable(event_types)
    now, secret = ports.clock.now(), new_signing_secret()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.WEBHOOKS_MANAGE)
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

    Raises NothingToChange, TargetInvalid, NoEvents, EventTypeUnknown, WebhookNotFound, NameTaken, and what organizations.enter raises.
    """
    wanted = given(
        name=name,
        url=KEEP if url is KEEP else target(url),
        events=KEEP if event_types is KEEP else subscribable(event_types),
        is_active=is_active,
    )
    if not wanted:
        raise NothingToChange
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.WEBHOOKS_MANAGE)
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

    Raises WebhookNotFound, and what organizations.enter raises.
    """
    now, secret = ports.clock.now(), new_signing_secret()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.WEBHOOKS_MANAGE)
        old = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(WebhookNotFound)
        webhook = replace(old, updated_at=now)
        await tx.webhooks.rotate(webhook, secret, now + OVERLAP)
        tx.record(events.webhook_secret_rotated(webhook))
    return webhook, secret


async def delete(ports: Ports, caller: Member, webhook_id: UUID) -> None:
    """Remove the webhook and its deliveries, those that wait included; of very many, the housekeeper removes the rest.

    Raises WebhookNotFound, and what organizations.enter raises.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.WEBHOOKS_MANAGE)
        webhook = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(WebhookNotFound)
        await tx.webhooks.delete(organization.id, webhook.id, ports.clock.now())
        await tx.deliveries.purge(webhook.id, organizations.PURGED_AT_ONCE)
        tx.record(events.webhook_deleted(webhook))


# What was sent to it, and what is sent on demand


async def history(
    ports: Ports, caller: Member, webhook_id: UUID, page: Page, *, event_type: str | None, delivered: bool | None
) -> Listed[Delivery]:
    """Deliveries of the webhook, the newest first. Raises WebhookNotFound."""
    async with ports.storage.reading() as read:
        webhook = await read.webhooks.by_id(caller.acts_in.id, webhook_id) or refuse(WebhookNotFound)
        return await read.deliveries.page(webhook.org_id, webhook.id, page, event_type=event_type, delivered=delivered)


async def test(ports: Ports, caller: Member, webhook_id: UUID) -> Delivery:
    """Send a ping to this webhook, whatever it subscribes to.

    Raises WebhookNotFound, WebhookInactive, and what organizations.enter raises.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.WEBHOOKS_MANAGE)
        webhook = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(WebhookNotFound)
        if not webhook.is_active:
            raise WebhookInactive
        payload = deliveries.ping(webhook.org_id, webhook.id, webhook.name, caller, now)
        return await tx.deliveries.add(new_id(), webhook.org_id, webhook.id, PING, payload, caller.user_id, now)


async def replay(ports: Ports, caller: Member, webhook_id: UUID, delivery_id: UUID) -> Delivery:
    """Send what a delivery told once more, as another delivery.

    Raises WebhookNotFound, WebhookInactive, DeliveryNotFound, and what organizations.enter raises.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.WEBHOOKS_MANAGE)
        webhook = await tx.webhooks.by_id(organization.id, webhook_id) or refuse(WebhookNotFound)
        if not webhook.is_active:
            raise WebhookInactive
        again = await tx.deliveries.repeat(webhook.org_id, webhook.id, delivery_id, new_id(), ports.clock.now())
    return again or refuse(DeliveryNotFound)
