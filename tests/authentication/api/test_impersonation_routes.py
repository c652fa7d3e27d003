"""Requests during an impersonation (security I-3, I-4, J-9). tests/proof/access/table.py has the allowed routes."""

from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from entrypoints.http.edge.access.declaration import access_of
from ports import Ports
from tests.proof.access.calls import routes
from tests.support.builders import (
    PASSWORD,
    Answer,
    Api,
    add_account,
    add_member,
    add_organization,
    add_platform_owner,
    impersonate,
    run_concurrently,
    run_sql,
    sign_in,
)
from tests.support.impersonator import Support
from tests.support.refusals import FORBIDDEN, refused
from tests.support.services import add_service
from tests.support.tenants import Tenant, Tenants


@pytest.mark.slow
async def test_forbidden_requests_are_refused_before_validation(app: QuartTrio, support: Support, acme: Tenant, pool: Pool) -> None:
    await add_service(acme.pool, acme.org)
    token = await impersonate(support.ports, support.account, acme.people["owner"], acme.org)
    examples = {"org_slug": "acme", "service_slug": "shop", "provider": "codehost", "user_id": acme.id("owner")}
    tables = ("users", "memberships", "organizations", "services", "api_keys", "mfa", "devices", "identities", "mails")
    before = [await run_sql(pool, f"select * from {table} order by 1") for table in tables]  # noqa: S608
    forbidden = [
        route for route, view in routes(app) if access_of(view).is_of_api and access_of(view).row(route.partition(" ")[0]).outlives
    ]
    assert len(forbidden) > 80
    for route in forbidden:
        method, rule = route.split()
        path = "/".join(examples.get(part[1:-1], str(uuid4())) if part.startswith("<") else part for part in rule.split("/"))
        for body in (None if method == "GET" else {}, None if method == "GET" else {"reason": 5, "token": 5}):
            answer = await support.api.call(method, path, body, token=token)
            assert refused(answer) == FORBIDDEN, (route, answer.text)
            assert "impersonating" in answer.json["error"]
    assert [await run_sql(pool, f"select * from {table} order by 1") for table in tables] == before  # noqa: S608


async def test_an_impersonator_does_not_confirm_a_membership(support: Support, acme: Tenant) -> None:
    await add_member(acme.pool, acme.org, support.user.id)
    impersonation = await support.begin(org_slug="acme")
    assert (await support.api.get(f"{acme.path}/members", token=impersonation["access_token"])).status == 200
    assert await run_sql(acme.pool, "select confirmed_at from memberships where user_id = %s", support.user.id) == [(None,)]


async def test_an_impersonation_acts_only_in_the_organization_that_it_names(support: Support, app: QuartTrio, tenants: Tenants) -> None:
    acme, other = await tenants.add("acme"), await tenants.add("other")
    await run_sql(
        support.pool,
        "update memberships set user_id = %s where org_id = any(%s) and role = 'owner'",
        support.user.id,
        [acme.org, other.org],
    )
    token = (await support.begin(org_slug="acme"))["access_token"]
    assert (await support.api.get(f"{acme.path}/members", token=token)).status == 200
    before = await other.log()
    examples = {"org_slug": "other", "provider": "codehost"}
    for rule in app.url_map.iter_rules():
        if access_of(app.view_functions[rule.endpoint]).name != "member":
            continue
        path = "/".join(examples.get(part[1:-1], str(uuid4())) if part.startswith("<") else part for part in rule.rule.split("/"))
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            answer = await support.api.call(method, path, None if method == "GET" else {}, token=token)
            assert refused(answer) == FORBIDDEN, (method, rule.rule, answer.text)
    assert await other.log() == before


async def test_each_organization_learns_of_an_impersonation_that_names_none(support: Support, tenants: Tenants) -> None:
    acme, other, untouched = await tenants.add("acme"), await tenants.add("other"), await tenants.add("untouched")
    organizations = [acme.org, other.org, untouched.org]
    await run_sql(
        support.pool, "update memberships set user_id = %s where org_id = any(%s) and role = 'owner'", support.user.id, organizations
    )
    impersonation = await support.begin()
    for tenant in (acme, other, acme):
        for path in (f"{tenant.path}/members", f"{tenant.path}/services"):
            assert (await support.api.get(path, token=impersonation["access_token"])).status == 200
    expected = {"session_id": impersonation["session_id"], "expires_at": impersonation["expires_at"], "service_slug": None}
    for tenant in (acme, other):
        [entry] = await tenant.log()
        assert (entry["action"], entry["target_id"], entry["details"]) == ("user.impersonated", str(support.user.id), expected)
        assert (entry["actor_id"], entry["impersonator_id"]) == (support.user.id, support.account.id)
    assert await untouched.log() == []


async def test_twenty_first_requests_of_an_impersonation_make_one_entry(support: Support, acme: Tenant) -> None:
    await add_member(acme.pool, acme.org, support.user.id)
    token = (await support.begin())["access_token"]
    answers = await run_concurrently(20, lambda _: support.api.get(f"{acme.path}/members", token=token))
    assert {answer.status for answer in answers} == {200}
    assert [entry["action"] for entry in await acme.log()] == ["user.impersonated"]


CHANGES = {
    ("PATCH", "/api/user"): {"email": "moved@example.com"},
    ("POST", "/api/user/set-password"): {"new_password": "another good password"},
    ("POST", "/api/user/change-password"): {"current_password": PASSWORD, "new_password": "another good password"},
}


async def test_an_impersonator_cannot_change_password_or_address(api: Api, ports: Ports, pool: Pool) -> None:
    support, user = await add_platform_owner(ports, "support@example.com"), await add_account(ports)
    token = await impersonate(ports, support, user)
    before = await run_sql(pool, "select * from users order by id")
    for (method, path), body in CHANGES.items():
        for sent in (body, {}, {"email": 5, "new_password": 5}):
            answer: Answer = await api.call(method, path, sent, token=token)
            assert (answer.status, answer.code) == FORBIDDEN
            assert "impersonating" in answer.json["error"]
        assert (await api.call(method, path, raw=b"{", token=token)).status == 403
    assert await run_sql(pool, "select * from users order by id") == before
    assert await run_sql(pool, "select count(*) from mails") == [(0,)]
    assert (await api.get("/api/user", token=token)).json["email"] == user.email


async def test_an_impersonators_logout_ends_only_the_impersonation(api: Api, ports: Ports) -> None:
    support, user = await add_platform_owner(ports, "support@example.com"), await add_account(ports)
    user_token, support_token = (await sign_in(ports, user)).access_token, (await sign_in(ports, support)).access_token
    token = await impersonate(ports, support, user)
    assert (await api.post("/api/auth/logout", token=token)).status == 200
    assert [(await api.get("/api/user", token=one)).status for one in (token, user_token, support_token)] == [401, 200, 200]


async def test_an_impersonators_actions_are_recorded_with_both_users(app: QuartTrio, api: Api, ports: Ports, pool: Pool) -> None:
    support, user = await add_platform_owner(ports, "support@example.com"), await add_account(ports)
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, "owner")
    token = await impersonate(ports, support, user, org)
    other = await add_account(ports, "other@example.com")
    await add_member(pool, org, other.id)
    assert (await api.delete(f"/api/organizations/acme/members/{other.id}/sessions", token=token)).status == 200
    both = (user.id, support.id)
    assert await run_sql(pool, "select distinct actor_id, impersonator_id from audit_log") == [both]
    assert await run_sql(pool, "select distinct actor_id, impersonator_id from events") == [both]
    [entry] = (await api.get("/api/organizations/acme/audit-log", token=token)).json["logs"]
    assert (entry["actor"]["id"], entry["details"]["impersonator"]["id"]) == (str(user.id), str(support.id))
