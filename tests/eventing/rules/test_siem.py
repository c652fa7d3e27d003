"""Requests to SIEMs, and what their responses mean."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from core.eventing.model import siem
from core.eventing.model.audit import AuditActor, AuditEntry
from core.eventing.model.siem import FAILURES, MAX_BYTES, MAX_ENTRIES, SiemProvider, SiemResult, SiemTokenInvalid
from core.kernel.outbound import Reply, SendFailure, TargetInvalid
from core.kernel.values import new_id
from tests.support.siem import make_sink
from tests.tables import table

NOW = datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC)
ORG = UUID("10000000-0000-4000-8000-000000000000")


def entry(**changes: Any) -> AuditEntry:
    fields: dict[str, Any] = {
        "id": new_id(),
        "org_id": ORG,
        "actor": AuditActor("1", "ada@example.com", is_platform_owner=True),
        "impersonator": None,
        "action": "user.invited",
        "target_type": "user",
        "target_id": "x",
        "address": "203.0.113.9",
        "agent": "tests",
        "success": True,
        "details": {"note": "Größe"},
        "created_at": NOW,
    }
    return AuditEntry(**{**fields, **changes})


def audit_json(entry: AuditEntry) -> dict[str, Any]:
    [item] = json.loads(siem.encode_entries(SiemProvider.HTTP, [entry], NOW)[0])
    return dict(item)


def test_http_gets_an_array_of_entries_as_in_the_audit_log() -> None:
    one, two = entry(), entry(impersonator=AuditActor("2", "steward@example.com"))
    content, count = siem.encode_entries(SiemProvider.HTTP, [one, two], NOW)
    assert (json.loads(content), count) == ([audit_json(one), audit_json(two)], 2)
    assert "Größe".encode() in content
    second = audit_json(two)
    assert (second["id"], second["org_id"]) == (str(two.id), str(two.org_id))
    assert second["actor"] == {"id": "1", "email": "ada@example.com", "is_platform_owner": True, "kind": "user", "name": None}
    assert second["details"] == {"note": "Größe", "impersonator": {"id": "2", "email": "steward@example.com"}}
    assert second["created_at"] == "2026-03-14T15:09:26.535897Z"


def test_splunk_gets_events_in_a_row() -> None:
    one, two = entry(), entry()
    content, _ = siem.encode_entries(SiemProvider.SPLUNK_HEC, [one, two], NOW)
    first, second = (json.loads(line) for line in content.splitlines())
    assert first == {"time": 1773500966.535897, "source": "gatehouse", "sourcetype": "gatehouse:audit", "event": audit_json(one)}
    assert second["event"]["id"] == str(two.id)


def test_datadog_gets_old_logs_without_a_timestamp() -> None:
    new, old = entry(), entry(created_at=NOW - timedelta(hours=17))
    content, _ = siem.encode_entries(SiemProvider.DATADOG, [new, old], NOW)
    first, second = json.loads(content)
    expected = {"ddsource": "gatehouse", "service": "gatehouse", "message": "user.invited by ada@example.com"}
    assert first == {**expected, "timestamp": "2026-03-14T15:09:26.535897Z", "audit": audit_json(new)}
    assert second == {**expected, "audit": audit_json(old)}  # Datadog would answer 202 and drop it


def test_each_provider_gets_the_token_in_its_own_header() -> None:
    common = {"Content-Type": "application/json"}
    headers = {provider: siem.build_headers(make_sink(ORG, provider=provider, token="abc")) for provider in SiemProvider}
    assert headers == {
        SiemProvider.HTTP: {**common, "Authorization": "Bearer abc"},
        SiemProvider.SPLUNK_HEC: {**common, "Authorization": "Splunk abc"},
        SiemProvider.DATADOG: {**common, "DD-API-KEY": "abc"},
    }
    assert "abc" not in repr(make_sink(ORG, token="abc"))


@table("provider", SiemProvider)
def test_a_request_has_as_many_entries_as_fit_and_at_least_one(provider: SiemProvider) -> None:
    long = [entry(details={"note": "x" * (MAX_BYTES // 4)}) for _ in range(5)]
    content, count = siem.encode_entries(provider, long, NOW)
    assert count == 3
    assert len(content) <= MAX_BYTES
    assert siem.encode_entries(provider, [entry(details={"note": "x" * MAX_BYTES}), *long], NOW)[1] == 1
    assert siem.encode_entries(provider, [], NOW)[1] == 0


def test_only_2xx_is_a_success() -> None:
    expected = {
        **dict.fromkeys((200, 202, 204, 299), SiemResult.GOOD),
        **dict.fromkeys((301, 307, 399), SiemResult.REDIRECTED),
        **dict.fromkeys((401, 403), SiemResult.TOKEN_REFUSED),
        **dict.fromkeys((400, 404, 413), SiemResult.REFUSED),
        **dict.fromkeys((408, 429, 500, 503, 599, 199), SiemResult.FAILED),
    }
    assert {status: siem.result_of(Reply(status, b"response body")) for status in expected} == expected


def test_every_reason_for_a_failed_request_has_a_result() -> None:
    for reason in SendFailure:
        assert SiemResult[reason.name].value.lower().startswith(reason.value.lower()) or reason is SendFailure.TIMED_OUT
    assert not {SiemResult.GOOD, SiemResult.BUSY} & set(FAILURES)


def test_the_pause_doubles_up_to_five_minutes() -> None:
    pauses = [siem.compute_backoff(failures, 0.5).total_seconds() for failures in (1, 2, 3, 6, 7, 8, 10_000)]
    assert pauses == [5, 10, 20, 160, 300, 300, 300]
    assert [siem.compute_backoff(1, spread).total_seconds() for spread in (0, 1)] == [3.75, 6.25]


def test_each_failure_halves_the_number_of_entries() -> None:
    assert [siem.compute_batch_limit(failures) for failures in (0, 1, 2, 8, 9, 10_000)] == [MAX_ENTRIES, 250, 125, 1, 1, 1]


@table("token", ["", "a b", "a\r\nX: y", "ä", "a\t", "\x7f"])
def test_a_token_that_does_not_fit_into_a_header_is_refused(token: str) -> None:
    with pytest.raises(SiemTokenInvalid):
        siem.new_sink(ORG, provider=SiemProvider.HTTP, endpoint_url="https://siem.example.com/", token=token, enabled=True)


@table("url", ["siem.example.com", "ftp://siem.example.com/", "https://a:b@siem.example.com/", "https://x:22/", "https://x/#a"])
def test_a_url_that_is_not_allowed_is_refused(url: str) -> None:
    with pytest.raises(TargetInvalid):
        siem.new_sink(ORG, provider=SiemProvider.HTTP, endpoint_url=url, token="abc", enabled=True)
