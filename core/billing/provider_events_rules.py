"""Entities, refusals and pure rules of `core.billing.provider_events`."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from core.billing import payments
from core.kernel.errors import Invalid, PaymentsFailed, Unauthenticated

TOLERANCE: Final = timedelta(minutes=5)  # organizations.md section 8


class SignatureMissing(Invalid):
    """The header billing-signature is missing."""


class SignatureInvalid(Unauthenticated):
    """The signature of this event is not valid, or its time is more than five minutes away from ours."""


class EventsNotConfigured(PaymentsFailed):
    """Events of the payment provider are not taken: there is no SSO_BILLING_WEBHOOK_SECRET to check their signatures with."""


class EventInvalid(Invalid):
    """This is no event: it has id, type, created and data, and in data an object with an id; a subscription has a status, too."""


# Who sends it

_TIME = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"[0-9A-Fa-f]{64}")


def verify(secrets: Sequence[str], header: str | None, body: bytes, now: datetime) -> None:
    """Raises EventsNotConfigured, SignatureMissing, SignatureInvalid unless the header signs exactly these bytes with one of the secrets,
    and recently.

    Parts of the header other than `t` and `v1` are for others to read.
    """
    known = [secret for secret in secrets if secret]
    if not known:
        raise EventsNotConfigured("SSO_BILLING_WEBHOOK_SECRET is not set")
    if not header:
        raise SignatureMissing
    parts = [(key, value) for key, _, value in (part.partition("=") for part in header.split(","))]
    times, signatures = [value for key, value in parts if key == "t"], [value for key, value in parts if key == "v1"]
    if len(times) != 1 or not _TIME.fullmatch(times[0]) or not signatures or not all(map(_SIGNATURE.fullmatch, signatures)):
        raise SignatureInvalid
    # In whole seconds, as that time is given.
    if abs(int(now.timestamp()) - int(times[0])) > TOLERANCE.total_seconds():
        raise SignatureInvalid
    signed = times[0].encode() + b"." + body
    expected = [hmac.digest(secret.encode(), signed, "sha256") for secret in known]
    if not any(hmac.compare_digest(right, bytes.fromhex(given)) for right in expected for given in signatures):
        raise SignatureInvalid


# What it says


@dataclass(frozen=True, slots=True)
class BillingEvent:
    """An event of the provider. `created` is in UTC; `about` is the object that it is about."""

    id: str
    type: str
    created: datetime
    livemode: bool | None
    about: Mapping[str, Any]


def read_event(body: Mapping[str, Any]) -> BillingEvent:
    """Raises EventInvalid."""
    id_, type_, created, data = payments.name(body.get("id")), body.get("type"), payments.moment(body.get("created")), body.get("data")
    about = data.get("object") if isinstance(data, Mapping) else None
    if id_ is None or not isinstance(type_, str) or created is None or not isinstance(about, Mapping):
        raise EventInvalid
    livemode = body.get("livemode")
    return BillingEvent(
        id=id_,
        type=type_,
        created=created,
        livemode=livemode if isinstance(livemode, bool) else None,
        about=about,
    )


class Effect(StrEnum):
    """What became of an event, for the log."""

    DONE = "done"
    UNCHANGED = "unchanged"  # it is known now, and nothing follows from it
    DUPLICATE = "duplicate"
    UNKNOWN_TYPE = "unknown_type"
    OTHER_MODE = "other_mode"
    NOT_OURS = "not_ours"  # nothing of ours is meant by it, as far as it is known now
    DISAGREES = "disagrees"  # with what is stored, or with itself (security.md H-5)
    ORPHANED = "orphaned"  # somebody pays for what was deleted meanwhile; it is cancelled at the provider
    SECOND = "second"  # a subscription of somebody who has one that is live; somebody pays twice
    UNKNOWN = "unknown"  # the provider was asked about one that is live here, and does not know it
    FAILED = "failed"  # the provider was asked about one, and failed to say how it is


KNOWN: Final = frozenset({Effect.DONE, Effect.UNCHANGED})
# What an operator has to look after: somebody may have paid and got nothing, or pays twice, or goes on to have what nobody charges for, as
# with the key of another account or mode.
TROUBLE: Final = frozenset({Effect.DISAGREES, Effect.ORPHANED, Effect.SECOND, Effect.UNKNOWN})
