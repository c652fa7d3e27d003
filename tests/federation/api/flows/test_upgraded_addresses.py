"""The addresses of sign-ins while version 0.9.0 may run beside this one, and those of sign-ins that began there."""

import re
from dataclasses import replace
from html import unescape
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.http.providers import HttpProviders
from core.accounts.model.accounts import Account
from entrypoints.http.base.context import app_context, bind_context
from ports import Ports
from ports.outside import IdentityProviders
from tests.authentication.email_sign_ins import code_in
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.fakes.provider import FakeProvider
from tests.federation.api.relying import RelyingParty, redirect_parts
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import ACCOUNT, SIGN_IN, FakeBrowser, action_of, form_token, hidden_fields, leads_to
from tests.support.builders import EMAIL, PASSWORD, Answer, deliver
from tests.support.direct import change_ports
from tests.support.mfa import Authenticator

REQUEST: Final = {"scope": "openid", "response_type": "code"}
BEGAN_EARLIER: Final = "This sign-in began before an upgrade. Sign in again."


@pytest.fixture
def upgraded(app: QuartTrio, ports: Ports) -> None:
    """A database that has been that of version 0.9.0, with sign-in by email."""
    change_ports(app, policy=replace(ports.policy, email_sign_in=True))
    bind_context(app, replace(app_context(app), was_upgraded=True))


@pytest.fixture
def providers(provider: FakeProvider, clock: FakeClock) -> IdentityProviders:
    return HttpProviders([provider.connection()], clock)


async def follow(browser: FakeBrowser, answer: Answer, request: str) -> Answer:
    """Follow redirects within the sign-in. Each address is that of the sign-in page, and keeps the request."""
    while answer.status == 303 and (target := leads_to(answer)).startswith("/"):
        assert urlsplit(target).path == SIGN_IN, target
        [next_path] = parse_qs(urlsplit(target).query)["next"]
        assert parse_qs(urlsplit(next_path).query) == parse_qs(urlsplit(request).query)
        answer = await browser.open(target)
    return answer


def step_of(page: Answer) -> str:
    """Return the step to which the first form of a page is sent."""
    assert page.status == 200, (page.status, page.text)
    return parse_qs(urlsplit(action_of(page)).query)["step"][0]


async def open_request(application: RelyingParty, **changes: str) -> tuple[str, Answer]:
    browser = application.browser
    browser.cookies.clear()
    request = application.request(**REQUEST, **changes)
    page = await follow(browser, await browser.open(request), request)
    assert step_of(page) == "/sign-in"
    return request, page


@pytest.mark.slow
async def test_a_sign_in_continues_at_addresses_that_version_0_9_0_knows(
    upgraded: None, relying_party: RelyingParty, factor: Authenticator, browser: FakeBrowser
) -> None:
    request, page = await open_request(relying_party, prompt="select_account")
    refused = await browser.fill(page, email=EMAIL, password="wrong")
    assert (refused.status, action_of(refused)) == (401, action_of(page))
    page = await follow(browser, await browser.fill(page, email=EMAIL, password=PASSWORD), request)
    assert step_of(page) == "/code"
    assert hidden_fields(page)["next"].startswith(f"{SIGN_IN}?next=")
    assert (await browser.fill(page, code=factor.wrong())).status == 401
    page = await follow(browser, await browser.fill(page, code=factor.code()), request)
    assert step_of(page) == "/consent"
    url, fields = redirect_parts(await browser.answer(page, "continue"))
    assert (url, "code" in fields) == (relying_party.redirect_uri, True)
    ended = await browser.open(action_of(page))
    assert (ended.status, "You're signed in" in ended.text.replace("&#39;", "'")) == (200, True)


@pytest.mark.slow
async def test_the_pages_around_a_sign_in_have_such_addresses(
    upgraded: None, ports: Ports, sent: FakeMailTransport, relying_party: RelyingParty, browser: FakeBrowser
) -> None:
    request, page = await open_request(relying_party)
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/app/sign-in\?[^"]*)"', page.text)]
    steps = {parse_qs(urlsplit(link).query)["step"][0]: link for link in links}
    assert set(steps) == {"/sign-up", "/forgot-password"}
    for step, link in steps.items():
        around = await browser.open(link)
        assert step_of(around) == step
        sent_page = await browser.fill(around, email="new@example.com", password="seven lions at the gate")
        assert sent_page.status == 200, step
    email_action = re.findall(r'formaction="([^"]*)"', page.text)[0].replace("&amp;", "&")
    answer = await browser.send(email_action, form_token=form_token(page), email=EMAIL)
    page = await follow(browser, answer, request)
    assert step_of(page) == "/email"
    await deliver(ports)
    code = code_in(sent.newest(r"(?m)^\d{6}$"))
    page = await follow(browser, await browser.fill(page, code=code), request)
    assert step_of(page) == "/consent"


async def test_a_provider_gets_the_request_too(
    upgraded: None, relying_party: RelyingParty, provider_sign_in: ProviderSignIn, browser: FakeBrowser
) -> None:
    request, page = await open_request(relying_party)
    [link] = re.findall(rf'href="(/auth/{provider_sign_in.name}\?[^"]*)"', page.text)
    at_once = leads_to(await browser.open(relying_party.request(**REQUEST, provider=provider_sign_in.name), follows=False))
    for path in (unescape(link), at_once):
        fields = parse_qs(urlsplit(path).query)
        assert parse_qs(urlsplit(fields["next"][0]).query) == parse_qs(urlsplit(request).query)
        assert fields.keys() == {"flow", "next"}


async def test_another_browser_learns_nothing_at_such_an_address(upgraded: None, app: QuartTrio, relying_party: RelyingParty) -> None:
    _, page = await open_request(relying_party)
    other = FakeBrowser(app)
    ended = await other.open(action_of(page))
    assert (ended.status, "no longer open" in ended.text, "Shop" in ended.text) == (200, True, False)


@pytest.mark.parametrize("path", [f"{SIGN_IN}/code", f"{SIGN_IN}/email/code"])
async def test_a_sign_in_of_version_0_9_0_starts_again(user: Account, browser: FakeBrowser, path: str) -> None:
    after = f"{ACCOUNT}/identities"
    expected = f"{SIGN_IN}?{urlencode({'next': after})}"
    assert leads_to(await browser.open(f"{path}?{urlencode({'next': after})}")) == expected
    assert leads_to(await browser.send(path, form_token="x", code="123456", next=after)) == expected
    page = await browser.open(expected)
    assert BEGAN_EARLIER in page.text
    assert BEGAN_EARLIER not in (await browser.open(expected)).text
    assert leads_to(await browser.fill(page, email=EMAIL, password=PASSWORD, next=after)) == after
    assert leads_to(await browser.open(path)) == SIGN_IN
