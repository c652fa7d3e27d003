"""The second factor on our pages (security A-10, J-8)."""

from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.values import digest, new_id
from tests.authentication.api.sign_in_pages.paths import count_sessions
from tests.fakes.outside import FakeClock
from tests.support.browser import HOME, SIGN_IN, FakeBrowser, action_of, form_token, has_ended, is_step, leads_to
from tests.support.builders import EMAIL, PASSWORD, Api, run_concurrently, run_sql
from tests.support.mfa import BACKUP_CODES, Authenticator
from tests.support.services import add_service
from tests.support.tenants import Tenants

AUTHORIZE = "/auth/authorize"  # the platform itself


async def test_a_password_alone_gives_no_session_if_a_code_is_required(browser: FakeBrowser, factor: Authenticator, pool: Pool) -> None:
    assert is_step(leads_to(await browser.sign_in()), "code")
    assert "gatehouse-session" not in browser.cookies
    assert await count_sessions(pool) == 0
    assert not await browser.is_in()
    assert await browser.ends_at(await browser.show_code(factor.code())) == HOME
    assert await run_sql(pool, "select count(*) from sign_in_flows where closed_at is null or user_id is not null") == [(0,)]
    assert await browser.is_in()


async def test_a_malformed_code_is_400_and_not_counted(browser: FakeBrowser, factor: Authenticator) -> None:
    await browser.sign_in()
    for code in ("", "12345", "1234567", "abcd.efgh", "\uff11\uff12\uff13\uff14\uff15\uff16", "\u00a0123456"):
        answer = await browser.show_code(code)
        assert answer.status == 400, code
        assert 'aria-invalid="true"' in answer.text
    assert await browser.ends_at(await browser.show_code(factor.code())) == HOME


@pytest.mark.parametrize("spelling", [" {0} {1}\n", "{0}{1}", "{0}-{1}"])
async def test_a_backup_code_is_taken_in_any_case_with_or_without_the_dash(
    browser: FakeBrowser, factor: Authenticator, api: Api, spelling: str
) -> None:
    """The API keeps its format (security M-3)."""
    code = spelling.format(*BACKUP_CODES[0].lower().split("-"))
    await browser.sign_in()
    assert await browser.ends_at(await browser.show_code(code)) == HOME
    pre_auth = (await api.login()).json["access_token"]
    assert (await api.post("/api/auth/mfa/verify", {"code": code}, token=pre_auth)).status == 400


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
    assert await other.ends_at(await other.show_code(factor.code(1))) == HOME


async def test_a_backup_code_works_once(browser: FakeBrowser, factor: Authenticator, app: QuartTrio) -> None:
    await browser.sign_in()
    assert await browser.ends_at(await browser.show_code(factor.backup_codes[0])) == HOME
    other = FakeBrowser(app)
    await other.sign_in()
    assert (await other.show_code(factor.backup_codes[0])).status == 401


@pytest.mark.slow
async def test_five_wrong_codes_lead_back_to_the_sign_in_page(browser: FakeBrowser, factor: Authenticator) -> None:
    await browser.sign_in()
    for _ in range(5):
        assert (await browser.show_code(factor.wrong())).status == 401
    page = await browser.show_code(factor.code())
    assert page.status == 401
    assert "Sign in again." in page.text
    assert "<h1>Sign in</h1>" in page.text
    assert not await browser.is_in()


async def test_a_pending_sign_in_expires_after_ten_minutes(browser: FakeBrowser, factor: Authenticator, clock: FakeClock) -> None:
    page = await browser.open(leads_to(await browser.sign_in()))
    clock.advance(timedelta(seconds=600) - timedelta(microseconds=1))
    assert (await browser.fill(page, code=factor.wrong())).text.count("This code is wrong") == 1, "it was checked"
    clock.advance(timedelta(microseconds=1))
    answer = await browser.fill(page, code=factor.code())
    assert answer.status == 401
    assert "<h1>Sign in</h1>" in answer.text


async def test_a_sign_in_that_an_application_started_cannot_continue_on_our_pages(
    browser: FakeBrowser, factor: Authenticator, api: Api, tenants: Tenants, pool: Pool
) -> None:
    acme = await tenants.add("acme")
    await add_service(pool, acme.org, "shop")
    began = await api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"})
    assert began.status == 200
    [(flow,)] = await run_sql(pool, "select id from sign_in_flows")
    before = await count_sessions(pool)
    answer = await browser.submit(f"/app/flow/{flow}/code", SIGN_IN, code=factor.code())
    assert has_ended(answer)
    assert ("gatehouse-session" in browser.cookies, await count_sessions(pool)) == (False, before)


async def test_the_code_page_needs_a_pending_sign_in(browser: FakeBrowser, factor: Authenticator) -> None:
    page = await browser.open("/auth/authorize")  # the platform itself
    code = action_of(page).replace("/sign-in", "/code")
    assert is_step(code, "code")
    assert "<h1>Sign in" in (await browser.open(code)).text
    answer = await browser.send(code, form_token=form_token(page), code=factor.code())
    assert (answer.status, "<h1>Sign in" in answer.text) == (401, True)
    answer = await browser.send(f"/app/flow/{new_id()}/code", form_token=form_token(page), code=factor.code())
    assert has_ended(answer)
    assert not await browser.is_in()


async def test_a_pending_sign_in_continues_in_its_own_browser_only(browser: FakeBrowser, factor: Authenticator, app: QuartTrio) -> None:
    code, other = leads_to(await browser.sign_in()), FakeBrowser(app)
    pages = [await other.open(code), await other.submit(code, SIGN_IN, code=factor.code())]
    for page in pages:
        assert has_ended(page)
        assert EMAIL not in page.text
    assert not await other.is_in()
    assert await browser.ends_at(await browser.show_code(factor.code())) == HOME, "the code was not used up"


async def test_a_trusted_browser_skips_the_code_until_the_trust_ends(
    browser: FakeBrowser, factor: Authenticator, clock: FakeClock, app: QuartTrio
) -> None:
    await browser.sign_in_with(factor, trust="yes")
    await browser.submit("/app/sign-out")
    assert leads_to(await browser.sign_in()) == HOME
    other = FakeBrowser(app)
    assert is_step(leads_to(await other.sign_in()), "code"), "only this browser is trusted"
    other.cookies["gatehouse-device"] = browser.cookies["gatehouse-device"]
    assert is_step(leads_to(await other.sign_in()), "code"), "the device id alone is not trusted"
    await browser.submit("/app/sign-out")
    clock.advance(timedelta(days=30))
    assert is_step(leads_to(await browser.sign_in()), "code")


async def test_trust_is_only_given_on_request(browser: FakeBrowser, factor: Authenticator) -> None:
    await browser.sign_in_with(factor)
    assert "gatehouse-trust" not in browser.cookies
    await browser.submit("/app/sign-out")
    assert is_step(leads_to(await browser.sign_in()), "code")


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


@pytest.mark.slow
@pytest.mark.parametrize("after", ["", AUTHORIZE])
async def test_the_fifth_wrong_code_ends_the_first_factor(browser: FakeBrowser, factor: Authenticator, after: str) -> None:
    code = leads_to(await browser.sign_in(after=after))
    for _ in range(4):
        page = await browser.show_code(factor.wrong())
        assert (page.status, action_of(page), "This code is wrong" in page.text) == (401, code, True)
    page = await browser.show_code(factor.wrong())
    sign_in = code.replace("/code", "/sign-in")
    assert (page.status, action_of(page)) == (401, sign_in)
    assert "There were too many wrong codes. Sign in again." in page.text
    for path in (code, code.removesuffix("/code")):
        assert leads_to(await browser.open(path, follows=False)) == sign_in, path
    assert leads_to(await browser.fill(page, email=EMAIL, password=PASSWORD)) == code
    assert await browser.ends_at(await browser.show_code(factor.code())) == HOME


@pytest.mark.slow
async def test_the_fifth_code_can_be_right_and_counts_once(browser: FakeBrowser, factor: Authenticator, pool: Pool) -> None:
    code = leads_to(await browser.sign_in())
    for _ in range(4):
        page = await browser.show_code(factor.wrong())
    form, right = form_token(page), factor.code()
    answers = await run_concurrently(20, lambda _: browser.send(code, form_token=form, code=right))
    assert [leads_to(answer) for answer in answers if answer.status == 303] == [HOME]
    assert await count_sessions(pool) == 1
    assert await browser.is_in()


@pytest.mark.slow
async def test_a_right_code_works_among_wrong_ones_that_are_sent_at_once(browser: FakeBrowser, factor: Authenticator) -> None:
    """The wrong codes may use up the tries while the right code is checked."""
    code = leads_to(await browser.sign_in())
    form = form_token(await browser.open(code))
    codes = [factor.code(), *(factor.wrong() for _ in range(4))]
    answers = await run_concurrently(5, lambda number: browser.send(code, form_token=form, code=codes[number]))
    right, *wrong = [answer.status for answer in answers]
    assert right == 303
    assert {*wrong} <= {401, 200}, "a wrong code that comes after the sign-in has ended gets the page that says so"
    assert await browser.is_in()
