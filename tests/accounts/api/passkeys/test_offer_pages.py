"""The page that offers a passkey comes before the page that the user opened, and every answer leads there."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from html import unescape
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from core.kernel.roles import ADMIN
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser, hidden_fields, leads_to
from tests.support.builders import BASE_URL, PASSWORD, Answer, add_account
from tests.support.passkeys.authenticator import SoftAuthenticator
from tests.support.tenants import Tenant

OFFER: Final = "/app/passkey"
LINKS: Final = ("/app/organizations/acme/members?search=a%26b&role=admin", "/app/organizations/acme/roles", "/app/account/security")


class Offered:
    """A user who opened a page, signed in with the password and is offered a passkey."""

    def __init__(self, browser: FakeBrowser, clock: FakeClock, page: Answer, email: str) -> None:
        self.browser, self.clock, self.page, self.email = browser, clock, page, email

    def _options(self, page: Answer) -> list[Any]:
        return [json.loads(unescape(found)) for found in re.findall('data-passkey="create" data-options="([^"]*)"', page.text)]

    async def send(self, credential: object, page: Answer | None = None, **fields: str) -> Answer:
        hidden = {name: value for name, value in hidden_fields(page or self.page).items() if name != "conditional"}
        return await self.browser.send(OFFER, **{**hidden, "credential": json.dumps(credential), **fields})

    async def create(self, page: Answer | None = None) -> Answer:
        return await self.send(SoftAuthenticator(origin=BASE_URL).create(self._options(page or self.page)[0]), page)

    def not_now(self, page: Answer | None = None) -> str:
        found = re.search('href="([^"]*)">Not now</a>', (page or self.page).text)
        assert found, (page or self.page).text
        return unescape(found[1])

    async def create_late(self) -> Answer:
        """Send the form when the sign-in is too old, and return the next page."""
        self.clock.advance(timedelta(minutes=11))
        return await self.create()


async def _create_in_background(offered: Offered) -> str:
    authenticator = SoftAuthenticator(origin=BASE_URL, present=False, verifies=False)
    return leads_to(await offered.send(authenticator.create(offered._options(offered.page)[1]), conditional="yes"))


async def _create_again(offered: Offered) -> str:
    refused = await offered.send({})
    assert refused.status == 400
    return leads_to(await offered.create(refused))


async def _load_again(offered: Offered) -> str:
    return leads_to(await offered.browser.open(offered.browser.path))


async def _confirm(offered: Offered) -> Answer:
    """Send the form late, confirm, and return the page that sends it again."""
    page = await offered.browser.open(leads_to(await offered.create_late()))
    confirmed = await offered.browser.send("/app/reauthenticate", **{**hidden_fields(page), "password": PASSWORD})
    return await offered.browser.open(leads_to(confirmed))


async def _confirm_late(offered: Offered) -> str:
    again = await offered.browser.send(OFFER, **hidden_fields(await _confirm(offered)))
    assert again.status == 400, "its challenge has ended"
    return leads_to(await offered.create(again))


async def _follow_link(offered: Offered, page: Answer, label: str) -> str:
    """Return the page to which the link's page leads."""
    found = re.search(f'href="([^"]*)">{label}</a>', page.text)
    assert found, page.text
    return leads_to(await offered.browser.open(unescape(found[1])))


async def _cancel_late(offered: Offered) -> str:
    return await _follow_link(offered, await offered.browser.open(leads_to(await offered.create_late())), "Cancel")


async def _cancel_confirmed(offered: Offered) -> str:
    return await _follow_link(offered, await _confirm(offered), "Cancel")


async def _forget(offered: Offered) -> str:
    """Return the page that the user reaches after a form was kept for too long."""
    kept = await _confirm(offered)
    offered.clock.advance(timedelta(hours=2))
    ended = await offered.browser.open(leads_to(await offered.browser.send(OFFER, **hidden_fields(kept))))
    return await _follow_link(offered, ended, "Open the page of the form")


async def _sign_in_again(offered: Offered) -> str:
    """Send the form without a session, and sign in."""
    del offered.browser.cookies["gatehouse-session"]
    page = await offered.browser.open(leads_to(await offered.create()))
    answer = await offered.browser.fill(page, **{**hidden_fields(page), "email": offered.email, "password": PASSWORD})
    return leads_to(await offered.browser.open(leads_to(answer)))


async def _refuse(offered: Offered) -> str:
    return offered.not_now()


async def _create(offered: Offered) -> str:
    return leads_to(await offered.create())


async def _fail_and_refuse(offered: Offered) -> str:
    return offered.not_now(await offered.send({}))


async def _fail_in_background(offered: Offered) -> str:
    return leads_to(await offered.send({}, conditional="yes"))


ANSWERS: Final[Mapping[str, Callable[[Offered], Awaitable[str]]]] = {
    "not now": _refuse,
    "create": _create,
    "create after a failure": _create_again,
    "not now after a failure": _fail_and_refuse,
    "in the background": _create_in_background,
    "a failure in the background": _fail_in_background,
    "load the page again": _load_again,
    "create, and sign in again": _sign_in_again,
    "create later": _confirm_late,
    "create later, and cancel": _cancel_late,
    "create later, confirm and cancel": _cancel_confirmed,
    "create later, confirm and wait": _forget,
}


@pytest.mark.slow
@pytest.mark.parametrize("answer", ANSWERS)
async def test_each_answer_leads_to_the_page_that_the_user_opened(acme: Tenant, app: QuartTrio, clock: FakeClock, answer: str) -> None:
    wrong = dict[str, str]()
    for number, link in enumerate(LINKS):
        account = await add_account(acme.ports, f"user{number}@example.com")
        await acme.join(account.email, account, ADMIN)
        browser = FakeBrowser(app)
        page = await browser.open(leads_to(await browser.open(link)))
        typed = {"email": account.email, "password": PASSWORD, "can_passkey": "yes"}
        offer = leads_to(await browser.fill(page, **{**hidden_fields(page), **typed}))
        assert offer.startswith(OFFER), offer
        after = await ANSWERS[answer](Offered(browser, clock, await browser.open(offer), account.email))
        if after != link:
            wrong[link] = after
    assert not wrong, wrong
