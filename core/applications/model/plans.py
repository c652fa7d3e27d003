"""Plans, entitlements to them, and the cancellations that wait for the provider."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.kernel import errors, values

# Every new service gets a plan with this name. Users without a subscription have the plan named so,
# as long as the service has such a plan.
FREE_PLAN_NAME: Final = "Free"
PLAN_BATCH: Final = 500  # plans read at once for a list
# JSON bytes in UTF-8. Every token that a plan's subscriber gets contains the features, and tokens
# over 8 KiB are refused (security J-7).
MAX_FEATURES_SIZE: Final = 3000
_CURRENCY = re.compile(r"[a-z]{3}")


class PlanNotFound(errors.NotFound):
    """This plan does not exist."""


class CurrencyInvalid(errors.Invalid):
    """A currency is a code of three letters, such as usd."""


class FeaturesTooLong(errors.Invalid):
    """The features of a plan are limited to 3,000 bytes in UTF-8 because each token of a subscriber contains them. Shorten the features."""


class EmptyPlanUpdate(errors.Invalid):
    """The request changes nothing. Send at least one of name, price_cents, currency, features and billing_price_id."""


class PlanInUse(errors.Invalid):
    """This plan has active or past due subscriptions. End them or move them to another plan, then delete this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan that a service has. Times are UTC; `currency` is a lower-case ISO 4217 code."""

    id: UUID
    org_id: UUID
    service_id: UUID
    name: str
    price_cents: int
    currency: str
    features: tuple[str, ...]
    billing_price_id: str | None  # the price at the payment provider; without it the plan cannot be bought
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChanges:
    """New values for a plan's fields."""

    name: str | values.Keep = values.KEEP
    price_cents: int | values.Keep = values.KEEP
    currency: str | values.Keep = values.KEEP
    features: Sequence[str] | values.Keep = values.KEEP
    billing_price_id: str | values.Keep | None = values.KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTerms(PlanChanges):
    """The plan fields that a member chooses, not checked yet."""

    name: str
    price_cents: int
    currency: str
    features: Sequence[str] = ()
    billing_price_id: str | None = None


def parse_currency(text: str) -> str:
    """Return the currency code in lower case."""
    # Check for ASCII before folding case: the Kelvin sign, for example, has a plain "k" as its
    # lower case.
    code = text.lower() if text.isascii() else ""
    if not _CURRENCY.fullmatch(code):
        raise CurrencyInvalid
    return code


def check_features(features: Sequence[str]) -> tuple[str, ...]:
    """Return the features, in this order."""
    if len(json.dumps(list(features), ensure_ascii=False).encode()) > MAX_FEATURES_SIZE:
        raise FeaturesTooLong
    return tuple(features)


# Longer than a provider call may take, so that no other process repeats a call that is still
# running.
LEASE: Final = timedelta(seconds=60)
IMMEDIATE_LIMIT: Final = 5  # cancellations that the causing request waits for; the reconciler does the rest
IMMEDIATE_TIMEOUT: Final = timedelta(seconds=10)  # for all these cancellations together
RETRY_INTERVAL: Final = timedelta(minutes=10)  # after a cancellation failed in the background
# The provider does not know the subscription in two cases: it has ended, or the configured API key belongs to another
# account. An operator has this long to notice and correct the key.
GIVE_UP_AFTER: Final = timedelta(days=3)


class CancellationNotRecorded(errors.AuditFailed):
    """The change was made, also at the payment provider, but the cancellation there is not recorded yet. It will be recorded soon."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A subscription to cancel at the payment provider. The subscription's organization and service may no longer exist."""

    provider_subscription_id: str
    subscription_id: UUID
    org_id: UUID
    service_id: UUID
    asked_at: datetime


class SubscriptionStatus(StrEnum):
    """A subscription's status, as in the API and the database."""

    ACTIVE = "active"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    PAST_DUE = "past_due"

    @property
    def is_live(self) -> bool:
        """Return whether the subscription is active or past due. A user has at most one live subscription to a service."""
        return self in (SubscriptionStatus.ACTIVE, SubscriptionStatus.PAST_DUE)


@dataclass(frozen=True, slots=True)
class Entitlement:
    """The plan that a user has at a service, by subscription or because it is the service's free plan.

    Without a plan, all fields are None.
    """

    plan: str | None = None
    status: SubscriptionStatus | None = None  # also None on the free plan
    features: tuple[str, ...] | None = None
