"""Entities, refusals and pure rules of `core.eventing.siem`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from core.eventing import audit_rules
from core.kernel import outbound
from core.kernel.errors import Invalid, NotFound
from core.kernel.values import rfc3339

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from core.eventing.audit_rules import AuditEntry
    from core.kernel.outbound import Reply

# Of one post. Datadog takes 1000 logs and 5 MB, and what stands before a collector often 1 MB.
MOST_ENTRIES: Final = 500
MOST_BYTES: Final = 1_000_000
WITHIN: Final = 10.0  # seconds for one post, all in all (security.md W-2)
# For reading what to send, and for the post. Whoever was slower than that leaves the post to the next one.
LEASE: Final = timedelta(seconds=20)
LONGEST_BACKOFF: Final = timedelta(minutes=5)
COUNTED: Final = 10_000  # of what waits; beyond, counting would take longer the more it is
# Datadog drops what says that it is older than 18 hours.
OLD_FOR_DATADOG: Final = timedelta(hours=17)

_SENDABLE: Final = re.compile(r"[\x21-\x7e]+")


class NotForwarded(NotFound):
    """The audit log of this organization is not forwarded anywhere."""


class TokenUnusable(Invalid):
    """The token must be of printable ASCII characters without spaces: others cannot be sent."""


class SiemProvider(StrEnum):
    """What kind of SIEM it is: how it wants to be asked."""

    HTTP = "http"  # anything that takes a JSON array
    SPLUNK_HEC = "splunk_hec"
    DATADOG = "datadog"


class SiemResult(StrEnum):
    """How an attempt or a test ended: all that is told of it, so nothing of what is behind an address (security.md W-7)."""

    GOOD = "The SIEM took what was sent."
    NOT_RESOLVED = "The host name was not resolved."
    NOT_ALLOWED = "The host is at an address that is not allowed."
    NOT_CONNECTED = "No connection could be made."
    TLS_FAILED = "The host's certificate was not accepted, or no encryption was agreed on."
    TIMED_OUT = "The SIEM did not answer in time."
    BROKEN = "The connection ended before a complete answer, or the answer was not HTTP."
    TOKEN_REFUSED = "The SIEM does not accept the token."  # noqa: S105  (a sentence, not a secret)
    REFUSED = "The SIEM refused what was sent."
    REDIRECTED = "The SIEM answered with a redirect, which is not followed."
    FAILED = "The SIEM answered that it cannot take anything now."
    NOT_SENT = "Nothing could be sent, for a reason on our side."
    BUSY = "Another test is still running. Wait for it to end."


FAILURES: Final = tuple(result for result in SiemResult if result not in (SiemResult.GOOD, SiemResult.BUSY))


@dataclass(frozen=True, slots=True, kw_only=True)
class SiemConfiguration:
    """Where the audit log of an organization is forwarded to."""

    org_id: UUID
    provider: SiemProvider
    endpoint_url: str
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SiemSink(SiemConfiguration):
    """The same with the token, for whoever sends."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiemStatus(SiemConfiguration):
    """The same, and how it goes. Times are UTC. `pending` counts no further than COUNTED."""

    updated_at: datetime
    last_success_at: datetime | None
    last_failure: SiemResult | None  # none since it last went well
    failing_since: datetime | None
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedSiemQueue:
    """One whose queue is somebody's to send, until `leased_until`. Without a sink where its token cannot be opened."""

    org_id: UUID
    id: UUID
    sink: SiemSink | None
    leased_until: datetime
    claims: int
    failures: int
    is_struggling: bool  # it was slow or failed the last time


@dataclass(frozen=True, slots=True)
class QueuedEntry:
    """What waits at a place of the queue; None is an entry that is gone from the log."""

    position: int
    entry: AuditEntry | None


@dataclass(frozen=True, slots=True)
class SiemAttempt:
    """What came of an attempt; what stood at `positions` is done with if it went well. `sent` is how many entries were posted."""

    result: SiemResult
    positions: Sequence[int] = ()
    sent: int = 0


def new_sink(org_id: UUID, *, provider: SiemProvider, endpoint_url: str, token: str, enabled: bool) -> SiemSink:
    """The sink, if it can be one. Raises outbound.TargetInvalid, TokenUnusable."""
    if not _SENDABLE.fullmatch(token):
        raise TokenUnusable
    return SiemSink(org_id=org_id, provider=provider, endpoint_url=outbound.parse_target(endpoint_url), token=token, enabled=enabled)


def headers(sink: SiemSink) -> dict[str, str]:
    """What goes with each post there."""
    match sink.provider:
        case SiemProvider.HTTP:
            credentials = {"Authorization": f"Bearer {sink.token}"}
        case SiemProvider.SPLUNK_HEC:
            credentials = {"Authorization": f"Splunk {sink.token}"}
        case SiemProvider.DATADOG:
            credentials = {"DD-API-KEY": sink.token}
    return {"Content-Type": "application/json", **credentials}


def body(provider: SiemProvider, entries: Sequence[AuditEntry], now: datetime) -> tuple[bytes, int]:
    """The first of these entries as the provider takes them, and how many of them: as fit into one post, but one at least."""
    parts: list[bytes] = []
    size = 2
    for entry in entries:
        part = json.dumps(_item(provider, entry, now), ensure_ascii=False, separators=(",", ":"), default=_told).encode()
        size += len(part) + 1
        if parts and size > MOST_BYTES:
            break
        parts.append(part)
    if provider is SiemProvider.SPLUNK_HEC:  # one object after the other, and no array around them
        return b"\n".join(parts), len(parts)
    return b"[" + b",".join(parts) + b"]", len(parts)


def _item(provider: SiemProvider, entry: AuditEntry, now: datetime) -> dict[str, Any]:
    match provider:
        case SiemProvider.HTTP:
            return audit_rules.shown(entry)
        case SiemProvider.SPLUNK_HEC:
            return {
                "time": entry.created_at.timestamp(),
                "source": "gatehouse",
                "sourcetype": "gatehouse:audit",
                "event": audit_rules.shown(entry),
            }
        case SiemProvider.DATADOG:
            # Without a time it is given that of its arrival; its own is in the entry.
            timed = {"timestamp": rfc3339(entry.created_at)} if now - entry.created_at < OLD_FOR_DATADOG else {}
            message = f"{entry.action} by {entry.actor.email}"
            return {"ddsource": "gatehouse", "service": "gatehouse", "message": message, **timed, "audit": audit_rules.shown(entry)}


def _told(value: object) -> str:
    """A time or an id as the interface has it."""
    return rfc3339(value) if isinstance(value, datetime) else str(value)


def judged(reply: Reply) -> SiemResult:
    """What an answer means. Only 2xx says that everything was taken."""
    if reply.is_success:
        return SiemResult.GOOD
    if reply.status in (401, 403):
        return SiemResult.TOKEN_REFUSED
    if 300 <= reply.status < 400:
        return SiemResult.REDIRECTED
    return SiemResult.REFUSED if 400 <= reply.status < 500 and reply.status not in (408, 429) else SiemResult.FAILED


def backoff(failures: int, spread: float) -> timedelta:
    """How long to wait after so many failures in a row: 5 s doubling to five minutes, times 0.75 to 1.25. `spread` is a random number from
    0 to 1."""
    return min(timedelta(seconds=5 * 2 ** min(failures - 1, 10)), LONGEST_BACKOFF) * (0.75 + spread / 2)


def at_once(failures: int) -> int:
    """How many entries to send after so many failures in a row: fewer each time, so that neither a size that the sink does not take nor one
    entry that it does not like holds back what comes before it."""
    return max(1, MOST_ENTRIES >> min(failures, 10))
