"""Links in verification and reset emails, and the sign-ins in which the user asked for them."""

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from html import unescape
from typing import Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.values import new_id
from core.maintenance import housekeeping
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.federation.api.relying import AUTHORIZE, RelyingParty, add_relying_party, redirect_parts
from tests.federation.api.test_pushed_requests import path, pushed
from tests.support.browser import FakeBrowser, action_of, has_ended, hidden_fields, is_step, leads_to, step_of
from tests.support.builders import EMAIL, NEW_PASSWORD, PASSWORD, Answer, deliver, link, run_sql
from tests.support.tenants import Tenant

NEW: Final = "new@example.com"
START: Final = "https://shop.example.com/login"


@pytest.fixture
async def shop(acme: Tenant, browser: FakeBrowser) -> RelyingParty:
    """An application that says where a sign-in starts."""
    shop = await add_relying_party(acme, browser)
    await run_sql(acme.pool, "update services set initiate_login_uri = %s", START)
    return shop


async def answer_request(shop: RelyingParty, page: Answer) -> None:
    browser = shop.browser
    consent = await browser.open(leads_to(await browser.fill(page, email=EMAIL, password=PASSWORD)))
    assert "code" in redirect_parts(await browser.answer(consent, "continue"))[1]


async def decline_request(shop: RelyingParty, page: Answer) -> None:
    browser = shop.browser
    consent = await browser.open(leads_to(await browser.fill(page, email=EMAIL, password=PASSWORD)))
    assert redirect_parts(await browser.answer(consent, "cancel"))[1]["error"] == "access_denied"


async def let_expire(shop: RelyingParty, _page: Answer) -> None:
    await run_sql(shop.tenant.pool, "update sign_in_flows set expires_at = %s", shop.tenant.ports.clock.now())


Ending = Callable[[RelyingParty, Answer], Awaitable[None]]
ENDINGS: Final = [answer_request, decline_request, let_expire]


async def end(shop: RelyingParty, page: Answer, ending: Ending) -> None:
    """End the sign-in that this page began. No user is signed in afterwards."""
    await ending(shop, page)
    shop.browser.cookies.pop("gatehouse-session", None)


async def ask_for_reset(page: Answer, browser: FakeBrowser) -> None:
    assert (await browser.fill(await browser.open(step_of(page, "forgot-password")), email=EMAIL)).status == 200


async def ask_for_sign_up(page: Answer, browser: FakeBrowser) -> None:
    assert (await browser.fill(await browser.open(step_of(page, "sign-up")), email=NEW, password=PASSWORD)).status == 200


async def mailed_token(ports: Ports, sent: FakeMailTransport) -> str:
    await deliver(ports)
    return link(sent.newest("/auth/(reset-password|verify-email)"))


def way_on(page: Answer) -> str:
    """Return a page's button."""
    match = re.search(r'<a class="button[^"]*" href="([^"]+)"', page.text)
    assert match, page.text
    return unescape(match[1])


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_reset_after_the_end_leads_to_the_page_that_goes_on(
    shop: RelyingParty, user: Account, ports: Ports, sent: FakeMailTransport, ending: Ending
) -> None:
    browser = shop.browser
    page = await browser.open(shop.request())
    await ask_for_reset(page, browser)
    await end(shop, page, ending)
    token = await mailed_token(ports, sent)
    done = await browser.send("/auth/reset-password", token=token, new_password=NEW_PASSWORD)
    ended = await browser.open(way_on(done))
    assert has_ended(ended)
    assert way_on(ended).startswith(START)
    assert AUTHORIZE not in done.text + ended.text


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_verification_after_the_end_leads_to_the_page_that_goes_on(
    shop: RelyingParty, user: Account, ports: Ports, sent: FakeMailTransport, ending: Ending
) -> None:
    browser = shop.browser
    page = await browser.open(shop.request())
    await ask_for_sign_up(page, browser)
    token = await mailed_token(ports, sent)
    await end(shop, page, ending)
    ended = await browser.open(f"/auth/verify-email?token={token}")
    assert (has_ended(ended), await browser.is_in()) == (True, True)
    assert way_on(ended).startswith(START)
    again = await browser.open(f"/auth/verify-email?token={token}")
    assert has_ended(await browser.open(way_on(again)))
    assert AUTHORIZE not in again.text + ended.text


async def test_the_browser_of_a_sign_up_remembers_it_after_the_sign_in_was_removed(
    shop: RelyingParty, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool, clock: FakeClock
) -> None:
    browser = shop.browser
    page = await browser.open(shop.request())
    await ask_for_sign_up(page, browser)
    await end(shop, page, answer_request)
    token = await mailed_token(ports, sent)
    clock.advance(timedelta(hours=2))
    await housekeeping.sweep(ports, new_id())
    assert await run_sql(pool, "select count(*) from sign_in_flows") == [(0,)]
    assert has_ended(await browser.open(f"/auth/verify-email?token={token}"))
    assert await browser.is_in()


async def test_another_browser_begins_again(
    shop: RelyingParty, app: QuartTrio, user: Account, ports: Ports, sent: FakeMailTransport
) -> None:
    page = await shop.browser.open(shop.request())
    await ask_for_reset(page, shop.browser)
    await end(shop, page, answer_request)
    phone = FakeBrowser(app)
    done = await phone.send("/auth/reset-password", token=await mailed_token(ports, sent), new_password=NEW_PASSWORD)
    page = await phone.open(leads_to(await phone.open(way_on(done))))
    assert is_step(action_of(page), "sign-in")
    assert "Shop" in page.text


@pytest.mark.parametrize("prompt", [None, "create"])
async def test_a_pushed_request_does_not_continue_in_another_browser(
    shop: RelyingParty, app: QuartTrio, ports: Ports, sent: FakeMailTransport, prompt: str | None
) -> None:
    page = await shop.browser.open(path(shop, await pushed(shop, prompt=prompt)))
    await ask_for_sign_up(page, shop.browser)
    token, phone = await mailed_token(ports, sent), FakeBrowser(app)
    verified = await phone.open(f"/auth/verify-email?token={token}")
    assert "Email address verified" in verified.text
    signed_in = await phone.fill(verified, email=NEW, password=PASSWORD, next=hidden_fields(verified)["next"])
    ended = await phone.open(leads_to(signed_in))
    assert (has_ended(ended), "was started in another browser" in ended.text) == (True, True)
    assert way_on(ended) == "/app"
    assert is_step(action_of(await shop.browser.open(action_of(page))), "sign-up" if prompt else "sign-in"), "it is still open"


async def test_a_reset_during_a_pushed_request(
    shop: RelyingParty, app: QuartTrio, user: Account, ports: Ports, sent: FakeMailTransport
) -> None:
    page = await shop.browser.open(path(shop, await pushed(shop)))
    for browser in (FakeBrowser(app), shop.browser):
        await ask_for_reset(page, shop.browser)
        done = await browser.send("/auth/reset-password", token=await mailed_token(ports, sent), new_password=NEW_PASSWORD)
        after = await browser.open(way_on(done))
        if browser is shop.browser:
            assert action_of(after) == action_of(page)
            consent = await browser.open(leads_to(await browser.fill(after, email=EMAIL, password=NEW_PASSWORD)))
            assert "code" in redirect_parts(await browser.answer(consent, "continue"))[1]
        else:
            assert has_ended(after)


async def test_a_link_names_no_sign_in_of_another_browser(
    shop: RelyingParty, app: QuartTrio, user: Account, ports: Ports, sent: FakeMailTransport
) -> None:
    """If an attacker chose `next`, it continues nothing from the attacker's browser."""
    flow = action_of(await FakeBrowser(app).open(shop.request())).removesuffix("/sign-in")
    browser = shop.browser
    for after in (flow, f"{shop.request()}&flow={flow.rpartition('/')[2]}"):
        await browser.submit("/app/forgot-password", "/app/forgot-password", email=EMAIL, next=after)
        done = await browser.send("/auth/reset-password", token=await mailed_token(ports, sent), new_password=NEW_PASSWORD)
        assert leads_to(await browser.open(way_on(done), follows=False)) == after


async def test_the_link_works_if_the_application_no_longer_accepts_the_request(
    shop: RelyingParty, browser: FakeBrowser, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    page = await browser.open(shop.request())
    await browser.fill(await browser.open(step_of(page, "sign-up")), email=NEW, password=PASSWORD)
    await run_sql(pool, "update services set redirect_uris = '{https://other.example/}'")
    await deliver(ports)
    request = leads_to(await browser.open(f"/auth/verify-email?token={await mailed_token(ports, sent)}"))
    assert (await browser.open(request)).status == 400
    statement = "select email_verified_at is not null from users where email = %s"
    assert await run_sql(pool, statement, NEW) == [(True,)]
    assert (await browser.open("/app/account")).status == 200
