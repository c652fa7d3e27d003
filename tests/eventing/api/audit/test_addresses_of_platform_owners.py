"""What organizations and users see of a platform owner: never an address, agent or place (security #addresses-of-platform-owners)."""

import json
from collections.abc import AsyncIterator
from typing import Any, Final, cast

import pytest
import trio
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.devices import Location
from ports import Ports
from tests.eventing.api.webhooks import create_webhook
from tests.fakes.outside import FakeClock, FakeGeoIp, FakeMailTransport
from tests.fakes.siem_sink import FakeSiem, siem_sink
from tests.support.builders import Answer, deliver, run_sql, sign_in, with_loopback_sender
from tests.support.direct import ask, change_ports
from tests.support.impersonator import REASON, Support
from tests.support.mfa import add_mfa
from tests.support.siem import configure, forward, make_sink
from tests.support.tenants import Tenant

PEER: Final = "198.51.100.77"
AGENT: Final = "OperatorBrowser/4711"
PLACE: Final = "Longyearbyen"
MIGRATION: Final = "adapters/postgres/migrations/0451_hide_addresses_of_platform_owners.sql"


@pytest.fixture
async def sink(app: QuartTrio, ports: Ports) -> AsyncIterator[FakeSiem]:
    """A SIEM at an address that the operator allows."""
    change_ports(app, sender=with_loopback_sender(ports).sender)
    async with siem_sink() as running:
        yield running


@pytest.mark.slow
async def test_no_output_has_from_where_a_platform_owner_acted(
    acme: Tenant, support: Support, app: QuartTrio, ports: Ports, pool: Pool, sink: FakeSiem, sent: FakeMailTransport
) -> None:
    cast("FakeGeoIp", ports.geoip).known[PEER] = Location(PLACE, "NO")
    await configure(ports, make_sink(acme.org, sink.url()))
    await create_webhook(acme, events=["organization.suspended", "user.impersonated", "security.mfa.disabled", "security.recovery.issued"])
    await add_mfa(ports, acme.people["member"])

    async def act(method: str, path: str, body: Any = None, token: str = support.session.access_token) -> Answer:
        sent_body = None if body is None else json.dumps(body).encode()
        headers = [(b"user-agent", AGENT.encode()), (b"content-type", b"application/json")]
        answer = await ask(app, method, path, headers=headers, body=sent_body, token=token, peer=PEER)
        assert answer.status < 300, answer.text
        return answer

    reason, member = {"reason": REASON}, f"/api/platform/users/{acme.id('member')}"
    await act("POST", f"/api/platform/organizations/{acme.org}/suspend", reason)
    await act("POST", f"/api/platform/organizations/{acme.org}/activate")
    await act("DELETE", f"{member}/mfa", reason)
    await act("POST", f"{member}/recovery", reason)
    for context in ({}, {"org_slug": "acme"}):
        started = await act("POST", f"/api/platform/impersonate/{acme.id('admin')}", {**reason, **context})
        acting = started.json["access_token"]
        await act("GET", f"{acme.path}/members", token=acting)
        await act("POST", f"{acme.path}/siem/test", token=acting)
    acme.sessions["admin"] = await sign_in(ports, acme.people["admin"], acme.org)
    await forward(with_loopback_sender(ports))
    await deliver(ports)
    shown = [json.dumps([post.entries for post in sink.accepted]), *(f"{mail.text} {mail.html}" for mail in sent.emails)]
    shown += [payload for (payload,) in await run_sql(pool, "select payload::text from webhook_deliveries")]
    own = ("devices", "sign-ins", "mfa/events", "privacy-log")
    of_organization = ("audit-log", "audit-log/export", "sign-ins", "sign-ins/export")
    for name, paths in {
        "admin": [*(f"/api/user/{path}" for path in own), f"/api/privacy/export/{acme.id('admin')}"],
        "owner": [f"{acme.path}/{path}" for path in of_organization],
    }.items():
        for path in paths:
            answer = await acme.api.get(path, token=acme.token(name))
            assert answer.status == 200, (path, answer.text)
            shown.append(answer.text)
    for text in shown:
        assert not [trace for trace in (PEER, AGENT, "OperatorBrowser", PLACE) if trace in text], text
    assert len(sink.accepted) > 2
    actions = {entry["action"] for post in sink.accepted for entry in post.entries}
    assert {"organization.suspended", "security.mfa.disabled", "security.recovery.issued", "user.impersonated", "siem.test"} <= actions
    log = (await acme.api.get("/api/platform/audit-log", token=support.session.access_token)).text
    assert PEER in log
    assert AGENT in log


async def test_entries_of_members_keep_their_addresses(acme: Tenant, app: QuartTrio, pool: Pool) -> None:
    """A platform owner who acts as a member of the organization is one of its members."""
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", acme.people["owner"].id)
    for name in ("owner", "admin"):
        path, body = f"{acme.path}/invitations", json.dumps({"email": f"{name}@anywhere.example", "role": "member"}).encode()
        headers = [(b"content-type", b"application/json")]
        assert (await ask(app, "POST", path, headers=headers, body=body, token=acme.token(name), peer=PEER)).status == 200
    assert [entry["address"] for entry in await acme.log()] == [PEER, PEER]


async def test_the_upgrade_hides_the_addresses_of_earlier_entries(acme: Tenant, support: Support, pool: Pool, clock: FakeClock) -> None:
    """Of present and former platform owners, of impersonations, and of programs of the platform; members keep theirs."""
    former, program = acme.id("member"), "3f0e6c2a-9d0f-4c43-8d0e-0c0b5a5d1f00"
    rows = [
        ("acme", acme.id("admin"), None, None),
        ("acme", acme.id("admin"), str(support.account.id), None),
        ("acme", str(support.account.id), None, None),
        ("acme", former, None, None),
        ("acme", program, None, "service_account"),
        (None, str(support.account.id), None, None),
    ]
    insert = """
        insert into audit_log (id, org_id, action, target_type, target_id, actor_id, impersonator_id, actor_kind, address, agent, success,
                               details, created_at)
        values (gen_random_uuid(), %s, %s, 'user', %s, %s, %s, %s, '192.0.2.1', 'old', true, '{}', %s)"""
    for org, actor, impersonator, kind in rows:
        await run_sql(pool, insert, org and acme.org, "user.updated", actor, actor, impersonator, kind, clock.now())
    for action, target in (("platform.owner.demoted", former), ("service_account.created", program)):
        await run_sql(pool, insert, None, action, target, None, None, None, clock.now())
    await support.begin(target=acme.id("admin"))
    await run_sql(pool, "update sessions set address = '192.0.2.1', agent = 'old' where impersonator_id is not null")
    for statement in (await trio.Path(MIGRATION).read_text()).split(";\n"):
        if statement.strip():
            await run_sql(pool, statement)
    left = await run_sql(pool, "select actor_id::text, impersonator_id from audit_log where org_id is not null and address = '192.0.2.1'")
    assert left == [(acme.id("admin"), None)]
    assert await run_sql(pool, "select count(*) from audit_log where org_id is null and address = '192.0.2.1'") == [(3,)]
    assert await run_sql(pool, "select address, agent from sessions where impersonator_id is not null") == [(None, None)]
