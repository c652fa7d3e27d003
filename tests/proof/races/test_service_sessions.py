"""Concurrent logins and refreshes at a service."""

import pytest

from tests.authentication.api.service_sessions.shop import Shop, open_shop
from tests.support.builders import add_account, run_concurrently, run_sql
from tests.support.services import add_service
from tests.support.tenants import Tenant, Tenants


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    return await open_shop(acme)


@pytest.mark.slow
async def test_twenty_concurrent_first_logins_make_one_end_user(shop: Shop) -> None:
    pool = shop.tenant.pool
    answers = await run_concurrently(20, lambda _: shop.login())
    # At most as many attempts as the limit run at the same time; the rest must wait.
    assert {answer.status for answer in answers} <= {200, 429}
    pairs = [answer.json for answer in answers if answer.status == 200]
    assert len(pairs) >= 10
    assert await run_sql(pool, "select count(*) from service_users") == [(1,)]
    assert await run_sql(pool, "select count(*) from end_users") == [(1,)]
    assert await run_sql(pool, "select user_count from services") == [(1,)]
    assert await run_sql(pool, "select total from end_user_totals") == [(1,)]
    assert await run_sql(pool, "select sum(total) from login_totals") == [(len(pairs),)]
    assert await run_sql(pool, "select count(*) from login_events where success and service_id = %s", shop.id) == [(len(pairs),)]
    assert [(await shop.profile(pair)).status for pair in pairs] == [200] * len(pairs)


@pytest.mark.slow
async def test_twenty_concurrent_users_make_twenty_end_users(shop: Shop, tenants: Tenants) -> None:
    people = [await add_account(tenants.ports, f"person-{number}@example.com") for number in range(20)]
    await add_service(tenants.pool, shop.tenant.org, "wiki")
    answers = await run_concurrently(20, lambda number: shop.login(service=("shop", "wiki")[number % 2], email=people[number].email))
    assert [answer.status for answer in answers] == [200] * 20
    assert await run_sql(tenants.pool, "select user_count from services") == [(10,), (10,)]
    assert await run_sql(tenants.pool, "select total from end_user_totals") == [(20,)]
    assert await run_sql(tenants.pool, "select sum(total) from login_totals") == [(20,)]


@pytest.mark.slow
async def test_of_twenty_concurrent_refreshes_with_one_token_one_succeeds(shop: Shop) -> None:
    first = await shop.tokens()
    answers = await run_concurrently(20, lambda _: shop.refresh(first))
    assert sorted(answer.status for answer in answers) == [200] + [401] * 19
    [winner] = [answer.json for answer in answers if answer.status == 200]
    assert (await shop.refresh(winner)).status == 200
