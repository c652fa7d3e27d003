"""Forwarding the audit log to a SIEM, over HTTP (docs/adr/0014).

Security L-1, L-3, T-5, W-1, W-3, W-7, Y-2 and Z-5 have the requirements.
"""

import json
import socket
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
import trio
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts import events
from core.eventing.model.siem import SiemResult
from core.kernel.api_scopes import ApiScope
from core.kernel.causes import SYSTEM
from core.kernel.roles import RoleName
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.fakes.siem_sink import FakeSiem, siem_sink
from tests.support.builders import Answer, add_account, run_sql, with_loopback_sender
from tests.support.direct import change_ports
from tests.support.personal_tokens import add_personal_token
from tests.support.platform import Platform
from tests.support.refusals import BAD, MISSING, refused
from tests.support.siem import TOKEN, forward, queued
from tests.support.tenants import Tenant
from tests.tenancy.integrations import SIEM

FULL = SIEM.full
put, get, remove, send_test = SIEM.put, SIEM.get, SIEM.remove, SIEM.send_test
HOST = "https://siem.acme.example:8088"  # the only URL part in events
NO_ATTEMPTS = {"last_success_at": None, "last_error": None, "failing_since": None}


def expected_response(body: Mapping[str, Any], clock: FakeClock, pending: int) -> dict[str, Any]:
    fields = {name: value for name, value in body.items() if name != "token"}
    now = clock.now().isoformat().replace("+00:00", "Z")
    return {"enabled": True, **fields, "updated_at": now, **NO_ATTEMPTS, "pending_count": pending}


# The configuration


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_owners_and_admins_configure_a_siem_and_the_token_is_never_returned(
    acme: Tenant, other_tenant: Tenant, clock: FakeClock, by: str
) -> None:
    answer = await put(acme, FULL, by)
    assert answer.status == 200
    # The event about the configuration itself is the first queued entry, after the commit.
    assert (answer.json, (await get(acme, by)).json) == (expected_response(FULL, clock, 0), expected_response(FULL, clock, 1))
    assert refused(await get(other_tenant)) == MISSING
    details = {"provider": FULL["provider"], "endpoint_url": HOST, "enabled": FULL["enabled"]}
    assert await acme.recorded() == [("siem.configured", "organization", str(acme.org), acme.people[by].id, details)]
    assert await acme.webhook_events() == [("siem.configured", str(acme.org), details)]
    records = json.dumps([*await acme.log(), *await acme.webhook_events()], default=str) + answer.text
    assert TOKEN not in records
    assert await run_sql(acme.pool, "select true from siem_configurations where encode(token, 'escape') like %s", f"%{TOKEN}%") == []


async def test_who_may_not_read_the_audit_log_sends_it_nowhere(acme: Tenant) -> None:
    body = {"slug": "integrator", "name": "Integrator", "capabilities": ["integrations.manage"]}
    assert (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status == 201
    await acme.join("integrator", await add_account(acme.ports, "integrator@acme.example", None), RoleName("integrator"))
    assert (await put(acme, FULL, "integrator")).status == 403
    statuses = []
    for scopes in ((ApiScope.INTEGRATIONS_WRITE,), (ApiScope.INTEGRATIONS_WRITE, ApiScope.AUDIT_READ)):
        token = await add_personal_token(acme.ports, acme.people["owner"], acme.org, scopes)
        statuses.append((await acme.api.post(f"{acme.path}/siem", FULL, token=token.text)).status)
    assert statuses == [403, 200]


async def test_a_configuration_is_enabled_by_default(acme: Tenant, clock: FakeClock) -> None:
    body = {name: value for name, value in FULL.items() if name != "enabled"}
    assert (await put(acme, body)).json == expected_response(FULL, clock, 0)


async def test_events_contain_only_the_host_of_the_url(acme: Tenant) -> None:
    await put(acme, {**FULL, "endpoint_url": "https://siem.acme.example/x?key=hidden"})
    assert (await get(acme)).json["endpoint_url"].endswith("?key=hidden")
    await remove(acme)
    assert [entry["details"]["endpoint_url"] for entry in await acme.log()] == ["https://siem.acme.example"] * 2


BAD_CHANGES: list[dict[str, Any]] = [
    *({"provider": provider} for provider in ("", "HTTP", "elastic", None, 5, ["http"])),
    *(
        {"endpoint_url": url}
        for url in ("", "siem", "ftp://siem.example/", "https://a:b@siem.example/", "https://siem.example:22/", None, 5)
    ),
    *({"endpoint_url": url} for url in ("https://siem.example/#x", "https://siem.example/\r\nX: y", "https://s.example/" + "x" * 2048)),
    *({"token": token} for token in ("", "two words", "a\r\nX: y", "t\u00f6ken", "x" * 2049, None, 5)),
    *({"enabled": enabled} for enabled in ("yes", None, 0)),
]


async def test_values_that_are_not_valid_are_refused_and_change_nothing(acme: Tenant, clock: FakeClock) -> None:
    await put(acme, FULL)
    for changes in BAD_CHANGES:
        answer = await put(acme, {**FULL, **changes})
        assert refused(answer) == BAD, changes
        assert TOKEN not in answer.text
    for missing in ("provider", "endpoint_url", "token"):
        answer = await put(acme, {name: value for name, value in FULL.items() if name != missing})
        assert refused(answer) == BAD
        assert missing in answer.json["error"]
    assert (await get(acme)).json == expected_response(FULL, clock, 1)
    assert len(await acme.log()) == 1


async def test_removing_the_configuration_is_recorded_once(acme: Tenant, other_tenant: Tenant) -> None:
    for tenant in (acme, other_tenant):
        await put(tenant, FULL)
    answer = await remove(acme, "admin")
    assert (answer.status, answer.text) == (204, "")
    assert refused(await get(acme)) == refused(await remove(acme)) == MISSING
    entry = await acme.entry("siem.removed")
    details = {"provider": "splunk_hec", "endpoint_url": HOST}
    assert (entry["target_id"], entry["actor_id"], entry["details"]) == (str(acme.org), acme.people["admin"].id, details)
    assert (await get(other_tenant)).status == 200


# Forwarding


@pytest.fixture
async def sink(app: QuartTrio, ports: Ports) -> AsyncIterator[FakeSiem]:
    """A SIEM at an address that the operator allows."""
    change_ports(app, sender=with_loopback_sender(ports).sender)
    async with siem_sink() as running:
        yield running


@pytest.fixture
def loopback_ports(ports: Ports) -> Ports:
    return with_loopback_sender(ports)


def configuration_for(sink: FakeSiem, provider: str = "http", **changes: Any) -> dict[str, Any]:
    return {"provider": provider, "endpoint_url": sink.url(), "token": TOKEN, **changes}


LOOKED_UP = {"sentence", "actor_name", "target_name", "location"}


async def log_of(acme: Tenant) -> list[dict[str, Any]]:
    """Return the audit log as the owner sees it, oldest entry first, without what readers get in addition: names are sent nowhere."""
    logs: list[dict[str, Any]] = (await acme.api.get(f"{acme.path}/audit-log?limit=100", token=acme.token("owner"))).json["logs"]
    return [{name: value for name, value in entry.items() if name not in LOOKED_UP} for entry in logs[::-1]]


@pytest.mark.parametrize(
    ("provider", "header"),
    [("http", ("authorization", "Bearer ")), ("splunk_hec", ("authorization", "Splunk ")), ("datadog", ("dd-api-key", ""))],
)
async def test_entries_arrive_in_order_and_as_in_the_audit_log(
    acme: Tenant, other_tenant: Tenant, sink: FakeSiem, loopback_ports: Ports, clock: FakeClock, provider: str, header: tuple[str, str]
) -> None:
    await put(acme, configuration_for(sink, provider))
    await other_tenant.invite("grace@example.com")
    for number in range(3):
        clock.advance(timedelta(seconds=1))
        await acme.invite(f"person{number}@example.com", by="admin")
    await forward(loopback_ports)
    assert sink.entries() == await log_of(acme)
    assert len(sink.entries()) == 4
    name, prefix = header
    [post] = sink.posts
    assert (post.path, post.headers[name], post.headers["content-type"]) == ("/collect", f"{prefix}{TOKEN}", "application/json")
    status = (await get(acme)).json
    assert (status["pending_count"], status["last_error"], status["failing_since"]) == (0, None, None)
    assert status["last_success_at"] == clock.now().isoformat().replace("+00:00", "Z")
    clock.advance(timedelta(seconds=1))
    await acme.invite("another@example.com")
    await forward(loopback_ports)
    assert sink.entries() == await log_of(acme)
    assert len(sink.posts) == 2


async def test_entries_from_before_the_activation_are_not_forwarded(acme: Tenant, sink: FakeSiem, loopback_ports: Ports) -> None:
    await acme.invite("early@example.com")
    await put(acme, configuration_for(sink, enabled=False))
    await acme.invite("disabled@example.com")
    await forward(loopback_ports)
    assert sink.posts == []
    assert (await get(acme)).json["pending_count"] == 0
    await put(acme, configuration_for(sink))
    await acme.invite("late@example.com")
    await forward(loopback_ports)
    assert [entry["action"] for entry in sink.entries()] == ["siem.configured", "user.invited"]


async def test_queued_entries_stay_queued_while_forwarding_is_disabled(acme: Tenant, sink: FakeSiem, loopback_ports: Ports) -> None:
    await put(acme, configuration_for(sink))
    await acme.invite("before@example.com")
    await put(acme, configuration_for(sink, enabled=False))
    await acme.invite("disabled@example.com")
    await forward(loopback_ports)
    assert sink.posts == []
    assert (await get(acme)).json["pending_count"] == 2
    await put(acme, configuration_for(sink, endpoint_url=sink.url("/elsewhere")))  # the new URL gets the queued entries
    await forward(loopback_ports)
    assert [entry["details"].get("invited_email") for entry in sink.entries("/elsewhere")] == [None, "before@example.com", None]


async def test_queued_entries_of_a_removed_configuration_are_not_forwarded(acme: Tenant, sink: FakeSiem, loopback_ports: Ports) -> None:
    await put(acme, configuration_for(sink))
    await acme.invite("before@example.com")
    await remove(acme)
    await put(acme, configuration_for(sink))
    await forward(loopback_ports)
    assert [entry["action"] for entry in sink.entries()] == ["siem.configured"]


async def test_the_status_shows_a_failure_in_fixed_words_until_the_next_success(
    acme: Tenant, sink: FakeSiem, loopback_ports: Ports, clock: FakeClock
) -> None:
    await put(acme, configuration_for(sink))
    failing_since = clock.now().isoformat().replace("+00:00", "Z")
    for status, failure in ((500, SiemResult.FAILED), (403, SiemResult.TOKEN_REFUSED), (307, SiemResult.REDIRECTED)):
        sink.status = status
        await forward(loopback_ports)
        answer = await get(acme)
        assert (answer.json["last_error"], answer.json["failing_since"], answer.json["pending_count"]) == (failure.value, failing_since, 1)
        assert "remote text" not in answer.text
        clock.advance(timedelta(seconds=30))
    sink.status = 204
    await forward(loopback_ports)
    answer = await get(acme)
    assert answer.json["last_success_at"] == clock.now().isoformat().replace("+00:00", "Z")
    assert (answer.json["last_error"], answer.json["failing_since"], answer.json["pending_count"]) == (None, None, 0)
    assert len(sink.accepted) == 1


async def test_a_new_configuration_is_due_immediately(acme: Tenant, sink: FakeSiem, loopback_ports: Ports, clock: FakeClock) -> None:
    await put(acme, configuration_for(sink, token="wr0ng"))
    sink.status = 401
    await forward(loopback_ports)
    sink.status = 200
    assert await forward(loopback_ports) == []  # not due yet
    assert (await put(acme, configuration_for(sink))).json["last_error"] is None
    await forward(loopback_ports)
    assert [entry["action"] for entry in sink.entries()] == ["siem.configured"] * 2


async def test_a_suspended_organization_is_forwarded_after_its_activation(
    acme: Tenant, other_tenant: Tenant, sink: FakeSiem, loopback_ports: Ports, platform: Platform
) -> None:
    for tenant, path in ((acme, "/acme"), (other_tenant, "/twin")):
        await put(tenant, configuration_for(sink, endpoint_url=sink.url(path)))
    assert (await platform.do("suspend", acme.org)).status == 200
    await forward(loopback_ports)
    assert sink.entries("/acme") == []
    assert len(sink.entries("/twin")) == 1
    assert (await platform.do("activate", acme.org)).status == 200
    await forward(loopback_ports)
    actions = [entry["action"] for entry in sink.entries("/acme")]
    assert actions == ["siem.configured", "organization.suspended", "organization.activated"]


async def test_an_entry_redacted_in_the_queue_is_forwarded_redacted(
    acme: Tenant, sink: FakeSiem, loopback_ports: Ports, platform: Platform
) -> None:
    await put(acme, configuration_for(sink))
    await acme.invite("grace@example.com", by="admin")
    admin = acme.people["admin"]
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        tx.record(events.password_changed(admin.id, "set"))
    assert len(await queued(acme.pool, acme.org)) == 3
    answer = await acme.api.delete(f"/api/privacy/forget/{admin.id}", token=platform.token)
    assert answer.status == 200, answer.text
    await forward(loopback_ports)
    actions = [entry["action"] for entry in sink.entries()]
    assert actions == ["siem.configured", "user.invited", "security.password.changed", "user.anonymized"]
    assert sorted(map(str, sink.entries())) == sorted(map(str, await log_of(acme)))
    [invited] = [entry for entry in sink.entries() if entry["action"] == "user.invited"]
    assert (invited["ip_address"], invited["user_agent"]) == ("0.0.0.0", "anonymized")  # noqa: S104  (a redacted address)
    assert admin.email not in json.dumps(sink.entries())
    assert await queued(acme.pool, acme.org) == []


async def test_deleting_an_organization_deletes_its_configuration_and_queue(
    acme: Tenant, sink: FakeSiem, loopback_ports: Ports, pool: Pool
) -> None:
    await put(acme, configuration_for(sink))
    await acme.invite("grace@example.com")
    assert (await acme.api.delete(acme.path, token=acme.token("owner"))).status == 204
    await forward(loopback_ports)
    assert sink.posts == []
    assert await run_sql(pool, "select (select count(*) from siem_configurations), (select count(*) from siem_queue)") == [(0, 0)]


# Tests


@pytest.mark.parametrize("enabled", [True, False])
async def test_a_test_sends_one_entry_that_is_not_in_the_log(acme: Tenant, sink: FakeSiem, enabled: bool) -> None:
    await put(acme, configuration_for(sink, "splunk_hec", enabled=enabled))
    answer = await send_test(acme, "admin")
    assert (answer.status, answer.json) == (200, {"success": True, "message": SiemResult.GOOD.value})
    [entry] = sink.entries()
    assert (entry["action"], entry["actor"]["id"], entry["org_id"]) == ("siem.test", acme.id("admin"), str(acme.org))
    assert entry.keys() == (await log_of(acme))[0].keys()
    assert sink.posts[0].headers["authorization"] == f"Splunk {TOKEN}"
    assert len(await acme.log()) == 1


async def test_a_test_reports_its_result_in_fixed_words(acme: Tenant, sink: FakeSiem) -> None:
    with socket.socket() as listener:  # bound and not listening, so no other process gets the port
        listener.bind(("127.0.0.1", 0))
        expected: list[tuple[int, dict[str, Any], SiemResult]] = [
            (202, {}, SiemResult.GOOD),
            (500, {}, SiemResult.FAILED),
            (400, {}, SiemResult.REFUSED),
            (401, {}, SiemResult.TOKEN_REFUSED),
            (302, {}, SiemResult.REDIRECTED),
            (200, {"endpoint_url": "http://[::1]:8088/"}, SiemResult.NOT_ALLOWED),
            (200, {"endpoint_url": f"https://127.0.0.1:{sink.port}/"}, SiemResult.TLS_FAILED),
            (200, {"endpoint_url": f"http://127.0.0.1:{listener.getsockname()[1]}/"}, SiemResult.NOT_CONNECTED),
            (200, {"endpoint_url": "http://siem.invalid/"}, SiemResult.NOT_RESOLVED),
        ]
        for status, changes, result in expected:
            sink.status = status
            await put(acme, configuration_for(sink, **changes))
            answer = await send_test(acme)
            assert (answer.status, answer.json) == (200, {"success": result is SiemResult.GOOD, "message": result.value}), (status, changes)
            for secret_text in ("remote text", "127.0.0.1", str(sink.port), TOKEN, str(status)):
                assert secret_text not in answer.text


async def test_a_second_concurrent_test_has_to_wait(acme: Tenant, sink: FakeSiem) -> None:
    await put(acme, configuration_for(sink))
    sink.gates["/collect"] = trio.Event()
    answers: list[Answer] = []

    async def first() -> None:
        answers.append(await send_test(acme))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await sink.until(lambda: sink.posts, "the first test has sent its request")
        assert (await send_test(acme, "admin")).json == {"success": False, "message": SiemResult.BUSY.value}
        sink.gates["/collect"].set()
    assert answers[0].json["success"]
    assert (await send_test(acme, "admin")).json["success"]


async def test_a_token_that_cannot_be_decrypted_is_an_internal_error(acme: Tenant, sink: FakeSiem, loopback_ports: Ports) -> None:
    await put(acme, configuration_for(sink))
    await run_sql(acme.pool, "update siem_configurations set token = 'x'")
    answer = await send_test(acme)
    assert answer.status == 500
    assert "seal" not in answer.text.lower()
    await forward(loopback_ports)
    assert (await get(acme)).json["last_error"] == SiemResult.NOT_SENT.value
    assert (await put(acme, configuration_for(sink))).status == 200
    assert (await send_test(acme)).json["success"]


async def test_a_token_of_another_organization_is_never_used(
    acme: Tenant, other_tenant: Tenant, sink: FakeSiem, loopback_ports: Ports, pool: Pool
) -> None:
    """This holds even if it is copied into another organization's row."""
    await put(acme, configuration_for(sink, enabled=False))
    await put(other_tenant, configuration_for(sink, token="another"))
    steal = "update siem_configurations set token = (select token from siem_configurations where org_id = %s) where org_id = %s"
    await run_sql(pool, steal, acme.org, other_tenant.org)
    assert (await send_test(other_tenant)).status == 500
    await forward(loopback_ports)
    assert sink.posts == []
