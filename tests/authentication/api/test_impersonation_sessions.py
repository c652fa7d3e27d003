"""Tests of running impersonations: rights, records and ends (decisions 149, 150, 151, 152, 153, 229; security I-2, I-3, I-4, I-5, J-9).

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel import event_catalog
from core.kernel.errors import StorageDown
from core.kernel.principals import Role
from entrypoints.http.app import Application, configure
from entrypoints.http.edge.access import access_of
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import (
    Answer,
    Api,
    add_account,
    add_member,
    add_platform_owner,
    impersonate,
    make_edge,
    run_concurrently,
    run_sql,
    sign_in,
)
from tests.support.direct import ask
from tests.support.impersonator import AGENT, CLIENT, Support
from tests.support.refusals import FORBIDDEN, UNAUTHORIZED, refused
from tests.support.services import add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.organizations import claims, refresh

# The device


async def test_the_user_sees_one_support_device_that_is_not_current(support: Support, clock: FakeClock) -> None:
    mine = (await sign_in(support.ports, support.user)).access_token
    began = clock.now()
    first = (await support.begin())["access_token"]
    clock.advance(timedelta(minutes=1))
    await support.begin()
    listed = (await support.api.get("/api/user/devices", token=mine)).json
    [device] = listed["devices"]
    assert listed["total"] == 1
    assert (device["name"], device["is_current"], device["trusted"], device["last_ip"]) == ("Platform support", False, False, None)
    assert datetime.fromisoformat(device["created_at"]) == began
    assert datetime.fromisoformat(device["last_used_at"]) == clock.now()
    seen = (await support.api.get("/api/user/devices", token=first)).json["devices"]
    assert [one["is_current"] for one in seen] == [True]


async def test_revoking_the_support_device_ends_the_impersonation(support: Support) -> None:
    mine = (await sign_in(support.ports, support.user)).access_token
    impersonation = await support.begin()
    [device] = (await support.api.get("/api/user/devices", token=mine)).json["devices"]
    assert (await support.api.delete(f"/api/user/devices/{device['id']}", token=mine)).status == 200
    assert refused(await support.profile(impersonation["access_token"])) == UNAUTHORIZED
    assert refused(await refresh(support.api, impersonation["refresh_token"])) == UNAUTHORIZED
    assert (await support.profile(mine)).status == 200
    await support.begin()
    [another] = (await support.api.get("/api/user/devices", token=mine)).json["devices"]
    assert another["id"] != device["id"]


@pytest.mark.slow
async def test_the_users_own_login_with_the_same_browser_is_another_device(api: Api, support: Support) -> None:
    user = await add_account(support.ports, "grace@example.com")
    await support.begin(target=user.id)
    for kept in ({}, {"X-Device-Id": "platform support"}):
        mine = (await api.login(user.email, headers={**AGENT, **kept})).json["access_token"]
        seen = (await api.get("/api/user/devices", token=mine)).json["devices"]
        assert [device["is_current"] for device in seen if device["name"] == "Platform support"] == [False]
        assert [device["name"] for device in seen if device["is_current"]] == ["Firefox on Linux"]


# Ends


async def sign_out(support: Support, token: str) -> None:
    assert (await support.api.post("/api/auth/logout", token=token)).status == 200


async def test_a_sign_out_ends_only_the_impersonation(support: Support) -> None:
    mine, impersonation, another = (await sign_in(support.ports, support.user)).access_token, await support.begin(), await support.begin()
    await sign_out(support, impersonation["access_token"])
    assert refused(await support.profile(impersonation["access_token"])) == UNAUTHORIZED
    assert refused(await refresh(support.api, impersonation["refresh_token"])) == UNAUTHORIZED
    for token in (mine, another["access_token"], support.session.access_token):
        assert (await support.profile(token)).status == 200


async def promote_target(support: Support, colleague: str) -> Answer:
    return await support.api.post("/api/platform/owners", {"user_id": str(support.user.id)}, token=colleague)


async def demote_impersonator(support: Support, colleague: str) -> Answer:
    return await support.api.delete(f"/api/platform/owners/{support.account.id}", token=colleague)


async def logout_of_impersonator(support: Support, colleague: str) -> Answer:
    return await support.api.post("/api/auth/logout", token=support.session.access_token)


def by_sql(statement: str) -> Callable[[Support, str], Awaitable[None]]:
    async def change(support: Support, colleague: str) -> None:
        await run_sql(support.pool, statement)

    return change


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        promote_target,
        demote_impersonator,
        logout_of_impersonator,
        by_sql("update users set deactivated_at = now() where email = 'support@platform.example'"),
        by_sql("update users set anonymized_at = now() where email = 'support@platform.example'"),
        by_sql("delete from sessions where user_id = (select id from users where email = 'support@platform.example')"),
        by_sql("update users set deactivated_at = now() where email = 'ada@example.com'"),
        by_sql("update users set anonymized_at = now() where email = 'ada@example.com'"),
    ],
    ids=["promotion", "demotion", "logout", "deactivated", "anonymized", "sessions-gone", "target-deactivated", "target-anonymized"],
)
async def test_an_impersonation_ends_when_one_of_its_conditions_ends(
    support: Support, acme: Tenant, change: Callable[[Support, str], Awaitable[Any]]
) -> None:
    await add_member(acme.pool, acme.org, support.user.id, Role.ADMIN)
    shop = await add_service(acme.pool, acme.org)
    await add_service_user(support.ports, shop, support.user.id)
    colleague = await sign_in(support.ports, await add_platform_owner(support.ports, "colleague@platform.example"))
    impersonation = [await support.begin(), await support.begin(org_slug="acme"), await support.begin(org_slug="acme", service_slug="shop")]
    await change(support, colleague.access_token)
    for one in impersonation:
        assert refused(await support.profile(one["access_token"])) == UNAUTHORIZED
        assert refused(await refresh(support.api, one["refresh_token"])) == UNAUTHORIZED
    for one in impersonation[:2]:
        assert refused(await support.api.get(acme.path, token=one["access_token"])) == UNAUTHORIZED


async def test_the_end_of_the_membership_ends_an_impersonation_in_the_organization(support: Support, acme: Tenant) -> None:
    impersonation, beside = await support.begin(target=acme.id("member"), org_slug="acme"), await support.begin(target=acme.id("member"))
    assert (await acme.remove("owner", "member")).status == 200
    assert refused(await support.profile(impersonation["access_token"])) == UNAUTHORIZED
    assert (await support.profile(beside["access_token"])).status == 200


# Forbidden operations

# All routes that need a user's token are in one of two sets: forbidden to impersonators ...
REFUSED = {
    # password, email address
    ("PATCH", "/api/user"),
    ("POST", "/api/user/set-password"),
    ("POST", "/api/user/change-password"),
    # the second factor
    ("POST", "/api/user/mfa/setup"),
    ("POST", "/api/user/mfa/verify"),
    ("DELETE", "/api/user/mfa"),
    ("POST", "/api/user/mfa/backup-codes/regenerate"),
    # devices
    ("PATCH", "/api/user/devices/<device_id>"),
    ("DELETE", "/api/user/devices/<device_id>"),
    # identities and provider tokens
    ("POST", "/api/user/identities/<provider>/link"),
    ("DELETE", "/api/user/identities/<provider>"),
    ("GET", "/api/provider-token/<provider>"),
    # privacy
    ("GET", "/api/privacy/export/<user_id>"),
    ("DELETE", "/api/privacy/forget/<user_id>"),
    # invitations
    ("POST", "/api/invitations/accept"),
    ("POST", "/api/organizations/<org_slug>/invitations/<invitation_id>/accept"),
    # secrets of applications
    ("POST", "/api/organizations/<org_slug>/services/<service_slug>/api-keys"),
    ("POST", "/api/organizations/<org_slug>/services/<service_slug>/rotate-secret"),
    ("POST", "/api/organizations/<org_slug>/services/<service_slug>/saml/certificate"),
    ("POST", "/api/organizations/<org_slug>/scim-tokens"),
    ("POST", "/api/organizations/<org_slug>/webhooks"),
    ("POST", "/api/organizations/<org_slug>/webhooks/<webhook_id>/rotate-secret"),
    # the organization itself
    ("POST", "/api/organizations/<org_slug>/transfer-ownership"),
    ("DELETE", "/api/organizations/<org_slug>"),
    # sign-ins elsewhere
    ("GET", "/api/organizations/<org_slug>/services/<service_slug>/saml/login"),
    ("POST", "/auth/device/verify"),
}
# ... or allowed. A new route must be added to one of them.
ALLOWED = {
    ("GET", "/api/user"),
    ("GET", "/api/user/mfa/status"),
    ("GET", "/api/user/devices"),
    ("GET", "/api/user/devices/<device_id>"),
    ("GET", "/api/user/identities"),
    ("GET", "/api/subscription"),
    ("POST", "/api/auth/logout"),
    ("GET", "/api/invitations"),
    ("POST", "/api/invitations/decline"),
    ("GET", "/api/organizations"),
    ("POST", "/api/organizations"),
    *((method, "/api/organizations/<org_slug>") for method in ("GET", "PATCH")),
    *(
        (method, f"/api/organizations/<org_slug>/{path}")
        for methods, path in [
            ("POST", "select"),
            ("GET", "members"),
            ("PATCH POST", "members/<user_id>"),
            ("GET POST", "invitations"),
            ("POST", "invitations/<invitation_id>"),
            ("GET POST", "services"),
            ("GET PATCH DELETE", "services/<service_slug>"),
            ("GET POST", "services/<service_slug>/plans"),
            ("PATCH DELETE", "services/<service_slug>/plans/<plan_id>"),
            ("GET", "services/<service_slug>/api-keys"),
            ("GET DELETE", "services/<service_slug>/api-keys/<api_key_id>"),
            ("GET PUT DELETE", "services/<service_slug>/oauth-credentials/<provider>"),
            ("GET POST DELETE", "services/<service_slug>/saml"),
            ("GET", "services/<service_slug>/saml/certificate"),
            ("POST", "services/<service_slug>/checkout"),
            ("GET", "users"),
            ("GET", "users/<user_id>"),
            ("DELETE", "users/<user_id>/sessions"),
            ("GET", "analytics/login-trends"),
            ("GET", "analytics/logins-by-service"),
            ("GET", "analytics/logins-by-provider"),
            ("GET", "analytics/recent-logins"),
            ("GET", "audit-log"),
            ("GET", "audit-log/event-types"),
            ("GET POST DELETE", "smtp"),
            ("POST", "smtp/test"),
            ("GET", "scim-tokens"),
            ("DELETE", "scim-tokens/<token_id>"),
            ("GET POST DELETE", "siem"),
            ("POST", "siem/test"),
            ("GET", "webhooks"),
            ("GET", "webhooks/event-types"),
            ("GET PATCH DELETE", "webhooks/<webhook_id>"),
            ("GET", "webhooks/<webhook_id>/deliveries"),
            ("POST", "webhooks/<webhook_id>/test"),
            ("POST", "webhooks/<webhook_id>/deliveries/<delivery_id>/replay"),
            ("GET PATCH", "branding"),
            ("GET POST DELETE", "domain"),
            ("POST", "domain/verify"),
            ("GET PUT", "hrd"),
        ]
        for method in methods.split()
    ),
}


async def test_every_route_is_listed_as_allowed_or_forbidden(app: QuartTrio) -> None:
    may: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for rule in app.url_map.iter_rules():
        access = access_of(app.view_functions[rule.endpoint])
        if access.security == "bearer" and access.name != "pre_auth":
            may[access.impersonated] |= {(method, rule.rule) for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}}
    of_the_platform = {(method, rule) for method, rule in may[False] if rule.startswith("/api/platform/")}
    assert may[False] == REFUSED | of_the_platform
    assert len(of_the_platform) >= 16
    assert may[True] == ALLOWED


@pytest.mark.slow
async def test_forbidden_requests_are_refused_before_validation(support: Support, acme: Tenant, pool: Pool) -> None:
    await add_service(acme.pool, acme.org)
    token = await impersonate(support.ports, support.account, acme.people["owner"], acme.org)
    examples = {"org_slug": "acme", "service_slug": "shop", "provider": "codehost", "user_id": acme.id("owner")}
    tables = ("users", "memberships", "organizations", "services", "api_keys", "mfa", "devices", "identities", "mails")
    before = [await run_sql(pool, f"select * from {table} order by 1") for table in tables]  # noqa: S608
    for method, rule in sorted(REFUSED | {("GET", "/api/platform/tiers"), ("POST", "/api/platform/impersonate/<user_id>")}):
        path = "/".join(examples.get(part[1:-1], str(uuid4())) if part.startswith("<") else part for part in rule.split("/"))
        for body in (None if method == "GET" else {}, None if method == "GET" else {"reason": 5, "token": 5}):
            answer = await support.api.call(method, path, body, token=token)
            assert refused(answer) == FORBIDDEN, (method, rule, answer.text)
            assert "impersonating" in answer.json["error"]
    assert [await run_sql(pool, f"select * from {table} order by 1") for table in tables] == before  # noqa: S608


async def test_an_impersonator_does_not_confirm_a_membership(support: Support, acme: Tenant) -> None:
    await add_member(acme.pool, acme.org, support.user.id)
    impersonation = await support.begin(org_slug="acme")
    assert (await support.api.get(f"{acme.path}/members", token=impersonation["access_token"])).status == 200
    assert await run_sql(acme.pool, "select confirmed_at from memberships where user_id = %s", support.user.id) == [(None,)]


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
    assert (await support.api.patch(acme.path, {"name": "Acme & Sons"}, token=token)).status == 200
    entry = await acme.entry("organization.updated")
    assert (entry["actor_id"], entry["impersonator_id"]) == (acme.people["owner"].id, support.account.id)


async def test_an_organization_cannot_read_the_recorded_requests(support: Support, acme: Tenant) -> None:
    token = (await support.begin(target=acme.id("owner")))["access_token"]
    for _ in range(3):
        listed = (await support.api.get(f"{acme.path}/audit-log", token=token)).json
        assert (listed["logs"], listed["pagination"]["total"]) == ([], 0)
    kinds = (await support.api.get(f"{acme.path}/audit-log/event-types", token=token)).json
    assert "user.impersonated" in {kind["value"] for kind in kinds}
    assert "impersonation.request" not in {kind["value"] for kind in kinds}
    assert len(await support.requests()) == 4


async def test_only_impersonators_requests_are_recorded(support: Support, acme: Tenant) -> None:
    for path in ("/api/user", acme.path, "/health", "/.well-known/jwks.json"):
        await support.api.get(path, token=acme.token("owner"))
        await support.api.get(path)
    await support.api.get("/api/platform/tiers", token=support.session.access_token)
    ended = (await support.begin())["access_token"]
    await sign_out(support, ended)
    assert (await support.profile(ended)).status == 401
    assert [entry["details"]["route"] for entry in await support.requests()] == ["/api/auth/logout"]


@contextmanager
def a_log_that_fails(monkeypatch: pytest.MonkeyPatch, ports: Ports) -> Iterator[None]:
    """Make transactions that record a request fail at the commit."""
    storage: Any = type(ports.storage)
    transaction = storage.transaction

    @asynccontextmanager
    async def failing(*given: Any, **named: Any) -> AsyncIterator[Any]:
        async with transaction(*given, **named) as tx:

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
    with a_log_that_fails(monkeypatch, support.ports):
        for method, path, body in [
            ("GET", "/api/user", None),
            ("GET", f"{acme.path}/members", None),
            ("PATCH", acme.path, {"name": "Other"}),
            ("POST", "/api/auth/logout", {}),
        ]:
            failed = await support.api.call(method, path, body, token=token)
            assert refused(failed) == (500, "AUDIT_ERROR")
            assert "recorded" in failed.json["error"]
        renamed = await support.api.patch(acme.path, {"name": "Acme Two"}, token=acme.token("owner"))
        assert (renamed.status, renamed.json["name"]) == (200, "Acme Two"), "other users are not affected"
    assert (await support.profile(token)).status == 200
    assert [entry["details"]["route"] for entry in await support.requests()] == ["/api/user"]


@pytest.mark.slow
async def test_the_access_log_names_both_users(support: Support, worker_app: Application) -> None:
    tokens = (await support.begin())["access_token"], (await sign_in(support.ports, support.user)).access_token
    seen: list[Any] = []
    configure(worker_app, support.ports, make_edge(), observe=seen.append, exposition=lambda: b"", exposition_type="text/plain")
    for token in tokens:
        await ask(worker_app, "GET", "/api/user", token=token)
    assert [(one.caller, one.impersonator) for one in seen] == [
        (str(support.user.id), str(support.account.id)),
        (str(support.user.id), None),
    ]


# Races


async def test_a_concurrent_removal_of_the_member_ends_the_impersonation(support: Support, acme: Tenant) -> None:
    """In either order of the commits."""
    for number in range(3):
        name = f"member-{number}"
        await acme.join(name, await add_account(support.ports, f"{name}@example.com", None))

        async def act(which: int, name: str = name) -> Answer:
            if which:
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
