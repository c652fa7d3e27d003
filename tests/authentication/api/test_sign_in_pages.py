"""Tests of the pages to sign in and out on (decisions 42, 176; security A-3, A-10, B-1, B-3, G-1, G-2, G-4, J-8, S-3, S-5).

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from datetime import timedelta
from itertools import product
from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.authentication.browser import form_token as token_of
from core.kernel.values import digest, new_secret
from entrypoints.http.app import Edge
from entrypoints.http.pages.sign_in import safe_next
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import ACCOUNT, CODE, FORM, HTML, SIGN_IN, FakeBrowser, form_token, leads_to, set_cookies
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, Api, add_account, run_sql, sign_in
from tests.support.direct import ask
from tests.support.mfa import Authenticator
from tests.support.services import add_service
from tests.support.tenants import Tenants

HTTPS = "https://gatehouse.test"
FORGOT = "/app/forgot-password"


@pytest.fixture
def browser(app: QuartTrio, edge: Edge) -> FakeBrowser:
    return FakeBrowser(app, edge.base_url)


async def sessions_of(pool: Pool) -> int:
    [(count,)] = await run_sql(pool, "select count(*) from sessions where ended_at is null")
    return int(count)


# With a password


async def test_a_malformed_request_in_next_does_not_break_the_page(browser: FakeBrowser) -> None:
    for wanted in (
        "/auth/authorize?org=%00&service=x",
        "/auth/authorize?org=x&service=%00",
        "/auth/authorize?client_id=%00",
        "/auth/authorize?state=%00",
    ):
        assert (await browser.open(f"{SIGN_IN}?{urlencode({'next': wanted})}")).status == 200, wanted


async def test_the_right_password_opens_the_account_page(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    assert leads_to(await browser.open(ACCOUNT)) == f"{SIGN_IN}?next=%2Fapp%2Faccount"
    assert leads_to(await browser.sign_in()) == ACCOUNT
    page = await browser.open(ACCOUNT)
    assert page.status == 200
    assert EMAIL in page.text
    assert page.headers["Cache-Control"] == "no-store"
    secret = browser.cookies["gatehouse-session"]
    assert await run_sql(pool, "select user_id, browser_hash from sessions") == [(user.id, digest(secret))]
    assert await run_sql(pool, "select count(*) from refresh_tokens") == [(0,)]


async def test_the_session_ends_when_its_cookie_expires(browser: FakeBrowser, user: Account, ports: Ports, clock: FakeClock) -> None:
    answer = await browser.sign_in()
    assert set_cookies(answer)["gatehouse-session"]["max-age"] == str(int(ports.policy.refresh_token_ttl.total_seconds()))
    clock.advance(ports.policy.refresh_token_ttl)
    assert not await browser.is_in()


async def test_every_wrong_pair_gets_the_same_answer(browser: FakeBrowser, user: Account, ports: Ports, clock: FakeClock) -> None:
    await add_account(ports, "deactivated@example.com", deactivated_at=clock.now())
    for email, password in ((EMAIL, "wrong"), ("nobody@example.com", PASSWORD), ("deactivated@example.com", PASSWORD)):
        answer = await browser.sign_in(email, password)
        assert answer.status == 401, email
        assert "The email address or the password is wrong." in answer.text
        assert answer.text.count(email) == 1, "the typed address is still in the form"
        assert f'value="{password}"' not in answer.text
        assert "<title>Error: Sign in" in answer.text
        assert answer.text.count('required aria-invalid="true" aria-describedby="problem"') == 2
        assert answer.headers["WWW-Authenticate"].startswith("Cookie ")
        assert "gatehouse-session" not in browser.cookies


async def test_a_refused_form_can_be_sent_again(browser: FakeBrowser, user: Account) -> None:
    refused = await browser.sign_in(password="wrong")
    assert leads_to(await browser.send(SIGN_IN, form_token=form_token(refused), email=EMAIL, password=PASSWORD)) == ACCOUNT


async def test_only_the_right_password_shows_that_the_address_is_not_verified(browser: FakeBrowser, ports: Ports) -> None:
    await add_account(ports, verified=False)
    assert "not verified" in (await browser.sign_in()).text
    assert "not verified" not in (await browser.sign_in(password="wrong")).text


async def test_a_malformed_form_is_shown_again(browser: FakeBrowser, user: Account) -> None:
    forms: list[dict[str, str]] = [{}, {"email": "x", "password": PASSWORD}, {"email": EMAIL, "password": "x" * 129}]
    for fields in forms:
        answer = await browser.submit(SIGN_IN, SIGN_IN, **fields)
        assert answer.status == 400, fields
        assert 'role="alert"' in answer.text


@pytest.mark.slow
async def test_too_many_attempts_lock_out_strangers_but_not_a_trusted_browser(
    browser: FakeBrowser, factor: Authenticator, app: QuartTrio
) -> None:
    await browser.sign_in_with(factor, trust="yes")
    stranger = FakeBrowser(app)
    for _ in range(10):
        assert (await stranger.sign_in(password="wrong")).status == 401
    limited = await stranger.sign_in()
    assert limited.status == 429
    assert int(limited.headers["Retry-After"]) > 0
    assert "Sign in" in limited.text
    await browser.submit("/app/sign-out")
    assert leads_to(await browser.sign_in()) == ACCOUNT


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0}], indirect=True)
@pytest.mark.parametrize(("path", "allowed"), [(SIGN_IN, 10), (FORGOT, 5), (CODE, 3)])
async def test_pages_share_the_rate_limits_of_the_api(browser: FakeBrowser, path: str, allowed: int) -> None:
    answers = [await browser.send(path) for _ in range(allowed + 1)]
    assert [answer.status for answer in answers] == [403] * allowed + [429]
    assert "Too many requests" in answers[-1].text


async def test_a_new_sign_in_replaces_the_browser_session(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    first = await browser.open(SIGN_IN)
    await browser.sign_in()
    secret = browser.cookies["gatehouse-session"]
    fields = {"form_token": form_token(first), "email": EMAIL, "password": PASSWORD}
    assert leads_to(await browser.send(SIGN_IN, **fields)) == ACCOUNT
    assert browser.cookies["gatehouse-session"] != secret
    assert await sessions_of(pool) == 1


async def test_a_signed_in_user_is_redirected(browser: FakeBrowser, user: Account) -> None:
    await browser.sign_in()
    assert leads_to(await browser.open(SIGN_IN)) == ACCOUNT
    assert leads_to(await browser.open(f"{SIGN_IN}?next=/app/account/devices")) == "/app/account/devices"


async def test_a_made_up_cookie_is_refused_and_never_becomes_a_session(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    made_up = new_secret()
    for value in (made_up, "x", "", "ü", "x" * 9000):
        browser.cookies["gatehouse-session"] = value
        assert (await browser.open(ACCOUNT)).status in (303, 400, 431)
    browser.cookies["gatehouse-session"] = made_up
    await browser.sign_in()
    assert browser.cookies["gatehouse-session"] != made_up
    assert await run_sql(pool, "select count(*) from sessions where browser_hash = %s", digest(made_up)) == [(0,)]


# The path to continue at


GOOD = ["/", "/app/account", "/app/account/devices?page=2", "/docs", "/a.b/..c/.d", "/x?next=//evil.example", "/app/caf%C3%A9"]
BAD = [
    *("", "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example", "evil.example"),
    *("javascript:x", "/app/../..//evil.example", "/..//evil.example", "/app/../account", "/./x", "/app/.", "/app/.."),
    *("/%2e%2e//evil.example", "/a/%2E./b", "/.%2e/x", "/a//b", "/\t/evil.example", "/\n/evil.example", "/app\r\nSet-Cookie: x=y"),
    *(" /app", "/a b", "/x\x00", "/app/café", "/%5Cevil", "/\u2028", "/x#y", "/" + "x" * 9000, "?x", "http:/x", "/x?\\evil"),
]  # fmt: skip


async def test_a_sign_in_continues_at_a_local_path(app: QuartTrio, user: Account) -> None:
    assert [path for path in GOOD if safe_next(path) != path] == []
    assert [path for path in GOOD if leads_to(await FakeBrowser(app).sign_in(after=path)) != path] == []


async def test_a_sign_in_never_continues_at_another_site(app: QuartTrio) -> None:
    assert [target for target in BAD if safe_next(target) != ACCOUNT] == []
    field = '<input type="hidden" name="next" value="/app/account">'
    pages = {target: await FakeBrowser(app).open(f"{SIGN_IN}?{urlencode({'next': target})}") for target in BAD}
    assert [target for target, page in pages.items() if field not in page.text] == []


async def test_the_next_path_of_a_form_is_checked_again(browser: FakeBrowser, factor: Authenticator) -> None:
    answer = await browser.submit(SIGN_IN, SIGN_IN, email=EMAIL, password=PASSWORD, next="/app/../..//evil.example")
    assert leads_to(answer) == CODE
    answer = await browser.show_code(factor.code(), next="//evil.example")
    assert leads_to(answer) == ACCOUNT


async def test_the_next_path_survives_the_second_factor(browser: FakeBrowser, factor: Authenticator) -> None:
    on = leads_to(await browser.sign_in(after="/app/account/devices"))
    assert on == f"{CODE}?next=%2Fapp%2Faccount%2Fdevices"
    page = await browser.open(on)
    assert 'name="next" value="/app/account/devices"' in page.text
    fields = {"form_token": form_token(page), "next": "/app/account/devices", "code": factor.code()}
    assert leads_to(await browser.send(CODE, **fields)) == "/app/account/devices"


# The second factor


async def test_a_password_alone_gives_no_session_if_a_code_is_required(browser: FakeBrowser, factor: Authenticator, pool: Pool) -> None:
    assert leads_to(await browser.sign_in()) == CODE
    assert "gatehouse-session" not in browser.cookies
    assert await sessions_of(pool) == 0
    assert not await browser.is_in()
    assert leads_to(await browser.show_code(factor.code())) == ACCOUNT
    assert "gatehouse-pre-auth" not in browser.cookies
    assert await browser.is_in()


async def test_a_malformed_code_is_400_and_not_counted(browser: FakeBrowser, factor: Authenticator) -> None:
    await browser.sign_in()
    for code in ("", "12345", "1234567", "abcd-efgh", "\uff11\uff12\uff13\uff14\uff15\uff16", " 123456"):
        answer = await browser.show_code(code)
        assert answer.status == 400, code
        assert 'aria-invalid="true"' in answer.text
    assert leads_to(await browser.show_code(factor.code())) == ACCOUNT


async def test_a_code_works_once_and_a_wrong_code_allows_another_attempt(
    browser: FakeBrowser, factor: Authenticator, app: QuartTrio
) -> None:
    await browser.sign_in_with(factor)
    other = FakeBrowser(app)
    await other.sign_in()
    for code in (factor.code(), factor.wrong()):
        answer = await other.show_code(code)
        assert answer.status == 401
        assert "This code is wrong" in answer.text
    assert leads_to(await other.show_code(factor.code(1))) == ACCOUNT


async def test_a_backup_code_works_once(browser: FakeBrowser, factor: Authenticator, app: QuartTrio) -> None:
    await browser.sign_in()
    assert leads_to(await browser.show_code(factor.backup_codes[0])) == ACCOUNT
    other = FakeBrowser(app)
    await other.sign_in()
    assert (await other.show_code(factor.backup_codes[0])).status == 401


@pytest.mark.slow
async def test_five_wrong_codes_lead_back_to_the_sign_in_page(browser: FakeBrowser, factor: Authenticator) -> None:
    await browser.sign_in()
    for _ in range(5):
        assert (await browser.show_code(factor.wrong())).status == 401
    ended = await browser.show_code(factor.code())
    assert ended.status == 401
    assert "Sign in again." in ended.text
    assert "<h1>Sign in</h1>" in ended.text
    assert "gatehouse-pre-auth" not in browser.cookies
    assert not await browser.is_in()


async def test_a_pending_sign_in_expires_after_ten_minutes(browser: FakeBrowser, factor: Authenticator, clock: FakeClock) -> None:
    assert set_cookies(await browser.sign_in())["gatehouse-pre-auth"]["max-age"] == "600"
    clock.advance(timedelta(seconds=600))
    answer = await browser.show_code(factor.code())
    assert answer.status == 401
    assert "<h1>Sign in</h1>" in answer.text


async def test_a_sign_in_that_an_application_started_cannot_continue_on_our_pages(
    browser: FakeBrowser, factor: Authenticator, api: Api, tenants: Tenants, pool: Pool
) -> None:
    acme = await tenants.add("acme")
    await add_service(pool, acme.org, "shop")
    began = await api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"})
    await browser.open(SIGN_IN)
    browser.cookies["gatehouse-pre-auth"] = began.json["access_token"]
    before = await sessions_of(pool)
    answer = await browser.show_code(factor.code())
    assert (answer.status, "gatehouse-session" in browser.cookies, await sessions_of(pool)) == (401, False, before)


async def test_the_code_page_needs_a_pending_sign_in(browser: FakeBrowser, factor: Authenticator) -> None:
    assert leads_to(await browser.open(CODE)) == SIGN_IN
    assert leads_to(await browser.submit(CODE, SIGN_IN, code=factor.code())) == SIGN_IN
    browser.cookies["gatehouse-pre-auth"] = "made.up.token"
    assert (await browser.show_code(factor.code())).status == 401


async def test_an_access_token_is_not_a_pre_auth_token(browser: FakeBrowser, factor: Authenticator, ports: Ports, user: Account) -> None:
    browser.cookies["gatehouse-pre-auth"] = (await sign_in(ports, user)).access_token
    assert (await browser.show_code(factor.code())).status == 401
    assert not await browser.is_in()


async def test_a_trusted_browser_skips_the_code_until_the_trust_ends(
    browser: FakeBrowser, factor: Authenticator, clock: FakeClock, app: QuartTrio
) -> None:
    await browser.sign_in_with(factor, trust="yes")
    await browser.submit("/app/sign-out")
    assert leads_to(await browser.sign_in()) == ACCOUNT
    other = FakeBrowser(app)
    assert leads_to(await other.sign_in()) == CODE, "only this browser is trusted"
    other.cookies["gatehouse-device"] = browser.cookies["gatehouse-device"]
    assert leads_to(await other.sign_in()) == CODE, "the device id alone is not trusted"
    await browser.submit("/app/sign-out")
    clock.advance(timedelta(days=30))
    assert leads_to(await browser.sign_in()) == CODE


async def test_trust_is_only_given_on_request(browser: FakeBrowser, factor: Authenticator) -> None:
    await browser.sign_in_with(factor)
    assert "gatehouse-trust" not in browser.cookies
    await browser.submit("/app/sign-out")
    assert leads_to(await browser.sign_in()) == CODE


async def test_a_browser_is_one_device_for_all_its_sign_ins(browser: FakeBrowser, user: Account, pool: Pool, app: QuartTrio) -> None:
    for _ in range(2):
        await browser.sign_in()
        await browser.submit("/app/sign-out")
    device_id = browser.cookies["gatehouse-device"]
    assert await run_sql(pool, "select name, client_hash, device_type from devices") == [
        ("Firefox on Linux", digest(device_id), "browser"),
    ]
    await FakeBrowser(app).sign_in()
    assert await run_sql(pool, "select count(*) from devices") == [(2,)]


# Signing out


async def test_a_sign_out_ends_the_session_and_keeps_the_device(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    await browser.sign_in()
    secret = browser.cookies["gatehouse-session"]
    assert leads_to(await browser.submit("/app/sign-out")) == SIGN_IN
    assert "gatehouse-session" not in browser.cookies
    assert "gatehouse-device" in browser.cookies
    browser.cookies["gatehouse-session"] = secret
    assert not await browser.is_in()
    assert await sessions_of(pool) == 0
    assert leads_to(await browser.send("/app/sign-out")) == SIGN_IN, "without a session no form token is needed"


# Forgotten passwords


async def test_the_forgot_password_page_is_the_same_for_every_address(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    pages = []
    for email in (EMAIL, "nobody@example.com", "no address", ""):
        answer = await browser.submit(FORGOT, FORGOT, email=email)
        assert answer.status == 200
        pages.append(answer.text.partition("<body>")[2])
    assert len({*pages}) == 1
    assert await run_sql(pool, "select kind, address from mails order by address") == [
        ("reset_password", EMAIL),
        ("reset_password", "nobody@example.com"),
    ]


# Forms of other sites


FOREIGN = [
    (b"sec-fetch-site", b"cross-site"),
    (b"sec-fetch-site", b"same-site"),
    (b"sec-fetch-site", b"none"),
    (b"origin", b"https://evil.example"),
]


async def test_a_form_of_another_site_is_refused(browser: FakeBrowser, user: Account, pool: Pool, app: QuartTrio) -> None:
    token = form_token(await browser.open(SIGN_IN))
    cookie = (b"cookie", f"gatehouse-device={browser.cookies['gatehouse-device']}".encode())
    body = urlencode({"form_token": token, "email": EMAIL, "password": PASSWORD, "code": "123456"}).encode()
    for path, header in product((SIGN_IN, CODE, FORGOT, "/app/sign-out"), FOREIGN):
        answer = await ask(app, "POST", path, headers=[HTML, FORM, cookie, header], body=body)
        assert answer.status == 403, (path, header)
        assert "<h1>Access denied</h1>" in answer.text
        assert "Set-Cookie" not in answer.headers
    assert await run_sql(pool, "select (select count(*) from sessions), (select count(*) from mails)") == [(0, 0)]


async def test_a_form_without_this_browsers_token_is_refused(browser: FakeBrowser, user: Account, app: QuartTrio, pool: Pool) -> None:
    foreign = form_token(await FakeBrowser(app).open(SIGN_IN))
    fields = {"email": EMAIL, "password": PASSWORD, "code": "123456"}
    await browser.open(SIGN_IN)
    tokens: list[dict[str, str]] = [{}, {"form_token": ""}, {"form_token": foreign}, {"form_token": "ü"}]
    for path, token in product((SIGN_IN, CODE, FORGOT), tokens):
        answer = await browser.send(path, **fields, **token)
        assert answer.status == 403, (path, token)
        assert "reload the page" in answer.text
    assert await run_sql(pool, "select (select count(*) from sessions), (select count(*) from mails)") == [(0, 0)]


async def test_a_browser_without_cookies_cannot_send_a_form(browser: FakeBrowser, user: Account) -> None:
    own = form_token(await browser.open(SIGN_IN))
    device_id = browser.cookies.pop("gatehouse-device")
    for kept, token in ((None, own), (None, token_of("")), ("", token_of("")), ("x", token_of("x")), (device_id + "x", own)):
        browser.cookies = {} if kept is None else {"gatehouse-device": kept}
        assert (await browser.send(SIGN_IN, form_token=token, email=EMAIL, password=PASSWORD)).status == 403


async def test_another_site_cannot_sign_the_user_out(browser: FakeBrowser, user: Account, app: QuartTrio) -> None:
    await browser.sign_in()
    foreign = form_token(await FakeBrowser(app).open(SIGN_IN))
    for token in ({}, {"form_token": foreign}):
        assert (await browser.send("/app/sign-out", **token)).status == 403
    assert (await browser.open("/app/sign-out")).status == 405
    assert await browser.is_in()


async def test_only_form_bodies_are_accepted(api: Api, app: QuartTrio) -> None:
    for path in (SIGN_IN, CODE, FORGOT, "/app/sign-out"):
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
    set_by = {
        "device": await browser.open(SIGN_IN),
        "pre-auth": await browser.sign_in(),
    }
    set_by["session"] = set_by["trust"] = await browser.show_code(factor.code(), trust="yes")
    ages = {}
    for kind, answer in set_by.items():
        cookie = set_cookies(answer)[f"{prefix}{kind}"]
        assert cookie["httponly"], kind
        assert (cookie["secure"] is True) == secure
        assert (cookie["samesite"], cookie["path"], cookie["domain"]) == ("Lax", "/", "")
        ages[kind] = int(cookie["max-age"])
    day = 86400
    assert ages == {"device": 400 * day, "pre-auth": 600, "session": 30 * day, "trust": 90 * day}
    assert await browser.is_in()
    cleared = set_cookies(set_by["session"])[f"{prefix}pre-auth"]
    assert (cleared.value, cleared["max-age"], cleared["secure"] is True) == ("", "0", secure)


@pytest.mark.parametrize("edge", [{"base_url": HTTPS}], indirect=True)
async def test_under_https_a_cookie_without_the_prefix_is_ignored(browser: FakeBrowser, user: Account) -> None:
    await browser.sign_in()
    browser.cookies = {"gatehouse-session": browser.cookies["__Host-gatehouse-session"]}
    assert not await browser.is_in()


async def test_no_page_contains_the_value_of_a_cookie(browser: FakeBrowser, factor: Authenticator) -> None:
    await browser.sign_in()
    pages = [await browser.open(CODE)]
    await browser.show_code(factor.code(), trust="yes")
    pages += [await browser.open(path) for path in (ACCOUNT, "/app/account/devices", "/app/account/sessions", "/app/account/two-factor")]
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


async def test_get_requests_change_nothing(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    for method, path in product(("GET", "HEAD", "OPTIONS"), (SIGN_IN, CODE, FORGOT, "/app/sign-out")):
        await browser.open(path, method=method)
    assert await run_sql(pool, "select count(*) from sessions") == [(0,)]
    assert await run_sql(pool, "select count(*) from mails") == [(0,)]


async def test_a_page_has_a_strict_policy_and_is_not_cached(browser: FakeBrowser) -> None:
    for path in (SIGN_IN, FORGOT):
        answer = await browser.open(path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "form-action 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert (answer.headers["Referrer-Policy"], answer.headers["Cache-Control"]) == ("no-referrer", "no-store")
        assert answer.text.count("<h1>") == 1
        assert "<script" not in answer.text


async def test_errors_are_pages(browser: FakeBrowser) -> None:
    for path in ("/app/sign-in/nowhere", "/app/nowhere"):
        answer = await browser.open(path)
        assert answer.status == 404
        assert "<h1>Page not found</h1>" in answer.text
    assert BASE_URL not in (await browser.open("/app/nowhere")).text


async def test_the_front_page_links_to_the_sign_in_page(browser: FakeBrowser) -> None:
    assert f'href="{SIGN_IN}"' in (await browser.open("/")).text
