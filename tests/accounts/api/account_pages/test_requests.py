"""Cross-site forms, requests without a session, and requests without side effects (security G-1, G-2)."""

from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from tests.accounts.api.account_pages.paths import DEVICES, EMAIL_PAGE, EXPORT, PASSWORD_PAGE, SECURITY, SESSIONS, SIGN_INS, TWO_FACTOR
from tests.support.browser import ACCOUNT, FORM, HTML, SIGN_IN, FakeBrowser, form_token, leads_to, main_of
from tests.support.builders import NEW_PASSWORD, PASSWORD, run_sql
from tests.support.direct import ask

UNKNOWN_ID = "5e0c3a0c-7c1b-4b7e-9d53-2f5e8b0c7a11"
PAGES = [ACCOUNT, EMAIL_PAGE, PASSWORD_PAGE, SECURITY, SIGN_INS]

CHANGES = {
    EXPORT: {},
    EMAIL_PAGE: {"email": "moved@example.com"},
    f"{EMAIL_PAGE}/verification": {},
    f"{EMAIL_PAGE}/cancel": {},
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
            assert (await browser.open(path, method=method)).status == 303, path  # to the page with the form
    assert await run_sql(pool, STATE) == before


async def test_pages_are_not_cached_and_load_nothing(browser: FakeBrowser) -> None:
    for path in PAGES:
        answer = await browser.open(path)
        assert (answer.headers["Cache-Control"], answer.headers["Referrer-Policy"]) == ("no-store", "no-referrer"), path
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy, path
        assert "form-action 'self'" in policy, path
        assert answer.text.count("<h1>") == 1, path
        assert "<script" not in main_of(answer), path
        assert "Set-Cookie" not in answer.headers, path


async def test_an_ended_session_opens_no_page(browser: FakeBrowser, pool: Pool) -> None:
    await run_sql(pool, "update sessions set ended_at = now()")
    for path in PAGES:
        assert (await browser.open(path)).status == 303


@pytest.mark.parametrize("change", ["deactivated_at = now()", "anonymized_at = now()"])
async def test_an_unusable_account_opens_no_page(browser: FakeBrowser, pool: Pool, change: str) -> None:
    await run_sql(pool, f"update users set {change}")  # noqa: S608
    assert not await browser.is_in()
