"""Subscriptions: users subscribe to plans at a service."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Self
from uuid import UUID

from core.applications.model.plans import SubscriptionStatus
from core.kernel import errors
from core.kernel.values import Email

PERIOD: Final = timedelta(days=30)  # the period for a subscription that is created without `current_period_end`
LEASE_NAME: Final = "subscription_sweeper"
EXPIRY_BATCH: Final = 500  # subscriptions that the sweeper expires in one transaction
# Longer than a batch takes, and longer than the pause between two sweeps, so that one process keeps
# the lease while it runs.
LEASE: Final = timedelta(minutes=3)


class SubscriptionNotFound(errors.NotFound):
    """This user has no subscription to this application."""


class NotSubscribed(errors.NotFound):
    """You have no subscription to this application."""


class OwnSubscriptionNotFound(errors.NotFound):
    """You have no such subscription, or it has already ended. See your subscriptions on the account page."""


class NoServiceContext(errors.Invalid):
    """Subscriptions belong to an application. Sign in to the application, and use the token that you get there."""


class PlanOfAnotherService(errors.Forbidden):
    """This plan belongs to another application. Choose a plan of this application."""


class AlreadySubscribed(errors.Invalid):
    """This user already has an active or past due subscription. Change it, or delete it first."""


class PlanRemoved(errors.Invalid):
    """The plan of this subscription was deleted. Choose another plan to reactivate the subscription."""


class EmptySubscriptionUpdate(errors.Invalid):
    """The request changes nothing. Send at least one of status, current_period_end and plan_id."""


@dataclass(frozen=True, slots=True)
class SubscribedPlan:
    """The plan in a subscription. Ended subscriptions can have a deleted plan."""

    id: UUID
    service_id: UUID
    name: str
    features: tuple[str, ...]
    is_removed: bool
    price_id: str | None  # the id that the plan's price has at the payment provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A user's subscription to a service's plan. Times are UTC."""

    id: UUID
    org_id: UUID
    service_id: UUID
    user_id: UUID
    plan: SubscribedPlan
    status: SubscriptionStatus
    current_period_end: datetime
    provider_subscription_id: str | None  # None if no payment provider manages it
    created_at: datetime

    def at(self, now: datetime) -> Self:
        """Return the subscription with its status at `now`.

        An active subscription expires after its period, unless a provider manages it.
        """
        if self.status is SubscriptionStatus.ACTIVE and self.provider_subscription_id is None and self.current_period_end <= now:
            return replace(self, status=SubscriptionStatus.EXPIRED)
        return self


@dataclass(frozen=True, slots=True)
class ListedSubscription:
    """A subscription with its user's address, for the organization's members."""

    subscription: Subscription
    email: Email | None  # None if the account has left the service since the subscription was read


@dataclass(frozen=True, slots=True)
class BillingCustomer:
    """The organization's customer record at the payment provider, with the ids from the provider's events."""

    id: str
    user_id: UUID | None  # the user that the record names
    payment_method_id: str | None  # the user who was attached last


@dataclass(frozen=True, slots=True)
class ServiceSubscriptions:
    """A part of the subscriptions to a service, their total number, and the customer who pays for them at the provider, if any."""

    items: Sequence[ListedSubscription]
    total: int
    customer: BillingCustomer | None


@dataclass(frozen=True, slots=True)
class OwnSubscription:
    """A subscription with the names of its service and organization, for its user."""

    subscription: Subscription
    service: str
    organization: str


@dataclass(frozen=True, slots=True)
class Purchase:
    """The names of the plan and the service that a subscription is for, for emails."""

    plan: str
    service: str
