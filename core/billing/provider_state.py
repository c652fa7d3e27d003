"""The state of our subscriptions, derived from facts about the payment provider's subscriptions (security H-5).

Facts come from events (core.billing.provider_events) and from checks (core.billing.reconciliation). Facts are stored
(core.billing.model.provider_facts), and the state that follows from them is written to our subscription. If our
subscription does not exist yet, it is created as soon as its user, service and plan are known and verified.
"""

from dataclasses import replace
from datetime import datetime

from core.accounts.model import email_queue
from core.applications.model import plans
from core.billing import events, subscriptions
from core.billing.model import provider_facts, provider_objects
from core.billing.model.checkout import CheckoutMatch
from core.billing.model.provider_events import Effect
from core.billing.model.subscriptions import SubscribedPlan, Subscription
from core.kernel.values import new_id
from ports.storage import Transaction


async def apply_provider_state(
    tx: Transaction,
    locked: provider_facts.LockedSubscription,
    subscription: provider_objects.ProviderSubscription,
    at: datetime,
    now: datetime,
    *,
    at_creation: bool = False,
    deleted: bool = False,
) -> Effect:
    """Store the state that a locked subscription has at the provider, and update or create our subscription.

    `at` is when the subscription had this state, by the provider's clock.
    """
    new = locked.facts.with_subscription(subscription, at, at_creation=at_creation, deleted=deleted)
    if locked.facts.org_id is not None:
        return await update_subscription(tx, locked, new, subscription, now)
    return await _create_subscription(tx, new, subscription, now)


async def _create_subscription(
    tx: Transaction, facts: provider_facts.SubscriptionFacts, provider_subscription: provider_objects.ProviderSubscription, now: datetime
) -> Effect:
    """Create our subscription for the provider's subscription, which has none here yet.

    If its data cannot be verified, or if the user has another live subscription, only store the
    facts.
    """
    # The metadata can be removed at the provider. If the subscription came from our checkout, we
    # still have the metadata.
    metadata = provider_subscription.metadata or await tx.checkouts.metadata_of(facts.id)
    if metadata is None:
        await tx.billing.save_facts(facts, now, check_at=None)
        return Effect.NOT_MANAGED_HERE
    has_waited, facts = facts.waits_for is not None, replace(facts, waits_for=None)
    plan = await _verify(tx, metadata, provider_subscription, has_waited=has_waited)
    if isinstance(plan, Effect):
        await tx.billing.save_facts(facts, now, check_at=None)
        if facts.is_over:  # no further payments will be made for it
            return Effect.NOT_MANAGED_HERE
        if plan is Effect.ORPHANED:
            # The user paid after the service, the organization or the account was deleted. Cancel
            # the subscription at the provider.
            await tx.cancellations.request(plans.Cancellation(facts.id, new_id(), metadata.org_id, metadata.service_id, now))
        return plan
    state = facts.derived_state
    assert state is not None, "the facts include an object"
    other = await _lock_live_subscription(tx, metadata, now) if state.status.is_live else None
    if other is not None:
        # Checked as soon as the other subscription has ended. Until that time the subscription is
        # checked daily, because the user pays for it.
        await tx.billing.save_facts(replace(facts, waits_for=other.id), now, check_at=now + provider_facts.CHECK_INTERVAL)
        return Effect.DUPLICATE_SUBSCRIPTION
    subscription = Subscription(
        id=new_id(),
        org_id=metadata.org_id,
        service_id=metadata.service_id,
        user_id=metadata.user_id,
        plan=await _plan_of_price(tx, metadata, state.price_id, plan) or plan,
        status=state.status,
        current_period_end=state.period_end_or_default(now),
        provider_subscription_id=facts.id,
        created_at=now,
    )
    await subscriptions.add(tx, subscription, now)
    assigned = facts.assigned_to(subscription.org_id)
    await tx.billing.save_facts(assigned, now, check_at=provider_facts.next_check(assigned, now))
    await tx.checkouts.stop_checks(subscription.org_id, facts.id)
    if facts.needs_action:
        await _send_mail(tx, subscription, email_queue.EmailKind.PAYMENT_ACTION, now, link=facts.action_page)
    return Effect.DONE


async def _verify(
    tx: Transaction, metadata: provider_objects.CheckoutMetadata, subscription: provider_objects.ProviderSubscription, *, has_waited: bool
) -> SubscribedPlan | Effect:
    """Return the plan in the metadata if all data in the subscription agrees with stored data and with itself (security H-5).

    Otherwise return MISMATCH or ORPHANED. `has_waited` says that the subscription was verified
    before, and then waited for another to end.

    Locks the organization and the account.
    """
    checkout = await tx.checkouts.match(subscription.id, metadata, subscription.price_id)
    if checkout is not None and not checkout.same_metadata:
        return Effect.MISMATCH
    if subscription.customer_id is not None and not await tx.customers.may_belong_to(metadata.org_id, subscription.customer_id):
        return Effect.MISMATCH
    service_exists = (
        await tx.organizations.lock(metadata.org_id) is not None
        and await tx.services.by_id(metadata.org_id, metadata.service_id) is not None
    )
    account = await tx.accounts.lock(metadata.user_id) if service_exists else None
    if account is None or account.anonymized_at is not None:
        # Cancel the subscription only if a checkout or an earlier verification shows that it is
        # ours. Another installation may use the same provider account, and its services do not
        # exist here either.
        return Effect.ORPHANED if checkout is not None or has_waited else Effect.MISMATCH
    plan = await tx.subscriptions.plan(metadata.plan_id)
    if plan is None or plan.service_id != metadata.service_id or not await _is_price_valid(tx, metadata, checkout, subscription.price_id):
        return Effect.MISMATCH
    return plan


async def _is_price_valid(
    tx: Transaction, metadata: provider_objects.CheckoutMetadata, checkout: CheckoutMatch | None, price_id: str | None
) -> bool:
    """Return whether the price belongs to the plan in the metadata, or to another plan at the service.

    The plan's price may be the present price or the price at the checkout. Another plan is possible if the subscription
    changed its plan before the first event arrived. For another plan, a checkout must show that the subscription is
    ours.
    """
    if checkout is not None and checkout.same_price:
        return True
    plan = await tx.billing.plan_of_price(metadata.org_id, metadata.service_id, price_id, metadata.plan_id)
    return plan is not None and (plan.id == metadata.plan_id or checkout is not None)


async def _plan_of_price(
    tx: Transaction, owner: provider_objects.CheckoutMetadata | Subscription, price_id: str | None, current: SubscribedPlan
) -> SubscribedPlan | None:
    """Return the service's plan with this price, preferably the current one, or None if no plan has it."""
    if price_id in (None, current.price_id):
        return current
    return await tx.billing.plan_of_price(owner.org_id, owner.service_id, price_id, current.id)


async def _lock_live_subscription(
    tx: Transaction, owner: provider_objects.CheckoutMetadata | Subscription, now: datetime
) -> Subscription | None:
    """Lock and return the user's live subscription to this service, if any."""
    key = (owner.org_id, owner.service_id, owner.user_id)
    await subscriptions.expire_overdue(tx, *key, now)
    subscription = await tx.subscriptions.lock_of_user(*key, now)
    return subscription if subscription is not None and subscription.status.is_live else None


async def update_subscription(
    tx: Transaction,
    locked: provider_facts.LockedSubscription,
    new: provider_facts.SubscriptionFacts,
    provider_subscription: provider_objects.ProviderSubscription | None,
    now: datetime,
) -> Effect:
    """Update our subscription from new facts. `provider_subscription` is the event's object, or None if the event is about an invoice."""
    assert new.org_id is not None, "the facts belong to an organization"
    old, current = locked.facts, locked.subscription
    if current is None:  # the subscription was removed, or detached from the provider after it ended; both are final
        await tx.billing.save_facts(replace(new, ended=True), now, check_at=None)
        # Nothing is wrong if the provider has ended its subscription, or if we will cancel it
        # there. Otherwise the user keeps paying for nothing.
        is_over = old.ended or new.is_over or await tx.cancellations.is_requested(new.org_id, new.id)
        return Effect.NOT_MANAGED_HERE if is_over else Effect.MISMATCH
    if provider_subscription is not None and not await _is_consistent(tx, current, old, provider_subscription):
        return Effect.MISMATCH
    if new.object_at != old.object_at:
        new = replace(new, waits_for=None)  # decided again below; an event about an invoice does not end the wait
    state = new.derived_state
    # An API key may have changed our subscription. The key's change stays unless the event brings a
    # new state or newer facts about the status. A final state never changes.
    is_news = state != old.derived_state or new.has_newer_status_than(old)
    if state is None or not is_news or old.ended or await _was_ended_here(tx, current):
        await tx.billing.save_facts(new, now, check_at=provider_facts.next_check(new, now))
        return Effect.UNCHANGED
    changed, is_price_known = await _apply_state(tx, current, old.derived_state, state)
    other = await _lock_live_subscription(tx, current, now) if changed.status.is_live and not current.status.is_live else None
    if other is not None:
        # Keep the old facts, so that the change is applied after the other subscription has ended
        # and the provider is asked again.
        await tx.billing.save_facts(replace(old, waits_for=other.id), now, check_at=now + provider_facts.CHECK_INTERVAL)
        return Effect.DUPLICATE_SUBSCRIPTION
    await tx.billing.save_facts(new, now, check_at=provider_facts.next_check(new, now))
    if changed != current:
        await _save_change(tx, current, changed, now)
    if not is_price_known:
        return Effect.MISMATCH
    return Effect.UNCHANGED if changed == current else Effect.DONE


async def _apply_state(
    tx: Transaction, current: Subscription, before: provider_facts.DerivedState | None, state: provider_facts.DerivedState
) -> tuple[Subscription, bool]:
    """Return our subscription with the provider's state, and whether a plan at the service has its price."""
    changed, is_price_known = replace(current, status=state.status), True
    if before is None or state.period_end != before.period_end:
        changed = replace(changed, current_period_end=state.period_end or current.current_period_end)
    if before is None or state.price_id != before.price_id:
        plan = await _plan_of_price(tx, current, state.price_id, current.plan)
        changed, is_price_known = replace(changed, plan=plan or current.plan), plan is not None
    return changed, is_price_known


async def _save_change(tx: Transaction, current: Subscription, changed: Subscription, now: datetime) -> None:
    await tx.subscriptions.save(current, changed, now)
    if changed.status is plans.SubscriptionStatus.CANCELLED:
        tx.record(events.subscription_canceled(current))
    else:
        tx.record(events.subscription_updated(current, changed))
    if not changed.status.is_live:
        await subscriptions.end_lost_access(tx, [changed], now)


async def _was_ended_here(tx: Transaction, subscription: Subscription) -> bool:
    """Return whether the subscription stays ended, regardless of later events.

    A subscription stays ended if it is canceled, or if an API key ended it in another way and its cancellation at the
    provider is pending.
    """
    if subscription.status is not plans.SubscriptionStatus.EXPIRED:
        return subscription.status is plans.SubscriptionStatus.CANCELLED
    id_ = subscription.provider_subscription_id
    return id_ is not None and await tx.cancellations.is_requested(subscription.org_id, id_)


async def _is_consistent(
    tx: Transaction,
    current: Subscription,
    facts: provider_facts.SubscriptionFacts,
    provider_subscription: provider_objects.ProviderSubscription,
) -> bool:
    """Return whether the provider's object belongs to our subscription.

    The object's plan may have changed to another plan at the service.
    """
    if None not in (facts.customer_id, provider_subscription.customer_id) and facts.customer_id != provider_subscription.customer_id:
        return False
    metadata = provider_subscription.metadata
    if metadata is None:
        return True
    if (metadata.org_id, metadata.service_id, metadata.user_id) != (current.org_id, current.service_id, current.user_id):
        return False
    plan = current.plan if metadata.plan_id == current.plan.id else await tx.subscriptions.plan(metadata.plan_id)
    return plan is None or plan.service_id == current.service_id


async def notify_subscriber(tx: Transaction, id_: str, kind: email_queue.EmailKind, now: datetime, *, link: str | None = None) -> None:
    """Send an email to the user who has a live subscription, with a link if there is one."""
    subscription = await tx.billing.subscription(id_)
    if subscription is not None and subscription.status.is_live:
        await _send_mail(tx, subscription, kind, now, link=link)


async def _send_mail(
    tx: Transaction, subscription: Subscription, kind: email_queue.EmailKind, now: datetime, *, link: str | None = None
) -> None:
    account = await tx.accounts.by_id(subscription.user_id)
    if account is not None and account.is_usable:
        mail = email_queue.new_email(kind, account.email, now, token=link, org_id=subscription.org_id, subscription_id=subscription.id)
        await tx.email_queue.add(mail)
