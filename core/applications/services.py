"""Services: the applications of an organization (organizations.md sections 2.1 and 4.1; decisions, points 89, 92, 154, 157 to 159)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core.applications import cancellations, events
from core.kernel.errors import OrganizationNotActive, refuse
from core.kernel.principals import Capability, NotWhileImpersonating, OrganizationNotFound, OrganizationStatus
from core.kernel.values import Batches, Slug, digest, new_id, new_secret
from core.tenancy import organizations, organizations_rules

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import Member, ServiceContext
    from core.tenancy.organizations_rules import Organization
    from ports import Ports
    from ports.storage import Reading, Transaction
from core.applications.services_rules import (
    FREE,
    LISTED_AT_ONCE,
    USERS_AT_ONCE,
    Created,
    ListedService,
    NoClientSecret,
    Plan,
    Service,
    ServiceLimitExceeded,
    ServiceNotFound,
    ServiceType,
    Settings,
    Usage,
    configured,
    with_secret,
)


def _usage(organization: Organization, count: int) -> Usage:
    return Usage(count, organization.service_limit.value, organization.tier.display_name if organization.tier else None)


# What members do


async def find(ports: Ports, caller: Member, slug: str) -> Service:
    """The service of this slug of the organization that the caller acts in. Raises ServiceNotFound."""
    async with ports.storage.reading() as read:
        return await read.services.by_slug(caller.acts_in.id, slug) or refuse(ServiceNotFound)


async def enter(tx: Transaction, caller: Member, slug: str, capability: Capability) -> tuple[Organization, Service]:
    """The organization that `caller` acts in, locked, and its service of this slug, if the caller may still do this.

    Whoever changes or deletes a service holds its organization, so the service stays what it is but for its counters. Its own row is locked
    by those who count, after the account's, and by nobody before. Raises ServiceNotFound, and what organizations.enter raises.
    """
    organization, _ = await organizations.enter(tx, caller, capability)
    return organization, await tx.services.by_slug(organization.id, slug) or refuse(ServiceNotFound)


async def check_open(read: Reading | Transaction, org_slug: str, found: ServiceContext | None) -> ServiceContext:
    """The service that was found under this organization's slug, if anybody can sign in to it.

    Raises OrganizationNotFound, OrganizationNotActive, ServiceNotFound, in this order.
    """
    status = found.status if found else await read.organizations.status(org_slug) or refuse(OrganizationNotFound)
    if status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    return found or refuse(ServiceNotFound)


async def create(ports: Ports, caller: Member, slug: str, name: str, service_type: ServiceType, settings: Settings) -> Created:
    """A new service of the organization that the caller acts in, with a free plan; `settings` need not repeat name and type.

    Raises SlugInvalid, SlugReserved, ServiceLimitExceeded, ServiceSlugTaken, and what `configured` and organizations.enter raise.
    """
    now = ports.clock.now()
    plain = Service(
        id=new_id(),
        org_id=caller.acts_in.id,
        slug=Slug.parse(slug),
        name=name,
        service_type=service_type,
        client_id=new_id(),
        client_secret_hash=None,
        codehost_scopes=None,
        websuite_scopes=None,
        officesuite_scopes=None,
        redirect_uris=(),
        device_activation_uri=None,
        subscription_count=0,
        created_at=now,
        updated_at=now,
    )
    service, client_secret = with_secret(configured(plain, replace(settings, name=name, service_type=service_type)))
    plan = Plan(
        id=new_id(),
        org_id=service.org_id,
        service_id=service.id,
        name=FREE,
        price_cents=0,
        currency="usd",
        features=(),
        billing_price_id=None,
        created_at=now,
        updated_at=now,
    )
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.SERVICES_CREATE)
        usage = _usage(organization, await tx.services.count(organization.id) + 1)
        if usage.current_services > usage.max_services:
            raise ServiceLimitExceeded
        await tx.services.add(service)
        await tx.plans.add(plan)
        tx.record(events.service_created(service))
        tx.record(events.plan_created(plan, service))
    return Created(service, plan, usage, client_secret)


async def listed(
    ports: Ports, caller: Member, service_type: ServiceType | None, limit: int | None, offset: int
) -> tuple[Batches[ListedService], Usage]:
    """The services of this type, the oldest first, and how many there are of any. Raises OrganizationNotFound."""

    async def read_on(last: ListedService | None, count: int) -> list[ListedService]:
        async with ports.storage.reading() as read:
            after = last.service if last else None
            return await read.services.listed(caller.acts_in.id, service_type, after, count, 0 if last else offset)

    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(caller.acts_in.id) or refuse(OrganizationNotFound)
        usage = _usage(organization, await read.services.count(organization.id))
    return Batches(read_on, limit, size=LISTED_AT_ONCE), usage


async def update(ports: Ports, caller: Member, slug: str, settings: Settings) -> tuple[Service, str | None]:
    """The service with these settings; and its client secret, if it gets one by becoming confidential (decisions, point 158).

    Raises NotWhileImpersonating for the latter, ServiceNotFound, and what `configured` and organizations.enter raise.
    """
    async with ports.storage.transaction(by=caller) as tx:
        _, old = await enter(tx, caller, slug, Capability.SERVICES_MANAGE)
        new, client_secret = with_secret(configured(old, settings))
        if client_secret is not None and caller.impersonator_id is not None:
            raise NotWhileImpersonating  # or it would be the way around what is refused when a secret is rotated
        return await change(tx, old, new, ports.clock.now()), client_secret


async def change(tx: Transaction, old: Service, new: Service, now: datetime) -> Service:
    """Make of a service of a locked organization what it is to be; nothing happens where it is that already."""
    if new != old:
        new = replace(new, updated_at=now)
        await tx.services.save(new)
        tx.record(events.service_updated(old, new))
    return new


async def rotate_secret(ports: Ports, caller: Member, slug: str) -> str:
    """A new client secret of a confidential service; the old one is worth nothing any more (decisions, point 92).

    Raises ServiceNotFound, NoClientSecret, and what organizations.enter raises.
    """
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await enter(tx, caller, slug, Capability.SERVICES_MANAGE)
        if service.service_type.is_public:
            raise NoClientSecret
        secret = new_secret()
        await tx.services.save(replace(service, client_secret_hash=digest(secret), updated_at=ports.clock.now()))
        tx.record(events.client_secret_rotated(service))
    return secret


async def delete(ports: Ports, caller: Member, slug: str) -> None:
    """Delete a service for good, with all that belongs to it (decisions, point 159). The accounts of its users stay.

    Of its logins, the housekeeper removes what is too much for one transaction. Its sessions are worth nothing without it.
    What was paid for is cancelled at the payment provider. Raises ServiceNotFound, and what organizations.enter and cancellations.at_once
    raise.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await enter(tx, caller, slug, Capability.ORGANIZATION_OWN)
        await remove(tx, organization.id, service.id, ports.clock.now())
        tx.record(events.service_deleted(service))
    await cancellations.at_once(ports, organization.id, service.id)


async def remove(tx: Transaction, org_id: UUID, service_id: UUID, now: datetime) -> None:
    """Delete a service of a locked organization, with its users, however many they are: no statement about these takes long.

    The first takes along what refers to the service, such as subscriptions and identities: a second or two for a million of them
    (ops/decisions/0006).
    """
    # Waits for those who are signing in to it; what they wrote, the statements after it find. Who comes from now on finds no service.
    await tx.services.delete(org_id, service_id, now)
    last, forgotten = None, 0
    while (until := await tx.services.lock_users(org_id, service_id, last, USERS_AT_ONCE)) is not None:
        forgotten += await tx.services.remove_users(org_id, service_id, last, until)
        last = until
    # In the end, since others who change an end user hold that before they come to count.
    await tx.services.remove_totals(org_id, service_id, forgotten)
    await tx.services.purge(service_id, organizations_rules.PURGED_AT_ONCE)
