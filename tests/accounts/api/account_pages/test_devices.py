"""The pages of devices and sessions (security I-4, S-5)."""

import re
from uuid import UUID, uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.accounts.api.account_pages.paths import (
    ALL_SESSIONS,
    DEVICES,
    SECURITY,
    SESSIONS,
    device_of,
    page_text,
    section_of,
    without_markup,
)
from tests.fakes.outside import FakeClock
from tests.support.browser import ACCOUNT, SIGN_IN, FakeBrowser, leads_to
from tests.support.builders import Api, add_account, add_organization, impersonate, run_sql, sign_in
from tests.support.services import add_service


async def test_the_list_marks_the_current_device(browser: FakeBrowser, other_device: tuple[UUID, str], pool: Pool) -> None:
    page = await browser.open(SECURITY)
    current, other = sorted(re.findall(r"<li>(.*?)</li>", section_of(page, "devices"), re.DOTALL), key=lambda row: "this device" not in row)
    assert "Firefox 121.0 on Linux" in current
    assert str(await device_of(pool, "Firefox on Linux")) in current
    assert "this device" not in other
    assert "curl" in other
    assert str(other_device[0]) in other


async def test_a_device_is_shown_and_renamed(browser: FakeBrowser, other_device: tuple[UUID, str], pool: Pool) -> None:
    path = f"{DEVICES}/{other_device[0]}"
    opened = await browser.open(path)
    page = page_text(opened)
    assert 'title="14 March 2026 at ' in opened.text
    for part in ("Type curl 8.5.0 on unknown system", "Last used just now", "Trusted No", "Revoke this device"):
        assert part in page
    answer = await browser.submit(f"{path}/name", path, name="  The <b>script</b> ")
    renamed_page = await browser.open(leads_to(answer))
    assert "Name saved." in page_text(renamed_page)
    assert "<h1>The &lt;b&gt;script&lt;/b&gt;</h1>" in renamed_page.text
    for name in ("", "   ", "x" * 101, "a\x00b", "\u202ex"):
        error_page = await browser.submit(f"{path}/name", path, name=name)
        assert error_page.status == 400
        assert 'aria-invalid="true"' in error_page.text
    assert await run_sql(pool, "select name from devices where id = %s", other_device[0]) == [("The <b>script</b>",)]


async def test_revoking_a_device_ends_its_sessions(browser: FakeBrowser, other_device: tuple[UUID, str], api: Api) -> None:
    device_id, token = other_device
    path = f"{DEVICES}/{device_id}"
    answer = await browser.submit(f"{path}/revoke", path)
    assert leads_to(answer) == SECURITY
    page = await browser.open(SECURITY)
    assert "Device revoked and signed out." in page_text(page)
    assert str(device_id) not in page.text
    assert (await api.get("/api/user", token=token)).status == 401
    assert (await browser.open(path)).status == 404


async def test_the_current_device_cannot_be_revoked(browser: FakeBrowser, pool: Pool) -> None:
    path = f"{DEVICES}/{await device_of(pool, 'Firefox on Linux')}"
    page = await browser.open(path)
    assert "Revoke device" not in page.text
    answer = await browser.submit(f"{path}/revoke", path)
    assert answer.status == 400
    assert await browser.is_in()


async def test_devices_of_other_users_are_refused(browser: FakeBrowser, ports: Ports, app: QuartTrio, pool: Pool) -> None:
    await add_account(ports, "eve@example.com")
    eve = FakeBrowser(app)
    await eve.sign_in("eve@example.com")
    [(other_session,)] = await run_sql(
        pool, "select d.id from devices d join users u on u.id = d.user_id where u.email = 'eve@example.com'"
    )
    for path in (f"{DEVICES}/{other_session}", f"{DEVICES}/{uuid4()}", f"{DEVICES}/x"):
        expected = 403 if str(other_session) in path else 404
        assert (await browser.open(path)).status == expected
        assert (await browser.submit(f"{path}/name", name="Mine")).status == expected
        assert (await browser.submit(f"{path}/revoke")).status == expected
    assert await eve.is_in()


# Sessions


async def test_the_list_shows_where_each_session_is(
    browser: FakeBrowser, ports: Ports, user: Account, pool: Pool, api: Api, clock: FakeClock
) -> None:
    org = await add_organization(pool, "acme")
    service = await add_service(pool, org, "shop")
    await sign_in(ports, user, org, agent="curl/8.5.0")
    in_service = await sign_in(ports, user)
    await run_sql(pool, "update sessions set service_id = %s, org_id = %s where id = %s", service, org, in_service.session_id)
    owner = await add_account(ports, "owner@platform.example", None, is_platform_owner=True)
    await impersonate(ports, owner, user)
    ended_session = await sign_in(ports, user)
    await run_sql(pool, "update sessions set ended_at = now() where id = %s", ended_session.session_id)
    page = await browser.open(SECURITY)
    rows = [without_markup(row) for row in re.findall(r"<li>(.*?)</li>", section_of(page, "sessions"), re.DOTALL)]
    assert len(rows) == 4
    [current_row] = [row for row in rows if "this session" in row]
    assert current_row.startswith("Your account, in a browser this session Firefox on Linux · 203.0.113.9 Started just now")
    assert 'title="14 March 2026 at ' in page.text
    assert "End" not in current_row
    assert any(row.startswith("Gatehouse, for Acme curl on unknown system") for row in rows)
    assert any(row.startswith("Shop of Acme") for row in rows)
    [support] = [row for row in rows if row.startswith("Platform support")]
    assert "owner" not in page.text
    assert "End the session Platform support" in support
    assert "You have 4 sessions, including this one." in page_text(page)


async def test_one_session_is_ended(browser: FakeBrowser, ports: Ports, user: Account, api: Api) -> None:
    one, other = await sign_in(ports, user), await sign_in(ports, user)
    answer = await browser.submit(f"{SESSIONS}/{one.session_id}/end", SECURITY)
    assert leads_to(answer) == SECURITY
    assert "Session ended." in page_text(await browser.open(SECURITY))
    assert (await api.get("/api/user", token=one.access_token)).status == 401
    assert (await api.post("/api/auth/refresh", {"refresh_token": one.refresh_token})).status == 401
    assert (await api.get("/api/user", token=other.access_token)).status == 200
    assert leads_to(await browser.submit(f"{SESSIONS}/{one.session_id}/end")) == SECURITY, "ending it twice succeeds"
    assert "Session ended." not in page_text(await browser.open(SECURITY))


async def test_the_user_ends_an_impersonation(browser: FakeBrowser, ports: Ports, user: Account, api: Api, pool: Pool) -> None:
    owner = await add_account(ports, "owner@platform.example", None, is_platform_owner=True)
    token = await impersonate(ports, owner, user)
    [(session_id,)] = await run_sql(pool, "select id from sessions where impersonator_id is not null")
    await browser.submit(f"{SESSIONS}/{session_id}/end", SECURITY)
    assert (await api.get("/api/user", token=token)).status == 401


async def test_all_other_sessions_are_ended(browser: FakeBrowser, ports: Ports, user: Account, api: Api) -> None:
    eve = await add_account(ports, "eve@example.com", None)
    other_session = await sign_in(ports, eve)
    other_sessions = [await sign_in(ports, user) for _ in range(2)]
    answer = await browser.submit(f"{SESSIONS}/end-others", SECURITY)
    assert leads_to(answer) == SECURITY
    for one in other_sessions:
        assert (await api.get("/api/user", token=one.access_token)).status == 401
    assert (await api.get("/api/user", token=other_session.access_token)).status == 200
    page = await browser.open(SECURITY)
    assert "End all other sessions" not in page.text


async def test_sessions_of_other_users_cannot_be_ended(browser: FakeBrowser, ports: Ports, api: Api) -> None:
    eve = await add_account(ports, "eve@example.com", None)
    other_session = await sign_in(ports, eve)
    for session_id in (other_session.session_id, uuid4(), "x"):
        assert leads_to(await browser.submit(f"{SESSIONS}/{session_id}/end")) == SECURITY
    assert (await api.get("/api/user", token=other_session.access_token)).status == 200


async def test_ending_the_current_session_signs_out(browser: FakeBrowser, pool: Pool) -> None:
    [(session_id,)] = await run_sql(pool, "select id from sessions")
    assert leads_to(await browser.submit(f"{SESSIONS}/{session_id}/end")) == SIGN_IN
    assert not await browser.is_in()


@pytest.mark.slow
async def test_the_list_shows_at_most_100_sessions(browser: FakeBrowser, ports: Ports, user: Account) -> None:
    for _ in range(104):
        await sign_in(ports, user)
    assert section_of(await browser.open(SECURITY), "sessions").count("<li>") == 5
    pages = [await browser.open(f"{ALL_SESSIONS}&page={number}") for number in (1, 2, 3, 4)]
    ends = [set(re.findall(r"/sessions/[0-9a-f-]+/end", page.text)) for page in pages]
    assert sum(section_of(page, "sessions").count("<li>") for page in pages) == 100
    assert len(set.union(*ends)) == 100 - sum("this session" in page.text for page in pages)
    assert all("Showing the newest 100 of 105 sessions." in page_text(page) for page in pages)


@pytest.mark.parametrize("part", ["two-factor", "devices", "sessions"])
async def test_the_address_of_an_earlier_page_leads_to_its_part_of_the_security_page(browser: FakeBrowser, part: str) -> None:
    target, anchor = leads_to(await browser.open(f"{ACCOUNT}/{part}")).split("#")
    assert (target, anchor) == (SECURITY, part)
    assert f'id="{anchor}"' in (await browser.open(target)).text
