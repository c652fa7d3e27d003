"""Running impersonations: the device, ends, records and races (decisions 151, 229; security I-2, I-3, I-5)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from quart_trio import QuartTrio

from core.kernel import event_catalog
from core.kernel.errors import StorageDown
from core.kernel.roles import ADMIN
from entrypoints.http.app import Application, configure
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, Api, add_account, add_member, add_platform_owner, make_edge, run_concurrently, run_sql, sign_in
from tests.support.direct import ask
from tests.support.impersonator import AGENT, CLIENT, Support
from tests.support.refusals import UNAUTHORIZED, refused
from tests.support.services import add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.organizations import claims, refresh

# The device


async def test_the_user_sees_one_support_device_that_is_not_current(support: Support, clock: FakeClock) -> None:
    user_token = (await sign_in(support.ports, support.user)).access_token
    began = clock.now()
    first = (await support.begin())["access_token"]
    clock.advance(timedelta(minutes=1))
    await support.begin()
    listing = (await support.api.get("/api/user/devices", token=user_token)).json
    [device] = listing["devices"]
    assert listing["total"] == 1
    assert (device["name"], device["is_current"], device["trusted"], device["last_ip"]) == ("Platform support", False, False, None)
    assert datetime.fromisoformat(device["created_at"]) == began
    assert datetime.fromisoformat(device["last_used_at"]) == clock.now()
    devices = (await support.api.get("/api/user/devices", token=first)).json["devices"]
    assert [one["is_current"] for one in devices] == [True]


async def test_revoking_the_support_device_ends_the_impersonation(support: Support) -> None:
    user_token = (await sign_in(support.ports, support.user)).access_token
    impersonation = await support.begin()
    [device] = (await support.api.get("/api/user/devices", token=user_token)).json["devices"]
    assert (await support.api.delete(f"/api/user/devices/{device['id']}", token=user_token)).status == 200
    assert refused(await support.profile(impersonation["access_token"])) == UNAUTHORIZED
    assert refused(await refresh(support.api, impersonation["refresh_token"])) == UNAUTHORIZED
    assert (await support.profile(user_token)).status == 200
    await support.begin()
    [another] = (await support.api.get("/api/user/devices", token=user_token)).json["devices"]
    assert another["id"] != device["id"]


@pytest.mark.slow
async def test_the_users_own_login_with_the_same_browser_is_another_device(api: Api, support: Support) -> None:
    user = await add_account(support.ports, "grace@example.com")
    await support.begin(target=user.id)
    for headers in ({}, {"X-Device-Id": "platform support"}):
        user_token = (await api.login(user.email, headers={**AGENT, **headers})).json["access_token"]
        devices = (await api.get("/api/user/devices", token=user_token)).json["devices"]
        assert [device["is_current"] for device in devices if device["name"] == "Platform support"] == [False]
        assert [device["name"] for device in devices if device["is_current"]] == ["Firefox on Linux"]


# Ends


async def sign_out(support: Support, token: str) -> None:
    assert (await support.api.post("/api/auth/logout", token=token)).status == 200


async def test_a_sign_out_ends_only_the_impersonation(support: Support) -> None:
    user_token, impersonation, another = (
        (await sign_in(support.ports, support.user)).access_token,
        await support.begin(),
        await support.begin(),
    )
    await sign_out(support, impersonation["access_token"])
    assert refused(await support.profile(impersonation["access_token"])) == UNAUTHORIZED
    assert refused(await refresh(support.api, impersonation["refresh_token"])) == UNAUTHORIZED
    for token in (user_token, another["access_token"], support.session.access_token):
        assert (await support.profile(token)).status == 200


async def promote_target(support: Support, colleague: str) -> Answer:
    await run_sql(support.pool, "update users set mfa_enabled_at = now() where id = %s", support.user.id)
    return await support.api.post("/api/platform/owners", {"user_id": str(support.user.id)}, token=colleague)


async def demote_impersonator(support: Support, colleague: str) -> Answer:
    return await support.api.delete(f"/api/platform/owners/{support.account.id}", token=colleague)


async def sign_out_impersonator(support: Support, colleague: str) -> Answer:
    return await support.api.post("/api/auth/logout", token=support.session.access_token)


def run_statement(statement: str) -> Callable[[Support, str], Awaitable[None]]:
    async def change(support: Support, colleague: str) -> None:
        await run_sql(support.pool, statement)

    return change


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        promote_target,
        demote_impersonator,
        sign_out_impersonator,
        run_statement("update users set deactivated_at = now() where email = 'support@platform.example'"),
        run_statement("update users set anonymized_at = now() where email = 'support@platform.example'"),
        run_statement("delete from sessions where user_id = (select id from users where email = 'support@platform.example')"),
        run_statement("update users set deactivated_at = now() where email = 'ada@example.com'"),
        run_statement("update users set anonymized_at = now() where email = 'ada@example.com'"),
    ],
    ids=["promotion", "demotion", "logout", "deactivated", "anonymized", "sessions-gone", "target-deactivated", "target-anonymized"],
)
async def test_an_impersonation_ends_when_one_of_its_conditions_ends(
    support: Support, acme: Tenant, change: Callable[[Support, str], Awaitable[Any]]
) -> None:
    await add_member(acme.pool, acme.org, support.user.id, ADMIN)
    shop = await add_service(acme.pool, acme.org)
    await add_service_user(support.ports, shop, support.user.id)
    colleague = await sign_in(support.ports, await add_platform_owner(support.ports, "colleague@platform.example"))
    impersonations = [
        await support.begin(),
        await support.begin(org_slug="acme"),
        await support.begin(org_slug="acme", service_slug="shop"),
    ]
    await change(support, colleague.access_token)
    for tokens in impersonations:
        assert refused(await support.profile(tokens["access_token"])) == UNAUTHORIZED
        assert refused(await refresh(support.api, tokens["refresh_token"])) == UNAUTHORIZED
    for tokens in impersonations[:2]:
        assert refused(await support.api.get(acme.path, token=tokens["access_token"])) == UNAUTHORIZED


async def test_the_end_of_the_membership_ends_an_impersonation_in_the_organization(support: Support, acme: Tenant) -> None:
    impersonation, parallel = await support.begin(target=acme.id("member"), org_slug="acme"), await support.begin(target=acme.id("member"))
    assert (await acme.remove("owner", "member")).status == 200
    assert refused(await support.profile(impersonation["access_token"])) == UNAUTHORIZED
    assert (await support.profile(parallel["access_token"])).status == 200


# Records


async def test_every_request_is_recorded_in_the_platforms_log(support: Support, acme: Tenant, clock: FakeClock) -> None:
    token = (await support.begin(target=acme.id("owner")))["access_token"]
    user_id = acme.id("member")
    calls = [
        ("GET", "/api/user", "/api/user", {}),
        ("HEAD", "/api/user/devices", "/api/user/devices", {}),
        ("GET", "/api/organizations?x=secret", "/api/organizations", {}),
        ("GET", f"{acme.path}/members?page=0", "/api/organizations/<org_slug>/members", {"org_slug": "acme"}),
        ("GET", f"{acme.path}/users/{user_id}", "/api/organizations/<org_slug>/users/<user_id>", {"org_slug": "acme", "user_id": user_id}),
        ("GET", "/api/user/devices/" + "x" * 300, "/api/user/devices/<device_id>", {"device_id": "x" * 200}),
        ("PATCH", "/api/user", "/api/user", {}),  # a refused request
        ("POST", "/api/auth/logout", "/api/auth/logout", {}),
    ]
    for method, path, _, _ in calls:
        await support.api.call(method, path, token=token, headers=AGENT)
        clock.advance(timedelta(seconds=1))
    assert [entry["details"] for entry in await support.requests()] == [
        {"session_id": claims(token)["sid"], "method": method, "route": route, "arguments": arguments}
        for method, _, route, arguments in calls
    ]
    for entry in await support.requests():
        assert (entry["actor_id"], entry["impersonator_id"]) == (acme.people["owner"].id, support.account.id)
        assert (entry["target_type"], entry["target_id"]) == ("user", acme.id("owner"))
        assert (entry["address"], entry["agent"]) == (CLIENT, AGENT["User-Agent"])


async def test_changes_name_both_users_in_the_organizations_log(support: Support, acme: Tenant) -> None:
    token = (await support.begin(target=acme.id("owner"), org_slug="acme"))["access_token"]
    assert (await support.api.delete(f"{acme.path}/members/{acme.id('member')}/sessions", token=token)).status == 200
    entry = await acme.entry("user.sessions_revoked")
    assert (entry["actor_id"], entry["impersonator_id"]) == (acme.people["owner"].id, support.account.id)


async def test_an_organization_cannot_read_the_recorded_requests(support: Support, acme: Tenant) -> None:
    token = (await support.begin(target=acme.id("owner")))["access_token"]
    for _ in range(3):
        listing = (await support.api.get(f"{acme.path}/audit-log", token=token)).json
        assert [entry["action"] for entry in listing["logs"]] == ["user.impersonated"]
        assert listing["pagination"]["total"] == 1
    kinds = (await support.api.get(f"{acme.path}/audit-log/event-types", token=token)).json
    assert "user.impersonated" in {kind["value"] for kind in kinds}
    assert "impersonation.request" not in {kind["value"] for kind in kinds}
    assert len(await support.requests()) == 4


async def test_only_impersonators_requests_are_recorded(support: Support, acme: Tenant) -> None:
    for path in ("/api/user", acme.path, "/health", "/.well-known/jwks.json"):
        await support.api.get(path, token=acme.token("owner"))
        await support.api.get(path)
    await support.api.get("/api/platform/tiers", token=support.session.access_token)
    ended_token = (await support.begin())["access_token"]
    await sign_out(support, ended_token)
    assert (await support.profile(ended_token)).status == 401
    assert [entry["details"]["route"] for entry in await support.requests()] == ["/api/auth/logout"]


@contextmanager
def failing_request_log(monkeypatch: pytest.MonkeyPatch, ports: Ports) -> Iterator[None]:
    """Make transactions that record a request fail at the commit."""
    storage: Any = type(ports.storage)
    transaction = storage.transaction

    @asynccontextmanager
    async def failing(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
        async with transaction(*arguments, **options) as tx:

            def record(event: event_catalog.Event) -> None:
                if event.kind.name == "impersonation.request":
                    raise StorageDown
                type(tx).record(tx, event)

            yield _Recording(tx, record)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "transaction", failing)
        yield


class _Recording:
    """A transaction with another `record` method."""

    def __init__(self, tx: Any, record: Callable[[event_catalog.Event], None]) -> None:
        self._tx = tx
        self.record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


async def test_a_request_that_cannot_be_recorded_is_not_executed(support: Support, acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    token = (await support.begin(target=acme.id("owner")))["access_token"]
    with failing_request_log(monkeypatch, support.ports):
        for method, path, body in [
            ("GET", "/api/user", None),
            ("GET", f"{acme.path}/members", None),
            ("PATCH", acme.path, {"name": "Other"}),
            ("POST", "/api/auth/logout", {}),
        ]:
            answer = await support.api.call(method, path, body, token=token)
            assert refused(answer) == (500, "AUDIT_ERROR")
            assert "recorded" in answer.json["error"]
        answer = await support.api.patch(acme.path, {"name": "Acme Two"}, token=acme.token("owner"))
        assert (answer.status, answer.json["name"]) == (200, "Acme Two"), "other users are not affected"
    assert (await support.profile(token)).status == 200
    assert [entry["details"]["route"] for entry in await support.requests()] == ["/api/user"]


async def test_a_refused_request_is_recorded_without_success(support: Support, acme: Tenant, app: QuartTrio) -> None:
    """The reasons are the impersonation, the body, its size while it arrives, and the missing object."""
    await add_service(acme.pool, acme.org)
    metadata = f"{acme.path}/services/shop/saml/metadata"
    token = (await support.begin(target=acme.id("owner")))["access_token"]
    statuses = [
        (await support.api.post("/api/invitations/accept", {"token": "x"}, token=token)).status,
        (await support.api.post(metadata, {"metadata": 1}, token=token)).status,
        (
            await ask(
                app, "POST", metadata, headers=[(b"content-type", b"application/json")], body=b" " * 2621450, chunked=True, token=token
            )
        ).status,
        (await support.api.get(f"{acme.path}/services/none", token=token)).status,
        (await support.api.get(acme.path, token=token)).status,
    ]
    assert statuses == [403, 400, 413, 404, 200]
    outcomes = "select success from audit_log where action = 'impersonation.request' order by success"
    assert await run_sql(support.pool, outcomes) == [(False,)] * 4 + [(True,)]


@pytest.mark.slow
async def test_the_access_log_names_both_users(support: Support, worker_app: Application) -> None:
    # Before `configure`: `support.api` uses the same application, and its requests would be recorded too.
    tokens = (await support.begin())["access_token"], (await sign_in(support.ports, support.user)).access_token
    records: list[Any] = []
    configure(worker_app, support.ports, make_edge(), observe=records.append, exposition=lambda: b"", exposition_type="text/plain")
    for token in tokens:
        await ask(worker_app, "GET", "/api/user", token=token)
    assert [(record.caller, record.impersonator) for record in records] == [
        (str(support.user.id), str(support.account.id)),
        (str(support.user.id), None),
    ]


# Races


async def test_a_concurrent_removal_of_the_member_ends_the_impersonation(support: Support, acme: Tenant) -> None:
    """The removal may commit before or after the request."""
    for number in range(3):
        name = f"member-{number}"
        await acme.join(name, await add_account(support.ports, f"{name}@example.com", None))

        async def act(index: int, name: str = name) -> Answer:
            if index:
                return await acme.remove("owner", name)
            return await support.ask(target=acme.id(name), org_slug="acme")

        answers = await run_concurrently(2, act)
        assert {answer.status for answer in answers} <= {200, 400}
        for answer in answers:
            if "access_token" in answer.json:
                assert refused(await support.profile(answer.json["access_token"])) == UNAUTHORIZED


async def test_a_concurrent_promotion_leaves_no_live_impersonation(support: Support, ports: Ports) -> None:
    colleague = await sign_in(ports, await add_platform_owner(ports, "colleague@platform.example"))
    answers = await run_concurrently(2, lambda number: promote_target(support, colleague.access_token) if number else support.ask())
    for answer in answers:
        if "access_token" in answer.text:
            assert refused(await support.profile(answer.json["access_token"])) == UNAUTHORIZED
