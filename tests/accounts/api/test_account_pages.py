"""The pages of the user's account (decisions 53, 176; security A-8, A-9, G-1, G-2, I-4, M-1, M-5, M-6, S-5, Y-1).

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

import base64
import json
import re
from datetime import timedelta
from html import unescape
from urllib.parse import unquote, urlencode
from uuid import UUID, uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import ACCOUNT, CODE, FORM, HTML, SIGN_IN, FakeBrowser, form_token, leads_to, set_cookies
from tests.support.builders import EMAIL, NEW_PASSWORD, PASSWORD, Answer, Api, add_account, add_organization, impersonate, run_sql, sign_in
from tests.support.direct import ask
from tests.support.mfa import Authenticator, add_mfa
from tests.support.services import add_service

EMAIL_PAGE, PASSWORD_PAGE, TWO_FACTOR = f"{ACCOUNT}/email", f"{ACCOUNT}/password", f"{ACCOUNT}/two-factor"
DEVICES, SESSIONS, EXPORT = f"{ACCOUNT}/devices", f"{ACCOUNT}/sessions", f"{ACCOUNT}/export"
UNKNOWN_ID = "5e0c3a0c-7c1b-4b7e-9d53-2f5e8b0c7a11"
PAGES = [ACCOUNT, EMAIL_PAGE, PASSWORD_PAGE, TWO_FACTOR, DEVICES, SESSIONS]


@pytest.fixture
async def browser(app: QuartTrio, user: Account) -> FakeBrowser:
    """A browser with a session."""
    browser = FakeBrowser(app)
    assert leads_to(await browser.sign_in()) == ACCOUNT
    return browser


def page_text(answer: Answer) -> str:
    """Return the text of a page without its markup."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", answer.text.partition("<main>")[2])).split())


async def next_page_text(browser: FakeBrowser, answer: Answer) -> str:
    """Return the text of the page that a form redirects to."""
    return page_text(await browser.open(leads_to(answer)))


# Forms from elsewhere, and requests without side effects


CHANGES = {
    EXPORT: {},
    EMAIL_PAGE: {"email": "moved@example.com"},
    f"{EMAIL_PAGE}/verification": {},
    PASSWORD_PAGE: {"current_password": PASSWORD, "new_password": NEW_PASSWORD},
    f"{TWO_FACTOR}/setup": {},
    f"{TWO_FACTOR}/confirm": {"code": "123456"},
    f"{TWO_FACTOR}/backup-codes": {},
    f"{TWO_FACTOR}/disable": {},
    f"{DEVICES}/{UNKNOWN_ID}/name": {"name": "Mine"},
    f"{DEVICES}/{UNKNOWN_ID}/revoke": {},
    f"{SESSIONS}/{UNKNOWN_ID}/end": {},
    f"{SESSIONS}/end-others": {},
    "/app/sign-out": {},
}
STATE = """
    select u.email, u.password_hash, u.mfa_enabled_at, (select count(*) from mfa), (select count(*) from mfa_events),
           (select count(*) from mails), (select count(*) from sessions where ended_at is null), (select array_agg(name) from devices),
           (select count(*) from events)
    from users u"""


async def test_a_form_without_a_token_of_this_session_changes_nothing(browser: FakeBrowser, pool: Pool, app: QuartTrio) -> None:
    before = await run_sql(pool, STATE)
    foreign = form_token(await FakeBrowser(app).open(SIGN_IN))
    findings = []
    for path, fields in CHANGES.items():
        for token in ({}, {"form_token": ""}, {"form_token": foreign}, {"form_token": "ü"}):
            answer = await browser.send(path, **fields, **token)
            if answer.status != 403 or "<h1>" not in answer.text:
                findings.append((path, token, answer.status))
    assert findings == []
    assert await run_sql(pool, STATE) == before


async def test_a_form_from_another_origin_changes_nothing(browser: FakeBrowser, pool: Pool, app: QuartTrio) -> None:
    before = await run_sql(pool, STATE)
    token = form_token(await browser.open(ACCOUNT))
    cookie = (b"cookie", f"gatehouse-session={browser.cookies['gatehouse-session']}".encode())
    findings = []
    for path, fields in CHANGES.items():
        body = urlencode({"form_token": token, **fields}).encode()
        for header in ((b"origin", b"https://evil.example"), (b"sec-fetch-site", b"cross-site"), (b"sec-fetch-site", b"same-site")):
            answer = await ask(app, "POST", path, headers=[HTML, FORM, cookie, header], body=body)
            if answer.status != 403:
                findings.append((path, header, answer.status))
    assert findings == []
    assert await run_sql(pool, STATE) == before


async def test_a_form_without_a_session_redirects_to_sign_in(app: QuartTrio) -> None:
    targets = {path: leads_to(await FakeBrowser(app).send(path, form_token="x")) for path in CHANGES}
    assert {path: target for path, target in targets.items() if not target.startswith(SIGN_IN)} == {}


async def test_a_page_without_a_session_redirects_to_sign_in(app: QuartTrio) -> None:
    paths = [*PAGES, f"{DEVICES}/{UNKNOWN_ID}"]
    targets = {path: leads_to(await FakeBrowser(app).open(path)) for path in paths}
    assert targets == {path: f"{SIGN_IN}?{urlencode({'next': path})}" for path in paths}


async def test_get_and_head_change_nothing(browser: FakeBrowser, pool: Pool) -> None:
    before = await run_sql(pool, STATE)
    for method in ("GET", "HEAD"):
        for path in PAGES:
            assert (await browser.open(path, method=method)).status == 200, path
        for path in CHANGES.keys() - {*PAGES}:
            assert (await browser.open(path, method=method)).status == 405, path
    assert await run_sql(pool, STATE) == before


async def test_pages_are_not_cached_and_load_nothing(browser: FakeBrowser) -> None:
    for path in PAGES:
        answer = await browser.open(path)
        assert (answer.headers["Cache-Control"], answer.headers["Referrer-Policy"]) == ("no-store", "no-referrer"), path
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy, path
        assert "form-action 'self'" in policy, path
        assert answer.text.count("<h1>") == 1, path
        assert "<script" not in answer.text, path
        assert "Set-Cookie" not in answer.headers, path


async def test_an_ended_session_opens_no_page(browser: FakeBrowser, pool: Pool) -> None:
    await run_sql(pool, "update sessions set ended_at = now()")
    for path in PAGES:
        assert (await browser.open(path)).status == 303


@pytest.mark.parametrize("change", ["deactivated_at = now()", "anonymized_at = now()"])
async def test_an_unusable_account_opens_no_page(browser: FakeBrowser, pool: Pool, change: str) -> None:
    await run_sql(pool, f"update users set {change}")  # noqa: S608
    assert not await browser.is_in()


# The overview


async def test_the_overview_shows_the_state_of_the_account(browser: FakeBrowser, ports: Ports, user: Account, pool: Pool) -> None:
    page = page_text(await browser.open(ACCOUNT))
    for part in (
        f"{EMAIL} verified",
        "You sign in with a password.",
        "off You sign in with a password alone.",
        "signed in from 1 device.",
        "signed in only here",
    ):
        assert part in page
    await add_mfa(ports, user)
    await sign_in(ports, user)
    await run_sql(pool, "update users set password_hash = null, email_verified_at = null")
    page = page_text(await browser.open(ACCOUNT))
    for part in (
        f"{EMAIL} not verified",
        "You don't have a password yet.",
        "on since 14 March 2026",
        "You have 2 sessions, including this one.",
    ):
        assert part in page


async def test_a_notice_is_shown_once(browser: FakeBrowser) -> None:
    answer = await browser.submit(f"{SESSIONS}/end-others")
    cookie = set_cookies(answer)["gatehouse-notice"]
    assert (cookie.value, cookie["httponly"], cookie["samesite"]) == ("others", True, "Lax")
    assert "All other sessions ended." in page_text(await browser.open(SESSIONS))
    assert "All other sessions ended." not in page_text(await browser.open(SESSIONS))


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


# The address


async def test_a_changed_address_is_unverified(browser: FakeBrowser, ports: Ports, user: Account, pool: Pool) -> None:
    await sign_in(ports, user)
    answer = await browser.submit(EMAIL_PAGE, EMAIL_PAGE, email=" Moved@Example.com ")
    page = await next_page_text(browser, answer)
    assert "Email address changed." in page
    assert "Your email address is moved@example.com . It isn't verified yet." in page
    assert await run_sql(pool, "select kind, address from mails order by kind") == [
        ("email_changed", EMAIL),
        ("verify_email", "moved@example.com"),
    ]
    assert await run_sql(pool, "select count(*) from sessions where ended_at is null") == [(1,)]
    answer = await browser.submit(f"{EMAIL_PAGE}/verification", EMAIL_PAGE)
    assert "Verification email sent." in await next_page_text(browser, answer)
    assert await run_sql(pool, "select count(*) from mails where kind = 'verify_email'") == [(2,)]


@pytest.mark.parametrize("email", ["", "x", "taken@example.com"])
async def test_a_refused_address_is_explained(browser: FakeBrowser, ports: Ports, pool: Pool, email: str) -> None:
    await add_account(ports, "taken@example.com")
    answer = await browser.submit(EMAIL_PAGE, EMAIL_PAGE, email=email)
    assert answer.status == 400
    assert 'aria-invalid="true" aria-describedby="problem' in answer.text
    assert f'value="{email}"' in answer.text
    assert await run_sql(pool, "select count(*) from mails") == [(0,)]


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
    assert leads_to(await other.sign_in(password=NEW_PASSWORD)) == ACCOUNT


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


# The second factor


async def start_setup(browser: FakeBrowser, clock: FakeClock) -> tuple[Answer, Authenticator]:
    answer = await browser.submit(f"{TWO_FACTOR}/setup", TWO_FACTOR)
    assert answer.status == 200, answer.text
    [secret] = re.findall(r'<code class="secret">([A-Z2-7 ]+)</code>', answer.text)
    return answer, Authenticator(secret.replace(" ", ""), clock)


async def test_the_setup_page_has_a_qr_code_a_link_and_the_secret(browser: FakeBrowser, clock: FakeClock) -> None:
    answer, app = await start_setup(browser, clock)
    [uri] = re.findall(r'href="(otpauth:[^"]+)"', answer.text)
    assert f"secret={app.secret}" in unescape(uri)
    assert EMAIL in unquote(unescape(uri))
    [image] = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', answer.text)
    assert base64.b64decode(image).startswith(b"<svg ")
    assert "img-src 'self' data:;" in answer.headers["Content-Security-Policy"]
    assert 'alt="QR code' in answer.text
    assert answer.headers["Cache-Control"] == "no-store"


async def test_confirming_the_setup_shows_the_backup_codes_once(browser: FakeBrowser, clock: FakeClock, app: QuartTrio, pool: Pool) -> None:
    answer, authenticator = await start_setup(browser, clock)
    wrong = await browser.send(f"{TWO_FACTOR}/confirm", form_token=form_token(answer), code=authenticator.wrong())
    assert wrong.status == 400
    assert f"secret={authenticator.secret}" in wrong.text, "the page shows the setup again"
    assert (await browser.send(f"{TWO_FACTOR}/confirm", form_token=form_token(answer), code="12345")).status == 400
    shown = await browser.send(f"{TWO_FACTOR}/confirm", form_token=form_token(answer), code=authenticator.code())
    assert shown.status == 200
    codes = re.findall(r"<code>([A-Z0-9]{4}-[A-Z0-9]{4})</code>", shown.text)
    assert len({*codes}) == 10
    assert shown.headers["Cache-Control"] == "no-store"
    later = await browser.open(TWO_FACTOR)
    assert "You have 10 backup codes left." in page_text(later)
    assert not any(code in later.text for code in codes)
    assert authenticator.secret not in later.text
    other = FakeBrowser(app)
    assert leads_to(await other.sign_in()) == CODE
    assert leads_to(await other.show_code(codes[3])) == ACCOUNT
    assert "You have 9 backup codes left." in page_text(await other.open(TWO_FACTOR))
    assert await browser.is_in()
    assert ("mfa_enabled",) in await run_sql(pool, "select event_type from mfa_events")


async def test_a_setup_expires(browser: FakeBrowser, clock: FakeClock) -> None:
    answer, authenticator = await start_setup(browser, clock)
    clock.advance(timedelta(minutes=15))
    late = await browser.send(f"{TWO_FACTOR}/confirm", form_token=form_token(answer), code=authenticator.code())
    assert late.status == 400
    assert "<h1>Two-factor authentication</h1>" in late.text
    assert authenticator.secret not in late.text


async def test_an_enabled_second_factor_is_neither_replaced_nor_shown(
    browser: FakeBrowser, ports: Ports, user: Account, pool: Pool
) -> None:
    factor = await add_mfa(ports, user)
    answer = await browser.submit(f"{TWO_FACTOR}/setup", TWO_FACTOR)
    assert answer.status == 400
    assert "is already on" in answer.text
    assert factor.secret not in answer.text
    answer = await browser.submit(f"{TWO_FACTOR}/confirm", TWO_FACTOR, code=factor.code())
    assert answer.status == 400
    assert factor.secret not in answer.text


async def test_new_backup_codes_replace_the_old_ones(browser: FakeBrowser, ports: Ports, user: Account, app: QuartTrio) -> None:
    assert (await browser.submit(f"{TWO_FACTOR}/backup-codes", TWO_FACTOR)).status == 400
    factor = await add_mfa(ports, user)
    answer = await browser.submit(f"{TWO_FACTOR}/backup-codes", TWO_FACTOR)
    codes = re.findall(r"<code>([A-Z0-9]{4}-[A-Z0-9]{4})</code>", answer.text)
    assert (answer.status, len(codes)) == (200, 10)
    other = FakeBrowser(app)
    await other.sign_in()
    assert (await other.show_code(factor.backup_codes[0])).status == 401
    assert leads_to(await other.show_code(codes[0])) == ACCOUNT


async def test_the_second_factor_is_turned_off(browser: FakeBrowser, ports: Ports, user: Account, app: QuartTrio) -> None:
    await add_mfa(ports, user)
    answer = await browser.submit(f"{TWO_FACTOR}/disable", TWO_FACTOR)
    assert "Two-factor authentication is off." in await next_page_text(browser, answer)
    assert leads_to(await FakeBrowser(app).sign_in()) == ACCOUNT


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0}], indirect=True)
@pytest.mark.slow
async def test_the_second_factor_has_the_rate_limits_of_the_api(browser: FakeBrowser, api: Api, ports: Ports, user: Account) -> None:
    statuses = [
        (await browser.submit(f"{TWO_FACTOR}/{act}", TWO_FACTOR)).status for act in ("setup", "disable", "setup", "disable", "setup")
    ]
    assert 429 not in statuses
    limited = await browser.submit(f"{TWO_FACTOR}/disable", TWO_FACTOR)
    assert limited.status == 429
    assert "Too many requests" in limited.text
    assert int(limited.headers["Retry-After"]) > 0


# Devices


async def device_of(pool: Pool, name: str) -> UUID:
    [(device_id,)] = await run_sql(pool, "select id from devices where name = %s", name)
    assert isinstance(device_id, UUID)
    return device_id


@pytest.fixture
async def program(browser: FakeBrowser, api: Api, pool: Pool) -> tuple[UUID, str]:
    """Another device of the user, and the access token of its session."""
    token = (await api.login(headers={"User-Agent": "curl/8.5.0"})).json["access_token"]
    return await device_of(pool, "curl on unknown system"), token


async def test_the_list_marks_the_current_device(browser: FakeBrowser, program: tuple[UUID, str], pool: Pool) -> None:
    page = await browser.open(DEVICES)
    here, there = sorted(re.findall(r"<li>(.*?)</li>", page.text, re.DOTALL), key=lambda row: "this device" not in row)
    assert "Firefox 121.0 on Linux" in here
    assert str(await device_of(pool, "Firefox on Linux")) in here
    assert "this device" not in there
    assert "curl" in there
    assert str(program[0]) in there


async def test_a_device_is_shown_and_renamed(browser: FakeBrowser, program: tuple[UUID, str], pool: Pool) -> None:
    path = f"{DEVICES}/{program[0]}"
    page = page_text(await browser.open(path))
    for part in ("Type curl 8.5.0 on unknown system", "Last used 14 March 2026", "Trusted No", "Revoke this device"):
        assert part in page
    answer = await browser.submit(f"{path}/name", path, name="  The <b>script</b> ")
    shown = await browser.open(leads_to(answer))
    assert "Name saved." in page_text(shown)
    assert "<h1>The &lt;b&gt;script&lt;/b&gt;</h1>" in shown.text
    for name in ("", "   ", "x" * 101, "a\x00b", "\u202ex"):
        refused = await browser.submit(f"{path}/name", path, name=name)
        assert refused.status == 400
        assert 'aria-invalid="true"' in refused.text
    assert await run_sql(pool, "select name from devices where id = %s", program[0]) == [("The <b>script</b>",)]


async def test_revoking_a_device_ends_its_sessions(browser: FakeBrowser, program: tuple[UUID, str], api: Api) -> None:
    device_id, token = program
    path = f"{DEVICES}/{device_id}"
    answer = await browser.submit(f"{path}/revoke", path)
    assert leads_to(answer) == DEVICES
    page = await browser.open(DEVICES)
    assert "Device revoked and signed out." in page_text(page)
    assert str(device_id) not in page.text
    assert (await api.get("/api/user", token=token)).status == 401
    assert (await browser.open(path)).status == 404


async def test_the_current_device_cannot_be_revoked(browser: FakeBrowser, pool: Pool) -> None:
    path = f"{DEVICES}/{await device_of(pool, 'Firefox on Linux')}"
    page = await browser.open(path)
    assert "Revoke device" not in page.text
    refused = await browser.submit(f"{path}/revoke", path)
    assert refused.status == 400
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
    ended = await sign_in(ports, user)
    await run_sql(pool, "update sessions set ended_at = now() where id = %s", ended.session_id)
    page = await browser.open(SESSIONS)
    rows = [page_text(Answer(200, page.headers, f"<main>{row}")) for row in re.findall(r"<li>(.*?)</li>", page.text, re.DOTALL)]
    assert len(rows) == 4
    [here] = [row for row in rows if "this session" in row]
    assert here.startswith("Your account, in a browser this session Firefox on Linux · 203.0.113.9 Since 14 March 2026")
    assert "End" not in here
    assert any(row.startswith("Gatehouse, for Acme curl on unknown system") for row in rows)
    assert any(row.startswith("Shop of Acme") for row in rows)
    [support] = [row for row in rows if row.startswith("Platform support")]
    assert "owner" not in page.text
    assert "End the session Platform support" in support
    assert "You have 4 sessions, including this one." in page_text(await browser.open(ACCOUNT))


async def test_one_session_is_ended(browser: FakeBrowser, ports: Ports, user: Account, api: Api) -> None:
    one, other = await sign_in(ports, user), await sign_in(ports, user)
    answer = await browser.submit(f"{SESSIONS}/{one.session_id}/end", SESSIONS)
    assert leads_to(answer) == SESSIONS
    assert "Session ended." in page_text(await browser.open(SESSIONS))
    assert (await api.get("/api/user", token=one.access_token)).status == 401
    assert (await api.post("/api/auth/refresh", {"refresh_token": one.refresh_token})).status == 401
    assert (await api.get("/api/user", token=other.access_token)).status == 200
    assert leads_to(await browser.submit(f"{SESSIONS}/{one.session_id}/end")) == SESSIONS, "ending it twice succeeds"


async def test_the_user_ends_an_impersonation(browser: FakeBrowser, ports: Ports, user: Account, api: Api, pool: Pool) -> None:
    owner = await add_account(ports, "owner@platform.example", None, is_platform_owner=True)
    token = await impersonate(ports, owner, user)
    [(session_id,)] = await run_sql(pool, "select id from sessions where impersonator_id is not null")
    await browser.submit(f"{SESSIONS}/{session_id}/end", SESSIONS)
    assert (await api.get("/api/user", token=token)).status == 401


async def test_all_other_sessions_are_ended(browser: FakeBrowser, ports: Ports, user: Account, api: Api) -> None:
    eve = await add_account(ports, "eve@example.com", None)
    other_session = await sign_in(ports, eve)
    others = [await sign_in(ports, user) for _ in range(2)]
    answer = await browser.submit(f"{SESSIONS}/end-others", SESSIONS)
    assert leads_to(answer) == SESSIONS
    for one in others:
        assert (await api.get("/api/user", token=one.access_token)).status == 401
    assert (await api.get("/api/user", token=other_session.access_token)).status == 200
    page = await browser.open(SESSIONS)
    assert "End all other sessions" not in page.text


async def test_sessions_of_other_users_cannot_be_ended(browser: FakeBrowser, ports: Ports, api: Api) -> None:
    eve = await add_account(ports, "eve@example.com", None)
    other_session = await sign_in(ports, eve)
    for session_id in (other_session.session_id, uuid4(), "x"):
        assert leads_to(await browser.submit(f"{SESSIONS}/{session_id}/end")) == SESSIONS
    assert (await api.get("/api/user", token=other_session.access_token)).status == 200


async def test_ending_the_current_session_signs_out(browser: FakeBrowser, pool: Pool) -> None:
    [(mine,)] = await run_sql(pool, "select id from sessions")
    assert leads_to(await browser.submit(f"{SESSIONS}/{mine}/end")) == SIGN_IN
    assert not await browser.is_in()


@pytest.mark.slow
async def test_the_list_shows_at_most_100_sessions(browser: FakeBrowser, ports: Ports, user: Account) -> None:
    for _ in range(104):
        await sign_in(ports, user)
    page = await browser.open(SESSIONS)
    assert len(re.findall("<li>", page.text)) == 100
    assert "Showing the newest 100 of 105 sessions." in page_text(page)
