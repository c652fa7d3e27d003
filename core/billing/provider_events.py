"""The receiver of the payment provider's events (organizations.md section 4.2; decisions, points 165 to 170; security.md H-1 to H-5).

Each event has its effect in one transaction with the note that it was processed. About a subscription, the facts are kept (core.payments),
and what follows from them is written to the subscription of ours; one that there is none for yet gets it as soon as somebody says whose it
is to be, and all that was checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from core.accounts.email_queue_rules import MailKind, new_mail
from core.applications.cancellations_rules import Cancellation
from core.billing import events, payments, subscriptions
from core.billing.payments import SOON, Bought, Facts, Meant, ProviderSubscription, Unreadable, next_check
from core.billing.subscriptions_rules import Subscription, SubscriptionStatus
from core.kernel.principals import SYSTEM
from core.kernel.values import KEEP, new_id, parse_id

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.billing.subscriptions_rules import SubscribedPlan
    from ports import Ports
    from ports.storage import Transaction
from core.billing.provider_events_rules import KNOWN, BillingEvent, Effect, EventInvalid


async def receive(ports: Ports, event: BillingEvent) -> Effect:
    """Process an event, once. Raises EventInvalid."""
    if event.type not in HANDLED:
        return Effect.UNKNOWN_TYPE
    if ports.policy.billing_livemode not in (None, event.livemode):
        return Effect.OTHER_MODE
    now = ports.clock.now()
    try:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            # Waits for whoever is processing the same one, and is the first after all if they fail.
            if not await tx.billing.is_first(event.id, now):
                return Effect.DUPLICATE
            return await HANDLED[event.type](tx, event, now)
    except Unreadable:
        raise EventInvalid from None


# Subscriptions


async def _subscription(tx: Transaction, event: BillingEvent, now: datetime) -> Effect:
    found = payments.read_subscription(event.about)
    at_creation, deleted = event.type == "customer.subscription.created", event.type == "customer.subscription.deleted"
    return await learn(tx, found, event.created, now, at_creation=at_creation, deleted=deleted)


async def _trial_ends(tx: Transaction, event: BillingEvent, now: datetime) -> Effect:
    found = payments.read_subscription(event.about)
    effect = await learn(tx, found, event.created, now)
    ends = payments.moment(event.about.get("trial_end"))
    is_over = ends is not None and ends <= now  # it was sent some days before that, and comes late
    if effect in KNOWN and not is_over and (await tx.billing.lock_facts(found.id, now)).is_trial:  # nothing newer says otherwise
        await _notify(tx, found.id, MailKind.TRIAL_ENDS, now)
    return effect


async def learn(
    tx: Transaction, found: ProviderSubscription, at: datetime, now: datetime, *, at_creation: bool = False, deleted: bool = False
) -> Effect:
    """Keep what the provider says of a subscription, and make ours what follows from it."""
    old = await tx.billing.lock_facts(found.id, now)
    new = old.with_object(found, at, at_creation=at_creation, deleted=deleted)
    if old.org_id is not None:
        return await _change(tx, old, new, found, now)
    return await _attach(tx, new, found, now)


async def _attach(tx: Transaction, facts: Facts, found: ProviderSubscription, now: datetime) -> Effect:
    """A subscription of ours to one of the provider's that has none yet."""
    # Whoever changes it at the provider may take away whose it is; what came of a checkout of ours is known all the same.
    meant = found.meant or await tx.billing.bought(facts.id)
    if meant is None:
        await tx.billing.keep_facts(facts, now, check_at=None)
        return Effect.NOT_OURS
    has_waited, facts = facts.waits_for is not None, replace(facts, waits_for=None)
    plan = await _agreed(tx, meant, found, has_waited=has_waited)
    if isinstance(plan, Effect):
        await tx.billing.keep_facts(facts, now, check_at=None)
        if facts.is_over:  # and nobody goes on paying for it
            return Effect.NOT_OURS
        if plan is Effect.ORPHANED:
            # What somebody has paid for after its service was deleted, or the organization, or they themselves, ends at the provider, too.
            await tx.cancellations.ask_for(Cancellation(facts.id, new_id(), meant.org_id, meant.service_id, now))
        return plan
    implied = facts.implied
    assert implied is not None, "there is an object"
    other = await _live_one(tx, meant, now) if implied.status.is_live else None
    if other is not None:
        # Asked about as soon as that other one has ended, and until then once a day, as all that is paid for.
        await tx.billing.keep_facts(replace(facts, waits_for=other.id), now, check_at=now + payments.EVERY)
        return Effect.SECOND
    subscription = Subscription(
        id=new_id(),
        org_id=meant.org_id,
        service_id=meant.service_id,
        user_id=meant.user_id,
        plan=await _plan(tx, meant, implied.price_id, plan) or plan,
        status=implied.status,
        current_period_end=implied.period_end_or(now),
        provider_subscription_id=facts.id,
        created_at=now,
    )
    await tx.subscriptions.add(subscription)
    tx.record(events.subscription_created(subscription))
    ours = facts.as_of(subscription.org_id)
    await tx.billing.keep_facts(ours, now, check_at=next_check(ours, now))
    await tx.billing.checkout_done(subscription.org_id, facts.id)
    if facts.waits_for_action:
        await _write_to(tx, subscription, MailKind.PAYMENT_ACTION, now, link=facts.action_page)
    return Effect.DONE


async def _agreed(tx: Transaction, meant: Meant, found: ProviderSubscription, *, has_waited: bool) -> SubscribedPlan | Effect:
    """The plan that is meant, if all that is said agrees with what is stored, and in itself (security.md H-5); else that it disagrees, or
    is an orphan. What has waited here for another one to end agreed before.

    Locks the organization and the account.
    """
    checkout = await tx.billing.checkout_of(found.id, meant, found.price_id)
    if checkout is not None and not checkout.is_meant:
        return Effect.DISAGREES
    if found.customer_id is not None and not await tx.billing.is_customer(meant.org_id, found.customer_id):
        return Effect.DISAGREES
    is_here = await tx.organizations.lock(meant.org_id) is not None and await tx.services.by_id(meant.org_id, meant.service_id) is not None
    account = await tx.accounts.lock(meant.user_id) if is_here else None
    if account is None or account.anonymized_at is not None:
        # That it is ours to end, a checkout must say, or that it has waited here: the same provider may serve another installation, whose
        # services are not here either.
        return Effect.ORPHANED if checkout is not None or has_waited else Effect.DISAGREES
    plan = await tx.subscriptions.plan(meant.plan_id)
    if plan is None or plan.service_id != meant.service_id or not await _is_price(tx, meant, checkout, found.price_id):
        return Effect.DISAGREES
    return plan


async def _is_price(tx: Transaction, meant: Meant, checkout: Bought | None, price_id: str | None) -> bool:
    """Whether the price is that of the plan that is meant, or was when it was bought; or of one to which it was changed since.

    That may have been before we hear of it at all; then a checkout must say that it is one of ours.
    """
    if checkout is not None and checkout.is_price:
        return True
    plan = await tx.billing.plan_of_price(meant.org_id, meant.service_id, price_id, meant.plan_id)
    return plan is not None and (plan.id == meant.plan_id or checkout is not None)


async def _plan(tx: Transaction, whose: Meant | Subscription, price_id: str | None, current: SubscribedPlan) -> SubscribedPlan | None:
    """The plan of the service that has this price, the current one if it does; None where none has."""
    if price_id in (None, current.price_id):
        return current
    return await tx.billing.plan_of_price(whose.org_id, whose.service_id, price_id, current.id)


async def _live_one(tx: Transaction, whose: Meant | Subscription, now: datetime) -> Subscription | None:
    """The one of this person to this service that is live, locked, if there is one."""
    of_user = (whose.org_id, whose.service_id, whose.user_id)
    await subscriptions.mark_run_out(tx, *of_user, now)
    found = await tx.subscriptions.lock_of_user(*of_user, now)
    return found if found is not None and found.status.is_live else None


async def _change(tx: Transaction, old: Facts, new: Facts, found: ProviderSubscription | None, now: datetime) -> Effect:
    """What follows for a subscription of ours from what is new; `found` is what the event itself says."""
    assert new.org_id is not None, "it has come to be one of ours"
    tx.organizations.lock_deferred(new.org_id)  # without it there is no subscription of it
    current = await tx.subscriptions.lock_of_provider(new.org_id, new.id)
    if current is None:  # removed here, or let go when it was over, and so it stays
        await tx.billing.keep_facts(replace(new, ended=True), now, check_at=None)
        # One that is over there, or is to be cancelled, is as it should be; another one somebody goes on paying for.
        is_over = old.ended or new.is_over or await tx.cancellations.is_asked_for(new.org_id, new.id)
        return Effect.NOT_OURS if is_over else Effect.DISAGREES
    if found is not None and not await _is_of(tx, current, old, found):
        return Effect.DISAGREES
    if new.object_at != old.object_at:
        new = replace(new, waits_for=None)  # found out anew; what says nothing of how it is leaves it waiting
    before, implied = old.implied, new.implied
    # Where nothing new follows, and nothing is said of its status, what an API key has made of it stays; and nothing follows what is final.
    is_news = implied != before or new.says_more_of_status_than(old)
    if implied is None or not is_news or old.ended or await _is_ended_here(tx, current):
        await tx.billing.keep_facts(new, now, check_at=next_check(new, now))
        return Effect.UNCHANGED
    changed, is_known = replace(current, status=implied.status), True
    if before is None or implied.period_end != before.period_end:
        changed = replace(changed, current_period_end=implied.period_end or current.current_period_end)
    if before is None or implied.price_id != before.price_id:
        plan = await _plan(tx, current, implied.price_id, current.plan)
        changed, is_known = replace(changed, plan=plan or current.plan), plan is not None
    other = await _live_one(tx, current, now) if changed.status.is_live and not current.status.is_live else None
    if other is not None:
        # As if nothing had been heard, so that it follows when that other one has ended, and the provider is asked again.
        await tx.billing.keep_facts(replace(old, waits_for=other.id), now, check_at=now + payments.EVERY)
        return Effect.SECOND
    await tx.billing.keep_facts(new, now, check_at=next_check(new, now))
    if changed != current:
        await tx.subscriptions.save(changed, now)
        if changed.status is SubscriptionStatus.CANCELLED:
            tx.record(events.subscription_canceled(current))
        else:
            tx.record(events.subscription_updated(current, changed))
    if not is_known:
        return Effect.DISAGREES
    return Effect.UNCHANGED if changed == current else Effect.DONE


async def _is_ended_here(tx: Transaction, subscription: Subscription) -> bool:
    """Whether it stays ended whatever is heard of it: it is cancelled, or an API key has ended it otherwise, and it is being cancelled
    there."""
    if subscription.status is not SubscriptionStatus.EXPIRED:
        return subscription.status is SubscriptionStatus.CANCELLED
    id_ = subscription.provider_subscription_id
    return id_ is not None and await tx.cancellations.is_asked_for(subscription.org_id, id_)


async def _is_of(tx: Transaction, current: Subscription, facts: Facts, found: ProviderSubscription) -> bool:
    """Whether what is said is about this subscription of ours. The plan may be another one of the service by now."""
    if None not in (facts.customer_id, found.customer_id) and facts.customer_id != found.customer_id:
        return False
    meant = found.meant
    if meant is None:
        return True
    if (meant.org_id, meant.service_id, meant.user_id) != (current.org_id, current.service_id, current.user_id):
        return False
    plan = current.plan if meant.plan_id == current.plan.id else await tx.subscriptions.plan(meant.plan_id)
    return plan is None or plan.service_id == current.service_id


# Invoices


async def _invoice(tx: Transaction, event: BillingEvent, now: datetime) -> Effect:
    id_ = payments.invoice_subscription(event.about)
    if id_ is None:
        return Effect.NOT_OURS  # for something that is no subscription
    old = await tx.billing.lock_facts(id_, now)
    customer_id, page = payments.name(event.about.get("customer")), payments.invoice_page(event.about)
    if None not in (customer_id, old.customer_id) and customer_id != old.customer_id:
        return Effect.DISAGREES
    waits = event.type == "invoice.payment_action_required" and not payments.invoice_is_settled(event.about)
    match event.type:
        case "invoice.paid":
            new = old.with_payment(event.created, payments.invoice_period_end(event.about))
        case "invoice.payment_failed":
            new = old.with_failure(event.created)
        case _:
            new = old.with_action(event.created, page) if waits else old
    if old.org_id is None:
        await tx.billing.keep_facts(new, now, check_at=next_check(new, now) or KEEP)
        return Effect.NOT_OURS
    effect = await _change(tx, old, new, None, now)
    if effect in KNOWN and waits and new.needs_action_of(event.created):
        await _notify(tx, id_, MailKind.PAYMENT_ACTION, now, link=page)
    return effect


# People


async def _notify(tx: Transaction, id_: str, kind: MailKind, now: datetime, *, link: str | None = None) -> None:
    """Write to whose subscription it is, while it is live, and where to go if there is a place."""
    subscription = await tx.billing.subscription(id_)
    if subscription is not None and subscription.status.is_live:
        await _write_to(tx, subscription, kind, now, link=link)


async def _write_to(tx: Transaction, subscription: Subscription, kind: MailKind, now: datetime, *, link: str | None = None) -> None:
    account = await tx.accounts.by_id(subscription.user_id)
    if account is not None and account.is_usable:
        mail = new_mail(kind, account.email, now, token=link, org_id=subscription.org_id, subscription_id=subscription.id)
        await tx.mails.queue(mail)


# Customers


async def _customer(tx: Transaction, event: BillingEvent, now: datetime) -> Effect:
    """Whom the provider's data name for the customer of an organization; and which customer that is, where we have not heard the answer to
    what we asked for."""
    customer_id = payments.name(event.about) or _no_name()
    org_id, user_id = _named(event, "org_id"), _named(event, "user_id")
    if user_id is not None:  # first, as whoever deletes the account holds it
        await tx.accounts.lock(user_id)
    if org_id is not None and not await tx.billing.link_customer(org_id, customer_id, new_id(), now):
        return Effect.DISAGREES
    known = await tx.billing.sync_customer(org_id, customer_id, user_id, event.created)
    return Effect.DONE if known else Effect.NOT_OURS


async def _customer_deleted(tx: Transaction, event: BillingEvent, now: datetime) -> Effect:
    """The organization gets another customer at its next checkout.

    By that the provider has cancelled all subscriptions of this one. Each of them is told by an event of its own, and asked about.
    """
    customer_id, org_id = payments.name(event.about) or _no_name(), _named(event, "org_id")
    await tx.billing.check_those_of(org_id, customer_id, now)
    known = await tx.billing.forget_customer(org_id, customer_id, new_id(), now)
    return Effect.DONE if known else Effect.NOT_OURS


def _named(event: BillingEvent, key: str) -> UUID | None:
    """The id that the metadata have for this; None where they have none, and there is nothing to compare with."""
    metadata = event.about.get("metadata")
    text = metadata.get(key) if isinstance(metadata, Mapping) else None
    return parse_id(text) if isinstance(text, str) else None


async def _payment_method(tx: Transaction, event: BillingEvent, now: datetime) -> Effect:
    id_, customer_id = payments.name(event.about) or _no_name(), payments.name(event.about.get("customer"))
    if event.type == "payment_method.detached":
        known = await tx.billing.detach_payment_method(id_, event.created, now)
    else:
        known = customer_id is not None and await tx.billing.attach_payment_method(customer_id, id_, event.created, now)
    return Effect.DONE if known else Effect.NOT_OURS


def _no_name() -> str:
    raise Unreadable


# Checkouts


async def _checkout_completed(tx: Transaction, event: BillingEvent, now: datetime) -> Effect:
    """Which subscription came of a checkout. What it is, its own events say; or the provider, if none comes."""
    session_id, id_ = payments.name(event.about) or _no_name(), payments.subscription_name(event.about.get("subscription"))
    reference = event.about.get("client_reference_id")
    checkout_id = parse_id(reference) if isinstance(reference, str) else None
    if id_ is None or checkout_id is None:
        return Effect.NOT_OURS
    facts = await tx.billing.lock_facts(id_, now)
    said = payments.meant(event.about.get("metadata"))
    customer_id = payments.name(event.about.get("customer"))
    if not await tx.billing.complete_checkout(checkout_id, session_id, id_, said, customer_id):
        return Effect.DISAGREES
    if facts.org_id is not None:
        await tx.billing.checkout_done(facts.org_id, id_)
    await tx.billing.keep_facts(facts, now, check_at=next_check(facts, now) if facts.org_id else now + SOON)
    return Effect.DONE


HANDLED: Final = {
    "customer.subscription.created": _subscription,
    "customer.subscription.updated": _subscription,
    "customer.subscription.deleted": _subscription,
    "customer.subscription.trial_will_end": _trial_ends,
    "invoice.paid": _invoice,
    "invoice.payment_failed": _invoice,
    "invoice.payment_action_required": _invoice,
    "customer.created": _customer,
    "customer.updated": _customer,
    "customer.deleted": _customer_deleted,
    "payment_method.attached": _payment_method,
    "payment_method.detached": _payment_method,
    "checkout.session.completed": _checkout_completed,
}
