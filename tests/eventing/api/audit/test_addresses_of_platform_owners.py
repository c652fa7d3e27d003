"""Organizations and users never see a platform owner's address, agent or place (security #addresses-of-platform-owners)."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final, cast

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.devices import Location
from ports import Ports
from tests.eventing.api.webhooks import create_webhook
from tests.fakes.outside import FakeClock, FakeGeoIp, FakeMailTransport
from tests.fakes.siem_sink import FakeSiem, siem_sink
from tests.federation.api.cli import CURL, DeviceClient
from tests.federation.api.relying import add_relying_party
from tests.support.builders import (
    FIREFOX,
    PASSWORD,
    Answer,
    add_account,
    add_member,
    deliver,
    link,
    run_sql,
    sign_in,
    with_loopback_sender,
)
from tests.support.direct import PEER as BROWSER_PEER
from tests.support.direct import ask, change_ports
from tests.support.impersonator import CLIENT, REASON, Support
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PasskeyUser, sign_in_with_passkey
from tests.support.platform import Platform
from tests.support.saml import SamlApplication
from tests.support.saml.browser import SamlBrowser
from tests.support.services import add_service, service_context
from tests.support.siem import configure, forward, make_sink
from tests.support.tenants import Tenant
from tests.tenancy.api.policy.policies import preview
from tests.tenancy.invitations import decline

PEER: Final = "198.51.100.77"
AGENT: Final = "OperatorBrowser/4711"
PLACE: Final = "Longyearbyen"
TEST_PEERS: Final = (CLIENT, BROWSER_PEER)


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


@pytest.mark.slow
async def test_no_output_has_from_where_a_platform_owner_signed_in(
    acme: Tenant,
    user: Account,
    holder: PasskeyUser,
    browser: SamlBrowser,
    shop: SamlApplication,
    ports: Ports,
    pool: Pool,
    sink: FakeSiem,
    sent: FakeMailTransport,
) -> None:
    """The platform owners sign in by password, passkey, OAuth, SAML and on a device, as an end user and as an organization's member."""
    api, clock = acme.api, cast("FakeClock", ports.clock)
    for peer in TEST_PEERS:
        cast("FakeGeoIp", ports.geoip).known[peer] = Location(PLACE, "NO")
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", user.id)
    await holder.add()
    await configure(ports, make_sink(acme.org, sink.url()))
    await create_webhook(acme, events=["user.login.success", "user.login.failed", "user.invited", "invitation.declined"])
    site = await add_relying_party(acme, browser, "site")
    cli = DeviceClient(api, pool, clock, await service_context(pool, await add_service(pool, acme.org, "cli")))
    at_site = {"org_slug": "acme", "service_slug": "site"}

    async def sign_in_everywhere() -> None:
        assert (await api.post("/api/auth/login", {"email": user.email, "password": PASSWORD, **at_site})).status == 200
        assert (await api.post("/api/auth/login", {"email": user.email, "password": "a wrong password", **at_site})).status == 401
        assert (await sign_in_with_passkey(api, holder.authenticator, at_site)).status == 200
        await site.tokens()
        await browser.sign_on(shop)
        await cli.begin()
        assert (await cli.decide(holder.token)).status == 200
        assert (await cli.poll_after_interval()).status == 200

    await browser.sign_in()
    await sign_in_everywhere()
    await acme.invite(user.email)
    await deliver(ports)
    assert (await decline(api, link(sent.emails[-1]))).status == 200
    await add_member(pool, acme.org, user.id, "admin", confirmed=True)
    await run_sql(pool, "update memberships set confirmed_at = %s", clock.now())
    await run_sql(pool, "update organizations set approved_at = %s", clock.now())
    await sign_in_everywhere()
    member = await api.login(user.email)
    invited = await api.post(acme.invitations, {"email": "new@anywhere.example", "role": "member"}, token=member.json["access_token"])
    assert invited.status == 200, invited.text
    assert (await api.post(f"{acme.path}/siem/test", token=member.json["access_token"])).status == 200
    await forward(with_loopback_sender(ports))

    async def read(path: str, token: str) -> str:
        answer = await api.get(path, token=token)
        assert answer.status == 200, answer.text
        return answer.text

    owner, log = acme.token("owner"), json.loads(await read(f"{acme.path}/audit-log?limit=100", acme.token("owner")))["logs"]
    sign_ins = json.loads(await read(f"{acme.path}/sign-ins?limit=100&user_id={user.id}", owner))["sign_ins"]
    assert {("passkey", "Site"), ("saml", "Shop"), ("password", None)} <= {(each["provider"], each["service_name"]) for each in sign_ins}
    assert {each["success"] for each in sign_ins} == {True, False}
    for each in sign_ins:
        assert [each[name] for name in ("ip_address", "user_agent", "geo_country", "geo_city")] == [None] * 4
    by_owner = [entry for entry in log if entry["actor"]["id"] == str(user.id)]
    assert {"user.login.success", "user.invited", "invitation.declined"} <= {entry["action"] for entry in by_owner}
    assert {(entry["ip_address"], entry["user_agent"]) for entry in by_owner} == {(None, None)}
    export = await read(f"/api/privacy/export/{user.id}", owner)
    assert '"password"' in export
    lines = [json.dumps(by_owner), export]
    for path in ("audit-log/export", "sign-ins/export", "audit-log/export?format=jsonl", "sign-ins/export?format=jsonl"):
        lines += (await read(f"{acme.path}/{path}", owner)).splitlines()
    lines += [json.dumps(entry) for post in sink.accepted for entry in post.entries]
    lines += [payload for (payload,) in await run_sql(pool, "select payload::text from webhook_deliveries")]
    about = [line for line in lines if (str(user.id) in line or user.email in line) and acme.people["owner"].email not in line]
    assert len(about) > len(sign_ins)
    for line in about:
        assert not [trace for trace in (*TEST_PEERS, FIREFOX, CURL, PLACE) if trace in line], line
    own = json.loads(await read("/api/user/sign-ins?limit=100", holder.token))["sign_ins"]
    assert PLACE in {each["geo_city"] for each in own}, "the user sees their own"
    await holder.confirm()
    assert PLACE in await read(f"/api/privacy/export/{user.id}", holder.token)


async def test_a_refused_platform_owner_counts_without_an_address(acme: Tenant, user: Account, pool: Pool) -> None:
    """The application does not know the platform owner. A wrong password proves no user, and shows the attempt's network."""
    await run_sql(pool, "update services set access_policy = 'assigned' where id = %s", await add_service(pool, acme.org))
    for is_owner, password, addresses in (
        (True, PASSWORD, [None]),
        (True, "a wrong password", [CLIENT, None]),
        (False, PASSWORD, [CLIENT, None]),
    ):
        await run_sql(pool, "update users set is_platform_owner = %s where id = %s", is_owner, user.id)
        body = {"email": user.email, "password": password, "org_slug": "acme", "service_slug": "shop"}
        assert (await acme.api.post("/api/auth/login", body)).status in (401, 403)
        sign_ins = (await acme.api.get(f"{acme.path}/sign-ins", token=acme.token("owner"))).json["sign_ins"]
        assert sorted((each["ip_address"] for each in sign_ins if each["attempts"]), key=str) == addresses


async def test_sign_ins_until_the_end_of_the_rights_stay_hidden(
    acme: Tenant, platform: Platform, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    """The sign-ins from before the promotion, too. After the demotion, the sign-ins are a member's."""
    user = await add_account(ports)
    await add_member(pool, acme.org, user.id, confirmed=True)
    await run_sql(pool, "update memberships set confirmed_at = %s", clock.now())
    await run_sql(pool, "update organizations set approved_at = %s", clock.now())

    async def addresses() -> list[str | None]:
        clock.advance(timedelta(minutes=1))
        assert (await acme.api.login(user.email)).status == 200
        answer = await acme.api.get(f"{acme.path}/sign-ins?user_id={user.id}", token=acme.token("owner"))
        return [each["ip_address"] for each in answer.json["sign_ins"]]

    assert await addresses() == [CLIENT]
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", user.id)
    assert await addresses() == [None, None]
    assert (await acme.api.delete(f"/api/platform/owners/{user.id}", token=platform.token)).status == 200
    assert await addresses() == [CLIENT, None, None]


@pytest.mark.parametrize("is_demoted", [False, True])
async def test_a_preview_of_networks_does_not_tell_where_a_platform_owner_is(
    acme: Tenant, platform: Platform, pool: Pool, is_demoted: bool
) -> None:
    """The platform owner's newest session began while they had the rights. Otherwise a search over networks finds its address."""
    boss = acme.people["admin"]
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", boss.id)
    await run_sql(pool, "update sessions set address = %s where user_id = %s", PEER, boss.id)
    if is_demoted:
        assert (await acme.api.delete(f"/api/platform/owners/{boss.id}", token=platform.token)).status == 200
    own = await run_sql(pool, "select host(address::inet) from sessions where user_id = %s", acme.people["owner"].id)
    stopped = [(await preview(acme, {"admin_networks": [*own[0], network]}))["people"] for network in (PEER, "203.0.113.9")]
    assert stopped[0] == stopped[1]


async def test_entries_of_other_members_keep_their_addresses(acme: Tenant, app: QuartTrio, pool: Pool) -> None:
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", acme.people["owner"].id)
    for name in ("owner", "admin"):
        path, body = f"{acme.path}/invitations", json.dumps({"email": f"{name}@anywhere.example", "role": "member"}).encode()
        headers = [(b"content-type", b"application/json")]
        assert (await ask(app, "POST", path, headers=headers, body=body, token=acme.token(name), peer=PEER)).status == 200
    assert [entry["address"] for entry in await acme.log()] == [None, PEER]
