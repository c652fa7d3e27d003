"""Signing in on our pages with an emailed code or link (security A-5, A-10, G-2)."""

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
from tests.authentication.email_sign_ins import LINK_PAGE, REQUEST_PAGE, code_in, wrong
from tests.fakes.outside import FakeClock, FakeGeoIp, FakeMailTransport
from tests.support.browser import HOME, SIGN_IN, FakeBrowser, action_of, form_token, is_step, leads_to
from tests.support.builders import EMAIL, PASSWORD, Answer, add_member, deliver, link, run_sql
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
    page = await browser.open(after or SIGN_IN)
    return await browser.send(f"{action_of(page)}/email", form_token=form_token(page), email=email, password="")


async def read_email(ports: Ports, sent: FakeMailTransport) -> tuple[str, str]:
    """Return the code and the link path in the email."""
    await deliver(ports)
    return code_in(sent.emails[-1]), f"{LINK_PAGE}?token={link(sent.emails[-1])}"


async def follow(browser: FakeBrowser, path: str) -> Answer:
    """Open the link, and press the button on its page."""
    page = await browser.open(path)
    return await browser.send(LINK_PAGE, form_token=form_token(page), token=path.partition("token=")[2])


async def test_the_code_signs_in_the_browser_that_asked(
    browser: FakeBrowser, phone: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    code_page = leads_to(await ask(browser))
    assert is_step(code_page, "email")
    page = await browser.open(code_page)
    assert EMAIL in page.text
    code, _ = await read_email(ports, sent)
    of_phone = leads_to(await ask(phone, "other@example.com"))
    assert (await phone.submit(of_phone, of_phone, code=code)).status == 401, "another browser"
    for answer in (await phone.open(code_page), await phone.submit(code_page, of_phone, code=code)):
        assert (answer.status, "no longer open" in answer.text, EMAIL in answer.text) == (200, True, False)
    refused = await browser.submit(code_page, code_page, code=wrong(code))
    assert (refused.status, "This code is wrong." in refused.text) == (401, True)
    assert await browser.follow(leads_to(await browser.submit(code_page, code_page, code=code))) == HOME
    assert await browser.is_in()
    assert await run_sql(pool, "select proofs -> 0 ->> 'method' from sessions") == [("email",)]
    assert "You're signed in" in (await browser.open(code_page)).text


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
    assert await browser.follow(leads_to(await follow(browser, path))) == HOME
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
    code_page = leads_to(await ask(browser, after=AUTHORIZE))
    _, path = await read_email(ports, sent)
    await ask(phone, "other@example.com")  # it has its own flow
    page = await phone.open(path)
    for shown in ("Firefox on", "Berlin, DE", "14 March 2026 at 15:09 UTC", EMAIL, "Shop"):
        assert shown in page.text, shown
    assert "/app/flow/" not in page.text, "the sign-in of the other browser stays there"
    assert leads_to(await follow(phone, path)) == HOME, "the application waits in the other browser"
    assert await phone.is_in()
    assert not await browser.is_in()
    assert action_of(await browser.open(code_page)) == code_page.replace("/email", "/sign-in"), "the link used the code up"


async def test_the_code_uses_the_link_up(browser: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport) -> None:
    code_page = leads_to(await ask(browser))
    code, path = await read_email(ports, sent)
    await browser.submit(code_page, code_page, code=code)
    ended = await browser.open(path)
    assert (ended.status, "This link doesn't work" in ended.text) == (400, True)


async def test_the_sign_in_continues_at_the_application_and_confirms_the_membership(
    browser: FakeBrowser, acme: Tenant, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    await add_service(pool, acme.org)
    await add_member(pool, acme.org, user.id)
    await ask(browser, after=AUTHORIZE)
    _, path = await read_email(ports, sent)
    end = await browser.follow(leads_to(await follow(browser, path)))
    assert end.startswith("https://shop.example.com/callback?code=")
    assert await run_sql(pool, "select confirmed_at is not null from memberships where user_id = %s", user.id) == [(True,)]


async def test_the_second_factor_comes_next(
    browser: FakeBrowser, phone: FakeBrowser, user: Account, factor: Authenticator, ports: Ports, sent: FakeMailTransport
) -> None:
    await ask(browser)
    _, path = await read_email(ports, sent)
    assert is_step(leads_to(await follow(phone, path)), "code")
    assert not await phone.is_in()
    assert await phone.follow(leads_to(await phone.show_code(factor.code()))) == HOME


async def test_the_second_factor_continues_in_the_flow_of_the_email(
    browser: FakeBrowser, user: Account, factor: Authenticator, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    code_page = leads_to(await ask(browser))
    code, _ = await read_email(ports, sent)
    assert leads_to(await browser.submit(code_page, code_page, code=code)) == code_page.replace("/email", "/code")
    assert not await browser.is_in()
    assert action_of(await browser.open(code_page)) == browser.code_path, "the email was used"
    assert await browser.follow(leads_to(await browser.show_code(factor.code()))) == HOME
    assert await run_sql(pool, "select count(*) from sign_in_flows") == [(1,)]


async def test_a_sign_in_with_a_password_ends_the_email_of_its_flow(
    browser: FakeBrowser, user: Account, factor: Authenticator, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    """Otherwise a user could sign in to their own account to get five more attempts at another user's code."""
    code_page = leads_to(await ask(browser, "victim@example.com"))
    await deliver(ports)
    for _ in range(5):
        assert (await browser.submit(code_page, code_page, code="000000")).status == 401
    page = await browser.open(code_page.replace("/email", "/sign-in"))
    assert is_step(leads_to(await browser.fill(page, email=EMAIL, password=PASSWORD)), "code")
    assert action_of(await browser.open(code_page)) == browser.code_path
    assert (await browser.submit(code_page, browser.code_path, code="000000")).status == 401
    assert await run_sql(pool, "select failures from guesses where secret = 'email_code'") == [(5,)]


async def test_an_email_that_has_expired_leads_back_to_the_sign_in_page(
    browser: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport, clock: FakeClock
) -> None:
    code_page = leads_to(await ask(browser))
    code, path = await read_email(ports, sent)
    form = form_token(await browser.open(code_page))
    clock.advance(timedelta(minutes=15))
    assert action_of(await browser.open(code_page)) == code_page.replace("/email", "/sign-in")
    late = await browser.send(code_page, form_token=form, code=code)
    assert (late.status, "This code can no longer be used" in late.text) == (401, True)
    assert (await browser.open(path)).status == 400


async def test_a_new_code_can_be_requested_from_the_page(
    browser: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport, clock: FakeClock
) -> None:
    code_page = leads_to(await ask(browser))
    old, _ = await read_email(ports, sent)
    clock.advance(timedelta(seconds=30))
    request_page = code_page.replace("/email", "/sign-in/email")
    assert request_page in (await browser.open(code_page)).text
    assert leads_to(await browser.submit(request_page, code_page, email=EMAIL, again="yes")) == code_page
    new, _ = await read_email(ports, sent)
    assert "Only the newest code works." in (await browser.open(code_page)).text
    assert old == new or (await browser.submit(code_page, code_page, code=old)).status == 401
    assert await browser.follow(leads_to(await browser.submit(code_page, code_page, code=new))) == HOME


async def test_a_malformed_address_shows_the_sign_in_page_again(browser: FakeBrowser) -> None:
    answer = await ask(browser, "ada")
    assert (answer.status, "The email address is not valid." in answer.text) == (400, True)


async def test_the_form_token_is_required(browser: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport) -> None:
    assert (await browser.send(REQUEST_PAGE, email=EMAIL)).status == 403
    code_page = leads_to(await ask(browser))
    code, path = await read_email(ports, sent)
    assert (await browser.send(code_page, code=code)).status == 403
    assert (await browser.send(LINK_PAGE, token=path[-36:])).status == 403


async def test_the_button_and_the_pages_follow_the_setting_of_platform_and_service(
    app: QuartTrio, browser: FakeBrowser, acme: Tenant, pool: Pool
) -> None:
    await add_service(pool, acme.org)
    change_ports(app, policy=Policy())
    for choice, is_shown in ((None, False), (True, True), (False, False)):
        await run_sql(pool, "update services set email_sign_in = %s", choice)
        assert ("Email me a code" in (await browser.open(AUTHORIZE)).text) is is_shown
        assert "Email me a code" not in (await browser.open(SIGN_IN)).text
        assert (await ask(browser, after=AUTHORIZE)).status == (303 if is_shown else 404)
        assert (await ask(browser)).status == 404


async def test_no_page_asks_for_a_code_that_cannot_be_right(
    browser: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport
) -> None:
    """After the fifth wrong code, the sign-in page says why."""
    code_page = leads_to(await ask(browser))
    code, path = await read_email(ports, sent)
    sign_in, form = code_page.replace("/email", "/sign-in"), form_token(await browser.open(code_page))
    for _ in range(4):
        page = await browser.send(code_page, form_token=form, code=wrong(code))
        assert (page.status, action_of(page), "This code is wrong" in page.text) == (401, code_page, True)
    assert (await browser.send(code_page, form_token=form, code="abc")).status == 400, "it is not counted"
    page = await browser.send(code_page, form_token=form, code=wrong(code))
    assert (page.status, action_of(page), f'value="{EMAIL}"' in page.text) == (401, sign_in, True)
    assert "There were too many wrong codes. Request a new email." in page.text
    assert leads_to(await browser.open(code_page, follows=False)) == sign_in
    late = await browser.send(code_page, form_token=form, code=code)
    assert (late.status, action_of(late), "This code can no longer be used" in late.text) == (401, sign_in, True)
    assert await browser.follow(leads_to(await follow(browser, path))) == HOME, "the link still works"


async def test_an_email_whose_account_has_another_address_now_leads_to_the_sign_in_page(
    browser: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    code_page = leads_to(await ask(browser))
    code, _ = await read_email(ports, sent)
    await run_sql(pool, "update users set email = 'other@example.com'")
    page = await browser.submit(code_page, code_page, code=code)
    assert (page.status, action_of(page)) == (401, code_page.replace("/email", "/sign-in"))
    assert "This code can no longer be used" in page.text
