"""Races for the link and the code in a sign-in by email: together they work once (security A-5, Z-1)."""

from collections import Counter
from dataclasses import replace

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.attempt_limits import TooManyAttempts
from core.accounts.model.devices import PresentedDevice
from core.authentication.model.login import EmailCodeWrong, EmailSignInEnded
from core.federation import email_sign_in
from core.federation.sign_in import ApiTarget
from core.kernel.causes import SYSTEM
from core.kernel.policy import Policy
from core.kernel.values import Email
from ports import Ports
from tests.authentication.email_sign_ins import LINK_PAGE, REQUEST_PAGE, code_in, request_code, verify, wrong
from tests.fakes.outside import FakeMailTransport
from tests.support.browser import SIGN_IN, FakeBrowser, form_token, leads_to
from tests.support.builders import EMAIL, Api, deliver, link, run_concurrently, run_sql

pytestmark = pytest.mark.slow


@pytest.fixture
def ports(ports: Ports) -> Ports:
    return replace(ports, policy=Policy(email_sign_in=True, account_guess_limit=10**6))


async def count(pool: Pool) -> list[tuple[int, ...]]:
    """Return how many sessions, recorded logins and events there are."""
    return await run_sql(
        pool,
        """
        select (select count(*) from sessions), (select count(*) from login_events where success),
               (select count(*) from events where name = 'user.login.success')""",
    )


async def test_of_20_browsers_with_the_link_one_is_signed_in(
    app: QuartTrio, user: Account, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    browsers = [FakeBrowser(app) for _ in range(20)]
    await browsers[0].submit(REQUEST_PAGE, SIGN_IN, email=EMAIL)
    await deliver(ports)
    token = link(sent.emails[-1])
    tokens = [form_token(await browser.open(f"{LINK_PAGE}?token={token}")) for browser in browsers]
    answers = await run_concurrently(20, lambda number: browsers[number].send(LINK_PAGE, form_token=tokens[number], token=token))
    assert Counter(answer.status for answer in answers) == {303: 1, 400: 19}
    assert await count(pool) == [(1, 1, 1)]
    assert [await browser.is_in() for browser in browsers].count(True) == 1


async def test_the_link_and_the_code_work_once_together(
    app: QuartTrio, user: Account, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    """The browser that asked has the link and the code. At most five codes are checked, so some requests are refused without a check."""
    browser = FakeBrowser(app)
    code_page = leads_to(await browser.submit(REQUEST_PAGE, SIGN_IN, email=EMAIL))
    await deliver(ports)
    token, code = link(sent.emails[-1]), code_in(sent.emails[-1])
    form = form_token(await browser.open(code_page))
    ways = ({"path": LINK_PAGE, "token": token}, {"path": code_page, "code": code})
    answers = await run_concurrently(20, lambda number: browser.send(form_token=form, **ways[number % 2]))
    assert [answer.status for answer in answers].count(303) == 1
    assert await count(pool) == [(1, 1, 1)]


async def test_of_20_clients_with_the_code_one_gets_tokens(
    api: Api, user: Account, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    token = await request_code(api)
    await deliver(ports)
    code = code_in(sent.emails[-1])
    answers = await run_concurrently(20, lambda _: verify(api, token, code))
    assert Counter(answer.status for answer in answers) == {200: 1, 401: 19}
    assert await count(pool) == [(1, 1, 1)]


async def test_of_20_concurrent_wrong_codes_five_are_checked(user: Account, ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    secret = await email_sign_in.request(ports, SYSTEM, Email(EMAIL), ApiTarget())
    await deliver(ports)
    guess = wrong(code_in(sent.emails[-1]))

    async def enter(_: int) -> str:
        try:
            await email_sign_in.sign_in_with_code(ports, SYSTEM, secret, guess, PresentedDevice())
        except (EmailCodeWrong, EmailSignInEnded, TooManyAttempts) as refusal:
            return type(refusal).__name__
        raise AssertionError

    assert Counter(await run_concurrently(20, enter)) == {"EmailCodeWrong": 4, "LastEmailCodeWrong": 1, "EmailSignInEnded": 15}
    assert await run_sql(pool, "select secret, failures from guesses") == [("email_code", 5)]
