"""Storage of the area billing."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.applications.cancellations_rules import Cancellation
from core.billing.checkout_rules import Checkout, Customer
from core.billing.payments import CheckoutMatch, SubscriptionFacts, CheckoutMetadata
from core.billing.reconciliation_rules import OpenCheckouts
from core.billing.subscriptions_rules import Entitlement, Purchase, SubscribedPlan, Subscription, SubscriptionStatus
from core.kernel.values import Keep, PageResult

# billing: What is asked of storage about what the payment provider has said.


class Billing(Protocol):
    """What is known of the payment provider's customers, checkouts and subscriptions."""

    async def is_first(self, event_id: str, now: datetime) -> bool:
        """Whether this event was not processed before; it is, from now on. Waits for whoever is processing it at the moment."""
        ...

    async def lock_facts(self, id_: str, now: datetime) -> SubscriptionFacts:
        """What is known of the subscription of this name at the provider, locked, before anything else is. It need not be known yet."""
        ...

    async def facts(self, id_: str) -> SubscriptionFacts | None:
        """What is known of it, without waiting for whoever is learning more; None where nothing is."""
        ...

    async def save_facts(self, facts: SubscriptionFacts, now: datetime, *, check_at: datetime | Keep | None) -> None:
        """Write what is locked; and when to ask the provider about it, None for not at all. One that waits for another is asked about as
        soon as that has ended."""
        ...

    async def end(self, id_: str, now: datetime) -> None:
        """It is over. Locks it as `lock_facts` does."""
        ...

    async def claim_check(self, now: datetime, until: datetime) -> str | None:
        """The one that the provider has been to be asked about for the longest, which falls due again then; None where none is."""
        ...

    async def put_back_check(self, id_: str, until: datetime, at: datetime) -> None:
        """What was claimed until then is due at this time, unless it was said meanwhile when it is."""
        ...

    async def check_those_of(self, org_id: UUID | None, customer_id: str, now: datetime) -> None:
        """Have the provider asked about all that are of this customer and not over; of that organization only, if one is named."""
        ...

    async def subscription(self, id_: str) -> Subscription | None:
        """The subscription of ours to that one of the provider's, in the organization that is known to have it."""
        ...

    async def plan_of_price(self, org_id: UUID, service_id: UUID, price_id: str | None, preferred: UUID) -> SubscribedPlan | None:
        """The plan of the service that has this price there: the preferred one if it does, one that was not removed, the oldest."""
        ...

    async def customer(self, org_id: UUID, key: UUID, now: datetime) -> Customer:
        """As whom the provider knows the organization; where nothing is known, `key` is from now on what it is made with."""
        ...

    async def renew_customer_key(self, org_id: UUID, key: UUID, new: UUID) -> None:
        """What the customer is made with from now on, if it was to be made with this key and is not known yet."""
        ...

    async def keep_customer(self, org_id: UUID, key: UUID, customer_id: str) -> str | None:
        """Keep the customer that was made with this key, if none is; which one it is. None where the key is another one by now."""
        ...

    async def is_customer(self, org_id: UUID, customer_id: str) -> bool:
        """Whether nothing that is stored says that this is another's customer, or that the organization has another one."""
        ...

    async def link_customer(self, org_id: UUID, customer_id: str, key: UUID, now: datetime) -> bool:
        """What an event says about whose customer it is; whether that agrees with what is stored. One that was deleted is nobody's."""
        ...

    async def sync_customer(self, org_id: UUID | None, customer_id: str, user_id: UUID | None, at: datetime) -> bool:
        """Whom the customer is linked to, unless something newer is known; whether there is such a customer, of that organization if one is
        named."""
        ...

    async def forget_customer(self, org_id: UUID | None, customer_id: str, key: UUID, now: datetime) -> bool:
        """It was deleted, and is nobody's from now on, whatever is heard of it; the organization's next one is made with `key`. Whether it
        was somebody's, and that organization's if one is named."""
        ...

    async def attach_payment_method(self, customer_id: str, payment_method_id: str, at: datetime, now: datetime) -> bool:
        """The customer can pay with this, unless something newer is known of it; whether that customer is an organization of ours.

        What an organization pays with is what was attached last of all that still is.
        """
        ...

    async def detach_payment_method(self, payment_method_id: str, at: datetime, now: datetime) -> bool:
        """Nobody can pay with this any more, unless something newer is known of it; whether an organization of ours could."""
        ...

    async def add_checkout(self, checkout: Checkout, check_at: datetime) -> None: ...
    async def checkout_begun(self, org_id: UUID, checkout_id: UUID, session_id: str, customer_id: str) -> None: ...

    async def complete_checkout(self, checkout_id: UUID, session_id: str, id_: str, meant: CheckoutMetadata | None, customer_id: str | None) -> bool:
        """What came of a checkout; false if there is no such checkout, or what is given does not agree with it."""
        ...

    async def checkout_of(self, id_: str, meant: CheckoutMetadata, price_id: str | None) -> CheckoutMatch | None:
        """The checkout that this subscription came of, or might have, at that price if there is a choice; None where no checkout tells."""
        ...

    async def bought(self, id_: str) -> CheckoutMetadata | None:
        """What the checkout was for that this subscription came of, if one is known."""
        ...

    async def checkout_done(self, org_id: UUID, id_: str) -> None:
        """Nothing more has to be asked about the checkout that this subscription came of, where that is known. Something else may come of
        every other one."""
        ...

    async def is_asked_about(self, id_: str, since: datetime) -> bool:
        """Whether the provider is to be asked about this subscription by itself, or has said since then how it is."""
        ...

    async def claim_checkouts(self, now: datetime, until: datetime, since: datetime, begun_by: datetime) -> OpenCheckouts | None:
        """Those of one customer to ask the provider about: if one is due, all that were begun by then. They fall due again at `until`,
        unless they are older than `since`. None where none is due."""
        ...

    async def put_back_checkouts(self, ids: Sequence[UUID], at: datetime, since: datetime) -> None:
        """What was claimed with that `since` is due at this time, unless nothing more has to be asked about it by now. Of those that are
        older than that, this is not known: they are asked about once more."""
        ...


class Cancellations(Protocol):
    """What is to be cancelled at the payment provider. What is removed comes here by itself."""

    async def ask_for(self, cancellation: Cancellation) -> None:
        """One that stays here, or never came to be here."""
        ...

    async def is_requested(self, org_id: UUID, id_: str) -> bool:
        """Whether this subscription at the provider is to be cancelled there, and is not yet."""
        ...

    async def claim(self, now: datetime, until: datetime) -> Cancellation | None:
        """The one that has been due for the longest, which falls due again then; none that has come to be live again here."""
        ...

    async def claim_of_service(self, org_id: UUID, service_id: UUID, now: datetime, until: datetime, limit: int) -> list[Cancellation]: ...

    async def done(self, cancellation: Cancellation) -> bool:
        """Whether nobody else had said so before."""
        ...


# subscriptions: What is asked of storage about subscriptions.


class SubscriptionsRead(Protocol):
    """Subscriptions, looked at. One that is active past its period and has no payment provider is shown as expired."""

    async def entitlement(self, service_id: UUID, user_id: UUID, now: datetime) -> Entitlement:
        """What this person has of this service."""
        ...

    async def uses_plan(self, org_id: UUID, plan_id: UUID, now: datetime) -> bool:
        """Whether somebody is subscribed to this plan, active or past due, now."""
        ...

    async def plan(self, plan_id: UUID) -> SubscribedPlan | None:
        """The plan with this id, whatever service it is of, removed or not."""
        ...

    async def purchase(self, org_id: UUID, subscription_id: UUID) -> Purchase | None:
        """What this one is to; None where it is not live any more."""
        ...

    async def page(
        self, org_id: UUID, service_id: UUID, status: SubscriptionStatus | None, limit: int, offset: int, now: datetime
    ) -> PageResult[Subscription]:
        """Those to the service that have this status now, the oldest first."""
        ...

    async def counts(self, org_id: UUID, service_id: UUID, now: datetime) -> Mapping[SubscriptionStatus, int]:
        """How many of those to the service have which status now."""
        ...

    async def of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> Subscription | None:
        """The person's live one, or else the newest."""
        ...


class Subscriptions(SubscriptionsRead, Protocol):
    """Subscriptions, changed. The organization is locked before any of these but `expire`."""

    async def lock_of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> Subscription | None:
        """What `of_user` finds, locked until the transaction ends."""
        ...

    async def lock_of_provider(self, org_id: UUID, provider_subscription_id: str) -> Subscription | None:
        """The one that the payment provider has under this name, locked."""
        ...

    async def exists(self, org_id: UUID, subscription_id: UUID) -> bool: ...

    async def add(self, subscription: Subscription) -> None:
        """Also counts it. The account is locked before. Raises AlreadySubscribed."""
        ...

    async def save(self, subscription: Subscription, now: datetime) -> None:
        """Write plan, status and period of a locked one. Raises AlreadySubscribed."""
        ...

    async def detach_from_provider(self, org_id: UUID, subscription_id: UUID, now: datetime) -> None:
        """No payment provider looks after it from now on."""
        ...

    async def remove(self, org_id: UUID, subscription_id: UUID) -> None:
        """Also counts it out."""
        ...

    async def expire_of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> list[Subscription]:
        """Mark what has run out of this person's, of which there is one at most."""
        ...

    async def expire(self, now: datetime, limit: int) -> list[Subscription]:
        """Mark at most `limit` that have run out, of whatever organization; those in use are left for later."""
        ...


# The repositories of this area, by the kind of access


class BillingReading(Protocol):
    """Read access to the repositories of billing."""

    @property
    def subscriptions(self) -> SubscriptionsRead: ...


class BillingTransaction(Protocol):
    """The repositories of billing in a transaction."""

    @property
    def billing(self) -> Billing: ...
    @property
    def cancellations(self) -> Cancellations: ...
    @property
    def subscriptions(self) -> Subscriptions: ...
