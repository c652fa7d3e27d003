"""Checkouts and the provider's customer records: entities, errors and the return URL check."""

from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit
from uuid import UUID

from core.billing.model.provider_objects import CheckoutMetadata
from core.kernel import errors


class UnknownPlan(errors.Invalid):
    """This plan does not exist. Choose a plan of this application."""


class CheckoutPlanOfAnotherService(errors.Invalid):
    """This plan belongs to another application. Choose a plan of this application."""


class PlanWithoutPrice(errors.Invalid):
    """This plan cannot be bought because it has no price at the payment provider. Set that first."""


class HasLiveSubscription(errors.Invalid):
    """You already have an active or past due subscription to this application. It has to end before you can buy another one."""


class ReturnUrlInvalid(errors.Invalid):
    """The success_url and cancel_url must be http or https URLs with a host, without spaces, control characters or backslashes."""


class BillingNotConfigured(errors.Unsupported):
    """Billing is not configured on this installation. Ask the operator of Gatehouse to set it up."""


class IdempotencyKeySpent(errors.PaymentsFailed):
    """The payment provider failed. Try again."""  # the next attempt uses a new key, because this key always returns the failure


class CustomerNotFound(errors.PaymentsFailed):
    """The payment provider has deleted your organization's customer record. Try again."""


@dataclass(frozen=True, slots=True)
class Customer:
    """An organization's customer record at the payment provider."""

    key: UUID  # the idempotency key for the request that creates the record
    customer_id: str | None  # None if the record does not exist yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A purchase that a member started. `price_id` is the plan's price at the provider at that time."""

    id: UUID
    metadata: CheckoutMetadata
    price_id: str
    success_url: str
    cancel_url: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class CheckoutSession:
    """A checkout at the payment provider, and the page where the browser continues."""

    session_id: str
    url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CheckoutMatch:
    """The result when a subscription is compared with the checkout that led to it, or may have led to it."""

    same_metadata: bool
    same_price: bool


def is_return_url(url: str) -> bool:
    """Return whether the provider can redirect a browser to this URL.

    Braces and similar characters are allowed: the provider replaces {CHECKOUT_SESSION_ID} with the
    session's id.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and not set(url) & set(" \\")
