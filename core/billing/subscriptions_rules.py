"""Entities, refusals and pure rules of `core.billing.subscriptions`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Forbidden, Invalid, NotFound

if TYPE_CHECKING:
    from uuid import UUID


PERIOD: Final = timedelta(days=30)  # of a subscription that is made without saying when it ends
SWEEPER = "subscription_sweeper"  # its lease
BATCH = 500
# Longer than one batch can take, and than the pause between two sweeps, so that one process goes on doing it while it lives.
LEASE = timedelta(minutes=3)


class SubscriptionNotFound(NotFound):
    """This user has no subscription to this service."""


class NotSubscribed(NotFound):
    """You have no subscription to this service."""


class NoService(Invalid):
    """A subscription is one to a service. Sign in to the service, and use the token that you get there."""


class PlanOfAnotherService(Forbidden):
    """This plan belongs to another service. Name a plan of this one."""


class AlreadySubscribed(Invalid):
    """This user has a subscription that is active or past due. Change that one, or delete it first."""


class PlanRemoved(Invalid):
    """The plan of this subscription was removed. Name another one as plan_id for the subscription to live again."""


class NothingToChange(Invalid):
    """Say what to change: status, current_period_end, plan_id, or several of them."""


class SubscriptionStatus(StrEnum):
    """identity.md section 2.4."""

    ACTIVE = "active"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    PAST_DUE = "past_due"

    @property
    def is_live(self) -> bool:
        """Whether a person has one such subscription to a service at most."""
        return self in (SubscriptionStatus.ACTIVE, SubscriptionStatus.PAST_DUE)


@dataclass(frozen=True, slots=True)
class SubscribedPlan:
    """What of a plan matters to a subscription to it. One that was removed stays for the subscriptions that had it."""

    id: UUID
    service_id: UUID
    name: str
    features: tuple[str, ...]
    is_removed: bool
    price_id: str | None  # at the payment provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Times are UTC."""

    id: UUID
    org_id: UUID
    service_id: UUID
    user_id: UUID
    plan: SubscribedPlan
    status: SubscriptionStatus
    current_period_end: datetime
    provider_subscription_id: str | None
    created_at: datetime

    def at(self, now: datetime) -> Subscription:
        """As it is then: one that is active past its period, and that no payment provider looks after, has expired."""
        if self.status is SubscriptionStatus.ACTIVE and self.provider_subscription_id is None and self.current_period_end <= now:
            return replace(self, status=SubscriptionStatus.EXPIRED)
        return self


@dataclass(frozen=True, slots=True)
class Purchase:
    """What a subscription is to, by name."""

    plan: str
    service: str


@dataclass(frozen=True, slots=True)
class Entitlement:
    """What a person has of a service: by the subscription, or, without one, by the service's Free plan if there is one (point 37)."""

    plan: str | None = None
    status: SubscriptionStatus | None = None
    features: tuple[str, ...] | None = None
