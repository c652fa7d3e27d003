"""Single logout that a user starts on our own page (security X-9)."""

from datetime import timedelta

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.saml_logout.progress import no_logout_is_stored
from tests.support.browser import ACCOUNT, SIGN_IN, form_token, leads_to
from tests.support.builders import EMAIL, add_account, run_concurrently
from tests.support.saml import SamlApplication, logout_response, redirect_url
from tests.support.saml.browser import (
    LogoutWalk,
    RedirectedMessage,
    SamlApplications,
    SamlBrowser,
    redirect_target,
    request_logout,
    sign_out,
)
from tests.support.services import add_service_user


async def test_signing_out_on_our_page_signs_out_of_all_applications(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, clock: FakeClock
) -> None:
    await browser.sign_in()
    await browser.sign_on(shop)
    clock.advance(timedelta(seconds=1))
    await browser.sign_on(blog)
    page = await sign_out(browser)
    assert page.status == 200
    assert f'<meta http-equiv="refresh" content="0;url={shop.path}/slo">' in page.text
    assert not await browser.is_in()
    step = await browser.open(f"{shop.path}/slo")
    notified = []
    for _ in range(2):
        message = RedirectedMessage(redirect_target(step))
        notified.append(message.url)
        application = shop if "shop" in message.url else blog
        response = logout_response(application, browser.now(), message.root.get("ID"))
        step = await browser.open(redirect_target(await browser.open(redirect_url(f"{application.path}/slo", response, "SAMLResponse"))))
    assert sorted(notified) == ["https://blog.example.com/slo", "https://shop.example.com/slo"]
    assert step.status == 200
    assert "You're signed out" in step.text
    assert f'href="{SIGN_IN}"' in step.text
    assert "Some applications didn't confirm" not in step.text
    assert "gatehouse-saml-logout" not in browser.cookies


async def test_the_page_mentions_an_application_that_did_not_answer(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    await browser.sign_in()
    await browser.sign_on(shop)
    await sign_out(browser, next="/app/account/devices")
    for _ in range(2):
        redirect_target(await browser.open(f"{shop.path}/slo"))
    page = await browser.open(f"{shop.path}/slo")
    assert "Some applications didn't confirm" in page.text
    assert "next=%2Fapp%2Faccount%2Fdevices" in page.text


async def test_without_applications_signing_out_redirects_to_the_sign_in_page(
    browser: SamlBrowser, applications: SamlApplications, user: Account
) -> None:
    await browser.sign_in()
    assert leads_to(await sign_out(browser)) == SIGN_IN
    assert "You&#39;re signed out." in (await browser.open(SIGN_IN)).text
    assert "You&#39;re signed out." not in (await browser.open(SIGN_IN)).text, "the notice is shown once"
    silent = await applications.add("silent", slo_url=None)
    await browser.sign_in()
    await browser.sign_on(silent)
    assert leads_to(await sign_out(browser)) == SIGN_IN


@pytest.mark.parametrize("by_user", [EMAIL, "other@example.com"])
async def test_a_session_that_replaced_another_signs_out_of_its_own_applications(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, ports: Ports, clock: FakeClock, by_user: str
) -> None:
    if by_user != EMAIL:
        await add_service_user(ports, blog.id, (await add_account(ports, by_user)).id, signed_in=False)
    await browser.sign_in()
    replaced = await browser.sign_on(shop)
    clock.advance(timedelta(minutes=1))
    path = await browser.start_sign_on(blog, ForceAuthn="true")
    clock.advance(timedelta(seconds=1))
    await browser.sign_in_at(path, by_user)
    await browser.open(path)
    answer = await request_logout(browser, shop, replaced.name_id, replaced.session_index)
    assert RedirectedMessage(redirect_target(answer)).statuses == ["Requester", "UnknownPrincipal"]
    await sign_out(browser)
    urls = {RedirectedMessage(redirect_target(await browser.open(f"{shop.path}/slo"))).url for _ in range(2)}
    assert urls == {"https://blog.example.com/slo"}


async def test_signing_out_twice_on_our_page_continues_the_logout(walk: LogoutWalk, browser: SamlBrowser) -> None:
    await walk.sign_in()
    token = form_token(await browser.open(ACCOUNT))
    before = dict(browser.cookies)
    first = await browser.send("/app/sign-out", form_token=token)
    after = dict(browser.cookies)
    for cookies in (before, after):
        browser.cookies = cookies
        repeated_answer = await browser.send("/app/sign-out", form_token=token)
        assert repeated_answer.status == first.status == 200
        assert 'http-equiv="refresh"' in repeated_answer.text
    last = await walk.finish(await browser.open(f"{walk.applications['wiki'].path}/slo"))
    assert sorted(walk.notified) == ["blog", "desk", "shop", "wiki"]
    assert last.status == 200
    assert leads_to(await browser.send("/app/sign-out", form_token=token)).startswith(SIGN_IN)


async def test_parallel_sign_outs_on_our_page_notify_each_application_once(walk: LogoutWalk, browser: SamlBrowser, pool: Pool) -> None:
    await walk.sign_in()
    token = form_token(await browser.open(ACCOUNT))
    answers = await run_concurrently(8, lambda _: browser.send("/app/sign-out", form_token=token))
    assert {answer.status for answer in answers} == {200}
    last = await walk.finish(await browser.open(f"{walk.applications['shop'].path}/slo"))
    assert sorted(walk.notified) == ["blog", "desk", "shop", "wiki"]
    assert "Some applications didn't confirm" not in last.text
    assert await no_logout_is_stored(pool)
