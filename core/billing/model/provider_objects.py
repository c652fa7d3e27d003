"""The payment provider's objects, read from its responses and events (security H-4).

A field counts as absent if it is missing or has the wrong type. Only an object without a usable id is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from core.applications.model.plans import SubscriptionStatus
from core.kernel.values import parse_id

_ID = re.compile(r"[!-~]{1,255}")  # the provider's ids; they appear in URLs and log lines
_SUBSCRIPTION_ID = re.compile(r"[A-Za-z0-9_.-]{1,255}")  # such ids also appear in paths
MAX_PAGE_URL_LENGTH: Final = 600  # characters; typical URLs have about 200, and an email line can hold 998
_NOT_IN_LINKS: Final = frozenset(' "<>\\^`{|}')
MAX_TIMESTAMP: Final = 2**35  # seconds, in the year 3058; larger numbers are not timestamps
# Decision 166. A `paused` subscription reached the end of its trial without a payment method.
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
LAPSED_STATUS: Final = "ended"  # our own name for a subscription that the provider no longer knows after its period


def to_status(provider_status: str) -> SubscriptionStatus:
    """Return our status for a status at the provider. An unknown status becomes past due, so that an operator looks at it."""
    return PROVIDER_STATUSES.get(provider_status, SubscriptionStatus.PAST_DUE)


class UnreadableObject(ValueError):
    """The payment provider's object does not have the expected form."""


@dataclass(frozen=True, slots=True)
class CheckoutMetadata:
    """The user, service and plan in a checkout.

    We send the metadata with the checkout, and the provider copies them to the subscription.
    """

    org_id: UUID
    service_id: UUID
    user_id: UUID
    plan_id: UUID

    def to_strings(self) -> dict[str, str]:
        """Return the metadata in the form that the provider stores."""
        return {"user_id": str(self.user_id), "service_id": str(self.service_id), "plan_id": str(self.plan_id), "org_id": str(self.org_id)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSubscription:
    """A subscription as the payment provider describes it."""

    id: str
    customer_id: str | None
    status: str
    price_id: str | None
    period_end: datetime | None
    metadata: CheckoutMetadata | None  # None if incomplete, for example because we did not create the subscription

    @property
    def is_canceled(self) -> bool:
        """Return whether the subscription is canceled, which is final."""
        return to_status(self.status) is SubscriptionStatus.CANCELLED

    @property
    def is_over(self) -> bool:
        """Return whether the provider has ended the subscription."""
        return not to_status(self.status).is_live


@dataclass(frozen=True, slots=True)
class ProviderSnapshot:
    """A subscription and the time at which the provider returned it, by the provider's clock if known (UTC)."""

    subscription: ProviderSubscription
    at: datetime


def parse_provider_id(value: object) -> str | None:
    """Return the object's id, or None if it is not valid. `value` is the id, or the expanded object itself."""
    if isinstance(value, Mapping):
        value = value.get("id")
    return value if isinstance(value, str) and _ID.fullmatch(value) else None


def require_provider_id(value: object) -> str:
    """Return the object's id."""
    provider_id = parse_provider_id(value)
    if provider_id is None:
        raise UnreadableObject
    return provider_id


def parse_subscription_id(value: object) -> str | None:
    """Return a subscription's id if it can be part of a path, or None."""
    id_ = parse_provider_id(value)
    return id_ if id_ is not None and _SUBSCRIPTION_ID.fullmatch(id_) and id_.strip(".") else None


def parse_timestamp(value: object) -> datetime | None:
    """Return the time for this number (seconds since 1970), or None if it is not valid."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_TIMESTAMP:
        return None
    return datetime.fromtimestamp(value, UTC)


def parse_metadata(metadata: object) -> CheckoutMetadata | None:
    """Return the checkout's metadata, or None if an id in it is missing or not valid."""
    if not isinstance(metadata, Mapping):
        return None
    ids = [parse_id(text) if isinstance(text := metadata.get(key), str) else None for key in ("org_id", "service_id", "user_id", "plan_id")]
    org_id, service_id, user_id, plan_id = ids
    if org_id is None or service_id is None or user_id is None or plan_id is None:
        return None
    return CheckoutMetadata(org_id, service_id, user_id, plan_id)


def parse_subscription(data: Mapping[str, Any]) -> ProviderSubscription:
    """Return the subscription that this JSON object describes. Raises: UnreadableObject."""
    id_, status = parse_subscription_id(data.get("id")), data.get("status")
    if id_ is None or not isinstance(status, str) or len(status) > 100 or not status.isascii() or not status.isprintable():
        raise UnreadableObject
    item = _first_item(data.get("items"))
    # Newer versions of the provider's API have the period in every item.
    period_end = parse_timestamp(data.get("current_period_end")) or parse_timestamp(item.get("current_period_end"))
    return ProviderSubscription(
        id=id_,
        customer_id=parse_provider_id(data.get("customer")),
        status=status,
        price_id=parse_provider_id(item.get("price")) or parse_provider_id(item.get("plan")),
        period_end=period_end,
        metadata=parse_metadata(data.get("metadata")),
    )


def _first_item(items: object) -> Mapping[str, Any]:
    data = items.get("data") if isinstance(items, Mapping) else None
    return data[0] if isinstance(data, list) and data and isinstance(data[0], Mapping) else {}


def invoice_subscription_id(invoice: Mapping[str, Any]) -> str | None:
    """Return the id of an invoice's subscription, or None if it has none. Newer API versions put the id below `parent`."""
    parent = invoice.get("parent")
    details = parent.get("subscription_details") if isinstance(parent, Mapping) else None
    return parse_subscription_id(invoice.get("subscription")) or parse_subscription_id(
        details.get("subscription") if isinstance(details, Mapping) else None
    )


def invoice_period_end(invoice: Mapping[str, Any]) -> datetime | None:
    """Return the end of the period that an invoice pays for, or None if it does not say.

    The period is in the invoice's lines. The invoice itself names the previous period. Lines for one-time purchases do
    not count, because their period is not the subscription's.
    """
    lines = invoice.get("lines")
    data = lines.get("data") if isinstance(lines, Mapping) else None
    all_lines = [line for line in data if isinstance(line, Mapping)] if isinstance(data, list) else []
    periods = [line.get("period") for line in all_lines if _is_subscription_line(line)]
    if all_lines and not periods:
        return None
    ends = [end for period in periods if isinstance(period, Mapping) and (end := parse_timestamp(period.get("end"))) is not None]
    return max(ends, default=None) or parse_timestamp(invoice.get("period_end"))


def _is_subscription_line(line: Mapping[str, Any]) -> bool:
    """Return whether an invoice line is for the subscription. A line without a type counts.

    A plan change within a period adds a line for the rest of that period, marked as proration. Newer versions of the
    provider's API put these fields below `parent`.
    """
    parent = line.get("parent")
    if isinstance(parent, Mapping) and isinstance(kind := parent.get("type"), str):
        details = parent.get(kind)
        is_proration = isinstance(details, Mapping) and details.get("proration") is True
        return kind == "subscription_item_details" or is_proration
    type_ = line.get("type")
    return not isinstance(type_, str) or type_ == "subscription" or line.get("proration") is True


def is_invoice_settled(invoice: Mapping[str, Any]) -> bool:
    """Return whether the invoice is paid, void or written off, so that no payment is missing."""
    return invoice.get("status") in ("paid", "void", "uncollectible")


def invoice_page_url(invoice: Mapping[str, Any]) -> str | None:
    """Return the URL for the page where the user can pay the invoice, or None if there is no URL that is safe to send by email."""
    url = invoice.get("hosted_invoice_url")
    if not isinstance(url, str) or len(url) > MAX_PAGE_URL_LENGTH or not url.isascii() or not url.isprintable() or set(url) & _NOT_IN_LINKS:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return url if parts.scheme == "https" and parts.hostname and "@" not in parts.netloc else None
