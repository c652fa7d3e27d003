"""The analytics pages: ranges, empty states, hostile names, and every role's view."""

import re
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.applications import figures
from core.kernel.roles import MEMBER
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser
from tests.support.builders import add_account, run_sql
from tests.support.services import add_login, add_service, add_service_user

ROOT = "/app/organizations/acme/analytics"
PLATFORM = "/app/platform/analytics"
PAGES = ("", "/users", "/webhook-attempts", "/scim-requests")
RANGES = ("24h", "7d", "30d", "90d")
HOSTILE = '"><script>alert(1)</script>' + "x" * 60
LARGEST = 100_000  # bytes


async def fill(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    """On each of 90 days, add sign-ins to seven applications with hostile names, and traffic and members with large numbers."""
    ((org,),) = await run_sql(pool, "select org_id from memberships")
    user = (await add_account(ports, "user@example.com")).id
    for number in range(7):
        service = await add_service(pool, org, f"shop-{number}")
        await add_service_user(ports, service, user)
        await add_login(ports, pool, service, user)
        await run_sql(pool, "update services set name = %s where id = %s", f"{number}{HOSTILE}", service)
    await run_sql(
        pool,
        """
        insert into login_totals (org_id, service_id, day, provider, shard, total)
        select v.org_id, v.id, (%s::timestamptz - n * interval '1 day')::date, m, 9, 123456
        from services v, generate_series(0, 90) n, unnest(array['password', 'email', 'saml', 'websuite', 'codehost', 'passkey', 'x']) m""",
        clock.now(),
    )
    await figures.count(ports, new_id())
    times = "unnest(array['hour', 'day']) span cross join lateral (select date_trunc(span, %s::timestamptz, 'UTC') - n * ('1 ' || span)::interval as start from generate_series(0, 97) n) t"  # noqa: E501
    for owner in (org, UUID(int=0)):
        for sql in (
            f"""
            insert into sign_in_figures (org_id, span, start, service_id, method, result, total)
            select %s, span, start, %s, 'password', r, 123456
            from {times}, unnest(array['credentials', 'mfa', 'locked', 'access', 'saml', 'provider', 'closed', 'directory']) r""",  # noqa: S608
            f"""
            insert into user_figures (org_id, span, start, active, first_of_day, first_of_week, new_users)
            select %s, span, start, 123456, 123456, 123456, 23456 from {times} where %s::uuid is not null on conflict do nothing""",  # noqa: S608
            f"""
            insert into population_figures (org_id, day, counted_at, users, second_factor, passkeys, password_alone, organizations)
            select %s, start::date, start, 1234567, 123456, 1234, 1234, 1234 from {times} where span = 'day' and %s::uuid is not null
            on conflict do nothing""",  # noqa: S608
            f"""
            insert into traffic_figures (org_id, kind, span, start, outcome, total, milliseconds, slowest)
            select %s, o.kind, span, start, o.outcome, 123456, 123456789, 30000
            from {times}, (values ('webhook', 'delivered'), ('webhook', 'failed'), ('scim', 'accepted'), ('scim', 'refused'),
                                  ('scim', 'failed')) o (kind, outcome) where %s::uuid is not null""",  # noqa: S608
        ):
            values: tuple[Any, ...] = (owner, owner, clock.now()) if "sign_in_figures" in sql else (owner, clock.now(), owner)
            await run_sql(pool, sql, *values)


async def check(browser: FakeBrowser, path: str) -> None:
    page = await browser.open(path)
    assert page.status == 200, path
    assert len(page.text.encode()) < LARGEST, (path, len(page.text))
    assert "<script>alert" not in page.text
    assert page.text.count('<svg class="chart"') == page.text.count("Show as a table"), path
    assert page.text.count('<svg class="chart"') > 0, path


@pytest.mark.slow
async def test_each_page_has_charts_with_tables_and_is_small_with_hostile_names_and_large_numbers(
    owner_browser: FakeBrowser, browser: FakeBrowser, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    await fill(ports, pool, clock)
    owner = await add_account(ports, "steward@platform.example", is_platform_owner=True)
    await browser.sign_in(owner.email)
    for range_ in RANGES:
        for page in PAGES:
            await check(owner_browser, f"{ROOT}{page}?range={range_}")
            await check(browser, f"{PLATFORM}{page}?range={range_}")
    await check(owner_browser, "/app/organizations/acme")
    await check(browser, "/app/platform")


async def test_the_first_steps_are_shown_until_a_user_signs_in_to_an_application(
    owner_browser: FakeBrowser, ports: Ports, pool: Pool
) -> None:
    [(org, owner)] = await run_sql(pool, "select org_id, user_id from memberships")
    assert "What are you connecting?" in (await owner_browser.open("/app/organizations/acme")).text
    service = await add_service(pool, org)
    assert "Sign in to it" in (await owner_browser.open("/app/organizations/acme")).text, "the owner's own sign-in does not count"
    await add_login(ports, pool, service, owner)
    assert "Get started" not in (await owner_browser.open("/app/organizations/acme")).text


async def test_the_overview_says_that_active_users_are_counted_later(owner_browser: FakeBrowser, ports: Ports, pool: Pool) -> None:
    note = "Counted every few minutes"
    [(org, owner)] = await run_sql(pool, "select org_id, user_id from memberships")
    assert note in (await owner_browser.open("/app/organizations/acme")).text, "the owner's sign-in is among those of 30 days"
    await add_login(ports, pool, await add_service(pool, org), owner)
    await figures.count(ports, new_id())
    assert note not in (await owner_browser.open("/app/organizations/acme")).text
    await run_sql(pool, "delete from user_figures")
    await run_sql(pool, "delete from login_totals")
    await run_sql(pool, "delete from member_login_totals")
    assert note not in (await owner_browser.open("/app/organizations/acme")).text, "without sign-ins, 0 is right"


async def test_the_empty_pages_say_what_to_do(owner_browser: FakeBrowser, pool: Pool) -> None:
    await run_sql(pool, "delete from member_login_totals")
    for page, step in zip(PAGES, ("/applications", "/applications", "/webhooks", "/directory"), strict=True):
        text = (await owner_browser.open(f"{ROOT}{page}")).text.replace("\n", "")
        assert re.search(rf'<div class="empty"><p>[^<]+</p><a class="button" href="/app/organizations/acme{step}">', text)
        assert '<svg class="chart"' not in text


async def test_members_see_no_failures_and_no_second_factors(
    owner_browser: FakeBrowser, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    await fill(ports, pool, clock)
    assert "Sign-ins by result" in (await owner_browser.open(ROOT)).text
    assert "With a second factor" in (await owner_browser.open(f"{ROOT}/users")).text
    await run_sql(pool, "update memberships set role = %s", MEMBER)
    sign_ins, users = (await owner_browser.open(ROOT)).text, (await owner_browser.open(f"{ROOT}/users")).text
    assert ("Sign-ins by result" in sign_ins, "Sign-ins by method" in sign_ins) == (False, True)
    assert ("second factor" in users, "Active users by day" in users) == (False, True)
    for page in PAGES[2:]:
        assert (await owner_browser.open(f"{ROOT}{page}")).status == 403
        assert f"{ROOT}{page}" not in users


async def test_the_first_sign_in_is_on_the_page_by_day_at_once(owner_browser: FakeBrowser, clock: FakeClock) -> None:
    text = (await owner_browser.open(f"{ROOT}?range=7d")).text
    assert f"{clock.now():%-d %B}: Signed in 1" in text
    clock.advance(timedelta(days=7))
