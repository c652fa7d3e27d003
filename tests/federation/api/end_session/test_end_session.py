"""The logout endpoint with honest applications, and the sessions that end with the browser's (RP-Initiated Logout 1.0)."""

from datetime import timedelta
from urllib.parse import parse_qsl

import pytest

from core.accounts.model.accounts import Account
from core.authentication.model.tokens import UnknownKey
from core.authentication.tokens import signing_keys
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.end_session.applications import (
    BYE,
    CROSS_SITE,
    END_SESSION,
    end_session_path,
    is_usable,
    openid_tokens,
)
from tests.federation.api.relying import RelyingParty, redirect_parts
from tests.support.browser import ACCOUNT, form_token, leads_to
from tests.support.saml import SamlApplication
from tests.support.saml.browser import LogoutWalk, SamlBrowser, redirect_target


async def test_an_id_token_of_this_browser_signs_out_and_returns(till: RelyingParty, browser: SamlBrowser, clock: FakeClock) -> None:
    """This works even if the ID token has expired, as in most applications (section 2)."""
    tokens = await openid_tokens(till)
    clock.advance(timedelta(days=1))
    path = end_session_path(id_token_hint=tokens["id_token"], post_logout_redirect_uri=BYE, state="a b&c", ui_locales="de", logout_hint="x")
    assert leads_to(await browser.open(path)) == f"{BYE}&state=a+b%26c"
    assert not await browser.is_in()
    assert (await till.refresh(tokens["refresh_token"])).status == 400


async def test_an_id_token_is_a_hint_after_its_key_has_retired(
    till: RelyingParty, browser: SamlBrowser, ports: Ports, clock: FakeClock
) -> None:
    """A key retires every 90 days, and sessions last longer than the tokens that it signed. A stolen key ends at once."""
    tokens = await openid_tokens(till)
    path = end_session_path(id_token_hint=tokens["id_token"], post_logout_redirect_uri=BYE)
    rotation = await signing_keys.rotate(ports)
    clock.advance(timedelta(days=1))
    await signing_keys.load(ports)
    assert [key["kid"] for key in ports.tokens.jwks()["keys"]] == [rotation.kid]
    with pytest.raises(UnknownKey):
        await signing_keys.read_token(ports, tokens["access_token"])
    silent = await till.open_request(scope="openid", response_type="code", prompt="none", id_token_hint=tokens["id_token"])
    assert "code" in redirect_parts(silent)[1]
    assert leads_to(await browser.open(path)) == BYE

    await browser.sign_in()
    tokens = await openid_tokens(till)
    await signing_keys.replace_compromised(ports, "root")
    await signing_keys.load(ports)
    page = await browser.open(end_session_path(id_token_hint=tokens["id_token"], post_logout_redirect_uri=BYE))
    assert "couldn't verify" in page.text


async def test_without_a_return_address_our_page_says_that_the_user_is_signed_out(till: RelyingParty, browser: SamlBrowser) -> None:
    tokens = await openid_tokens(till)
    page = await browser.open(end_session_path(id_token_hint=tokens["id_token"], client_id=till.client_id, state="unused"))
    assert (page.status, "You're signed out" in page.text) == (200, True)
    assert not await browser.is_in()
    assert not await is_usable(till, tokens)


async def test_a_request_as_a_form_of_another_site_continues_with_get(till: RelyingParty, browser: SamlBrowser) -> None:
    tokens = await openid_tokens(till)
    address, _, query = end_session_path(id_token_hint=tokens["id_token"], post_logout_redirect_uri=BYE).partition("?")
    cookies, browser.cookies = browser.cookies, {}  # SameSite=Lax
    target = leads_to(await browser.send(address, CROSS_SITE, **dict(parse_qsl(query))))
    browser.cookies = cookies
    assert target == f"{address}?{query}"
    assert leads_to(await browser.open(target)) == BYE
    assert not await browser.is_in()


async def test_a_second_click_returns_too(till: RelyingParty, browser: SamlBrowser) -> None:
    """The browser sends two requests before it gets the response that removes its cookie."""
    path = end_session_path(id_token_hint=(await openid_tokens(till))["id_token"], post_logout_redirect_uri=BYE)
    cookies = dict(browser.cookies)
    for _ in range(2):
        browser.cookies = dict(cookies)
        assert leads_to(await browser.open(path)) == BYE


async def test_without_a_hint_the_page_asks(till: RelyingParty, browser: SamlBrowser) -> None:
    path = end_session_path(client_id=till.client_id, post_logout_redirect_uri=BYE, state="s")
    page = await browser.open(path)
    assert "Till" in page.text
    assert "Sign out of" in page.text
    assert "form-action" not in page.headers["Content-Security-Policy"]
    assert leads_to(await browser.send(path, form_token=form_token(page), answer="refuse")) == ACCOUNT
    assert await browser.is_in()
    assert leads_to(await browser.send(path, form_token=form_token(page), answer="continue")) == f"{BYE}&state=s"
    assert not await browser.is_in()


async def test_without_parameters_the_page_asks_too(browser: SamlBrowser, user: Account) -> None:
    await browser.sign_in()
    page = await browser.open(END_SESSION)
    answer = await browser.send(END_SESSION, form_token=form_token(page), answer="continue")
    assert (answer.status, "You're signed out" in answer.text) == (200, True)
    assert not await browser.is_in()
    assert "You're signed out" in (await browser.open(END_SESSION)).text, "nothing is left to do"


async def test_a_hint_that_outlived_its_key_can_still_sign_out(till: RelyingParty, browser: SamlBrowser, ports: Ports) -> None:
    """The page asks, and the browser stays on our site, because nothing shows where the request came from."""
    tokens = await openid_tokens(till)
    head, payload, _ = tokens["id_token"].split(".")
    path = end_session_path(id_token_hint=f"{head}.{payload}.AAAA", post_logout_redirect_uri=BYE)
    page = await browser.open(path)
    assert "couldn't verify" in page.text
    assert "couldn't verify" in (await browser.send(path, form_token=form_token(page), answer="continue")).text
    assert not await browser.is_in()


async def test_the_browser_returns_after_the_applications_of_saml(till: RelyingParty, browser: SamlBrowser, shop: SamlApplication) -> None:
    """Both protocols share a sign-out: the OpenID Connect session ends with the browser session, and SAML single logout runs first."""
    walk = LogoutWalk(browser, shop)
    for confirms in (True, False):
        if not confirms:
            await browser.sign_in()
        tokens = await openid_tokens(till)
        await browser.sign_on(shop)
        page = await browser.open(end_session_path(id_token_hint=tokens["id_token"], post_logout_redirect_uri=BYE, state="s"))
        assert f'content="0;url={shop.path}/slo"' in page.text
        assert not await is_usable(till, tokens)
        step = await browser.open(f"{shop.path}/slo")
        if confirms:
            assert leads_to(await walk.finish(step)) == f"{BYE}&state=s"
            assert "gatehouse-saml-logout" not in browser.cookies
        else:
            redirect_target(await browser.open(f"{shop.path}/slo"))
            page = await browser.open(f"{shop.path}/slo")
            assert "Some applications didn't confirm" in page.text
            assert 'href="https://shop.example.com/bye?from=gatehouse&amp;state=s"' in page.text
