"""Subscriptions of a service's users to its plans (identity.md sections 2.4, 3 and 4.5; decisions, points 37 and 113 to 116).

A person may have had several of one service, of which one at most is live; that one counts, or else the newest. What a key changes it
changes under the lock of the organization; only the sweeper goes by without it, and only to mark what has run out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core.applications import api_keys, cancellations
from core.applications.cancellations_rules import Cancellation
from core.applications.plans_rules import PlanNotFound
from core.applications.service_users_rules import ServiceUserNotFound
from core.billing import events
from core.kernel.errors import refuse
from core.kernel.principals import Permission
from core.kernel.values import KEEP, provided, new_id
from core.maintenance import housekeeping

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import Person, ServiceKey
    from core.kernel.values import Keep, PageResult
    from ports import Ports
    from ports.storage import Transaction
from core.billing.subscriptions_rules import (
    BATCH,
    LEASE,
    PERIOD,
    SWEEPER,
    NoService,
    NothingToChange,
    NotSubscribed,
    PlanOfAnotherService,
    PlanRemoved,
    SubscribedPlan,
    Subscription,
    SubscriptionNotFound,
    SubscriptionStatus,
)

# What people do


async def own(ports: Ports, caller: Person) -> Subscription:
    """The caller's own that counts, to the service that the token was issued for (decisions, point 76). Raises NoService, NotSubscribed."""
    service = caller.service or refuse(NoService)
    async with ports.storage.reading() as read:
        found = await read.subscriptions.of_user(service.org_id, service.id, caller.user_id, ports.clock.now())
    return found or refuse(NotSubscribed)


# What programs do


async def listed(ports: Ports, caller: ServiceKey, status: SubscriptionStatus | None, *, limit: int, offset: int) -> PageResult[Subscription]:
    """The subscriptions to the service that have this status now, the oldest first."""
    service = caller.service
    async with ports.storage.reading() as read:
        return await read.subscriptions.page(service.org_id, service.id, status, limit, offset, ports.clock.now())


async def of_user(ports: Ports, caller: ServiceKey, user_id: UUID) -> Subscription:
    """The one of this user that counts. Raises SubscriptionNotFound."""
    service = caller.service
    async with ports.storage.reading() as read:
        found = await read.subscriptions.of_user(service.org_id, service.id, user_id, ports.clock.now())
    return found or refuse(SubscriptionNotFound)


async def create(
    ports: Ports,
    caller: ServiceKey,
    user_id: UUID,
    plan_id: UUID,
    *,
    status: SubscriptionStatus = SubscriptionStatus.ACTIVE,
    current_period_end: datetime | None = None,
) -> Subscription:
    """Subscribe a user of the service to one of its plans; one that has run out makes room.

    Raises ServiceUserNotFound, PlanNotFound, PlanOfAnotherService, AlreadySubscribed, and what api_keys.lock_organization_for raises.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await api_keys.lock_organization_for(tx, caller, Permission.WRITE_SUBSCRIPTIONS, now)
        # Nobody else's account is locked; a user's is, before the counter of the service, so that it stays until there is a subscription.
        await tx.service_users.by_id(service.org_id, service.id, user_id) or refuse(ServiceUserNotFound)
        await tx.accounts.lock(user_id) or refuse(ServiceUserNotFound)
        plan = await _plan(tx, service.id, plan_id)
        await expire_overdue(tx, service.org_id, service.id, user_id, now)
        subscription = Subscription(
            id=new_id(),
            org_id=service.org_id,
            service_id=service.id,
            user_id=user_id,
            plan=plan,
            status=status,
            current_period_end=now + PERIOD if current_period_end is None else current_period_end,
            provider_subscription_id=None,
            created_at=now,
        ).at(now)
        await tx.subscriptions.add(subscription)
        tx.record(events.subscription_created(subscription))
    return subscription


async def change(
    ports: Ports,
    caller: ServiceKey,
    user_id: UUID,
    *,
    status: SubscriptionStatus | Keep = KEEP,
    current_period_end: datetime | Keep = KEEP,
    plan_id: UUID | Keep = KEEP,
) -> Subscription:
    """Change the user's subscription: any status may follow any other (decisions, point 116).

    One that has run out has expired, whoever marks it: a longer period alone does not make it active again. One that a payment provider
    looks after is cancelled there when it ends here; and one that is over there is the organization's own from when it lives again. Raises
    NothingToChange, SubscriptionNotFound, PlanNotFound, PlanOfAnotherService, PlanRemoved, and what api_keys.lock_organization_for and
    cancellations.at_once raise.
    """
    wanted = provided(status=status, current_period_end=current_period_end)
    if not wanted and plan_id is KEEP:
        raise NothingToChange
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await api_keys.lock_organization_for(tx, caller, Permission.WRITE_SUBSCRIPTIONS, now)
        await expire_overdue(tx, service.org_id, service.id, user_id, now)
        old = await tx.subscriptions.lock_of_user(service.org_id, service.id, user_id, now) or refuse(SubscriptionNotFound)
        if plan_id is not KEEP and plan_id != old.plan.id:
            wanted["plan"] = await _plan(tx, service.id, plan_id)
        new = replace(old, **wanted)
        if new.status.is_live and not old.status.is_live and await _is_over_there(tx, old):
            new = replace(new, provider_subscription_id=None)  # nobody else would ever end it
            await tx.subscriptions.detach_from_provider(old.org_id, old.id, now)
        new = new.at(now)
        # A plan is not removed while somebody is subscribed to it, so nobody comes to be subscribed to one that was.
        if new.plan.is_removed and new.status.is_live:
            raise PlanRemoved
        ended_there = new.status != old.status and not new.status.is_live and await _end_there(tx, old, now)
        if new != old:
            await tx.subscriptions.save(new, now)
            tx.record(events.subscription_updated(old, new))
    if ended_there:
        await cancellations.at_once(ports, new.org_id, new.service_id)
    return new


async def remove(ports: Ports, caller: ServiceKey, user_id: UUID) -> None:
    """End the user's subscription: it goes, but one that a payment provider looks after is cancelled (decisions, point 115).

    Raises SubscriptionNotFound, also for one that is cancelled and only stays for the provider, and what api_keys.lock_organization_for and
    cancellations.at_once raise.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await api_keys.lock_organization_for(tx, caller, Permission.DELETE_SUBSCRIPTIONS, now)
        old = await tx.subscriptions.lock_of_user(service.org_id, service.id, user_id, now) or refuse(SubscriptionNotFound)
        if old.provider_subscription_id is None:
            await tx.subscriptions.remove(old.org_id, old.id)
        elif old.status is SubscriptionStatus.CANCELLED:
            raise SubscriptionNotFound
        else:
            await tx.subscriptions.save(replace(old, status=SubscriptionStatus.CANCELLED), now)
            await _end_there(tx, old, now)
        tx.record(events.subscription_canceled(old))
    if old.provider_subscription_id is not None:
        await cancellations.at_once(ports, old.org_id, old.service_id)


async def _is_over_there(tx: Transaction, subscription: Subscription) -> bool:
    """Whether the payment provider that looks after it has ended it; what is still to be cancelled there goes on there after all."""
    if subscription.provider_subscription_id is None:
        return False
    facts = await tx.billing.facts(subscription.provider_subscription_id)
    return facts is not None and facts.is_over


async def _end_there(tx: Transaction, old: Subscription, now: datetime) -> bool:
    """Have it cancelled at the payment provider, too, if one looks after it and it was not cancelled yet; whether that is so."""
    if old.provider_subscription_id is None or old.status is SubscriptionStatus.CANCELLED:
        return False
    await tx.cancellations.request(Cancellation(old.provider_subscription_id, old.id, old.org_id, old.service_id, now))
    return True


async def _plan(tx: Transaction, service_id: UUID, plan_id: UUID) -> SubscribedPlan:
    """A plan of the service that can be subscribed to. That it is another service's is told, as the interface wants it (security.md B-5).

    Raises PlanNotFound, PlanOfAnotherService.
    """
    plan = await tx.subscriptions.plan(plan_id)
    if plan is None or plan.is_removed:
        raise PlanNotFound
    if plan.service_id != service_id:
        raise PlanOfAnotherService
    return plan


async def expire_overdue(tx: Transaction, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> None:
    """Do for this user what the sweeper will, so that what follows does not depend on whether it has come by."""
    for expired in await tx.subscriptions.expire_of_user(org_id, service_id, user_id, now):
        tx.record(events.subscription_expired(expired))


# What time does


async def sweep(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Mark in bounded batches what has run out: how many it were, if any. None while another holder is at it.

    Nothing relies on it: time is looked at whenever a subscription is.
    """

    async def batch(tx: Transaction, now: datetime) -> int:
        expired = await tx.subscriptions.expire(now, BATCH)
        for subscription in expired:
            tx.record(events.subscription_expired(subscription))
        return len(expired)

    return await housekeeping.in_batches(ports, holder, SWEEPER, LEASE, BATCH, {"subscriptions": batch})
