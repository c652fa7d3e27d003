"""Signing in on our pages with the code or the link of an email (security A-5, A-10, G-2)."""

from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.devices import Location
from core.kernel.policy import Policy
from ports import Ports
from tests.authentication.api.sign_in_pages.paths import count_sessions
from tests.authentication.email_sign_ins import CODE_PAGE, LINK_PAGE, REQUEST_PAGE, code_in, wrong
from tests.fakes.outside import FakeClock, FakeGeoIp, FakeMailTransport
from tests.support.browser import ACCOUNT, SIGN_IN, FakeBrowser, form_token, is_step, leads_to
from tests.support.builders import EMAIL, Answer, add_member, deliver, link, run_sql
from tests.support.direct import PEER, change_ports
from tests.support.mfa import Authenticator
from tests.support.services import add_service
from tests.support.tenants import Tenant

AUTHORIZE = "/auth/authorize?" + urlencode(
    {"org": "acme", "service": "shop", "redirect_uri": "https://shop.example.com/callback", "state": "abc", "response_type": "code"}
)


@pytest.fixture
def ports(ports: Ports) -> Ports:
    return replace(ports, policy=Policy(email_sign_in=True))


@pytest.fixture
def phone(app: QuartTrio) -> FakeBrowser:
    """Another browser of the same user."""
    return FakeBrowser(app)


async def ask(browser: FakeBrowser, email: str = EMAIL, *, after: str = "") -> Answer:
    """Press the button "Email me a code" on the sign-in page."""
    more = {"next": after} if after else {}
    return await browser.submit(REQUEST_PAGE, f"{SIGN_IN}?{urlencode(more)}", email=email, password="", **more)


async def read_email(ports: Ports, sent: FakeMailTransport) -> tuple[str, str]:
    """Return the code and the path of the link in the email."""
    await deliver(ports)
    return code_in(sent.emails[-1]), f"{LINK_PAGE}?token={link(sent.emails[-1])}"


async def follow(browser: FakeBrowser, path: str) -> Answer:
    """Open the link, and press the button of its page."""
    page = await browser.open(path)
    return await browser.send(LINK_PAGE, form_token=form_token(page), token=path.partition("token=")[2])


async def test_the_code_signs_in_the_browser_that_asked(
    browser: FakeBrowser, phone: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    assert leads_to(await ask(browser)) == CODE_PAGE
    page = await browser.open(CODE_PAGE)
    assert EMAIL in page.text
    code, _ = await read_email(ports, sent)
    await ask(phone, "other@example.com")
    assert (await phone.submit(CODE_PAGE, CODE_PAGE, code=code)).status == 401, "another browser"
    refused = await browser.submit(CODE_PAGE, CODE_PAGE, code=wrong(code))
    assert (refused.status, "This code is wrong." in refused.text) == (401, True)
    assert leads_to(await browser.submit(CODE_PAGE, CODE_PAGE, code=code)) == ACCOUNT
    assert await browser.is_in()
    assert await run_sql(pool, "select provider from sessions") == [("email",)]
    assert leads_to(await browser.open(CODE_PAGE)) == SIGN_IN


async def test_opening_the_link_changes_nothing_and_its_button_signs_in(
    browser: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    await ask(browser)
    _, path = await read_email(ports, sent)
    for _ in range(3):
        page = await browser.open(path)
        assert page.status == 200
    assert "another browser" not in page.text
    assert await count_sessions(pool) == 0
    assert leads_to(await follow(browser, path)) == ACCOUNT
    assert await browser.is_in()
    for again in (await browser.open(path), await browser.send(LINK_PAGE, form_token=form_token(page), token=path[-36:])):
        assert (again.status, "This link doesn't work" in again.text) == (400, True)
    assert await count_sessions(pool) == 1


async def test_another_browser_sees_where_the_request_came_from_and_signs_in_itself(
    browser: FakeBrowser,
    phone: FakeBrowser,
    user: Account,
    ports: Ports,
    sent: FakeMailTransport,
    geoip: FakeGeoIp,
    acme: Tenant,
    pool: Pool,
) -> None:
    await add_service(pool, acme.org)
    geoip.known[PEER] = Location("Berlin", "DE")
    await ask(browser, after=AUTHORIZE)
    _, path = await read_email(ports, sent)
    await ask(phone, "other@example.com")  # it has the secret of another request
    page = await phone.open(path)
    for shown in ("Firefox on", "Berlin, DE", "14 March 2026 at 15:09 UTC", EMAIL, "Shop"):
        assert shown in page.text, shown
    assert leads_to(await follow(phone, path)) == ACCOUNT, "the application waits in the other browser"
    assert await phone.is_in()
    assert not await browser.is_in()
    assert leads_to(await browser.open(CODE_PAGE)) == SIGN_IN, "the link used the code up"


async def test_the_code_uses_the_link_up(browser: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport) -> None:
    await ask(browser)
    code, path = await read_email(ports, sent)
    await browser.submit(CODE_PAGE, CODE_PAGE, code=code)
    ended = await browser.open(path)
    assert (ended.status, "This link doesn't work" in ended.text) == (400, True)


async def test_the_sign_in_continues_at_the_application_and_confirms_the_membership(
    browser: FakeBrowser, acme: Tenant, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    await add_service(pool, acme.org)
    await add_member(pool, acme.org, user.id)
    await ask(browser, after=AUTHORIZE)
    _, path = await read_email(ports, sent)
    assert leads_to(await follow(browser, path)) == AUTHORIZE
    assert leads_to(await browser.open(AUTHORIZE)).startswith("https://shop.example.com/callback?code=")
    assert await run_sql(pool, "select confirmed_at is not null from memberships where user_id = %s", user.id) == [(True,)]


async def test_the_second_factor_comes_next(
    browser: FakeBrowser, phone: FakeBrowser, user: Account, factor: Authenticator, ports: Ports, sent: FakeMailTransport
) -> None:
    await ask(browser)
    _, path = await read_email(ports, sent)
    assert is_step(leads_to(await follow(phone, path)), "code")
    assert not await phone.is_in()
    assert leads_to(await phone.show_code(factor.code())) == ACCOUNT


async def test_a_new_code_can_be_requested_from_the_page(
    browser: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport, clock: FakeClock
) -> None:
    await ask(browser)
    old, _ = await read_email(ports, sent)
    clock.advance(timedelta(seconds=30))
    assert leads_to(await browser.submit(REQUEST_PAGE, CODE_PAGE, email=EMAIL, again="yes")) == CODE_PAGE
    new, _ = await read_email(ports, sent)
    assert "Only the newest code works." in (await browser.open(CODE_PAGE)).text
    assert old == new or (await browser.submit(CODE_PAGE, CODE_PAGE, code=old)).status == 401
    assert leads_to(await browser.submit(CODE_PAGE, CODE_PAGE, code=new)) == ACCOUNT


async def test_a_malformed_address_shows_the_sign_in_page_again(browser: FakeBrowser) -> None:
    answer = await ask(browser, "ada")
    assert (answer.status, "The email address is not valid." in answer.text) == (400, True)


async def test_the_form_token_is_required(browser: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport) -> None:
    assert (await browser.send(REQUEST_PAGE, email=EMAIL)).status == 403
    await ask(browser)
    code, path = await read_email(ports, sent)
    assert (await browser.send(CODE_PAGE, code=code)).status == 403
    assert (await browser.send(LINK_PAGE, token=path[-36:])).status == 403


async def test_the_button_and_the_pages_follow_the_setting_of_platform_and_service(
    app: QuartTrio, browser: FakeBrowser, acme: Tenant, pool: Pool
) -> None:
    await add_service(pool, acme.org)
    change_ports(app, policy=Policy())
    of_service = f"{SIGN_IN}?{urlencode({'next': AUTHORIZE})}"
    for choice, is_shown in ((None, False), (True, True), (False, False)):
        await run_sql(pool, "update services set email_sign_in = %s", choice)
        assert ("Email me a code" in (await browser.open(of_service)).text) is is_shown
        assert "Email me a code" not in (await browser.open(SIGN_IN)).text
        assert (await ask(browser, after=AUTHORIZE)).status == (303 if is_shown else 404)
        assert (await ask(browser)).status == 404
