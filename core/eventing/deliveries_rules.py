"""Entities, refusals and pure rules of `core.eventing.deliveries`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from core.kernel.errors import NotFound
from core.kernel.values import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from core.kernel.outbound import Reply, Trouble
    from core.kernel.policy import Policy
    from core.kernel.principals import Member

PING: Final = "webhook.ping"  # of trying a webhook out; nothing that one can subscribe to
ATTEMPTS: Final = 5  # at most (organizations.md section 2.7)
SHOWN_OF_AN_ANSWER: Final = 4096  # bytes (decisions, point 225)
GONE: Final = 410  # the receiver wants nothing more, ever
# For recording the outcome, also where the process is asked to stop or the database stutters; after that somebody else tries.
LEASE_MARGIN: Final = timedelta(seconds=30)
# Claims after which nothing was heard: a delivery that takes the process down with it must not do so for ever.
MAX_LOST_CLAIMS: Final = 10
# How many that have come due are put among those that can be claimed, in one go.
WOKEN_AT_ONCE: Final = 1000


class DeliveryNotFound(NotFound):
    """There is no such delivery."""


class Failure(StrEnum):
    """Why a delivery failed, beside core.outbound.Trouble: all that is ever told (security.md W-4)."""

    NOT_TAKEN = "the answer was not a success"
    NOT_SIGNED = "the secret of the webhook could not be read: rotate it"
    NOT_MADE = "the request could not be made"
    LOST = "it was begun too often without an outcome"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What was, or is to be, told to a webhook (organizations.md section 2.7). Times are UTC."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery:
    """A delivery that is the caller's to attempt. `attempts` are those whose outcome is known, `claims` all that were begun.

    `secrets` sign it: none where their seal is broken.
    """

    id: UUID
    org_id: UUID
    webhook_id: UUID
    url: str
    secrets: Sequence[str] = field(repr=False)
    body: bytes = field(repr=False)
    claims: int
    attempts: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an attempt; without `next_retry_at` there is none after it."""

    delivery: ClaimedDelivery
    at: datetime
    status: int | None = None
    body: str | None = field(default=None, repr=False)
    error: str | None = None
    next_retry_at: datetime | None = None

    @property
    def delivered(self) -> bool:
        return self.error is None


@dataclass(frozen=True, slots=True)
class Room:
    """How many deliveries there is room for beside those under way, of which organizations and webhooks have so many.

    An organization gets so much of it that three times what it then has stays free, and a webhook so much that its organization can have
    as much besides. A webhook that has nothing under way gets one as long as its organization has no more than stays free. So however many
    receivers hang, whoever has nothing under way finds a place, of another organization and of the same; and who is alone has plenty.
    """

    free: int
    of_organizations: Mapping[UUID, int]
    of_webhooks: Mapping[UUID, int]

    @classmethod
    def beside(cls, slots: int, under_way: Sequence[ClaimedDelivery]) -> Room:
        return cls(slots - len(under_way), Counter(each.org_id for each in under_way), Counter(each.webhook_id for each in under_way))


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to be attempted now, and when something falls due that waits."""

    claimed: Sequence[ClaimedDelivery]
    next_due: datetime | None


def ping(org_id: UUID, webhook_id: UUID, name: str, caller: Member, now: datetime) -> str:
    """The payload of a ping, which says nothing but whose it is."""
    payload = {
        "event": PING,
        "timestamp": rfc3339(now),
        "organization_id": str(org_id),
        "actor_user_id": str(caller.user_id),
        "actor_email": caller.email,
        "data": {"webhook_id": str(webhook_id), "webhook_name": name},
    }
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def headers(delivery: ClaimedDelivery, now: datetime) -> Mapping[str, str]:
    """What goes along with the body, signed as Standard Webhooks says (decisions, point 214)."""
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


def answered(policy: Policy, delivery: ClaimedDelivery, reply: Reply, now: datetime, spread: float) -> Outcome:
    """The outcome where the receiver answered: a success is 2xx, and nothing else is; nobody follows redirects."""
    # PostgreSQL stores any character but this one.
    body = reply.body[:SHOWN_OF_AN_ANSWER].decode("utf-8", "replace").replace("\0", "\ufffd")
    if reply.is_success:
        return Outcome(delivery=delivery, at=now, status=reply.status, body=body)
    return replace(failed(policy, delivery, Failure.NOT_TAKEN, now, spread), status=reply.status, body=body)


def failed(policy: Policy, delivery: ClaimedDelivery, why: Trouble | Failure, now: datetime, spread: float) -> Outcome:
    """The outcome of a failure. The next attempt is a fifth later than its delay at most: `spread` is a random number from 0 to 1."""
    attempts, delays = delivery.attempts + 1, policy.webhook_retry_delays
    retry = None if attempts >= len(delays) or why is Failure.LOST else now + delays[attempts] * (1 + spread / 5)
    return Outcome(delivery=delivery, at=now, error=why.value, next_retry_at=retry)
