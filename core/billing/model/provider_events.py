"""The payment provider's events, and the reconciliation with the provider."""

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from core.billing.model import provider_objects
from core.kernel import errors

TOLERANCE: Final = timedelta(minutes=5)  # between our clock and the signature's time (docs/reference/limits.md)


class SignatureMissing(errors.Invalid):
    """The billing-signature header is missing. Send it with each event."""


class SignatureInvalid(errors.Unauthenticated):
    """The signature of this event is not valid, or its time differs from ours by more than five minutes."""


class EventsNotConfigured(errors.PaymentsFailed):
    """Events of the payment provider cannot be received because SSO_BILLING_WEBHOOK_SECRET, which verifies signatures, is not set."""


class EventInvalid(errors.Invalid):
    """This event is not valid. It needs id, type, created and data, with an object that has an id; a subscription also needs a status."""


_TIME = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"[0-9A-Fa-f]{64}")


def verify(secrets: Sequence[str], header: str | None, body: bytes, now: datetime) -> None:
    """Check that the signature header signs exactly these bytes with one of the secrets, within TOLERANCE of `now`.

    Header elements other than `t` and `v1` are ignored.
    """
    usable_secrets = [secret for secret in secrets if secret]
    if not usable_secrets:
        raise EventsNotConfigured("SSO_BILLING_WEBHOOK_SECRET is not set")
    if not header:
        raise SignatureMissing
    elements = [(key, value) for key, _, value in (element.partition("=") for element in header.split(","))]
    times, signatures = [value for key, value in elements if key == "t"], [value for key, value in elements if key == "v1"]
    if len(times) != 1 or not _TIME.fullmatch(times[0]) or not signatures or not all(map(_SIGNATURE.fullmatch, signatures)):
        raise SignatureInvalid
    # Compare whole seconds, because the header has no fractions.
    if abs(int(now.timestamp()) - int(times[0])) > TOLERANCE.total_seconds():
        raise SignatureInvalid
    signed = times[0].encode() + b"." + body
    expected = [hmac.digest(secret.encode(), signed, "sha256") for secret in usable_secrets]
    if not any(hmac.compare_digest(mac, bytes.fromhex(signature)) for mac in expected for signature in signatures):
        raise SignatureInvalid


@dataclass(frozen=True, slots=True)
class BillingEvent:
    """An event from the payment provider."""

    id: str
    type: str
    created: datetime  # UTC
    livemode: bool | None  # None if the event does not say
    subject: Mapping[str, Any]  # the object that changed


def read_event(body: Mapping[str, Any]) -> BillingEvent:
    """Return the event that this JSON object describes."""
    id_, type_, created, data = (
        provider_objects.parse_provider_id(body.get("id")),
        body.get("type"),
        provider_objects.parse_timestamp(body.get("created")),
        body.get("data"),
    )
    subject = data.get("object") if isinstance(data, Mapping) else None
    if id_ is None or not isinstance(type_, str) or created is None or not isinstance(subject, Mapping):
        raise EventInvalid
    livemode = body.get("livemode")
    return BillingEvent(id=id_, type=type_, created=created, livemode=livemode if isinstance(livemode, bool) else None, subject=subject)


class Effect(StrEnum):
    """What an event or a check did, for the log."""

    DONE = "done"
    UNCHANGED = "unchanged"  # the facts were stored, but nothing follows from them
    DUPLICATE = "duplicate"
    UNKNOWN_TYPE = "unknown_type"
    OTHER_MODE = "other_mode"
    NOT_MANAGED_HERE = "not_managed_here"  # no organization in this installation is known for it
    MISMATCH = "mismatch"  # the event contradicts stored data, or itself (security H-5)
    ORPHANED = "orphaned"  # a purchase for a deleted service, organization or account; it is canceled at the provider
    DUPLICATE_SUBSCRIPTION = "duplicate_subscription"  # the user already has a live subscription and pays twice
    UNKNOWN = "unknown"  # the provider does not know a subscription that is live here
    FAILED = "failed"  # the provider failed to answer a check


APPLIED: Final = frozenset({Effect.DONE, Effect.UNCHANGED})
# An operator has to act on these effects: a user may have paid for nothing, or pays twice, or uses
# a service without paying. Another cause can be that our API key belongs to another account or
# mode.
NEEDS_ATTENTION: Final = frozenset({Effect.MISMATCH, Effect.ORPHANED, Effect.DUPLICATE_SUBSCRIPTION, Effect.UNKNOWN})


LEASE_NAME: Final = "billing_reconciler"
# Longer than a request to the provider, and longer than the usual pause between rounds, so that one
# process keeps the lease while it runs.
LEASE: Final = timedelta(minutes=5)
MAX_CONSECUTIVE_FAILURES: Final = 3  # in a row and of the same kind, after which the provider is treated as down
RECHECK_INTERVAL: Final = timedelta(hours=1)  # if nothing else sets the next check, for example for a checkout that is still open
# The wait after a failed check. The retry comes after all checks that were due before. The retry
# does not come in every round, because it may always fail.
RETRY_INTERVAL: Final = timedelta(minutes=5)
CHECKOUT_CHECK_PERIOD: Final = timedelta(days=3)  # checkout sessions at the provider are open for one day at most


# The effects that are reported to the operator, with their names in the round's counts. The
# reported effects are repairs, and users who may pay for nothing, pay twice, or use a service
# without paying.
REPORTED_EFFECTS: Final = {
    Effect.DONE: "changed",
    Effect.ORPHANED: "orphaned",
    Effect.DUPLICATE_SUBSCRIPTION: "duplicate_subscription",
    Effect.MISMATCH: "mismatch",
    Effect.UNKNOWN: "unknown",
}
# Receives these effects and every failed check: the subscription's id at the provider, its
# organization if known, and the effect.
Report = Callable[[str, UUID | None, Effect], object]


@dataclass(frozen=True, slots=True)
class OpenCheckouts:
    """A customer's checkouts without a known result."""

    ids: tuple[UUID, ...]
    since: datetime  # when the oldest checkout was started
    customer_id: str | None  # None if the provider does not know the organization yet
