"""Cross-site forms, cookies and GET requests (security B-3, G-1, G-2, G-4)."""

import re
from itertools import product
from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication.browser import form_token as token_of
from core.kernel.values import new_id
from ports import Ports
from tests.authentication.api.sign_in_pages.paths import FORGOT_PASSWORD
from tests.support.browser import ACCOUNT, FORM, HOME, HTML, SIGN_IN, FakeBrowser, form_token, leads_to, set_cookies
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, Api, run_sql, sign_in
from tests.support.direct import ask
from tests.support.mfa import Authenticator

HTTPS = "https://gatehouse.test"

# Cross-site forms


FOREIGN = [
    (b"sec-fetch-site", b"cross-site"),
    (b"sec-fetch-site", b"same-site"),
    (b"sec-fetch-site", b"none"),
    (b"origin", b"https://evil.example"),
]


async def test_a_form_of_another_site_is_refused(browser: FakeBrowser, factor: Authenticator, pool: Pool, app: QuartTrio) -> None:
    code = leads_to(await browser.sign_in())
    token = form_token(await browser.open(SIGN_IN))
    cookie = (b"cookie", f"gatehouse-device={browser.cookies['gatehouse-device']}".encode())
    body = urlencode({"form_token": token, "email": EMAIL, "password": PASSWORD, "code": "123456"}).encode()
    for path, header in product((SIGN_IN, code, FORGOT_PASSWORD, "/app/sign-out"), FOREIGN):
        answer = await ask(app, "POST", path, headers=[HTML, FORM, cookie, header], body=body)
        assert answer.status == 403, (path, header)
        assert "<h1>Access denied</h1>" in answer.text
        assert "Set-Cookie" not in answer.headers
    assert await run_sql(pool, "select (select count(*) from sessions), (select count(*) from mails)") == [(0, 0)]


async def test_a_form_without_this_browsers_token_is_refused(
    browser: FakeBrowser, factor: Authenticator, app: QuartTrio, pool: Pool
) -> None:
    foreign = form_token(await FakeBrowser(app).open(SIGN_IN))
    fields = {"email": EMAIL, "password": PASSWORD, "code": "123456"}
    code = leads_to(await browser.sign_in())
    tokens: list[dict[str, str]] = [{}, {"form_token": ""}, {"form_token": foreign}, {"form_token": "ü"}]
    for path, token in product((SIGN_IN, code, FORGOT_PASSWORD), tokens):
        answer = await browser.send(path, **fields, **token)
        assert answer.status == 403, (path, token)
        assert "reload the page" in answer.text
    assert await run_sql(pool, "select (select count(*) from sessions), (select count(*) from mails)") == [(0, 0)]


async def test_a_browser_without_cookies_cannot_send_a_form(browser: FakeBrowser, user: Account) -> None:
    own_token = form_token(await browser.open(SIGN_IN))
    device_id = browser.cookies.pop("gatehouse-device")
    for cookie, token in ((None, own_token), (None, token_of("")), ("", token_of("")), ("x", token_of("x")), (device_id + "x", own_token)):
        browser.cookies = {} if cookie is None else {"gatehouse-device": cookie}
        assert (await browser.send(SIGN_IN, form_token=token, email=EMAIL, password=PASSWORD)).status == 403


async def test_another_site_cannot_sign_the_user_out(browser: FakeBrowser, user: Account, app: QuartTrio) -> None:
    await browser.sign_in()
    foreign = form_token(await FakeBrowser(app).open(SIGN_IN))
    for token in ({}, {"form_token": foreign}):
        assert (await browser.send("/app/sign-out", **token)).status == 403
    assert leads_to(await browser.open("/app/sign-out")) == ACCOUNT
    assert await browser.is_in()


async def test_only_form_bodies_are_accepted(api: Api, app: QuartTrio) -> None:
    for path in (SIGN_IN, f"/app/flow/{new_id()}/code", FORGOT_PASSWORD, "/app/sign-out"):
        assert (await api.post(path, {"email": EMAIL})).status == 415, path
        for method in ("PUT", "DELETE", "PATCH"):
            assert (await ask(app, method, path)).status == 405, (method, path)


# Cookies


@pytest.mark.parametrize(
    ("edge", "prefix", "secure"), [({}, "gatehouse-", False), ({"base_url": HTTPS}, "__Host-gatehouse-", True)], indirect=["edge"]
)
async def test_scripts_and_other_sites_cannot_use_the_cookies(
    browser: FakeBrowser, factor: Authenticator, prefix: str, *, secure: bool
) -> None:
    set_by = {"device": await browser.open(SIGN_IN)}
    assert set_cookies(await browser.sign_in()).keys() == {f"{prefix}device"}, "it stands for the browser"
    set_by["session"] = set_by["trust"] = await browser.show_code(factor.code(), trust="yes")
    ages = {}
    for kind, answer in set_by.items():
        cookie = set_cookies(answer)[f"{prefix}{kind}"]
        assert cookie["httponly"], kind
        assert (cookie["secure"] is True) == secure
        assert (cookie["samesite"], cookie["path"], cookie["domain"]) == ("Lax", "/", "")
        ages[kind] = int(cookie["max-age"])
    day = 86400
    assert ages == {"device": 400 * day, "session": 30 * day, "trust": 90 * day}
    assert await browser.is_in()


@pytest.mark.parametrize("edge", [{"base_url": HTTPS}], indirect=True)
async def test_under_https_a_cookie_without_the_prefix_is_ignored(browser: FakeBrowser, user: Account) -> None:
    await browser.sign_in()
    browser.cookies = {"gatehouse-session": browser.cookies["__Host-gatehouse-session"]}
    assert not await browser.is_in()


async def test_no_page_contains_the_value_of_a_cookie(browser: FakeBrowser, factor: Authenticator) -> None:
    await browser.sign_in()
    pages = [await browser.open(browser.code_path)]
    await browser.show_code(factor.code(), trust="yes")
    pages += [await browser.open(path) for path in (ACCOUNT, f"{ACCOUNT}/security", f"{ACCOUNT}/security/sign-ins")]
    for page in pages:
        assert page.status == 200
        for value in browser.cookies.values():
            assert value not in page.text


async def test_the_api_ignores_cookies(browser: FakeBrowser, user: Account, app: QuartTrio) -> None:
    await browser.sign_in()
    cookie = (b"cookie", "; ".join(f"{name}={value}" for name, value in browser.cookies.items()).encode())
    bearer = (b"authorization", f"Bearer {browser.cookies['gatehouse-session']}".encode())
    for headers in ([cookie], [bearer], [cookie, bearer]):
        for path in ("/api/user", "/api/user/devices", "/api/organizations"):
            assert (await ask(app, "GET", path, headers=headers)).status == 401


async def test_pages_ignore_access_tokens(api: Api, ports: Ports, user: Account) -> None:
    token = (await sign_in(ports, user)).access_token
    answer = await api.get(ACCOUNT, token=token, headers={"Cookie": f"gatehouse-session={token}"})
    assert answer.status == 303


# GET requests


async def test_get_requests_change_nothing(browser: FakeBrowser, factor: Authenticator, pool: Pool) -> None:
    code = leads_to(await browser.sign_in())
    for method, path in product(("GET", "HEAD", "OPTIONS"), (SIGN_IN, code, FORGOT_PASSWORD, "/app/sign-out")):
        await browser.open(path, method=method)
    assert await run_sql(pool, "select count(*) from sessions") == [(0,)]
    assert await run_sql(pool, "select count(*) from mails") == [(0,)]


async def test_a_page_has_a_strict_policy_and_is_not_cached(browser: FakeBrowser) -> None:
    for path in (SIGN_IN, FORGOT_PASSWORD):
        answer = await browser.open(path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert ("form-action 'self'" in policy) == (path == FORGOT_PASSWORD)
        assert "frame-ancestors 'none'" in policy
        assert (answer.headers["Referrer-Policy"], answer.headers["Cache-Control"]) == ("no-referrer", "no-store")
        assert answer.text.count("<h1>") == 1
        nonces = re.findall(r'<script nonce="([\w-]{22})" src="/assets/passkeys\.[0-9a-f]{16}\.js" defer></script>', answer.text)
        assert (answer.text.count("<script"), len(nonces)) == ((1, 1) if path == SIGN_IN else (0, 0))
        assert all(f"script-src 'nonce-{nonce}'" in policy for nonce in nonces)
        assert "connect-src" not in policy


async def test_errors_are_pages(browser: FakeBrowser) -> None:
    for path in ("/app/sign-in/nowhere", "/app/nowhere"):
        answer = await browser.open(path)
        assert answer.status == 404
        assert "<h1>Page not found</h1>" in answer.text
    assert BASE_URL not in (await browser.open("/app/nowhere")).text


async def test_the_front_page_leads_to_the_sign_in_page(browser: FakeBrowser) -> None:
    start = leads_to(await browser.open("/"))
    assert (start, leads_to(await browser.open(start))) == (HOME, SIGN_IN)
