"""The overview page and the password (security A-8, Y-1)."""

import json
import re

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.accounts.api.account_pages.paths import EXPORT, PASSWORD_PAGE, SECURITY, SESSIONS, next_page_text, page_text
from tests.support.browser import ACCOUNT, HOME, FakeBrowser, form_token, leads_to, set_cookies
from tests.support.builders import EMAIL, NEW_PASSWORD, PASSWORD, Api, run_sql, sign_in
from tests.support.mfa import add_mfa


async def test_the_overview_shows_the_state_of_the_account(browser: FakeBrowser, ports: Ports, user: Account, pool: Pool) -> None:
    overview, page = [page_text(await browser.open(path)) for path in (ACCOUNT, SECURITY)]
    assert f"{EMAIL} verified" in overview
    assert "off Two-factor authentication" in overview
    for part in (
        "You sign in with a password.",
        "off You sign in with a password alone.",
        "signed in from 1 device.",
        "signed in only here",
    ):
        assert part in page
    await add_mfa(ports, user)
    await sign_in(ports, user)
    await run_sql(pool, "update users set password_hash = null, email_verified_at = null")
    overview, page = [page_text(await browser.open(path)) for path in (ACCOUNT, SECURITY)]
    assert f"{EMAIL} not verified" in overview
    assert "on Two-factor authentication" in overview
    for part in (
        "You don't have a password yet.",
        "on since 14 March 2026",
        "You have 2 sessions, including this one.",
    ):
        assert part in page


async def test_a_notice_is_shown_once(browser: FakeBrowser) -> None:
    answer = await browser.submit(f"{SESSIONS}/end-others", SECURITY)
    cookie = set_cookies(answer)["gatehouse-notice"]
    assert (cookie.value, cookie["httponly"], cookie["samesite"]) == ("other-sessions-ended", True, "Lax")
    assert "All other sessions ended." in page_text(await browser.open(SECURITY))
    assert "All other sessions ended." not in page_text(await browser.open(SECURITY))


@pytest.mark.parametrize("name", ["<b>x</b>", "You owe us money", "__class__", ""])
async def test_an_unknown_notice_is_not_shown(browser: FakeBrowser, name: str) -> None:
    browser.cookies["gatehouse-notice"] = name
    page = await browser.open(ACCOUNT)
    assert page.status == 200
    assert 'role="status"' not in page.text


async def test_the_export_is_downloaded_as_a_file(browser: FakeBrowser, api: Api, ports: Ports, user: Account) -> None:
    answer = await browser.submit(EXPORT)
    assert answer.status == 200
    assert answer.headers["Content-Disposition"] == 'attachment; filename="gatehouse-export.json"'
    assert answer.headers["Cache-Control"] == "no-store"
    token = (await sign_in(ports, user)).access_token
    assert json.loads(answer.text) == (await api.get(f"/api/privacy/export/{user.id}", token=token)).json
    assert json.loads(answer.text)["email"] == EMAIL


# The password


async def test_a_password_change_ends_all_other_sessions(
    browser: FakeBrowser, user: Account, app: QuartTrio, pool: Pool, ports: Ports
) -> None:
    await sign_in(ports, user)
    answer = await browser.submit(PASSWORD_PAGE, PASSWORD_PAGE, current_password=PASSWORD, new_password=NEW_PASSWORD)
    assert "Password updated." in await next_page_text(browser, answer)
    assert await run_sql(pool, "select count(*) from sessions where ended_at is null") == [(1,)]
    other = FakeBrowser(app)
    assert (await other.sign_in()).status == 401
    assert leads_to(await other.sign_in(password=NEW_PASSWORD)) == HOME


@pytest.mark.parametrize(
    ("current", "new", "status", "wrong"),
    [
        ("not it", NEW_PASSWORD, 401, "current_password"),
        (PASSWORD, "short", 400, "new_password"),
        (PASSWORD, "x" * 129, 400, "new_password"),
    ],
)
async def test_a_refused_password_is_explained_at_its_field(browser: FakeBrowser, current: str, new: str, status: int, wrong: str) -> None:
    answer = await browser.submit(PASSWORD_PAGE, PASSWORD_PAGE, current_password=current, new_password=new)
    assert answer.status == status
    [marked] = re.findall(r'<input id="(\w+)"[^>]*aria-invalid="true"', answer.text)
    assert marked == wrong
    assert current not in answer.text
    assert new not in answer.text


async def test_setting_a_first_password_ends_no_session(browser: FakeBrowser, pool: Pool, ports: Ports, user: Account) -> None:
    await run_sql(pool, "update users set password_hash = null")
    await sign_in(ports, user)
    page = await browser.open(PASSWORD_PAGE)
    assert "<h1>Set a password</h1>" in page.text
    assert 'name="current_password"' not in page.text
    answer = await browser.send(PASSWORD_PAGE, form_token=form_token(page), new_password=NEW_PASSWORD)
    assert "Password set." in await next_page_text(browser, answer)
    assert await run_sql(pool, "select count(*) from sessions where ended_at is null") == [(2,)]


async def test_an_outdated_password_form_redirects_to_the_current_one(browser: FakeBrowser, pool: Pool) -> None:
    assert leads_to(await browser.submit(PASSWORD_PAGE, PASSWORD_PAGE, new_password=NEW_PASSWORD)) == PASSWORD_PAGE
    await run_sql(pool, "update users set password_hash = null")
    answer = await browser.submit(PASSWORD_PAGE, PASSWORD_PAGE, current_password=PASSWORD, new_password=NEW_PASSWORD)
    assert leads_to(answer) == PASSWORD_PAGE
