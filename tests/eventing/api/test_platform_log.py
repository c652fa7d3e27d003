"""The platform's log: what platform owners find in it, and its exports (security I-5)."""

import csv
import io
import json
from typing import Any
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.eventing.model import audit as model_audit
from core.kernel.causes import Anonymous
from core.kernel.event_catalog import EVENT_KINDS, Event
from ports import Ports
from tests.accounts.api.platform_paths import remove_mfa, with_mfa
from tests.support.builders import add_account, add_organization
from tests.support.impersonator import REASON, Support
from tests.support.platform import Platform
from tests.support.refusals import BAD, MISSING, refused
from tests.support.rows import SECOND

LOG = "/api/platform/audit-log"


async def logs(platform: Platform, query: str = "") -> list[dict[str, Any]]:
    answer = await platform.api.get(f"{LOG}{query}", token=platform.token)
    assert answer.status == 200, answer.text
    entries: list[dict[str, Any]] = answer.json["logs"]
    assert answer.json["pagination"]["total"] == len(entries)
    return entries


async def test_an_impersonation_is_found_with_its_reason_and_its_requests(platform: Platform, support: Support) -> None:
    first, second = await support.begin(), await support.begin()
    platform.clock.advance(SECOND)
    await support.profile(first["access_token"])
    platform.clock.advance(SECOND)
    await platform.api.get(f"/api/user/devices/{uuid4()}", token=first["access_token"])
    await support.profile(second["access_token"])
    answer = await platform.api.get(f"{LOG}/{first['audit_log_id']}", token=platform.token)
    assert (answer.status, answer.json["id"], answer.json["org_id"]) == (200, first["audit_log_id"], None)
    assert answer.json["details"]["reason"] == REASON
    assert answer.json["actor"] == {
        "id": str(support.account.id),
        "email": support.account.email,
        "is_platform_owner": True,
        "kind": "user",
        "name": None,
    }
    found = await logs(platform, f"?session_id={answer.json['details']['session_id']}")
    assert [(entry["action"], entry["details"].get("route")) for entry in found] == [
        ("impersonation.request", "/api/user/devices/<device_id>"),
        ("impersonation.request", "/api/user"),
        ("user.impersonated", None),
    ]
    assert [entry["success"] for entry in found] == [False, True, True], "the device was not found"
    assert found[-1] == answer.json
    assert {entry["actor"]["id"] for entry in found[:2]} == {str(support.user.id)}
    assert {entry["details"]["impersonator"]["email"] for entry in found} == {support.account.email}
    assert len(await logs(platform, f"?action=impersonation.request&impersonator_id={support.account.id}")) == 3
    assert await logs(platform, "?impersonator_id=nobody") == []


async def test_actions_of_platform_owners_are_found_by_action_target_and_time(platform: Platform, ports: Ports, pool: Pool) -> None:
    user, new_owner = await with_mfa(ports, pool), await add_account(ports, "eve@example.com", mfa_enabled_at=ports.clock.now())
    await remove_mfa(platform, user.id, {"reason": "The phone was lost."})
    answer = await platform.api.post("/api/platform/owners", {"user_id": str(new_owner.id)}, token=platform.token)
    assert answer.status == 200, answer.text
    before_deletion = platform.clock.now()
    acme = await add_organization(pool, "acme")
    await platform.do("suspend", acme, {"reason": "unpaid"})
    await platform.do("delete", acme)

    async def found(query: str) -> list[tuple[str, Any]]:
        return [(entry["action"], entry["details"].get("reason")) for entry in await logs(platform, query)]

    assert ("security.mfa.disabled", "The phone was lost.") in await found(f"?target_type=user&target_id={user.id}")
    assert await found("?action=platform.owner.promoted") == [("platform.owner.promoted", None)]
    assert await found("?target_type=organization") == [("organization.deleted", None), ("organization.suspended", "unpaid")]
    time = before_deletion.isoformat().replace("+00:00", "Z")
    assert await found(f"?since={time}&action=organization.deleted") == [("organization.deleted", None)]
    assert await found(f"?until={time}&actor_id={platform.account.id}&action=organization.deleted") == []


@pytest.mark.parametrize("query", ["?target_id=x", "?since=yesterday", "?until=2026-03-14", "?target_type=planet", "?page=x"])
async def test_a_filter_that_is_not_valid_is_refused(platform: Platform, query: str) -> None:
    for path in (LOG, f"{LOG}/export") if "page" not in query else (LOG,):
        assert refused(await platform.api.get(f"{path}{query}", token=platform.token)) == BAD


async def test_an_unknown_entry_is_not_found(platform: Platform) -> None:
    for id_ in (uuid4(), "x"):
        assert refused(await platform.api.get(f"{LOG}/{id_}", token=platform.token)) == MISSING
    assert refused(await platform.api.get(f"{LOG}/export?format=xml", token=platform.token)) == BAD


async def test_an_export_has_all_entries_in_both_formats(platform: Platform, ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_audit, "EXPORT_BATCH", 3)
    events = [Event(EVENT_KINDS["organization.deleted"], f"o{number}", details={"name": 'A, "B"\n'}) for number in range(7)]
    async with ports.storage.transaction(by=Anonymous(address="203.0.113.9", agent="=HYPERLINK(1)")) as tx:
        for event in events:
            tx.record(event)
    listed = await logs(platform)
    lines = await platform.api.get(f"{LOG}/export?format=jsonl", token=platform.token)
    assert lines.headers["Content-Type"] == "application/x-ndjson"
    assert lines.headers["Content-Disposition"] == 'attachment; filename="platform-log.jsonl"'
    assert [json.loads(line) for line in lines.text.splitlines()] == listed
    table = await platform.api.get(f"{LOG}/export", token=platform.token)
    assert table.headers["Content-Type"] == "text/csv; charset=utf-8"
    rows = [*csv.DictReader(io.StringIO(table.text, newline=""))]
    assert [row["id"] for row in rows] == [entry["id"] for entry in listed]
    assert rows[0] == {
        "id": listed[0]["id"],
        "created_at": listed[0]["created_at"],
        "action": "organization.deleted",
        "success": "true",
        "actor_id": "anonymous",
        "actor_email": "anonymous@internal",
        "impersonator_id": "",
        "impersonator_email": "",
        "target_type": "organization",
        "target_id": "o6",
        "ip_address": "203.0.113.9",
        "user_agent": "'=HYPERLINK(1)",  # so that no spreadsheet runs it
        "details": json.dumps({"name": 'A, "B"\n'}),
        "actor_kind": "anonymous",
        "actor_name": "",
        "sentence": 'Someone who was not signed in deleted the organization A, "B"',
        "target_name": 'A, "B"',
    }
    few = await platform.api.get(f"{LOG}/export?target_type=organization&target_id=o2", token=platform.token)
    assert len(few.text.splitlines()) == 2
    for query in ("action=nothing", "action=user.joined"):
        empty = await platform.api.get(f"{LOG}/export?{query}", token=platform.token)
        assert (empty.status, len(empty.text.splitlines())) == (200, 1), query
