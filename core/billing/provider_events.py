"""Receiver of the payment provider's events (security H-1, H-2, H-3, H-4, H-5).

One transaction stores an event's effect and the record that it was processed.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from core.accounts.model.email_queue import EmailKind
from core.billing import provider_state
from core.billing.model import provider_events, provider_facts, provider_objects
from core.kernel import values
from core.kernel.causes import SYSTEM
from ports import Ports
from ports.storage import Transaction


async def receive(ports: Ports, event: provider_events.BillingEvent) -> provider_events.Effect:
    """Process an event exactly once. Raises: EventInvalid."""
    if event.type not in HANDLERS and event.type not in SUBSCRIPTION_HANDLERS:
        return provider_events.Effect.UNKNOWN_TYPE
    if ports.policy.billing_livemode not in (None, event.livemode):
        return provider_events.Effect.OTHER_MODE
    now = ports.clock.now()
    try:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            return await _process(tx, event, now)
    except provider_objects.UnreadableObject:
        raise provider_events.EventInvalid from None
    except _Duplicate:
        return provider_events.Effect.DUPLICATE


class _Duplicate(Exception):
    """The event was processed before. Rolls back the locks that an event about a subscription took."""


async def _process(tx: Transaction, event: provider_events.BillingEvent, now: datetime) -> provider_events.Effect:
    """Record the event, and call its handler. Raises: UnreadableObject, _Duplicate."""
    # If another process is handling the same event, the record waits for it, and the event is new if the other process
    # fails. A repeated event's object is not read: the provider would send a refused event again for days.
    if event.type in SUBSCRIPTION_HANDLERS:
        read_id, on_subscription = SUBSCRIPTION_HANDLERS[event.type]
        id_ = read_id(event.subject)
        if id_ is not None:
            is_new = tx.billing.record_event(event.id, now)
            locked = await tx.billing.lock_subscription(id_, now)
            if not await is_new:
                raise _Duplicate
            return await on_subscription(tx, event, locked, now)
    if not await tx.billing.record_event(event.id, now):
        raise _Duplicate
    if event.type in HANDLERS:
        return await HANDLERS[event.type](tx, event, now)
    if event.type.startswith("customer.subscription."):
        raise provider_objects.UnreadableObject  # the object has no usable id
    return provider_events.Effect.NOT_MANAGED_HERE  # the invoice for a one-time purchase


# Subscriptions


async def _on_subscription(
    tx: Transaction, event: provider_events.BillingEvent, locked: provider_facts.LockedSubscription, now: datetime
) -> provider_events.Effect:
    subscription = provider_objects.parse_subscription(event.subject)
    at_creation, deleted = event.type == "customer.subscription.created", event.type == "customer.subscription.deleted"
    return await provider_state.apply_provider_state(tx, locked, subscription, event.created, now, at_creation=at_creation, deleted=deleted)


async def _on_trial_ending(
    tx: Transaction, event: provider_events.BillingEvent, locked: provider_facts.LockedSubscription, now: datetime
) -> provider_events.Effect:
    subscription = provider_objects.parse_subscription(event.subject)
    effect = await provider_state.apply_provider_state(tx, locked, subscription, event.created, now)
    trial_end = provider_objects.parse_timestamp(event.subject.get("trial_end"))
    is_over = trial_end is not None and trial_end <= now  # the provider sends the event days before, but it may arrive late
    # The stored facts may be newer than this event, so they decide whether the trial is still on.
    if effect in provider_events.APPLIED and not is_over and (await tx.billing.lock_facts(subscription.id, now)).is_trial:
        await provider_state.notify_subscriber(tx, subscription.id, EmailKind.TRIAL_ENDS, now)
    return effect


# Invoices


async def _on_invoice(
    tx: Transaction, event: provider_events.BillingEvent, locked: provider_facts.LockedSubscription, now: datetime
) -> provider_events.Effect:
    old = locked.facts
    customer_id, page = provider_objects.parse_provider_id(event.subject.get("customer")), provider_objects.invoice_page_url(event.subject)
    if None not in (customer_id, old.customer_id) and customer_id != old.customer_id:
        return provider_events.Effect.MISMATCH
    needs_action = event.type == "invoice.payment_action_required" and not provider_objects.is_invoice_settled(event.subject)
    match event.type:
        case "invoice.paid":
            new = old.with_payment(event.created, provider_objects.invoice_period_end(event.subject))
        case "invoice.payment_failed":
            new = old.with_failure(event.created)
        case _:
            new = old.with_action(event.created, page) if needs_action else old
    if old.org_id is None:
        await tx.billing.save_facts(new, now, check_at=provider_facts.next_check(new, now) or values.KEEP)
        return provider_events.Effect.NOT_MANAGED_HERE
    effect = await provider_state.update_subscription(tx, locked, new, None, now)
    if effect in provider_events.APPLIED and needs_action and new.needs_action_of(event.created):
        await provider_state.notify_subscriber(tx, old.id, EmailKind.PAYMENT_ACTION, now, link=page)
    return effect


# Customers


async def _on_customer(tx: Transaction, event: provider_events.BillingEvent, now: datetime) -> provider_events.Effect:
    """Store the user for an organization's customer. The customer's metadata contains the user's id.

    If the response to our own request that created the customer was lost, the customer's id is stored here, too.
    """
    customer_id = provider_objects.require_provider_id(event.subject)
    org_id, user_id = _metadata_id(event, "org_id"), _metadata_id(event, "user_id")
    if user_id is not None:  # lock order: account, customer, as when an account is deleted
        await tx.accounts.lock(user_id)
    if org_id is not None and not await tx.customers.link(org_id, customer_id, values.new_id(), now):
        return provider_events.Effect.MISMATCH
    is_known = await tx.customers.save_user(org_id, customer_id, user_id, event.created)
    return provider_events.Effect.DONE if is_known else provider_events.Effect.NOT_MANAGED_HERE


async def _on_customer_deleted(tx: Transaction, event: provider_events.BillingEvent, now: datetime) -> provider_events.Effect:
    """Forget the customer. The organization's next checkout creates another customer.

    The provider has canceled all the customer's subscriptions, and sends an event per subscription. The customer's
    subscriptions are also checked, in case such an event is lost.
    """
    customer_id, org_id = provider_objects.require_provider_id(event.subject), _metadata_id(event, "org_id")
    await tx.billing.check_subscriptions_of_customer(org_id, customer_id, now)
    is_known = await tx.customers.mark_deleted(org_id, customer_id, values.new_id(), now)
    return provider_events.Effect.DONE if is_known else provider_events.Effect.NOT_MANAGED_HERE


def _metadata_id(event: provider_events.BillingEvent, key: str) -> UUID | None:
    """Return the id that the metadata contains under this key, or None."""
    metadata = event.subject.get("metadata")
    text = metadata.get(key) if isinstance(metadata, Mapping) else None
    return values.parse_id(text) if isinstance(text, str) else None


async def _on_payment_method(tx: Transaction, event: provider_events.BillingEvent, now: datetime) -> provider_events.Effect:
    id_, customer_id = (
        provider_objects.require_provider_id(event.subject),
        provider_objects.parse_provider_id(event.subject.get("customer")),
    )
    if event.type == "payment_method.detached":
        is_known = await tx.customers.detach_payment_method(id_, event.created, now)
    else:
        is_known = customer_id is not None and await tx.customers.attach_payment_method(customer_id, id_, event.created, now)
    return provider_events.Effect.DONE if is_known else provider_events.Effect.NOT_MANAGED_HERE


# Checkouts


async def _on_checkout_completed(tx: Transaction, event: provider_events.BillingEvent, now: datetime) -> provider_events.Effect:
    """Store which subscription came from a checkout. The subscription's state arrives with other events, or from a check if none arrive."""
    session_id, id_ = (
        provider_objects.require_provider_id(event.subject),
        provider_objects.parse_subscription_id(event.subject.get("subscription")),
    )
    reference = event.subject.get("client_reference_id")
    checkout_id = values.parse_id(reference) if isinstance(reference, str) else None
    if id_ is None or checkout_id is None:
        return provider_events.Effect.NOT_MANAGED_HERE
    facts = await tx.billing.lock_facts(id_, now)
    metadata = provider_objects.parse_metadata(event.subject.get("metadata"))
    customer_id = provider_objects.parse_provider_id(event.subject.get("customer"))
    if not await tx.checkouts.complete(checkout_id, session_id, id_, metadata, customer_id):
        return provider_events.Effect.MISMATCH
    if facts.org_id is not None:
        await tx.checkouts.stop_checks(facts.org_id, id_)
    await tx.billing.save_facts(facts, now, check_at=provider_facts.next_check(facts, now) if facts.org_id else now + provider_facts.SOON)
    return provider_events.Effect.DONE


def _subscription_id(subject: Mapping[str, Any]) -> str | None:
    return provider_objects.parse_subscription_id(subject.get("id"))


# Events about a subscription: the function that returns its id or None, and the handler, which gets the locked
# subscription.
SUBSCRIPTION_HANDLERS: Final = {
    "customer.subscription.created": (_subscription_id, _on_subscription),
    "customer.subscription.updated": (_subscription_id, _on_subscription),
    "customer.subscription.deleted": (_subscription_id, _on_subscription),
    "customer.subscription.trial_will_end": (_subscription_id, _on_trial_ending),
    "invoice.paid": (provider_objects.invoice_subscription_id, _on_invoice),
    "invoice.payment_failed": (provider_objects.invoice_subscription_id, _on_invoice),
    "invoice.payment_action_required": (provider_objects.invoice_subscription_id, _on_invoice),
}
HANDLERS: Final = {
    "customer.created": _on_customer,
    "customer.updated": _on_customer,
    "customer.deleted": _on_customer_deleted,
    "payment_method.attached": _on_payment_method,
    "payment_method.detached": _on_payment_method,
    "checkout.session.completed": _on_checkout_completed,
}
