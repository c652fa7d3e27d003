"""Login analytics for members and API keys.

The rules are decisions 233, 234, 235, and security K-2, N-6, T-1, T-2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.applications.model import analytics as model_analytics
from core.kernel.roles import OWNER, Permission, RoleName
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import PASSWORD, Answer, Api, add_account, impersonate, run_sql, sign_in
from tests.support.refusals import BAD, FORBIDDEN, MISSING, NOT_ACTIVE, refused
from tests.support.services import add_api_key, add_login, add_plan, add_service, add_service_user, add_subscription, sign_in_to
from tests.support.tenants import CAST, Tenant, Tenants

RANGED = ["login-trends", "logins-by-service", "logins-by-provider"]
DAY = timedelta(days=1)


@pytest.fixture
def cast() -> Mapping[str, RoleName]:
    """Organizations have only an owner, except where roles matter."""
    return {"owner": OWNER}


@dataclass(slots=True)
class Shop:
    """An organization's service, its user, and an API key."""

    tenant: Tenant
    service: UUID
    user: UUID
    key: str

    async def request(self, report: str, by: str = "owner") -> Answer:
        return await self.tenant.api.get(f"{self.tenant.path}/analytics/{report}", token=self.tenant.token(by))

    async def read(self, report: str) -> Any:
        answer = await self.request(report)
        assert answer.status == 200, answer.text
        return answer.json

    async def of_service(self, query: str = "") -> Answer:
        return await self.tenant.api.get(f"/api/service/analytics{query}", headers={"X-Api-Key": self.key})

    async def logins(self, *times: datetime, provider: str = "password", to: UUID | None = None) -> None:
        for at in times:
            await add_login(self.tenant.ports, self.tenant.pool, to or self.service, self.user, provider, at=at)


async def add_shop(tenant: Tenant, slug: str = "shop") -> Shop:
    service = await add_service(tenant.pool, tenant.org, slug)
    user = await add_account(tenant.ports, f"user@{slug}.{tenant.slug}.example", None)
    await add_service_user(tenant.ports, service, user.id)
    return Shop(tenant, service, user.id, await add_api_key(tenant.pool, service, [Permission.READ_ANALYTICS]))


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    return await add_shop(acme)


@pytest.fixture
async def foreign(other_tenant: Tenant) -> Shop:
    """A service in another organization."""
    return await add_shop(other_tenant)


def at(day: str, time: str = "12:00:00") -> datetime:
    return datetime.fromisoformat(f"{day}T{time}").replace(tzinfo=UTC)


# Access


async def test_members_can_read_analytics_and_other_callers_cannot(tenants: Tenants, ports: Ports, pool: Pool) -> None:
    tenant, other_tenant = await tenants.add("acme", cast=CAST), await tenants.add("twin")
    shop = await add_shop(tenant)
    stranger = await add_account(ports, "stranger@example.com", None)
    platform_owner = await add_account(ports, "steward@platform.example", None, is_platform_owner=True)
    user = await add_account(ports, "end-user@example.com", None)
    outsiders = [
        other_tenant.token("owner"),
        (await sign_in(ports, stranger)).access_token,
        (await sign_in(ports, platform_owner)).access_token,
        (await sign_in_to(ports, pool, shop.service, user)).access_token,
    ]
    for report in (*RANGED, "recent-logins"):
        path = f"{tenant.path}/analytics/{report}"
        for name in CAST:
            assert (await shop.request(report, name)).json == []
        token = await impersonate(ports, platform_owner, tenant.people["member"])
        assert (await tenant.api.get(path, token=token)).status == 200
        for token in outsiders:
            for query in ("", "?start_date=x&limit=x"):  # refused before the query is checked
                assert refused(await tenant.api.get(path + query, token=token)) == FORBIDDEN
        assert refused(await tenant.api.get(path)) == (401, "UNAUTHORIZED")
        assert refused(await tenant.api.get(path.replace("acme", "unknown"), token=tenant.token("owner"))) == MISSING


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_inactive_organizations_get_no_analytics(shop: Shop, status: str) -> None:
    await shop.tenant.set_status(status)
    for report in (*RANGED, "recent-logins"):
        assert refused(await shop.request(report)) == NOT_ACTIVE
    assert refused(await shop.of_service()) == NOT_ACTIVE


# Figures


async def test_only_logins_to_services_are_counted(shop: Shop, api: Api, ports: Ports, clock: FakeClock) -> None:
    account = await add_account(ports)
    body = {"email": account.email, "password": PASSWORD}
    assert (await api.post("/api/auth/login", body)).status == 200
    assert (await api.post("/api/auth/login", {**body, "password": "wrong"})).status == 401
    assert (await api.post("/api/auth/login", {**body, "org_slug": "acme", "service_slug": "shop"})).status == 200
    assert await shop.read("login-trends") == [{"date": "2026-03-14", "count": 1}]
    assert await shop.read("logins-by-service") == [{"service_id": str(shop.service), "service_name": "Shop", "count": 1}]
    assert await shop.read("logins-by-provider") == []
    [login] = await shop.read("recent-logins")
    assert login == {
        "id": str(UUID(login["id"])),
        "user_id": str(account.id),
        "service_id": str(shop.service),
        "provider": "password",
        "created_at": "2026-03-14T15:09:26.535897Z",
    }


async def test_counts_by_provider_contain_only_the_three_providers(shop: Shop) -> None:
    other = await add_service(shop.tenant.pool, shop.tenant.org, "other")
    today = at("2026-03-14")
    await shop.logins(today, today, provider="password")
    await shop.logins(today, provider="saml")
    await shop.logins(today, today, provider="websuite", to=other)
    await shop.logins(today, provider="codehost")
    assert await shop.read("login-trends") == [{"date": "2026-03-14", "count": 6}]
    assert await shop.read("logins-by-service") == [
        {"service_id": str(shop.service), "service_name": "Shop", "count": 4},
        {"service_id": str(other), "service_name": "Other", "count": 2},
    ]
    assert await shop.read("logins-by-provider") == [{"provider": "websuite", "count": 2}, {"provider": "codehost", "count": 1}]
    assert {login["provider"] for login in await shop.read("recent-logins")} == {"password", "saml", "websuite", "codehost"}


async def test_logins_of_other_organizations_are_not_counted(shop: Shop, foreign: Shop) -> None:
    await foreign.logins(at("2026-03-14"), provider="codehost")
    for report in (*RANGED, "recent-logins"):
        assert await shop.read(report) == []
        assert len(await foreign.read(report)) == 1
        assert await shop.read(f"{report}?service_id={foreign.service}&org_id={foreign.tenant.org}") == []
    assert (await shop.of_service(f"?service_id={foreign.service}")).json["total_logins"] == 0
    assert (await foreign.of_service()).json["total_logins"] == 1


async def test_the_logins_of_a_deleted_service_are_not_counted(shop: Shop, api: Api) -> None:
    await shop.logins(at("2026-03-14"), provider="codehost")
    answer = await api.delete(f"{shop.tenant.path}/services/shop", token=shop.tenant.token("owner"))
    assert answer.status == 204
    for report in (*RANGED, "recent-logins"):
        assert await shop.read(report) == []


# Ranges


async def test_a_range_has_days_in_utc_and_includes_both_ends(shop: Shop) -> None:
    for day in ("2026-03-09", "2026-03-10", "2026-03-11", "2026-03-12"):
        await shop.logins(at(day, "00:00:00"), at(day, "23:59:59.999999"), provider="codehost")

    async def counts(query: str) -> dict[str, int]:
        trends = {one["date"]: one["count"] for one in await shop.read(f"login-trends{query}")}
        [provider] = await shop.read(f"logins-by-provider{query}") or [{"count": 0}]
        [service] = await shop.read(f"logins-by-service{query}") or [{"count": 0}]
        assert provider["count"] == service["count"] == sum(trends.values())
        assert list(trends) == sorted(trends)
        return trends

    assert await counts("?start_date=2026-03-10&end_date=2026-03-11") == {"2026-03-10": 2, "2026-03-11": 2}
    assert await counts("?start_date=2026-03-12&end_date=2026-03-12") == {"2026-03-12": 2}
    assert await counts("?start_date=2026-03-13&end_date=2026-03-13") == {}
    assert len(await counts("?start_date=0001-01-01&end_date=9999-12-31")) == 4
    assert len(await counts("?start_date=2026-03-11")) == 2
    assert len(await counts("?end_date=2026-03-11")) == 3
    assert await counts("?end_date=0001-01-01") == {}


async def test_the_default_range_ends_today_and_starts_30_days_before_its_end(shop: Shop, clock: FakeClock) -> None:
    clock.advance(timedelta(hours=8, minutes=50, seconds=33))  # a minute before midnight in UTC
    await shop.tenant.sign_in("owner")
    days = ["2025-12-31", "2026-01-01", "2026-01-31", "2026-02-11", "2026-02-12", "2026-03-14", "2026-03-15"]
    await shop.logins(*[at(day) for day in days])

    async def counts(query: str = "") -> list[str]:
        return [one["date"] for one in await shop.read(f"login-trends{query}")]

    assert await counts() == ["2026-02-12", "2026-03-14"]
    assert await counts("?end_date=2026-01-31") == ["2026-01-01", "2026-01-31"]
    assert await counts("?start_date=2026-01-31") == ["2026-01-31", "2026-02-11", "2026-02-12", "2026-03-14"]
    clock.advance(timedelta(minutes=1))
    assert await counts() == ["2026-03-14", "2026-03-15"]


INVALID_RANGES = [
    "?start_date=2026-03-11&end_date=2026-03-10",
    "?start_date=2026-03-15",  # after today
    "?start_date=",
    "?end_date=",
    "?start_date=2026-3-1",
    "?start_date=20260301",
    "?start_date=2026-02-29",
    "?start_date=2026-03-01T00:00:00Z",
    "?end_date=0000-01-01",
    "?end_date=10000-01-01",
    "?end_date=today",
    "?end_date=%D9%A2026-01-01",
    "?end_date=2026-W11-1",
]


async def test_invalid_ranges_are_refused(shop: Shop) -> None:
    findings = []
    for query in INVALID_RANGES:
        answers = [refused(await shop.request(path + query)) for path in RANGED] + [refused(await shop.of_service(query))]
        if set(answers) != {BAD}:
            findings.append((query, answers))
    assert findings == []


# Recent logins


async def test_recent_logins_are_newest_first_up_to_the_limit(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_analytics, "RECENT_LOGINS_BATCH", 4)
    times = [at("2026-03-14") - number * timedelta(hours=7) for number in range(13)]
    await shop.logins(*times)
    newest = [time.isoformat().replace("+00:00", "Z") for time in times]
    for query, count in {
        "": 10,
        "?limit=1": 1,
        "?limit=4": 4,
        "?limit=5": 5,
        "?limit=12": 12,
        "?limit=1000": 13,
        f"?limit={10**30}": 13,
        "?limit=0": 1,
        "?limit=-5": 1,
    }.items():
        assert [login["created_at"] for login in await shop.read(f"recent-logins{query}")] == newest[:count], query
    for query in ("?limit=", "?limit=x", "?limit=1.5", "?limit=1e3", "?limit=true"):
        assert refused(await shop.request(f"recent-logins{query}")) == BAD, query


async def test_without_logins_the_list_of_recent_logins_is_empty(shop: Shop, api: Api) -> None:
    answer = await shop.request("recent-logins")
    assert (answer.status, answer.text, answer.headers["Content-Type"]) == (200, "[]", "application/json")
    head = await api.call("HEAD", f"{shop.tenant.path}/analytics/recent-logins", token=shop.tenant.token("owner"))
    assert (head.status, head.text) == (200, "")


# API keys


async def test_an_api_key_reads_the_usage_of_its_service(shop: Shop, foreign: Shop, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    other = await add_service(pool, shop.tenant.org, "other")
    now = clock.now()
    await shop.logins(now, now - DAY, now - 60 * DAY, provider="websuite")
    await shop.logins(now, provider="saml")
    await shop.logins(now, provider="codehost", to=other)
    await foreign.logins(now, provider="codehost")
    plan = await add_plan(pool, shop.service)
    for number, (status, ends) in enumerate([("active", now + DAY), ("active", now), ("past_due", now), ("cancelled", now + DAY)]):
        user = await add_account(ports, f"{number}@example.com", None)
        await add_service_user(ports, shop.service, user.id, signed_in=number == 0)
        await add_subscription(ports, pool, shop.service, user.id, plan, status, ends=ends)
    await run_sql(pool, "update service_users set created_at = created_at - interval '31 days' where user_id = %s", shop.user)
    answer = await shop.of_service()
    assert answer.status == 200
    assert answer.json == {
        "total_users": 5,
        "new_users_30d": 4,
        "active_users_30d": 2,
        "total_logins": 4,
        "login_trends": [{"date": "2026-03-13", "count": 1}, {"date": "2026-03-14", "count": 2}],
        "logins_by_provider": [{"provider": "websuite", "count": 2}],
        "subscriptions_by_status": {"active": 1, "cancelled": 1, "expired": 1, "past_due": 1},
    }
    narrower = (await shop.of_service("?start_date=2026-01-01&end_date=2026-03-13")).json
    assert narrower == answer.json | {
        "login_trends": [{"date": "2026-01-13", "count": 1}, {"date": "2026-03-13", "count": 1}],
        "logins_by_provider": [{"provider": "websuite", "count": 2}],
    }


async def test_a_service_without_users_has_zero_figures(acme: Tenant, api: Api, pool: Pool) -> None:
    key = await add_api_key(pool, await add_service(pool, acme.org))
    assert (await api.get("/api/service/analytics", headers={"X-Api-Key": key})).json == {
        "total_users": 0,
        "new_users_30d": 0,
        "active_users_30d": 0,
        "total_logins": 0,
        "login_trends": [],
        "logins_by_provider": [],
        "subscriptions_by_status": {"active": 0, "cancelled": 0, "expired": 0, "past_due": 0},
    }


async def test_service_analytics_require_the_permission_to_read_analytics(shop: Shop, api: Api, pool: Pool) -> None:
    without = await add_api_key(pool, shop.service, set(Permission) - {Permission.READ_ANALYTICS})
    assert refused(await api.get("/api/service/analytics?end_date=x", headers={"X-Api-Key": without})) == FORBIDDEN
    assert (await shop.of_service()).status == 200  # this permission alone is enough
    assert refused(await api.get(f"{shop.tenant.path}/analytics/login-trends", headers={"X-Api-Key": shop.key})) == (401, "UNAUTHORIZED")
