"""Forwarding to a SIEM: configurations, results, and the requests that every provider expects."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from core.eventing.model import audit
from core.eventing.model.audit import AuditEntry
from core.kernel import errors, outbound
from core.kernel.outbound import Reply
from core.kernel.values import rfc3339

# The limits for a request. Datadog accepts 1000 logs and 5 MB. A proxy in front of a collector
# often accepts 1 MB.
MAX_ENTRIES: Final = 500
MAX_BYTES: Final = 1_000_000
POST_TIMEOUT: Final = 10.0  # seconds, for the whole request (security W-2)
# Time to read the entries and to send them. If reading takes too long, nothing is sent until the
# next lease.
LEASE: Final = timedelta(seconds=20)
LONGEST_BACKOFF: Final = timedelta(minutes=5)
PENDING_CAP: Final = 10_000  # counting stops here, because counting a long queue is slow
DATADOG_MAX_AGE: Final = timedelta(hours=17)  # Datadog drops logs with a timestamp older than 18 hours

_PRINTABLE_ASCII: Final = re.compile(r"[\x21-\x7e]+")


class SiemNotConfigured(errors.NotFound):
    """The audit log of this organization is not forwarded to a SIEM. Configure one first."""


class SiemTokenInvalid(errors.Invalid):
    """The token may contain only printable ASCII characters, without spaces."""


class SiemProvider(StrEnum):
    """The product that receives the entries. The product determines the request format."""

    HTTP = "http"  # any server that accepts a JSON array
    SPLUNK_HEC = "splunk_hec"
    DATADOG = "datadog"


class SiemResult(StrEnum):
    """The result when entries or a test entry were sent.

    The tenant sees only these texts, so that it learns nothing about the network (security W-7).
    """

    GOOD = "The SIEM accepted the entries."
    NOT_RESOLVED = "The host name was not resolved."
    NOT_ALLOWED = "The host is at an address that is not allowed. Use a public address, or ask the operator of Gatehouse to allow it."
    NOT_CONNECTED = "No connection could be made."
    TLS_FAILED = "The host's certificate was not accepted, or no encryption was agreed on."
    TIMED_OUT = "The SIEM did not answer in time."
    BROKEN = "The connection ended before a complete answer, or the answer was not HTTP."
    TOKEN_REFUSED = "The SIEM does not accept the token."  # noqa: S105  (a sentence, not a secret)
    REFUSED = "The SIEM refused the entries."
    REDIRECTED = "The SIEM answered with a redirect. Redirects are not followed."
    FAILED = "The SIEM answered that it cannot accept entries at the moment."
    NOT_SENT = "Nothing could be sent because of a problem on our side."
    BUSY = "Another test is still running. Wait until it ends."


FAILURES: Final = tuple(result for result in SiemResult if result not in (SiemResult.GOOD, SiemResult.BUSY))


@dataclass(frozen=True, slots=True, kw_only=True)
class SiemConfiguration:
    """The SIEM that receives an organization's audit log."""

    org_id: UUID
    provider: SiemProvider
    endpoint_url: str
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SiemSink(SiemConfiguration):
    """A SIEM configuration with its token, as needed to send entries."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiemStatus(SiemConfiguration):
    """A SIEM configuration and the forwarding state. Times are UTC."""

    updated_at: datetime
    last_success_at: datetime | None
    last_failure: SiemResult | None  # None since the last success
    failing_since: datetime | None
    pending: int  # queued entries; counted up to PENDING_CAP


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedSiemQueue:
    """An organization's queue, leased to a forwarder until `leased_until`."""

    org_id: UUID
    id: UUID  # the configuration's id
    sink: SiemSink | None  # None if the token could not be decrypted
    leased_until: datetime
    claims: int
    failures: int  # in a row
    is_struggling: bool  # the last attempt was slow or failed


@dataclass(frozen=True, slots=True)
class QueuedEntry:
    """A position in the queue. The entry is None if it was removed from the audit log."""

    position: int
    entry: AuditEntry | None


@dataclass(frozen=True, slots=True)
class SiemAttempt:
    """The result of an attempt to send a queue's first entries."""

    result: SiemResult
    positions: Sequence[int] = ()  # removed from the queue if the attempt succeeded
    sent: int = 0  # entries in the request


def new_sink(org_id: UUID, *, provider: SiemProvider, endpoint_url: str, token: str, enabled: bool) -> SiemSink:
    """Return the sink."""
    if not _PRINTABLE_ASCII.fullmatch(token):
        raise SiemTokenInvalid
    return SiemSink(org_id=org_id, provider=provider, endpoint_url=outbound.parse_target(endpoint_url), token=token, enabled=enabled)


def build_headers(sink: SiemSink) -> dict[str, str]:
    """Return the HTTP headers for every request to the SIEM."""
    match sink.provider:
        case SiemProvider.HTTP:
            credentials = {"Authorization": f"Bearer {sink.token}"}
        case SiemProvider.SPLUNK_HEC:
            credentials = {"Authorization": f"Splunk {sink.token}"}
        case SiemProvider.DATADOG:
            credentials = {"DD-API-KEY": sink.token}
    return {"Content-Type": "application/json", **credentials}


def encode_entries(provider: SiemProvider, entries: Sequence[AuditEntry], now: datetime) -> tuple[bytes, int]:
    """Return a request body with the first entries, and their number.

    The body has as many entries as fit into MAX_BYTES, and at least one.
    """
    parts: list[bytes] = []
    size = 2
    for entry in entries:
        part = json.dumps(_to_item(provider, entry, now), ensure_ascii=False, separators=(",", ":"), default=_to_text).encode()
        size += len(part) + 1
        if parts and size > MAX_BYTES:
            break
        parts.append(part)
    if provider is SiemProvider.SPLUNK_HEC:  # expects objects one after the other, without an array
        return b"\n".join(parts), len(parts)
    return b"[" + b",".join(parts) + b"]", len(parts)


def _to_item(provider: SiemProvider, entry: AuditEntry, now: datetime) -> dict[str, Any]:
    match provider:
        case SiemProvider.HTTP:
            return audit.to_json(entry)
        case SiemProvider.SPLUNK_HEC:
            return {
                "time": entry.created_at.timestamp(),
                "source": "gatehouse",
                "sourcetype": "gatehouse:audit",
                "event": audit.to_json(entry),
            }
        case SiemProvider.DATADOG:
            # Datadog gives a log without a timestamp its time of arrival. The entry still has its
            # own time.
            timestamp = {"timestamp": rfc3339(entry.created_at)} if now - entry.created_at < DATADOG_MAX_AGE else {}
            message = f"{entry.action} by {entry.actor.email}"
            return {"ddsource": "gatehouse", "service": "gatehouse", "message": message, **timestamp, "audit": audit.to_json(entry)}


def _to_text(value: object) -> str:
    """Return a time or an id in the API's format."""
    return rfc3339(value) if isinstance(value, datetime) else str(value)


def result_of(reply: Reply) -> SiemResult:
    """Return the result for a response. Only 2xx means that the SIEM accepted all entries."""
    if reply.is_success:
        return SiemResult.GOOD
    if reply.status in (401, 403):
        return SiemResult.TOKEN_REFUSED
    if 300 <= reply.status < 400:
        return SiemResult.REDIRECTED
    return SiemResult.REFUSED if 400 <= reply.status < 500 and reply.status not in (408, 429) else SiemResult.FAILED


def compute_backoff(failures: int, spread: float) -> timedelta:
    """Return the pause after this many failures in a row: 5 seconds, doubling up to 5 minutes.

    `spread` is a random number from 0 to 1. The pause is multiplied by 0.75 to 1.25, depending on `spread`.
    """
    return min(timedelta(seconds=5 * 2 ** min(failures - 1, 10)), LONGEST_BACKOFF) * (0.75 + spread / 2)


def compute_batch_limit(failures: int) -> int:
    """Return how many entries to send at most after this many failures in a row.

    The limit is halved with every failure. When the SIEM refuses large requests or a bad entry, the entries before the
    bad entry therefore still get through.
    """
    return max(1, MAX_ENTRIES >> min(failures, 10))
