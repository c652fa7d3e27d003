"""Subscriptions, managed by the service's API keys, listed for members, and canceled by their users.

A user can have several subscriptions to a service over time, but at most one is live. The current subscription is the
live one, or else the newest. API keys change subscriptions under the lock on the organization. Only the sweeper works
without this lock, and it only marks expired subscriptions.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

from core.accounts import own_account
from core.applications import api_keys, cancellations, services
from core.applications.model import plans, users
from core.billing import events
from core.billing.model import subscriptions
from core.kernel import callers, values
from core.kernel.errors import refuse
from core.kernel.roles import Permission
from core.maintenance import housekeeping
from ports import Ports
from ports.storage import Transaction


async def find_own(ports: Ports, caller: callers.Person) -> subscriptions.Subscription:
    """Return the caller's current subscription to the service that their token is for."""
    service = caller.service or refuse(subscriptions.NoServiceContext)
    async with ports.storage.reading() as read:
        subscription = await read.subscriptions.of_user(service.org_id, service.id, caller.user_id, ports.clock.now())
    return subscription or refuse(subscriptions.NotSubscribed)


async def list_subscriptions(
    ports: Ports, caller: callers.ServiceKey, status: plans.SubscriptionStatus | None, *, limit: int, offset: int
) -> values.PageResult[subscriptions.Subscription]:
    """Return a page with the service's subscriptions that have this current status, oldest first. None means any status."""
    service = caller.service
    async with ports.storage.reading() as read:
        return await read.subscriptions.page(service.org_id, service.id, status, limit, offset, ports.clock.now())


async def list_of_service(
    ports: Ports, caller: callers.OrganizationCaller, slug: str, status: plans.SubscriptionStatus | None, *, limit: int, offset: int
) -> subscriptions.ServiceSubscriptions:
    """Return the page that `list_subscriptions` returns, for a service in the caller's organization, with addresses and the customer."""
    service = await services.find(ports, caller, slug)
    async with ports.storage.reading() as read:
        page = await read.subscriptions.page(service.org_id, service.id, status, limit, offset, ports.clock.now())
        emails = await read.service_users.emails(service.org_id, service.id, [subscription.user_id for subscription in page.items])
        customer = await read.customers.of_organization(service.org_id)
    listed = [subscriptions.ListedSubscription(subscription, emails.get(subscription.user_id)) for subscription in page.items]
    return subscriptions.ServiceSubscriptions(listed, page.total, customer)


async def find_of_user(ports: Ports, caller: callers.ServiceKey, user_id: UUID) -> subscriptions.Subscription:
    """Return the user's current subscription."""
    service = caller.service
    async with ports.storage.reading() as read:
        subscription = await read.subscriptions.of_user(service.org_id, service.id, user_id, ports.clock.now())
    return subscription or refuse(subscriptions.SubscriptionNotFound)


async def create(
    ports: Ports,
    caller: callers.ServiceKey,
    user_id: UUID,
    plan_id: UUID,
    *,
    status: plans.SubscriptionStatus = plans.SubscriptionStatus.ACTIVE,
    current_period_end: datetime | None = None,
) -> subscriptions.Subscription:
    """Subscribe a service's user to a plan at the service. An overdue active subscription does not prevent this.

    Raises: ServiceUserNotFound, PlanNotFound, PlanOfAnotherService, AlreadySubscribed; the errors
    of `api_keys.lock_organization_for`.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await api_keys.lock_organization_for(tx, caller, Permission.WRITE_SUBSCRIPTIONS, now)
        # Lock order: account, then the service's counter. The lock on the account prevents its
        # deletion until the subscription exists. The check comes before the lock, so that a key
        # cannot lock accounts that do not use its service.
        await tx.service_users.by_id(service.org_id, service.id, user_id) or refuse(users.ServiceUserNotFound)
        await own_account.lock_person(tx, user_id) or refuse(users.ServiceUserNotFound)
        plan = await _find_plan(tx, service.id, plan_id)
        await expire_overdue(tx, service.org_id, service.id, user_id, now)
        subscription = subscriptions.Subscription(
            id=values.new_id(),
            org_id=service.org_id,
            service_id=service.id,
            user_id=user_id,
            plan=plan,
            status=status,
            current_period_end=now + subscriptions.PERIOD if current_period_end is None else current_period_end,
            provider_subscription_id=None,
            created_at=now,
        ).at(now)
        await add(tx, subscription, now)
    return subscription


async def add(tx: Transaction, subscription: subscriptions.Subscription, now: datetime) -> None:
    """Add a subscription for a locked account in a locked organization, and make its user an end user at the service."""
    is_enrolled = await tx.assignments.add(
        subscription.org_id, subscription.service_id, [subscription.user_id], users.EnrollmentOrigin.SUBSCRIPTION, now
    )
    assert is_enrolled, "deleting the service needs the lock on its organization"
    await tx.subscriptions.add(subscription)
    tx.record(events.subscription_created(subscription))


async def update(
    ports: Ports,
    caller: callers.ServiceKey,
    user_id: UUID,
    *,
    status: plans.SubscriptionStatus | values.Keep = values.KEEP,
    current_period_end: datetime | values.Keep = values.KEEP,
    plan_id: UUID | values.Keep = values.KEEP,
) -> subscriptions.Subscription:
    """Change the user's current subscription. Any status may follow any other status.

    A subscription after its period counts as expired, even if the sweeper has not marked it yet: a longer period alone
    does not reactivate it. If a payment provider manages the subscription and it ends here, it is canceled at the
    provider, too. If the subscription has ended at the provider and is reactivated here, the provider no longer manages
    it.

    Raises: EmptySubscriptionUpdate, SubscriptionNotFound, PlanNotFound, PlanOfAnotherService,
    PlanRemoved.
    """
    changes = values.provided(status=status, current_period_end=current_period_end)
    if not changes and plan_id is values.KEEP:
        raise subscriptions.EmptySubscriptionUpdate
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await api_keys.lock_organization_for(tx, caller, Permission.WRITE_SUBSCRIPTIONS, now)
        await expire_overdue(tx, service.org_id, service.id, user_id, now)
        old = await tx.subscriptions.lock_of_user(service.org_id, service.id, user_id, now) or refuse(subscriptions.SubscriptionNotFound)
        if plan_id is not values.KEEP and plan_id != old.plan.id:
            changes["plan"] = await _find_plan(tx, service.id, plan_id)
        new = replace(old, **changes)
        if new.status.is_live and not old.status.is_live and await _is_over_at_provider(tx, old):
            new = replace(new, provider_subscription_id=None)  # otherwise the subscription never expires: the provider sends no more events
            await tx.subscriptions.detach_from_provider(old.org_id, old.id, now)
        new = new.at(now)
        # A live subscription must never have a deleted plan. Deleting a plan checks this, too.
        if new.plan.is_removed and new.status.is_live:
            raise subscriptions.PlanRemoved
        must_cancel = new.status != old.status and not new.status.is_live and await _request_cancellation(tx, old, now)
        if new != old:
            await tx.subscriptions.save(old, new, now)
            tx.record(events.subscription_updated(old, new))
        if not new.status.is_live:
            await end_lost_access(tx, [new], now)
    if must_cancel:
        await cancellations.cancel_now(ports, new.org_id, new.service_id)
    return new


async def end(ports: Ports, caller: callers.ServiceKey, user_id: UUID) -> None:
    """End the user's current subscription. The subscription is deleted, or canceled if a payment provider manages it.

    Raises: SubscriptionNotFound, also if it is already canceled and kept only for the provider; the
    errors of `api_keys.lock_organization_for` and `cancellations.cancel_now`.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await api_keys.lock_organization_for(tx, caller, Permission.DELETE_SUBSCRIPTIONS, now)
        old = await tx.subscriptions.lock_of_user(service.org_id, service.id, user_id, now) or refuse(subscriptions.SubscriptionNotFound)
        if old.provider_subscription_id is not None and old.status is plans.SubscriptionStatus.CANCELLED:
            raise subscriptions.SubscriptionNotFound
        await end_locked(tx, old, now)
    if old.provider_subscription_id is not None:
        await cancellations.cancel_now(ports, old.org_id, old.service_id)


async def end_locked(tx: Transaction, old: subscriptions.Subscription, now: datetime) -> None:
    """Delete a locked subscription, or cancel it if a payment provider manages it.

    The caller then calls `cancellations.cancel_now` for the provider's subscription.
    """
    if old.provider_subscription_id is None:
        await tx.subscriptions.remove(old.org_id, old.id)
    else:
        await tx.subscriptions.save(old, replace(old, status=plans.SubscriptionStatus.CANCELLED), now)
        await _request_cancellation(tx, old, now)
    await end_lost_access(tx, [old], now)
    tx.record(events.subscription_canceled(old))


async def end_lost_access(tx: Transaction, ended: Sequence[subscriptions.Subscription], now: datetime) -> None:
    """End the OpenID Connect sessions in which users had access to a service only by these subscriptions. The service is notified."""
    for org_id, service_id in sorted({(subscription.org_id, subscription.service_id) for subscription in ended}):
        user_ids = sorted(subscription.user_id for subscription in ended if subscription.service_id == service_id)
        await tx.organization_sessions.end_without_access(org_id, [service_id], user_ids, now)


async def _is_over_at_provider(tx: Transaction, subscription: subscriptions.Subscription) -> bool:
    """Return whether the payment provider has ended the subscription.

    The result is False if its cancellation is only requested: then the subscription continues at the provider, and the
    request is dropped.
    """
    if subscription.provider_subscription_id is None:
        return False
    facts = await tx.billing.find_facts(subscription.provider_subscription_id)
    return facts is not None and facts.is_over


async def _request_cancellation(tx: Transaction, old: subscriptions.Subscription, now: datetime) -> bool:
    """Request the cancellation at the payment provider, if needed, and return whether it was requested.

    A request is needed if a provider manages the subscription and it was not canceled yet.
    """
    if old.provider_subscription_id is None or old.status is plans.SubscriptionStatus.CANCELLED:
        return False
    await tx.cancellations.request(plans.Cancellation(old.provider_subscription_id, old.id, old.org_id, old.service_id, now))
    return True


async def _find_plan(tx: Transaction, service_id: UUID, plan_id: UUID) -> subscriptions.SubscribedPlan:
    """Return the service's plan that users can subscribe to.

    The API distinguishes plans of other services from plans that do not exist (security B-5).
    """
    plan = await tx.subscriptions.plan(plan_id)
    if plan is None or plan.is_removed:
        raise plans.PlanNotFound
    if plan.service_id != service_id:
        raise subscriptions.PlanOfAnotherService
    return plan


async def expire_overdue(tx: Transaction, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> None:
    """Mark this user's overdue subscription as expired, so that the result does not depend on when the sweeper runs."""
    for expired in await tx.subscriptions.expire_of_user(org_id, service_id, user_id, now):
        tx.record(events.subscription_expired(expired))


async def next_expiry(ports: Ports) -> datetime | None:
    """Return when the next subscription expires, or None if there is none."""
    async with ports.storage.reading() as read:
        return await read.subscriptions.next_expiry()


async def sweep(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Mark overdue subscriptions as expired, in batches.

    Return how many subscriptions expired by kind, or None if another process holds the lease.

    No rule relies on this sweep: all code that reads a subscription takes the time into account.
    """

    async def expire_batch(tx: Transaction, now: datetime) -> int:
        expired = await tx.subscriptions.expire(now, subscriptions.EXPIRY_BATCH)
        for subscription in expired:
            tx.record(events.subscription_expired(subscription))
        await end_lost_access(tx, expired, now)
        return len(expired)

    return await housekeeping.process_in_batches(
        ports, holder, subscriptions.LEASE_NAME, subscriptions.LEASE, subscriptions.EXPIRY_BATCH, {"subscriptions": expire_batch}
    )


MAX_LISTED: Final = 200


async def list_own_subscriptions(ports: Ports, caller: callers.Person) -> Sequence[subscriptions.OwnSubscription]:
    """Return the caller's current subscriptions, one per service, live ones first, at most MAX_LISTED."""
    async with ports.storage.reading() as read:
        return await read.subscriptions.list_of_user(caller.user_id, MAX_LISTED, ports.clock.now())


async def find_own_live(ports: Ports, caller: callers.Person, subscription_id: UUID) -> subscriptions.OwnSubscription:
    """Return the caller's live subscription with this id."""
    for own in await list_own_subscriptions(ports, caller):
        if own.subscription.id == subscription_id and own.subscription.status.is_live:
            return own
    raise subscriptions.OwnSubscriptionNotFound


async def cancel_own(ports: Ports, caller: callers.Person, subscription_id: UUID) -> None:
    """End the caller's live subscription at once, as `subscriptions.end` does."""
    known = (await find_own_live(ports, caller, subscription_id)).subscription
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await tx.organizations.lock(known.org_id) or refuse(subscriptions.OwnSubscriptionNotFound)
        await own_account.lock_own_account(tx, caller, now)
        current = await tx.subscriptions.lock_of_user(known.org_id, known.service_id, caller.user_id, now)
        if current is None or current.id != subscription_id or not current.status.is_live:
            raise subscriptions.OwnSubscriptionNotFound
        await end_locked(tx, current, now)
    if current.provider_subscription_id is not None:
        await cancellations.cancel_now(ports, current.org_id, current.service_id)
