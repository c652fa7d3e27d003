"""Members' sign-ins to the platform, as their organizations see them (decisions 61, 220, 228, 234; security R-5, W-5)."""

from datetime import timedelta
from typing import Any

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account, AccountOrigin
from core.kernel.roles import Permission
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import PASSWORD, Api, add_account, add_member, run_concurrently, run_sql
from tests.support.services import add_api_key, add_service, add_service_user
from tests.support.tenants import Tenant

EMAIL = "both@example.com"
LOGINS = "/audit-log?action=user.login.success"


async def read(tenant: Tenant, path: str) -> Any:
    answer = await tenant.api.get(tenant.path + path, token=tenant.token("owner"))
    assert answer.status == 200, answer.text
    return answer.json


async def member_of(*tenants: Tenant) -> Account:
    """Return a confirmed member in these organizations, with a password."""
    account = await add_account(tenants[0].ports, EMAIL)
    for tenant in tenants:
        await add_member(tenant.pool, tenant.org, account.id, confirmed=True)
    return account


async def test_a_sign_in_of_a_member_is_in_log_events_and_analytics_of_their_organizations(
    api: Api, pool: Pool, acme: Tenant, other_tenant: Tenant, clock: FakeClock
) -> None:
    account = await member_of(acme, other_tenant)
    webhook = {"name": "Sign-ins", "url": "https://hooks.acme.example", "events": ["user.login.success"]}
    assert (await api.post(f"{acme.path}/webhooks", webhook, token=acme.token("owner"))).status == 200
    assert (await api.login(EMAIL, "a wrong password")).status == 401
    clock.advance(timedelta(seconds=1))
    assert (await api.login(EMAIL)).status == 200
    data = {"provider": "password", "service_id": None}
    for tenant in (acme, other_tenant):
        [entry] = (await read(tenant, LOGINS))["logs"]
        assert (entry["target_type"], entry["target_id"], entry["actor"]["email"]) == ("user", str(account.id), EMAIL)
        assert (entry["success"], entry["details"]) == (True, data)
        assert await read(tenant, "/analytics/login-trends") == [{"date": clock.now().date().isoformat(), "count": 1}]
        assert await read(tenant, "/analytics/logins-by-service") == await read(tenant, "/analytics/logins-by-provider") == []
        [login] = await read(tenant, "/analytics/recent-logins")
        assert (login["user_id"], login["service_id"], login["provider"]) == (str(account.id), None, "password")
    payloads = await run_sql(pool, "select org_id, payload->'data', payload->>'actor_email' from webhook_deliveries")
    assert payloads == [(acme.org, data, EMAIL)]


async def test_a_sign_in_to_a_service_is_not_in_the_audit_log(api: Api, acme: Tenant, other_tenant: Tenant) -> None:
    await member_of(acme, other_tenant)
    service = await add_service(acme.pool, acme.org, "shop")
    login = {"email": EMAIL, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"}
    assert (await api.post("/api/auth/login", login)).status == 200
    assert [login["service_id"] for login in await read(acme, "/analytics/recent-logins")] == [str(service)]
    assert (await read(acme, LOGINS))["logs"] == (await read(other_tenant, LOGINS))["logs"] == []
    assert await read(other_tenant, "/analytics/login-trends") == []


async def test_recent_sign_ins_to_services_and_to_the_platform_are_in_one_order(api: Api, acme: Tenant, clock: FakeClock) -> None:
    await member_of(acme)
    service = str(await add_service(acme.pool, acme.org, "shop"))
    to_service = {"email": EMAIL, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"}
    for body in (to_service, {"email": EMAIL, "password": PASSWORD}, to_service):
        clock.advance(timedelta(minutes=1))
        assert (await api.post("/api/auth/login", body)).status == 200
    recent = await read(acme, "/analytics/recent-logins")
    assert [login["service_id"] for login in recent] == [service, None, service]
    assert await read(acme, "/analytics/recent-logins?limit=2") == recent[:2]
    assert (await read(acme, "/analytics/login-trends"))[0]["count"] == 3


async def test_concurrent_sign_ins_of_a_member_of_several_organizations_are_all_counted(
    api: Api, pool: Pool, acme: Tenant, other_tenant: Tenant
) -> None:
    await member_of(acme, other_tenant)
    answers = await run_concurrently(8, lambda _: api.login(EMAIL))
    assert {answer.status for answer in answers} == {200}
    assert await run_sql(pool, "select sum(total)::int, count(*) from member_login_totals group by org_id") == [(8, 1)] * 2
    for tenant in (acme, other_tenant):
        assert (await read(tenant, LOGINS))["pagination"]["total"] == 8


async def test_the_sign_ins_of_a_deleted_account_vanish(api: Api, ports: Ports, pool: Pool, acme: Tenant) -> None:
    """Sign-ins are the user's own activity (decision 111)."""
    account = await add_account(ports, EMAIL, origin=AccountOrigin.API_KEY, origin_org_id=acme.org)
    await add_member(pool, acme.org, account.id, confirmed=True)
    bystander = await add_account(ports, "bystander@example.com")
    await add_member(pool, acme.org, bystander.id, confirmed=True)
    for email in (EMAIL, EMAIL, bystander.email):
        assert (await api.login(email)).status == 200
    service = await add_service(pool, acme.org)
    await add_service_user(ports, service, account.id)
    key = await add_api_key(pool, service, [Permission.DELETE_USERS])
    assert (await api.delete(f"/api/service/users/{account.id}", headers={"X-Api-Key": key})).status == 204
    assert await run_sql(pool, "select 1 from users where id = %s", account.id) == []
    assert [entry["target_id"] for entry in (await read(acme, LOGINS))["logs"]] == [str(bystander.id)]
    assert (await read(acme, LOGINS))["pagination"]["total"] == 1
    assert [login["user_id"] for login in await read(acme, "/analytics/recent-logins")] == [str(bystander.id)]
    assert [day["count"] for day in await read(acme, "/analytics/login-trends")] == [1]
