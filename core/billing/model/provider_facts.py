"""Facts about a subscription at the payment provider, and how they determine our subscription's state.

Events arrive in any order, more than once, late, or never. Events are not applied one by one. We keep the latest fact
of every kind and derive the state from these facts, so the order of arrival does not matter (docs/adr/0016). Provider
timestamps are precise to one second. If two facts from the same second contradict each other, the fact that arrived
last counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Self
from uuid import UUID

from core.applications.model.plans import SubscriptionStatus
from core.billing.model import provider_objects, subscriptions

CHECK_INTERVAL: Final = timedelta(days=1)  # between two checks of our subscription, even if events arrive
AFTER_PERIOD: Final = timedelta(hours=1)  # from a period's end to a check; the event should have arrived by then
# From the period's end to the subscription's end, if we cannot ask the provider. Events can be
# late.
LATE_EVENTS: Final = timedelta(days=1)
SOON: Final = timedelta(minutes=5)  # to a check after an event that other events usually follow


class LatestEvent(StrEnum):
    """What kind of event affected the status last."""

    OBJECT = "object"
    PAID = "paid"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PaidPeriod:
    """A paid invoice: when its event was, and when the period that it pays for ends."""

    at: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class DerivedState:
    """Our subscription's state that follows from the facts. None means that a value is unknown."""

    status: SubscriptionStatus
    period_end: datetime | None
    price_id: str | None

    def period_end_or_default(self, now: datetime) -> datetime:
        """Return when the period ends, or a default period that starts now."""
        return self.period_end or now + subscriptions.PERIOD


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionFacts:
    """The latest facts about a subscription at the provider. Times are UTC; times named `_at` are event times."""

    id: str
    org_id: UUID | None = None  # the organization for our subscription; None if there is none yet
    customer_id: str | None = None
    object_at: datetime | None = None
    at_creation: bool = False  # whether the latest object is from the creation event, which precedes all other events in the same second
    status: str | None = None
    price_id: str | None = None
    period_end: datetime | None = None
    period_at: datetime | None = None  # the latest object with a period is from this time; some objects have no period
    period_at_creation: bool = False
    paid_at: datetime | None = None
    paid: tuple[PaidPeriod, ...] = ()  # newest first, without periods that end no later than a newer payment's period
    failed_at: datetime | None = None
    action_at: datetime | None = None  # when the provider last asked the user to complete a payment
    # The page for completing the payment. Anyone who has the page's URL can open it, so the URL is
    # kept only until the user can be notified.
    action_page: str | None = field(default=None, repr=False)
    latest: LatestEvent | None = None
    ended: bool = False  # canceled at the provider or here, which is final for this id
    waits_for: UUID | None = None  # our live subscription for the same user and service that has to end first

    def with_subscription(
        self, subscription: provider_objects.ProviderSubscription, at: datetime, *, at_creation: bool = False, deleted: bool = False
    ) -> Self:
        """Add the subscription object from an event or response. A cancellation counts even if it arrives late, because it is final."""
        facts = self._with_period(subscription.period_end, at, at_creation=at_creation)
        ended = self.ended or deleted or subscription.is_canceled
        if self.object_at is not None and (at, not at_creation) < (self.object_at, not self.at_creation):
            return replace(facts, ended=ended)._without_unneeded_page()
        return replace(
            facts._with_latest(LatestEvent.OBJECT, at, at_creation=at_creation),
            customer_id=subscription.customer_id or self.customer_id,
            object_at=at,
            at_creation=at_creation,
            status=subscription.status,
            price_id=subscription.price_id,
            ended=ended,
        )._without_unneeded_page()

    def _with_period(self, end: datetime | None, at: datetime, *, at_creation: bool) -> Self:
        if end is None or (self.period_at is not None and (at, not at_creation) < (self.period_at, not self.period_at_creation)):
            return self
        return replace(self, period_end=end, period_at=at, period_at_creation=at_creation)

    def with_payment(self, at: datetime, until: datetime | None) -> Self:
        """Add a paid invoice for a period until `until`. A shorter period never shortens a longer period."""
        return replace(
            self._with_latest(LatestEvent.PAID, at),
            paid_at=at if self.paid_at is None else max(at, self.paid_at),
            paid=self.paid if until is None else _without_outlasted((*self.paid, PaidPeriod(at, until))),
        )._without_unneeded_page()

    def with_failure(self, at: datetime) -> Self:
        """Add a failed payment."""
        if self.failed_at is not None and at < self.failed_at:
            return self
        return replace(self._with_latest(LatestEvent.FAILED, at), failed_at=at)

    def with_action(self, at: datetime, page: str | None) -> Self:
        """Add a payment that the user has to complete on `page`.

        If the subscription already belongs to an organization, the page is not kept, because the
        caller notifies the user at once.
        """
        if self.action_at is not None and at < self.action_at:
            return self
        return replace(self, action_at=at, action_page=page)._without_unneeded_page()

    def assigned_to(self, org_id: UUID) -> Self:
        """Record that our subscription exists now, and that it belongs to this organization."""
        return replace(self, org_id=org_id)._without_unneeded_page()

    def has_newer_status_than(self, before: Self) -> bool:
        """Return whether newer facts about the status arrived, even if the status stays the same.

        Newer facts are another payment or failure, another status at the provider, or the subscription's end.
        """
        match self.latest:
            case LatestEvent.FAILED if self.failed_at != before.failed_at:
                return True
            case LatestEvent.PAID if self.paid_at != before.paid_at:
                return True
            case LatestEvent.OBJECT if self.status != before.status:
                return True
        return self.ended != before.ended

    @property
    def is_over(self) -> bool:
        """Return whether the subscription is known to have ended at the provider."""
        return self.ended or (self.derived_state is not None and not self.derived_state.status.is_live)

    @property
    def is_trial(self) -> bool:
        """Return whether the subscription is in its trial period."""
        return self.status == "trialing" and not self.ended

    @property
    def needs_action(self) -> bool:
        """Return whether the user still has to complete the latest payment, as far as is known."""
        return self.action_at is not None and self.needs_action_of(self.action_at)

    def needs_action_of(self, at: datetime) -> bool:
        """Return whether the user still has to complete the payment requested at `at`, because no newer fact contradicts it."""
        if self.ended or (self.paid_at is not None and self.paid_at > at):
            return False
        is_newer = self.object_at is not None and self.object_at > at
        return not (is_newer and self.status is not None and provider_objects.to_status(self.status) is SubscriptionStatus.ACTIVE)

    def _without_unneeded_page(self) -> Self:
        return self if self.needs_action and self.org_id is None else replace(self, action_page=None)

    def _with_latest(self, latest: LatestEvent, at: datetime, *, at_creation: bool = False) -> Self:
        match self.latest:
            case None:
                return replace(self, latest=latest)
            case LatestEvent.OBJECT:
                newest, newest_at_creation = self.object_at, self.at_creation
            case LatestEvent.PAID:
                newest, newest_at_creation = self.paid_at, False
            case LatestEvent.FAILED:
                newest, newest_at_creation = self.failed_at, False
        assert newest is not None, "the latest event has a time"
        return self if (at, not at_creation) < (newest, not newest_at_creation) else replace(self, latest=latest)

    @property
    def derived_state(self) -> DerivedState | None:
        """Return our subscription's state, or None if the provider's object has not arrived yet."""
        if self.object_at is None or self.status is None:
            return None
        # Payments after the latest object extend its period. If the object has a period, it already
        # includes earlier payments.
        ends = [paid.until for paid in self.paid if self.period_at is None or paid.at >= self.period_at]
        end = max(ends if self.period_end is None else [*ends, self.period_end], default=None)
        return DerivedState(self._derive_status(provider_objects.to_status(self.status)), end, self.price_id)

    def _derive_status(self, object_status: SubscriptionStatus) -> SubscriptionStatus:
        if self.ended:
            return SubscriptionStatus.CANCELLED
        if self.latest is LatestEvent.FAILED:
            return SubscriptionStatus.PAST_DUE
        if self.latest is LatestEvent.PAID and object_status.is_live:
            return SubscriptionStatus.ACTIVE
        return object_status


@dataclass(frozen=True, slots=True)
class LockedSubscription:
    """The provider's subscription, locked: its facts, and our subscription for it, if there is one."""

    facts: SubscriptionFacts
    subscription: subscriptions.Subscription | None


def _without_outlasted(periods: Iterable[PaidPeriod]) -> tuple[PaidPeriod, ...]:
    """Return the periods, newest first, without periods that end no later than a newer payment's period.

    All remaining periods can still decide until when the subscription is paid. Which period decides depends on the
    object that arrives next.
    """
    kept: list[PaidPeriod] = []
    for period in sorted(periods, key=lambda period: (period.at, period.until), reverse=True):
        if not kept or period.until > kept[-1].until:
            kept.append(period)
    return tuple(kept)


def next_check(facts: SubscriptionFacts, now: datetime) -> datetime | None:
    """Return when to ask the provider about the subscription if no event arrives before; None if it is over or not managed here.

    A subscription that waits for another is checked soon. The subscription that it waits for may just have ended, and
    the latest event may have said nothing about the status.
    """
    if facts.waits_for is not None:
        return now + SOON
    state = facts.derived_state
    if facts.org_id is None or (state is not None and not state.status.is_live):
        return None
    end = None if state is None else state.period_end
    return now + CHECK_INTERVAL if end is None or end <= now else min(now + CHECK_INTERVAL, end + AFTER_PERIOD)
