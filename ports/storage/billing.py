"""Storage for subscriptions, and for facts about customers, checkouts and subscriptions at the payment provider."""

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.applications.model import plans
from core.billing.model import provider_facts, subscriptions
from core.billing.model.checkout import Checkout, CheckoutMatch, Customer
from core.billing.model.provider_events import OpenCheckouts
from core.billing.model.provider_objects import CheckoutMetadata
from core.kernel import values


class Billing(Protocol):
    """The payment provider's events, and the facts about its subscriptions.

    Lock order: a subscription's facts come before everything else.
    """

    def record_event(self, event_id: str, now: datetime) -> Awaitable[bool]:
        """Store that this event is processed, and return whether it is new.

        The method waits for concurrent transactions that process the same event.
        """

    async def lock_facts(self, id_: str, now: datetime) -> provider_facts.SubscriptionFacts:
        """Lock and return the facts about a provider subscription. An unknown subscription gets empty facts."""

    async def lock_subscription(self, id_: str, now: datetime) -> provider_facts.LockedSubscription:
        """Lock the facts about a provider subscription as `lock_facts` does, then our organization and our subscription.

        The three statements take a single round trip. Our subscription has its stored status.
        """

    async def find_facts(self, id_: str) -> provider_facts.SubscriptionFacts | None:
        """Return the facts about a provider subscription without waiting for locks, or None if it is unknown."""

    async def save_facts(self, facts: provider_facts.SubscriptionFacts, now: datetime, *, check_at: datetime | values.Keep | None) -> None:
        """Save locked facts, and when the next check is due. A time of None means no check; KEEP keeps the present time.

        If the facts wait for another subscription, a trigger makes their check due as soon as that
        subscription has ended.
        """

    async def mark_ended(self, id_: str, now: datetime) -> None:
        """Store that a provider subscription is over. The subscription's facts are locked, as `lock_facts` does."""

    async def claim_check(self, now: datetime, until: datetime) -> str | None:
        """Return the subscription with the check that has been due longest, or None. The check is due again at `until`."""

    async def next_check(self) -> datetime | None: ...

    async def reschedule_check(self, id_: str, until: datetime, at: datetime) -> None:
        """Move a check that was claimed until `until` to `at`. A check with another time stays as it is."""

    async def check_subscriptions_of_customer(self, org_id: UUID | None, customer_id: str, now: datetime) -> None:
        """Make the checks for this customer's subscriptions due, except for subscriptions that are over.

        If `org_id` is given, only this organization's subscriptions are checked.
        """

    async def is_checked_separately(self, id_: str, since: datetime) -> bool:
        """Return whether a check for this subscription is planned, or its state was received after `since`."""

    async def subscription(self, id_: str) -> subscriptions.Subscription | None:
        """Return our subscription for this provider subscription, or None."""

    async def plan_of_price(
        self, org_id: UUID, service_id: UUID, price_id: str | None, preferred: UUID
    ) -> subscriptions.SubscribedPlan | None:
        """Return the service's plan with this price, or None.

        If several plans have it, the preferred plan comes first, then plans that were not deleted,
        then the oldest.
        """


class CustomersRead(Protocol):
    """Read access to the customer records that the payment provider has for organizations."""

    async def of_organization(self, org_id: UUID) -> subscriptions.BillingCustomer | None:
        """Return the organization's customer, with its current payment method, or None if the provider has none."""


class Customers(CustomersRead, Protocol):
    """Write access to the customer records, and to their payment methods."""

    async def find_or_add(self, org_id: UUID, key: UUID, now: datetime) -> Customer:
        """Return the organization's customer. If the customer is unknown, `key` becomes the idempotency key for creating it."""

    async def renew_key(self, org_id: UUID, key: UUID, new: UUID) -> None:
        """Replace this idempotency key, unless it was already replaced or the customer is known."""

    async def save(self, org_id: UUID, key: UUID, customer_id: str) -> str | None:
        """Save the customer created with this key, unless there is a customer, and return the current customer.

        Return None if the key was replaced.
        """

    async def may_belong_to(self, org_id: UUID, customer_id: str) -> bool:
        """Return whether the customer belongs to no other organization, and the organization has no other customer."""

    async def link(self, org_id: UUID, customer_id: str, key: UUID, now: datetime) -> bool:
        """Store an organization's customer, from an event. Return False if the event contradicts stored data.

        A deleted customer cannot be linked. `key` becomes the idempotency key if the organization has no row yet. The
        method runs two statements.
        """

    async def save_user(self, org_id: UUID | None, customer_id: str, user_id: UUID | None, at: datetime) -> bool:
        """Store a customer's user, unless a newer event has set it. Return whether the customer is known.

        If `org_id` is given, the customer must be that organization's.
        """

    async def mark_deleted(self, org_id: UUID | None, customer_id: str, key: UUID, now: datetime) -> bool:
        """Unlink a deleted customer, and ignore it in later events. Return whether the customer was linked.

        If `org_id` is given, the customer must be that organization's. `key` is the idempotency key for creating the
        organization's next customer. The method runs two statements.
        """

    async def attach_payment_method(self, customer_id: str, payment_method_id: str, at: datetime, now: datetime) -> bool:
        """Attach a payment method to a customer, unless a newer event is known. Return whether the customer is known.

        An organization's current payment method is the method that was attached last and is still attached.
        """

    async def detach_payment_method(self, payment_method_id: str, at: datetime, now: datetime) -> bool:
        """Detach a payment method, unless a newer event is known. Return whether the payment method belonged to a known customer."""


class Checkouts(Protocol):
    """Checkouts that members started."""

    async def add(self, checkout: Checkout, check_at: datetime) -> None: ...
    async def save_session(self, org_id: UUID, checkout_id: UUID, session_id: str, customer_id: str) -> None: ...

    async def complete(
        self, checkout_id: UUID, session_id: str, id_: str, metadata: CheckoutMetadata | None, customer_id: str | None
    ) -> bool:
        """Save the subscription that a checkout led to. Return False if the checkout is unknown or contradicts the arguments."""

    async def match(self, id_: str, metadata: CheckoutMetadata, price_id: str | None) -> CheckoutMatch | None:
        """Compare a subscription with the checkout that led to it, or may have, preferably a checkout with this price.

        Return None if there is no such checkout.
        """

    async def metadata_of(self, id_: str) -> CheckoutMetadata | None:
        """Return the metadata in the checkout that led to this subscription, or None if it is not known."""

    async def stop_checks(self, org_id: UUID, id_: str) -> None:
        """Stop checking the checkout that led to this subscription. Another checkout may still lead to a subscription."""

    async def claim(self, now: datetime, until: datetime, since: datetime, begun_by: datetime) -> OpenCheckouts | None:
        """Claim a customer's open checkouts, or return None if none is due.

        The customer with the oldest due check comes first. All the customer's open checkouts that were started at or
        before `begun_by` are claimed. Claimed rows are due again at `until`. Checkouts that were started before `since`
        are not checked again.
        """

    async def next_check(self) -> datetime | None: ...

    async def reschedule(self, ids: Sequence[UUID], at: datetime, since: datetime) -> None:
        """Make claimed checkouts due at `at`, unless their checks were stopped. `since` is the value passed to `claim`.

        Checkouts that started before `since` are always checked again, because their claim has
        already removed the next check.
        """


class Cancellations(Protocol):
    """Subscriptions to cancel at the payment provider. A database trigger adds deleted subscriptions that the provider manages."""

    async def request(self, cancellation: plans.Cancellation) -> None:
        """Add a cancellation for a subscription that stays in the database, or that was never in it."""

    async def is_requested(self, org_id: UUID, id_: str) -> bool:
        """Return whether this subscription's cancellation at the provider is pending."""

    async def claim(self, now: datetime, until: datetime) -> plans.Cancellation | None:
        """Return the cancellation that has been due longest, or None. The cancellation is due again at `until`.

        Subscriptions that became live again are left out.
        """

    async def next_due(self) -> datetime | None: ...

    async def claim_of_service(
        self, org_id: UUID, service_id: UUID, now: datetime, until: datetime, limit: int
    ) -> list[plans.Cancellation]:
        """Return a service's due cancellations, at most `limit`. Claimed rows are due again at `until`."""

    async def complete(self, cancellation: plans.Cancellation) -> bool:
        """Remove a completed cancellation. Return False if another process has already removed it."""


class SubscriptionsRead(Protocol):
    """Read access to subscriptions. An active subscription without a payment provider is returned as expired after its period."""

    async def entitlement(self, service_id: UUID, user_id: UUID, now: datetime) -> plans.Entitlement: ...
    async def uses_plan(self, org_id: UUID, plan_id: UUID, now: datetime) -> bool:
        """Return whether the plan has live subscriptions."""

    async def plan(self, plan_id: UUID) -> subscriptions.SubscribedPlan | None:
        """Return the plan with this id, regardless of its service, deleted or not."""

    async def purchase(self, org_id: UUID, subscription_id: UUID) -> subscriptions.Purchase | None:
        """Return the names of the subscription's plan and service, or None if the subscription is not live."""

    async def page(
        self, org_id: UUID, service_id: UUID, status: plans.SubscriptionStatus | None, limit: int, offset: int, now: datetime
    ) -> values.PageResult[subscriptions.Subscription]:
        """Return a page with the service's subscriptions that have this current status, oldest first. A status of None means any status."""

    async def counts(self, org_id: UUID, service_id: UUID, now: datetime) -> Mapping[plans.SubscriptionStatus, int]:
        """Return how many subscriptions the service has, per current status."""

    async def of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> subscriptions.Subscription | None:
        """Return the user's live subscription, or else the newest, or None."""

    async def list_of_user(self, user_id: UUID, limit: int, now: datetime) -> list[subscriptions.OwnSubscription]:
        """Return the subscription that `of_user` returns, for every service in every organization.

        Live subscriptions come first, then by the names of the organization and the service.
        """

    async def next_expiry(self) -> datetime | None:
        """Return when the next subscription expires, in any organization, except subscriptions that the payment provider manages."""


class Subscriptions(SubscriptionsRead, Protocol):
    """Write access to subscriptions. Callers lock the organization before calling any method except `expire`."""

    async def lock_of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> subscriptions.Subscription | None:
        """Lock and return the subscription that `of_user` returns."""

    async def lock_of_provider(self, org_id: UUID, provider_subscription_id: str) -> subscriptions.Subscription | None:
        """Lock and return the organization's subscription with this id at the payment provider, with its stored status."""

    async def exists(self, org_id: UUID, subscription_id: UUID) -> bool: ...

    async def add(self, subscription: subscriptions.Subscription) -> None:
        """Add a subscription and increment the service's count. Callers lock the account first. Raises: AlreadySubscribed."""

    async def save(self, old: subscriptions.Subscription, new: subscriptions.Subscription, now: datetime) -> None:
        """Save a locked subscription's new plan, status and period.

        Raises: AlreadySubscribed if it becomes live, and the user has another live subscription.
        """

    async def detach_from_provider(self, org_id: UUID, subscription_id: UUID, now: datetime) -> None:
        """Store that the payment provider no longer manages the subscription."""

    async def remove(self, org_id: UUID, subscription_id: UUID) -> None:
        """Delete a subscription and decrement the service's count."""

    async def expire_of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> list[subscriptions.Subscription]:
        """Mark the user's overdue subscription as expired, and return it. There is at most one overdue subscription."""

    async def expire(self, now: datetime, limit: int) -> list[subscriptions.Subscription]:
        """Mark at most `limit` overdue subscriptions as expired, in all organizations, and return them.

        Locked subscriptions are skipped.
        """
