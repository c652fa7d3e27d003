"""Webhooks, their health and their deliveries, and logout notices (Back-Channel Logout 1.0)."""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from core.eventing.model import audit
from core.kernel import callers, errors, event_catalog, outbound
from core.kernel.policy import Policy
from core.kernel.values import rfc3339

# After a rotation, the old secret signs beside the new secret for this time, so that receivers can
# switch without losing a delivery.
OVERLAP: Final = timedelta(hours=24)
# The limit keeps the signature header small when a member rotates the secret again and again.
FORMER_SECRETS_KEPT: Final = 10
SECRET_PREFIX: Final = "whsec_"  # noqa: S105  (of Standard Webhooks)

# The event types that webhooks can subscribe to.
SUBSCRIBABLE: Final[Mapping[str, event_catalog.EventKind]] = MappingProxyType(
    {name: kind for name, kind in event_catalog.EVENT_KINDS.items() if not kind.platform_only}
)


class WebhookNotFound(errors.NotFound):
    """This webhook does not exist."""


class WebhookNameTaken(errors.Invalid):
    """A webhook of the organization already has this name. Choose another one."""


class NoEvents(errors.Invalid):
    """A webhook needs at least one event type. List the ones to send."""


class EventTypeUnknown(errors.Invalid):
    """This event type does not exist."""

    def __init__(self) -> None:
        super().__init__(f"This event type does not exist. The event types are: {', '.join(SUBSCRIBABLE)}.")


class TooManyWebhooks(errors.Invalid):
    """The organization already has the maximum number of webhooks. Delete a webhook first."""

    audited = True

    def __init__(self, most: int) -> None:
        super().__init__(f"The organization already has the maximum of {most} webhooks. Delete one that you no longer need.")


class NoWebhookChanges(errors.Invalid):
    """The request changes nothing. Send at least one of name, url, events and is_active."""


class WebhookInactive(errors.Invalid):
    """The webhook is not active, so nothing is sent to it. Turn it on first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An organization's webhook, without its secret. Times are UTC."""

    id: UUID
    org_id: UUID
    name: str
    url: str
    events: tuple[str, ...]
    is_active: bool
    created_at: datetime
    updated_at: datetime


def new_signing_secret() -> str:
    """Return a new secret with 256 random bits in the Standard Webhooks format (security W-5)."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def parse_event_types(names: Sequence[str]) -> tuple[str, ...]:
    """Return the event types without duplicates."""
    if not names:
        raise NoEvents
    if not set(names) <= SUBSCRIBABLE.keys():
        raise EventTypeUnknown
    return tuple(dict.fromkeys(names))


PING: Final = "webhook.ping"  # the event type for a test delivery; webhooks cannot subscribe to it
STORED_RESPONSE_BYTES: Final = 4096
GONE: Final = 410  # HTTP status: the receiver no longer exists
# Time to store the outcome after the longest possible attempt, even during a shutdown or a short
# database outage. When it has passed, another process may claim the delivery.
LEASE_MARGIN: Final = timedelta(seconds=30)
# A delivery that crashes the process must not be retried forever. So many claims may end without a
# stored outcome.
MAX_LOST_CLAIMS: Final = 10
WAKE_LIMIT: Final = 1000  # deliveries per transaction that change from waiting to due


class DeliveryNotFound(errors.NotFound):
    """This delivery does not exist."""


class DeliveryFailure(StrEnum):
    """The reasons for a failed attempt besides `SendFailure`.

    The tenant sees only these texts, so that it learns nothing about the network (security W-4).
    """

    NOT_ACCEPTED = "the response was not a success"
    NOT_SIGNED = "the secret of the webhook could not be read: rotate it"
    NOT_SENT = "the request could not be made"
    LOST = "too many attempts started and never finished"


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """A finished attempt to send a delivery. `at` (UTC) is its end."""

    at: datetime
    status: int | None  # the response's status, or None without a response
    error: str | None  # why it failed, or None
    milliseconds: int | None  # from the start to the end, or None if nothing was sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event sent, or queued to be sent, to a webhook. Times are UTC."""

    id: UUID
    webhook_id: UUID
    webhook_name: str
    event_type: str
    payload: Mapping[str, Any]
    response_status_code: int | None
    response_body: str | None
    attempt_count: int
    next_retry_at: datetime | None
    delivered: bool
    delivery_error: str | None
    created_at: datetime
    updated_at: datetime
    attempts: Sequence[DeliveryAttempt]  # the finished attempts, oldest first; without attempts from releases that did not store them


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedDelivery:
    """A delivery to a receiver, such as a webhook, that is leased to this process."""

    id: UUID
    org_id: UUID
    url: str
    claims: int  # the attempts that were started, with this attempt
    attempts: int  # the attempts with a stored outcome
    created_at: datetime

    @property
    def receiver_id(self) -> UUID:
        """The receiver's id: a receiver shares the slots with other receivers."""
        raise NotImplementedError

    @property
    def is_lost(self) -> bool:
        """Whether too many attempts have started and never finished."""
        return self.claims - 1 - self.attempts >= MAX_LOST_CLAIMS


T = TypeVar("T", bound=LeasedDelivery)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery(LeasedDelivery):
    """A delivery to a webhook that is leased to this process, with everything needed to send it."""

    webhook_id: UUID
    secrets: Sequence[str] = field(repr=False)  # the signing secrets; empty if they could not be decrypted
    body: bytes = field(repr=False)

    @property
    def receiver_id(self) -> UUID:
        return self.webhook_id


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOutcome(Generic[T]):
    """An attempt's outcome."""

    delivery: T
    at: datetime
    status: int | None = None
    body: str | None = field(default=None, repr=False)
    error: str | None = None
    next_retry_at: datetime | None = None  # None if this was the last attempt
    milliseconds: int | None = None  # the duration, or None if nothing was sent

    @property
    def delivered(self) -> bool:
        return self.error is None


@dataclass(frozen=True, slots=True)
class DispatchCapacity:
    """This process's free slots, and how many deliveries are in flight by owner.

    The claim shares the free slots by three rules. An application that gets logout notices counts as
    a webhook.

    - An organization may claim while `3 * in_flight(org) <= free`. So one organization alone gets a
      quarter of all slots.
    - A webhook may claim while `in_flight(webhook) <= left(org)`, the slots that its organization can
      still get. So no webhook takes all slots of its organization.
    - A webhook with nothing in flight gets one slot more, while `in_flight(org) <= free`. So it gets a
      slot even when many receivers hang.
    """

    free: int
    by_organization: Mapping[UUID, int]
    by_receiver: Mapping[UUID, int]

    @classmethod
    def remaining(cls, slots: int, in_flight: Sequence[LeasedDelivery]) -> Self:
        """Return the capacity that remains from `slots` beside `in_flight`."""
        organizations = Counter(delivery.org_id for delivery in in_flight)
        receivers = Counter(delivery.receiver_id for delivery in in_flight)
        return cls(slots - len(in_flight), organizations, receivers)


@dataclass(frozen=True, slots=True)
class DeliveryBatch(Generic[T]):
    """The deliveries to attempt now, and when the next waiting delivery is due (None if none waits)."""

    claimed: Sequence[T]
    next_due: datetime | None


def build_ping_payload(org_id: UUID, webhook_id: UUID, name: str, caller: callers.OrganizationCaller, now: datetime) -> str:
    """Return the payload for a test delivery. The payload names the webhook and the member who sends the delivery."""
    payload = {
        "event": PING,
        "timestamp": rfc3339(now),
        "organization_id": str(org_id),
        "actor_user_id": str(caller.user_id) if isinstance(caller, callers.Member) else None,
        "actor_email": caller.email if isinstance(caller, callers.Member) else None,
        "actor": {
            "kind": audit.caller_kind(caller),
            "id": str(caller.actor_id),
            "name": None if isinstance(caller, callers.Member) else caller.name,
        },
        "data": {"webhook_id": str(webhook_id), "webhook_name": name},
    }
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def build_headers(delivery: ClaimedDelivery, now: datetime) -> Mapping[str, str]:
    """Return the HTTP headers, with the signature as in Standard Webhooks."""
    timestamp = str(int(now.timestamp()))
    signed = b".".join((str(delivery.id).encode(), timestamp.encode(), delivery.body))
    return {
        "Content-Type": "application/json",
        "webhook-id": str(delivery.id),
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(_signature(secret, signed) for secret in delivery.secrets),
    }


def _signature(secret: str, signed: bytes) -> str:
    key = binascii.a2b_base64(secret.partition("_")[2])
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def answered_outcome(
    policy: Policy, delivery: ClaimedDelivery, reply: outbound.Reply, now: datetime, spread: float
) -> DeliveryOutcome[ClaimedDelivery]:
    """Return the outcome for an attempt that got a response.

    Only 2xx is a success. Redirects are not followed. `spread` is as for `failed_outcome`.
    """
    # PostgreSQL cannot store the character U+0000 in a text.
    body = reply.body[:STORED_RESPONSE_BYTES].decode("utf-8", "replace").replace("\0", "\ufffd")
    if reply.is_success:
        return DeliveryOutcome(delivery=delivery, at=now, status=reply.status, body=body)
    return replace(failed_outcome(policy, delivery, DeliveryFailure.NOT_ACCEPTED, now, spread), status=reply.status, body=body)


def failed_outcome(
    policy: Policy, delivery: T, reason: outbound.SendFailure | DeliveryFailure, now: datetime, spread: float
) -> DeliveryOutcome[T]:
    """Return the outcome for a failed attempt, with the next attempt's time.

    `spread` is a random number from 0 to 1. `spread` delays the next attempt by up to a fifth of its regular delay.
    """
    attempts, delays = delivery.attempts + 1, policy.webhook_retry_delays
    is_last = attempts >= len(delays) or reason is DeliveryFailure.LOST
    retry = None if is_last else now + delays[attempts] * (1 + spread / 5)
    return DeliveryOutcome(delivery=delivery, at=now, error=reason.value, next_retry_at=retry)


LOGOUT_TOKEN_TTL: Final = timedelta(minutes=2)  # the longest life that section 2.4 recommends
HEADERS: Final[Mapping[str, str]] = MappingProxyType({"Content-Type": "application/x-www-form-urlencoded", "Cache-Control": "no-store"})
ACCEPTED: Final = (200, 204)  # section 2.8
REFUSED: Final = 400  # the application could not log the user out, and would not the next time either


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedLogoutNotice(LeasedDelivery):
    """A notice about a session that ended, leased to this process."""

    service_id: UUID
    service_slug: str
    service_name: str
    client_id: UUID
    user_id: UUID
    session_id: UUID

    @property
    def receiver_id(self) -> UUID:
        return self.service_id


def request_body(logout_token: str) -> bytes:
    """Return the body for the request to the application (section 2.5)."""
    return urlencode({"logout_token": logout_token}).encode()


def notice_outcome(
    policy: Policy, notice: ClaimedLogoutNotice, reply: outbound.Reply, now: datetime, spread: float
) -> DeliveryOutcome[ClaimedLogoutNotice]:
    """Return the outcome for an attempt that got a response. 400 is final."""
    if reply.status in ACCEPTED:
        return DeliveryOutcome(delivery=notice, at=now, status=reply.status)
    outcome = replace(failed_outcome(policy, notice, DeliveryFailure.NOT_ACCEPTED, now, spread), status=reply.status)
    return replace(outcome, next_retry_at=None) if reply.status == REFUSED else outcome


RECENT: Final = 100  # the deliveries with the newest attempts, which the health is calculated from
RESEND_LIMIT: Final = 1000  # deliveries that a request sends again
COUNTED_TO_RESEND: Final = 10_000  # failed deliveries are counted up to this number


class WebhookState(StrEnum):
    """A webhook's state, from the outcomes of its deliveries."""

    OFF = "off"
    UNUSED = "unused"  # no delivery has been attempted
    HEALTHY = "healthy"
    FAILING = "failing"  # the newest attempt failed
    BROKEN = "broken"  # all recent deliveries failed, and a delivery was given up


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookHealth:
    """The outcomes of the webhook's deliveries with the newest attempts, at most RECENT."""

    attempted: int = 0
    delivered: int = 0
    given_up: int = 0
    is_failing: bool = False  # whether the newest attempt failed
    last_failure_at: datetime | None = None  # UTC; None if no recent delivery failed
    last_failure_status: int | None = None  # the response's status, or None without a response
    last_failure_reason: str | None = None

    @property
    def success_rate(self) -> float | None:
        """Return which part of the attempted deliveries was delivered, or None without any."""
        return self.delivered / self.attempted if self.attempted else None

    def state(self, *, is_active: bool) -> WebhookState:
        if not is_active:
            return WebhookState.OFF
        if not self.attempted:
            return WebhookState.UNUSED
        if not self.delivered and self.given_up:
            return WebhookState.BROKEN
        return WebhookState.FAILING if self.is_failing else WebhookState.HEALTHY


NO_ATTEMPTS: Final = WebhookHealth()


@dataclass(frozen=True, slots=True)
class Resent:
    """How many failed deliveries were queued again, and how many remain, at most COUNTED_TO_RESEND."""

    queued: int
    remaining: int
