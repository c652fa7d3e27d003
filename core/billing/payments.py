"""What the payment provider says of a subscription, and which state of ours follows from that (organizations.md section 4.2; decisions,
points 166 to 169; security.md H-4).

Events come in any order, twice, late, or not at all. So they are not applied one after the other: of each kind of news the newest is kept,
and the state follows from what is kept, whichever way it came together. Only where two say different things of one second, in which times
are counted, the one that came later counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from core.billing.subscriptions_rules import PERIOD, SubscriptionStatus
from core.kernel.errors import PaymentsFailed
from core.kernel.values import parse_id

if TYPE_CHECKING:
    from uuid import UUID

# What anything is called there; it comes into addresses and log lines.
_NAME = re.compile(r"[!-~]{1,255}")
_SUBSCRIPTION = re.compile(r"[A-Za-z0-9_.-]{1,255}")
LONGEST_PAGE: Final = 600  # characters of an address; theirs have some 200, and a line of a mail takes 998 at most
_NOT_IN_LINKS: Final = frozenset(' "<>\\^`{|}')
LATEST_TIME: Final = 2**35  # seconds, in the year 3058; later ones are no times
# Decisions, point 166. One that is paused has come to the end of its trial without a means of payment.
PROVIDER_STATUSES: Final[Mapping[str, SubscriptionStatus]] = {
    "active": SubscriptionStatus.ACTIVE,
    "trialing": SubscriptionStatus.ACTIVE,
    "past_due": SubscriptionStatus.PAST_DUE,
    "unpaid": SubscriptionStatus.PAST_DUE,
    "incomplete": SubscriptionStatus.PAST_DUE,
    "paused": SubscriptionStatus.PAST_DUE,
    "canceled": SubscriptionStatus.CANCELLED,
    "incomplete_expired": SubscriptionStatus.EXPIRED,
    "ended": SubscriptionStatus.EXPIRED,
}
LAPSED_STATUS: Final = "ended"  # what we call one that the provider does not know any more when its period is over


def _ours(status: str) -> SubscriptionStatus:
    """Of one that is not known no more can be said than that somebody has to look after it."""
    return PROVIDER_STATUSES.get(status, SubscriptionStatus.PAST_DUE)


class BillingNotConfigured(PaymentsFailed):
    """Billing is not set up on this installation. Ask those who run it."""


class IdempotencyKeySpent(PaymentsFailed):
    """The payment provider failed. Try again."""  # with another key, as nothing else comes of that one any more


class CustomerNotFound(PaymentsFailed):
    """The payment provider does not know the organization as its customer any more. Try again."""


class UnreadableObject(ValueError):
    """What the provider says is not of the form that it has."""


@dataclass(frozen=True, slots=True)
class CheckoutMetadata:
    """Whose subscription something is to be, as its metadata say: what a checkout gave along."""

    org_id: UUID
    service_id: UUID
    user_id: UUID
    plan_id: UUID

    @property
    def metadata(self) -> dict[str, str]:
        return {
            "user_id": str(self.user_id),
            "service_id": str(self.service_id),
            "plan_id": str(self.plan_id),
            "org_id": str(self.org_id),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSubscription:
    """A subscription as the provider has it. `meant` is None where the metadata do not say, as with what is none of ours."""

    id: str
    customer_id: str | None
    status: str
    price_id: str | None
    period_end: datetime | None
    meant: CheckoutMetadata | None

    @property
    def is_cancelled(self) -> bool:
        """Which is final."""
        return _ours(self.status) is SubscriptionStatus.CANCELLED

    @property
    def is_over(self) -> bool:
        """Whether the provider does not go on with it."""
        return not _ours(self.status).is_live


@dataclass(frozen=True, slots=True)
class ProviderSnapshot:
    """A subscription, and when the provider said so, by its own clock as far as that is known."""

    subscription: ProviderSubscription
    at: datetime


@dataclass(frozen=True, slots=True)
class CheckoutMatch:
    """A checkout that a subscription came of, or might have: whether it was for just that, and at that price."""

    is_meant: bool
    is_price: bool


@dataclass(frozen=True, slots=True)
class CheckoutSession:
    """A checkout at the provider, and where a browser goes for it."""

    session_id: str
    url: str = field(repr=False)


class LatestEvent(StrEnum):
    """Which news is the newest."""

    OBJECT = "object"
    PAID = "paid"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PaidPeriod:
    """That an invoice was paid, and until when it was for."""

    at: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionFacts:
    """The newest that is known of a subscription at the provider. Times are UTC, those ending in `_at` are the events'.

    `paid` has the periods that were paid for, the newest first, without those that a newer one outlasts. `org_id` is the organization of
    ours whose subscription it has become. One that has `ended` was cancelled, there or here, and that is final for this id. `action_page`
    opens to whoever has it, so it is there no longer than nobody can be told, and there is something to complete. What somebody has bought
    beside a subscription of ours that is live waits for that one to end.
    """

    id: str
    org_id: UUID | None = None
    customer_id: str | None = None
    object_at: datetime | None = None
    at_creation: bool = False  # whether that is the news of its creation, than which all other of the same second is newer
    status: str | None = None
    price_id: str | None = None
    period_end: datetime | None = None
    period_at: datetime | None = None  # when the newest object was made that says it, which not every one does
    period_at_creation: bool = False
    paid_at: datetime | None = None
    paid: tuple[PaidPeriod, ...] = ()
    failed_at: datetime | None = None
    action_at: datetime | None = None  # when somebody was to complete a payment
    action_page: str | None = field(default=None, repr=False)  # and where, if the provider says so
    latest: LatestEvent | None = None
    ended: bool = False
    waits_for: UUID | None = None

    def with_object(self, found: ProviderSubscription, at: datetime, *, at_creation: bool = False, deleted: bool = False) -> SubscriptionFacts:
        """With what the provider has. That it is cancelled counts whenever it comes: nothing follows that."""
        facts = self._with_period(found.period_end, at, at_creation=at_creation)
        ended = self.ended or deleted or found.is_cancelled
        if self.object_at is not None and (at, not at_creation) < (self.object_at, not self.at_creation):
            return replace(facts, ended=ended)._without_idle_page()
        return replace(
            facts._with_latest(LatestEvent.OBJECT, at, at_creation=at_creation),
            customer_id=found.customer_id or self.customer_id,
            object_at=at,
            at_creation=at_creation,
            status=found.status,
            price_id=found.price_id,
            ended=ended,
        )._without_idle_page()

    def _with_period(self, end: datetime | None, at: datetime, *, at_creation: bool) -> SubscriptionFacts:
        if end is None or (self.period_at is not None and (at, not at_creation) < (self.period_at, not self.period_at_creation)):
            return self
        return replace(self, period_end=end, period_at=at, period_at_creation=at_creation)

    def with_payment(self, at: datetime, until: datetime | None) -> SubscriptionFacts:
        """With an invoice that was paid, for a period until then. A shorter one takes nothing away from a longer one."""
        return replace(
            self._with_latest(LatestEvent.PAID, at),
            paid_at=at if self.paid_at is None else max(at, self.paid_at),
            paid=self.paid if until is None else _lasting((*self.paid, PaidPeriod(at, until))),
        )._without_idle_page()

    def with_failure(self, at: datetime) -> SubscriptionFacts:
        """With an invoice that was not paid."""
        if self.failed_at is not None and at < self.failed_at:
            return self
        return replace(self._with_latest(LatestEvent.FAILED, at), failed_at=at)

    def with_action(self, at: datetime, page: str | None) -> SubscriptionFacts:
        """With a payment that somebody has to complete, there. Once it is one of ours, they are told at once, and no page is kept."""
        if self.action_at is not None and at < self.action_at:
            return self
        return replace(self, action_at=at, action_page=page)._without_idle_page()

    def as_of(self, org_id: UUID) -> SubscriptionFacts:
        """From when there is a subscription of that organization for it."""
        return replace(self, org_id=org_id)._without_idle_page()

    def says_more_of_status_than(self, before: SubscriptionFacts) -> bool:
        """Whether there is newer news of the status, be it the same once more: another payment was made or has failed, the provider calls
        it by another word, or it has ended."""
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
        """Whether the provider does not go on with it, as far as is known."""
        return self.ended or (self.implied is not None and not self.implied.status.is_live)

    @property
    def is_trial(self) -> bool:
        return self.status == "trialing" and not self.ended

    @property
    def waits_for_action(self) -> bool:
        """Whether there is a payment to complete, as far as is known."""
        return self.action_at is not None and self.needs_action_of(self.action_at)

    def needs_action_of(self, at: datetime) -> bool:
        """Whether a payment that somebody had to complete then is still to be completed, as nothing newer says otherwise."""
        if self.ended or (self.paid_at is not None and self.paid_at > at):
            return False
        is_newer = self.object_at is not None and self.object_at > at
        return not (is_newer and self.status is not None and _ours(self.status) is SubscriptionStatus.ACTIVE)

    def _without_idle_page(self) -> SubscriptionFacts:
        return self if self.waits_for_action and self.org_id is None else replace(self, action_page=None)

    def _with_latest(self, latest: LatestEvent, at: datetime, *, at_creation: bool = False) -> SubscriptionFacts:
        match self.latest:
            case None:
                return replace(self, latest=latest)
            case LatestEvent.OBJECT:
                newest, of_creation = self.object_at, self.at_creation
            case LatestEvent.PAID:
                newest, of_creation = self.paid_at, False
            case LatestEvent.FAILED:
                newest, of_creation = self.failed_at, False
        assert newest is not None, "it is the latest because it is there"
        return self if (at, not at_creation) < (newest, not of_creation) else replace(self, latest=latest)

    @property
    def implied(self) -> DerivedState | None:
        """What a subscription of ours to this is, None while too little is known of it."""
        if self.object_at is None or self.status is None:
            return None
        # What was paid since extends the period; what was paid before is in what the provider says since, if it says so.
        ends = [paid.until for paid in self.paid if self.period_at is None or paid.at >= self.period_at]
        end = max(ends if self.period_end is None else [*ends, self.period_end], default=None)
        return DerivedState(self._status(_ours(self.status)), end, self.price_id)

    def _status(self, of_object: SubscriptionStatus) -> SubscriptionStatus:
        if self.ended:
            return SubscriptionStatus.CANCELLED
        if self.latest is LatestEvent.FAILED:
            return SubscriptionStatus.PAST_DUE
        if self.latest is LatestEvent.PAID and of_object.is_live:
            return SubscriptionStatus.ACTIVE
        return of_object


def _lasting(paid: Iterable[PaidPeriod]) -> tuple[PaidPeriod, ...]:
    """Those that may still say until when something is paid, whatever object is heard of: no newer one lasts as long."""
    lasting: list[PaidPeriod] = []
    for each in sorted(paid, key=lambda each: (each.at, each.until), reverse=True):
        if not lasting or each.until > lasting[-1].until:
            lasting.append(each)
    return tuple(lasting)


@dataclass(frozen=True, slots=True)
class DerivedState:
    """The state of a subscription, as it follows from facts; what they do not tell is None."""

    status: SubscriptionStatus
    period_end: datetime | None
    price_id: str | None

    def period_end_or(self, now: datetime) -> datetime:
        return self.period_end or now + PERIOD


# Reading what it says. What is not there, or of another kind, is as good as not said; but something must say what it is about.


def name(value: object) -> str | None:
    """The name of something there: itself, or that of the object that stands in its place where the provider was asked for more."""
    if isinstance(value, Mapping):
        value = value.get("id")
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def subscription_name(value: object) -> str | None:
    """The name of a subscription, as it can stand in a path."""
    found = name(value)
    return found if found is not None and _SUBSCRIPTION.fullmatch(found) and found.strip(".") else None


def moment(value: object) -> datetime | None:
    """A time, which is given in whole seconds."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < LATEST_TIME:
        return None
    return datetime.fromtimestamp(value, UTC)


def meant(metadata: object) -> CheckoutMetadata | None:
    """Whose something is to be, if these say so completely."""
    if not isinstance(metadata, Mapping):
        return None
    ids = [parse_id(text) if isinstance(text := metadata.get(key), str) else None for key in ("org_id", "service_id", "user_id", "plan_id")]
    org_id, service_id, user_id, plan_id = ids
    if org_id is None or service_id is None or user_id is None or plan_id is None:
        return None
    return CheckoutMetadata(org_id, service_id, user_id, plan_id)


def read_subscription(found: Mapping[str, Any]) -> ProviderSubscription:
    """Raises UnreadableObject."""
    id_, status = subscription_name(found.get("id")), found.get("status")
    if id_ is None or not isinstance(status, str) or len(status) > 100 or not status.isascii() or not status.isprintable():
        raise UnreadableObject
    item = _first(found.get("items"))
    # Newer versions of the provider's interface have the period with each item.
    period_end = moment(found.get("current_period_end")) or moment(item.get("current_period_end"))
    return ProviderSubscription(
        id=id_,
        customer_id=name(found.get("customer")),
        status=status,
        price_id=name(item.get("price")) or name(item.get("plan")),
        period_end=period_end,
        meant=meant(found.get("metadata")),
    )


def invoice_subscription(invoice: Mapping[str, Any]) -> str | None:
    """The subscription that an invoice is for, if it is for one; newer versions of the provider's interface say it elsewhere."""
    parent = invoice.get("parent")
    details = parent.get("subscription_details") if isinstance(parent, Mapping) else None
    return subscription_name(invoice.get("subscription")) or subscription_name(
        details.get("subscription") if isinstance(details, Mapping) else None
    )


def invoice_period_end(invoice: Mapping[str, Any]) -> datetime | None:
    """Until when an invoice is for: what its lines say, since its own period is the one before. What is bought once has one of its own,
    which says nothing of the subscription's."""
    lines = invoice.get("lines")
    listed = lines.get("data") if isinstance(lines, Mapping) else None
    found = [line for line in listed if isinstance(line, Mapping)] if isinstance(listed, list) else []
    periods = [line.get("period") for line in found if _is_of_subscription(line)]
    if found and not periods:
        return None
    ends = [end for period in periods if isinstance(period, Mapping) and (end := moment(period.get("end"))) is not None]
    return max(ends, default=None) or moment(invoice.get("period_end"))


def _is_of_subscription(line: Mapping[str, Any]) -> bool:
    """Whether a line of an invoice is for the subscription, as far as it says what it is for.

    A change within a period is an item by itself, of what is left of that period. Newer versions of the provider's interface say all this
    elsewhere.
    """
    parent = line.get("parent")
    if isinstance(parent, Mapping) and isinstance(kind := parent.get("type"), str):
        details = parent.get(kind)
        is_part = isinstance(details, Mapping) and details.get("proration") is True
        return kind == "subscription_item_details" or is_part
    type_ = line.get("type")
    return not isinstance(type_, str) or type_ == "subscription" or line.get("proration") is True


def invoice_is_settled(invoice: Mapping[str, Any]) -> bool:
    """Whether an invoice says itself that nobody has to pay it any more."""
    return invoice.get("status") in ("paid", "void", "uncollectible")


def invoice_page(invoice: Mapping[str, Any]) -> str | None:
    """Where the provider shows the invoice and takes what is missing, if it says so in a way that can be given to anybody."""
    url = invoice.get("hosted_invoice_url")
    if not isinstance(url, str) or len(url) > LONGEST_PAGE or not url.isascii() or not url.isprintable() or set(url) & _NOT_IN_LINKS:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return url if parts.scheme == "https" and parts.hostname and "@" not in parts.netloc else None


def _first(listed: object) -> Mapping[str, Any]:
    items = listed.get("data") if isinstance(listed, Mapping) else None
    return items[0] if isinstance(items, list) and items and isinstance(items[0], Mapping) else {}


# When to ask

EVERY: Final = timedelta(days=1)  # each that is ours, whether something was heard of it or not
AFTER_PERIOD: Final = timedelta(hours=1)  # after the end of a period there should have been news
UNHEARD: Final = timedelta(days=1)  # after the end of a period, where nobody can be asked: news come late at times
SOON: Final = timedelta(minutes=5)  # after something that has more coming


def next_check(facts: SubscriptionFacts, now: datetime) -> datetime | None:
    """When to ask the provider about it unless something is heard of it before; None for what is over, or is none of ours.

    The one that it waits for may have ended just now, when what was heard of it said nothing of how it is.
    """
    if facts.waits_for is not None:
        return now + SOON
    implied = facts.implied
    if facts.org_id is None or (implied is not None and not implied.status.is_live):
        return None
    end = None if implied is None else implied.period_end
    return now + EVERY if end is None or end <= now else min(now + EVERY, end + AFTER_PERIOD)
