"""Figures for charts: the numbers, which agree with the analytics (decisions 220, 233, 234, 235, 450)."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.applications import figures
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import PASSWORD, Api, add_account, add_member, run_concurrently, run_sql
from tests.support.services import add_login, add_service, add_service_user
from tests.support.tenants import Tenant

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
TABLES = ("sign_in_figures", "user_figures", "population_figures", "traffic_figures")


async def read(tenant: Tenant, path: str, by: str = "owner") -> Any:
    answer = await tenant.api.get(f"{tenant.path}/analytics/{path}", token=tenant.token(by))
    assert answer.status == 200, answer.text
    return answer.json


async def sums(tenant: Tenant, query: str = "", by: str = "owner") -> dict[str, dict[str, int]]:
    """Return the sign-in sums by result, by method and by application."""
    answer = await read(tenant, f"sign-ins{query}", by)
    return {
        "by_result": {each["name"]: sum(each["counts"]) for each in answer["by_result"] or ()},
        "by_method": {each["name"]: sum(each["counts"]) for each in answer["by_method"]},
        "by_application": {each["service_name"] or str(each["is_platform"]): sum(each["counts"]) for each in answer["by_application"]},
    }


async def count(ports: Ports) -> dict[str, int] | None:
    return await figures.count(ports, new_id())


@pytest.fixture
async def shop(acme: Tenant) -> Any:
    return await add_service(acme.pool, acme.org, "shop")


async def sign_in_variously(api: Api, acme: Tenant, clock: FakeClock) -> None:
    """Sign in a member and two users with and without an application, over some days and by several methods, and fail, too."""
    other = await add_service(acme.pool, acme.org, "other")
    member, user = await add_account(acme.ports, "both@example.com"), await add_account(acme.ports, "user@example.com")
    await add_member(acme.pool, acme.org, member.id, confirmed=True)
    to_shop = {"org_slug": "acme", "service_slug": "shop"}
    clock.advance(-2 * DAY)
    await run_sql(acme.pool, "update memberships set confirmed_at = %s where user_id = %s", clock.now(), member.id)
    for day in range(3):
        for email in ("both@example.com", "user@example.com"):
            assert (await api.login(email)).status == 200
            assert (await api.post("/api/auth/login", {"email": email, "password": PASSWORD, **to_shop})).status == 200
        assert (await api.post("/api/auth/login", {"email": user.email, "password": "wrong", **to_shop})).status == 401
        await add_login(acme.ports, acme.pool, other, user.id, ("websuite", "saml", "codehost")[day])
        clock.advance(DAY * (day < 2))


async def test_charts_and_analytics_agree(api: Api, acme: Tenant, shop: Any, clock: FakeClock) -> None:
    await sign_in_variously(api, acme, clock)
    await count(acme.ports)
    for range_, days in (("7d", 7), ("30d", 30), ("90d", 90)):
        figures_ = await read(acme, f"sign-ins?range={range_}")
        starts = [datetime.fromisoformat(start).date().isoformat() for start in figures_["starts"]]
        assert (figures_["unit"], len(starts)) == ("day", days)
        query = f"?start_date={starts[0]}&end_date={starts[-1]}"
        by_day = {each["date"]: each["count"] for each in await read(acme, f"login-trends{query}")}
        for group in ("by_method", "by_application"):
            assert [sum(numbers) for numbers in zip(*(each["counts"] for each in figures_[group]), strict=True)] == [
                by_day.get(start, 0) for start in starts
            ]
        [success] = [each["counts"] for each in figures_["by_result"] if each["name"] == "success"]
        assert success == [by_day.get(start, 0) for start in starts]
        by_service = {each["service_name"]: each["count"] for each in await read(acme, f"logins-by-service{query}")}
        assert {each["service_name"]: sum(each["counts"]) for each in figures_["by_application"] if each["service_id"]} == by_service
        by_provider = {each["provider"]: each["count"] for each in await read(acme, f"logins-by-provider{query}")}
        assert by_provider == {"websuite": 1, "codehost": 1}
        assert {each["name"]: sum(each["counts"]) for each in figures_["by_method"] if each["name"] in by_provider} == by_provider


async def test_the_hours_of_a_day_add_up_to_the_day(api: Api, acme: Tenant, shop: Any, clock: FakeClock) -> None:
    await sign_in_variously(api, acme, clock)
    await count(acme.ports)
    figures_ = await read(acme, "sign-ins?range=24h")
    assert (figures_["unit"], len(figures_["starts"])) == ("hour", 24)
    today = clock.now().date().isoformat()
    expected = await sums(acme, "?range=24h")
    [trend] = await read(acme, f"login-trends?start_date={today}&end_date={today}")
    assert expected["by_result"] == {"success": trend["count"], "credentials": 1}
    assert sum(expected["by_method"].values()) == sum(expected["by_application"].values()) == trend["count"]
    assert expected["by_application"] == {"Shop": 2, "Other": 1, "True": 1}


async def test_counting_again_and_at_once_changes_nothing(api: Api, ports: Ports, acme: Tenant, shop: Any, clock: FakeClock) -> None:
    await sign_in_variously(api, acme, clock)

    async def rows() -> list[Any]:
        return [await run_sql(acme.pool, f"select * from {table} order by {table}::text") for table in TABLES]  # noqa: S608

    await count(ports)
    first = await rows()
    assert first[0]
    assert first[1]
    answers = await run_concurrently(3, lambda _: count(ports))
    assert await rows() == first
    assert None in answers or {} in answers


async def test_after_an_outage_the_missing_hours_are_counted(api: Api, ports: Ports, acme: Tenant, shop: Any, clock: FakeClock) -> None:
    """The mark moves only over hours that are final, and a sign-in that is stored late counts."""
    user = (await add_account(ports, "user@example.com")).id
    clock.advance(-40 * HOUR)
    start = clock.now()
    await count(ports)
    for hours in (0, 1, 30, 31):
        await add_login(ports, acme.pool, shop, user, at=start + hours * HOUR)
    clock.advance(40 * HOUR)
    await count(ports)
    assert sum((await read(acme, "users?range=7d"))["active"]) == 3  # days
    platform = await run_sql(
        acme.pool, "select sum(total)::int from sign_in_figures where org_id = '00000000-0000-0000-0000-000000000000' and span = 'day'"
    )
    assert platform == [(4,)]
    # The present hour, because the previous hour's sign-ins are final.
    present = clock.now().replace(minute=0, second=0, microsecond=0)
    assert await run_sql(acme.pool, "select counted_until from figure_progress") == [(present,)]


async def test_users_count_once_a_day_and_once_a_week(ports: Ports, acme: Tenant, shop: Any, clock: FakeClock) -> None:
    """14 March 2026 is a Saturday."""
    now = clock.now()
    ada, eve = [(await add_account(ports, f"{name}@example.com")).id for name in ("ada", "eve")]
    await add_member(acme.pool, acme.org, eve, confirmed=True)
    await run_sql(acme.pool, "update memberships set confirmed_at = %s where user_id = %s", now - 30 * DAY, eve)
    for user in (ada, eve):
        await add_service_user(ports, shop, user)
    await run_sql(acme.pool, "update service_users set first_login_at = %s where user_id = %s", now - DAY, ada)
    for hours in (0, 1, 5, 24, 30, 7 * 24):
        await add_login(ports, acme.pool, shop, ada, at=now - hours * HOUR)
    await add_login(ports, acme.pool, shop, eve, at=now - 2 * HOUR)
    await count(ports)
    users = await read(acme, "users?range=30d")
    assert users["active"][-9:] == [0, 1, 0, 0, 0, 0, 0, 1, 2]
    assert users["new"][-2:] == [1, 0]
    assert [(week["monday"], week["active"]) for week in users["weeks"][-2:]] == [("2026-03-02", 1), ("2026-03-09", 2)]
    assert sum((await read(acme, "users?range=24h"))["active"]) >= 4  # every hour alone


async def test_second_factors_are_only_shown_to_admins(ports: Ports, acme: Tenant) -> None:
    await run_sql(acme.pool, "update memberships set confirmed_at = created_at")
    await run_sql(acme.pool, "update users set mfa_enabled_at = created_at where id = %s", acme.people["admin"].id)
    await run_sql(
        acme.pool, "update users set passkey_second_at = created_at, security_key_count = 1 where id = %s", acme.people["owner"].id
    )
    await run_sql(acme.pool, "update users set passkey_count = 1 where id = %s", acme.people["member"].id)
    await count(ports)
    [population] = (await read(acme, "users", "admin"))["populations"]
    assert (population["users"], population["second_factor"], population["organizations"]) == (len(acme.people), 2, None)
    assert population["password_alone"] == 0, "the accounts have no password"
    assert population["passkeys"] == 1, "a security key signs in nobody alone"
    assert (await read(acme, "users", "member"))["populations"] is None
    assert (await read(acme, "sign-ins", "member"))["by_result"] is None
    await run_sql(acme.pool, "update users set mfa_enabled_at = created_at")
    await count(ports)  # at most once an hour
    assert (await read(acme, "users", "admin"))["populations"] == [population]


async def test_old_figures_are_deleted(ports: Ports, acme: Tenant, shop: Any, clock: FakeClock) -> None:
    user = (await add_account(ports, "user@example.com")).id
    await add_login(ports, acme.pool, shop, user)
    await count(ports)
    clock.advance(3 * DAY)
    await count(ports)  # counts the hours from three days ago, and the next run deletes them
    clock.advance(HOUR)
    await count(ports)
    for table in ("sign_in_figures", "user_figures"):
        assert await run_sql(acme.pool, f"select distinct span from {table}") == [("day",)]  # noqa: S608
    clock.advance(99 * DAY)
    await count(ports)
    assert await run_sql(acme.pool, "select count(*) from sign_in_figures") == [(0,)]
    assert await run_sql(acme.pool, "select count(*) from user_figures") == [(0,)]
    assert await run_sql(acme.pool, "select count(distinct day) from population_figures") == [(1,)]


async def test_figures_have_no_personal_data_and_those_of_a_deleted_application_are_gone(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, shop: Any, clock: FakeClock
) -> None:
    await sign_in_variously(api, acme, clock)
    await count(ports)
    [(user,)] = await run_sql(pool, "select id from users where email = 'user@example.com'")
    for table in TABLES:
        rows = str(await run_sql(pool, f"select * from {table}"))  # noqa: S608
        assert str(user) not in rows
        assert "example.com" not in rows
    assert (await acme.api.delete(f"{acme.path}/services/shop", token=acme.token("owner"))).status in {200, 204}
    assert await run_sql(pool, "select count(*) from sign_in_figures where service_id = %s", shop) == [(0,)]
    await count(ports)
    assert "Shop" not in (await sums(acme))["by_application"]
    assert await run_sql(pool, "select count(*) from sign_in_figures where service_id = %s", shop) == [(0,)]


async def test_a_chart_has_five_applications_and_all_others_together(ports: Ports, acme: Tenant) -> None:
    user = (await add_account(ports, "user@example.com")).id
    for number in range(1, 8):
        service = await add_service(acme.pool, acme.org, f"app-{number}")
        for _ in range(number):
            await add_login(ports, acme.pool, service, user)
    await count(ports)
    for range_ in ("24h", "30d"):
        applications = (await read(acme, f"sign-ins?range={range_}"))["by_application"]
        assert [sum(each["counts"]) for each in applications] == [7, 6, 5, 4, 3, 2 + 1]
        assert [each["service_id"] is None for each in applications] == [False] * 5 + [True]
        assert not any(each["is_platform"] for each in applications)
