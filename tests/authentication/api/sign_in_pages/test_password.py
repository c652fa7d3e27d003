"""Signing in and out on our pages with a password (security A-3, B-1, S-3, S-5)."""

from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.values import digest, new_secret
from entrypoints.http.base.redirects import safe_next
from ports import Ports
from tests.authentication.api.sign_in_pages.paths import FORGOT_PASSWORD, count_sessions
from tests.fakes.outside import FakeClock
from tests.support.browser import ACCOUNT, HOME, SIGN_IN, FakeBrowser, action_of, form_token, is_step, leads_to, set_cookies
from tests.support.builders import EMAIL, PASSWORD, add_account, run_sql
from tests.support.mfa import Authenticator

# With a password


async def test_a_malformed_request_in_next_does_not_break_the_page(browser: FakeBrowser) -> None:
    """The page leads to the request, which is refused there."""
    for next_path in (
        "/auth/authorize?org=%00&service=x",
        "/auth/authorize?org=x&service=%00",
        "/auth/authorize?client_id=%00",
        "/auth/authorize?state=%00",
    ):
        assert leads_to(await browser.open(f"{SIGN_IN}?{urlencode({'next': next_path})}")) == next_path
        assert (await browser.open(next_path)).status in (400, 404), next_path


async def test_the_right_password_opens_the_account_page(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    assert leads_to(await browser.open(ACCOUNT)) == f"{SIGN_IN}?next=%2Fapp%2Faccount"
    assert leads_to(await browser.sign_in()) == HOME
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


async def test_every_wrong_address_or_password_gets_the_same_page(
    browser: FakeBrowser, user: Account, ports: Ports, clock: FakeClock
) -> None:
    await add_account(ports, "deactivated@example.com", deactivated_at=clock.now())
    for email, password in ((EMAIL, "wrong"), ("unknown@example.com", PASSWORD), ("deactivated@example.com", PASSWORD)):
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
    page = await browser.sign_in(password="wrong")
    assert leads_to(await browser.send(SIGN_IN, form_token=form_token(page), email=EMAIL, password=PASSWORD)) == HOME


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
    assert leads_to(await browser.sign_in()) == HOME


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0}], indirect=True)
@pytest.mark.parametrize(("path", "allowed"), [(SIGN_IN, 10), (FORGOT_PASSWORD, 5), ("code", 3)])
async def test_pages_share_the_rate_limits_of_the_api(browser: FakeBrowser, factor: Authenticator, path: str, allowed: int) -> None:
    if path == "code":
        path = leads_to(await browser.sign_in())
    answers = [await browser.send(path) for _ in range(allowed + 1)]
    assert [answer.status for answer in answers] == [403] * allowed + [429]
    assert "Too many requests" in answers[-1].text


async def test_a_new_sign_in_replaces_the_browser_session(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    first = await browser.open(SIGN_IN)
    await browser.sign_in()
    secret = browser.cookies["gatehouse-session"]
    fields = {"form_token": form_token(first), "email": EMAIL, "password": PASSWORD}
    assert leads_to(await browser.send(SIGN_IN, **fields)) == HOME
    assert browser.cookies["gatehouse-session"] != secret
    assert await count_sessions(pool) == 1


async def test_a_signed_in_user_is_redirected(browser: FakeBrowser, user: Account) -> None:
    await browser.sign_in()
    assert leads_to(await browser.open(SIGN_IN)) == HOME
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


LOCAL_PATHS = ["/", "/app/account", "/app/account/devices?page=2", "/docs", "/a.b/..c/.d", "/x?next=//evil.example", "/app/caf%C3%A9"]
FOREIGN_PATHS = [
    *("", "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example", "evil.example"),
    *("javascript:x", "/app/../..//evil.example", "/..//evil.example", "/app/../account", "/./x", "/app/.", "/app/.."),
    *("/%2e%2e//evil.example", "/a/%2E./b", "/.%2e/x", "/a//b", "/\t/evil.example", "/\n/evil.example", "/app\r\nSet-Cookie: x=y"),
    *(" /app", "/a b", "/x\x00", "/app/café", "/%5Cevil", "/\u2028", "/x#y", "/" + "x" * 9000, "?x", "http:/x", "/x?\\evil"),
]  # fmt: skip


async def test_a_sign_in_continues_at_a_local_path(app: QuartTrio, user: Account) -> None:
    assert [path for path in LOCAL_PATHS if safe_next(path) != path] == []
    assert [path for path in LOCAL_PATHS if leads_to(await FakeBrowser(app).sign_in(after=path)) != path] == []


async def test_a_sign_in_never_continues_at_another_site(app: QuartTrio) -> None:
    assert [target for target in FOREIGN_PATHS if safe_next(target) != HOME] == []
    field = '<input type="hidden" name="next" value="/app">'
    pages = {target: await FakeBrowser(app).open(f"{SIGN_IN}?{urlencode({'next': target})}") for target in FOREIGN_PATHS}
    assert [target for target, page in pages.items() if field not in page.text] == []


async def test_the_next_path_of_a_form_is_checked_again(browser: FakeBrowser, factor: Authenticator) -> None:
    answer = await browser.submit(SIGN_IN, SIGN_IN, email=EMAIL, password=PASSWORD, next="/app/../..//evil.example")
    assert is_step(leads_to(answer), "code")
    answer = await browser.show_code(factor.code(), next="//evil.example")
    assert await browser.ends_at(answer) == HOME


async def test_the_next_path_survives_the_second_factor(browser: FakeBrowser, factor: Authenticator) -> None:
    on = leads_to(await browser.sign_in(after="/app/account/devices"))
    assert is_step(on, "code")
    page = await browser.open(on)
    assert action_of(page) == on
    assert await browser.ends_at(await browser.fill(page, code=factor.code())) == "/app/account/devices"


# Signing out


async def test_a_sign_out_ends_the_session_and_keeps_the_device(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    await browser.sign_in()
    secret = browser.cookies["gatehouse-session"]
    assert leads_to(await browser.submit("/app/sign-out")) == SIGN_IN
    assert "gatehouse-session" not in browser.cookies
    assert "gatehouse-device" in browser.cookies
    browser.cookies["gatehouse-session"] = secret
    assert not await browser.is_in()
    assert await count_sessions(pool) == 0
    assert leads_to(await browser.send("/app/sign-out")) == SIGN_IN, "without a session no form token is needed"


# Forgotten passwords


async def test_the_forgot_password_page_is_the_same_for_every_address(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    pages = []
    for email in (EMAIL, "unknown@example.com", "no address", ""):
        answer = await browser.submit(FORGOT_PASSWORD, FORGOT_PASSWORD, email=email)
        assert answer.status == 200
        pages.append(answer.text.partition("<body>")[2])
    assert len({*pages}) == 1
    assert await run_sql(pool, "select kind, address from mails order by address") == [
        ("reset_password", EMAIL),
        ("reset_password", "unknown@example.com"),
    ]
