"""Exporting an organization's audit log, and its single entries."""

import csv
import io
import json
from uuid import uuid4

import pytest

from core.eventing.model import audit as model_audit
from core.kernel.causes import Anonymous
from tests.eventing.api.audit.log import LOG, Record, World, logs
from tests.support.builders import Api
from tests.support.refusals import BAD, MISSING, refused


async def test_an_export_has_all_matching_entries_in_both_formats(
    api: Api, world: World, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_audit, "EXPORT_BATCH", 3)
    visitor = Anonymous(address="203.0.113.9", agent="=HYPERLINK(1)")
    for number in range(7):
        await record("user.joined", target=f"@u{number}", by=visitor, details={"name": 'A, "B"\n'})
    await record("plan.created")
    await record("user.joined", org=world.other_tenant)
    for query, count in (
        ("", 8),
        ("&action=user.joined", 7),
        ("&success=false", 0),
        ("&action=nothing", 0),
        ("&until=2000-01-01T00:00:00Z", 0),
    ):
        listed = await logs(api, world, f"?limit=100{query}")
        assert len(listed) == count, query
        lines = await api.get(f"{LOG}/export?format=jsonl{query}", token=world.token)
        assert lines.headers["Content-Type"] == "application/x-ndjson"
        assert lines.headers["Content-Disposition"] == 'attachment; filename="audit-log-acme.jsonl"'
        assert [json.loads(line) for line in lines.text.splitlines()] == listed
        table = await api.get(f"{LOG}/export?format=csv{query}", token=world.token)
        assert table.headers["Content-Type"] == "text/csv; charset=utf-8"
        rows = [*csv.DictReader(io.StringIO(table.text, newline=""))]
        assert [row["id"] for row in rows] == [entry["id"] for entry in listed]
        assert table.text.startswith("id,created_at,action,success"), "an empty export has its header"
    table = await api.get(f"{LOG}/export?target_type=user&target_id=@u6", token=world.token)
    [row] = csv.DictReader(io.StringIO(table.text, newline=""))
    # No spreadsheet runs what the client chose.
    assert (row["target_id"], row["user_agent"], json.loads(row["details"])) == ("'@u6", "'=HYPERLINK(1)", {"name": 'A, "B"\n'})
    for query in ("format=xml", "target_id=x", "success=maybe", "since=yesterday"):
        assert refused(await api.get(f"{LOG}/export?{query}", token=world.token)) == BAD


async def test_an_entry_is_read_by_its_id_in_its_organization_only(api: Api, world: World, record: Record) -> None:
    await record("user.joined")
    [entry] = await logs(api, world)
    answer = await api.get(f"{LOG}/{entry['id']}", token=world.token)
    assert (answer.status, answer.json) == (200, entry)
    elsewhere = LOG.replace("acme", "twin")
    for path, token in ((f"{LOG}/{uuid4()}", world.token), (f"{LOG}/x", world.token), (f"{elsewhere}/{entry['id']}", world.other_token)):
        assert refused(await api.get(path, token=token)) == MISSING
