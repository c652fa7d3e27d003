"""Rate limits on sign-ins on our pages, on authorization requests and on userinfo (security N-2)."""

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.connections import PlatformCredentials
from core.kernel.values import new_id
from entrypoints.http.app import Edge
from ports import Ports
from tests.authentication.email_sign_ins import LINK_PAGE, REQUEST_PAGE, code_in, switch_on
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.fakes.provider import FakeProvider
from tests.federation.api.openid.client import next_of
from tests.federation.api.relying import (
    RelyingParty,
    add_relying_party,
    claims,
    give_consent,
    openid_tokens,
    path_of,
    redirect_parts,
    sign_in_browser,
)
from tests.federation.api.test_pushed_requests import open_pushed, pushed
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import HOME, SIGN_IN, FakeBrowser, action_of, form_token, is_step, leads_to
from tests.support.builders import EMAIL, PASSWORD, Answer, add_account, deliver, link, make_edge, run_sql
from tests.support.direct import PEER, ask, change_ports
from tests.support.mfa import add_mfa
from tests.support.saml import SamlApplication
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow
USERINFO = "/auth/userinfo"
WRONG = "a wrong password"


@pytest.fixture
def edge(request: pytest.FixtureRequest) -> Edge:
    """The documented limits."""
    return make_edge(rate_limit_factor=1.0, **getattr(request, "param", {}))


@pytest.fixture
def browser(app: QuartTrio) -> FakeBrowser:
    return FakeBrowser(app)


@pytest.fixture
def providers(provider: FakeProvider) -> list[PlatformCredentials]:
    return [provider.connection()]


async def left(app: QuartTrio, path: str = "/auth/reset-password", method: str = "GET") -> int:
    """Use up a path's bucket at this address. Return how many requests it allowed."""
    for count in range(100):
        if (await ask(app, method, path)).status == 429:
            return count
    raise AssertionError("there is no limit")


async def userinfo(app: QuartTrio, tokens: dict[str, Any]) -> int:
    return (await ask(app, "GET", USERINFO, token=tokens["access_token"])).status


# Sign-ins on our pages


async def test_sixty_people_at_one_address_sign_in_within_five_minutes(
    app: QuartTrio, acme: Tenant, ports: Ports, clock: FakeClock
) -> None:
    applications = [await add_relying_party(acme, FakeBrowser(app), *each) for each in (("shop", "web"), ("till", "mobile"))]
    for number in range(60):
        account, client = await add_account(ports, f"user{number}@example.com"), applications[number % 2]
        client.browser = browser = FakeBrowser(app)
        await give_consent(client, account)
        page = await browser.open(path_of(client))
        if number in (7, 30):
            assert (await browser.fill(page, email=account.email, password=WRONG)).status == 401
        assert leads_to(await browser.fill(page, email=account.email, password=PASSWORD)) == next_of(page)
        tokens = await openid_tokens(client)
        assert await userinfo(app, tokens) == 200
        clock.advance(timedelta(seconds=5))


async def test_ten_wrong_passwords_a_minute_are_hashed(
    app: QuartTrio, browser: FakeBrowser, user: Account, pool: Pool, ports: Ports, clock: FakeClock
) -> None:
    """The test tries a wrong password at a thousand accounts."""
    await run_sql(
        pool,
        """
        insert into users (id, email, email_verified_at, password_hash, origin, created_at, updated_at, first_verified_at)
        select gen_random_uuid(), 'user' || n || '@example.com', created_at, password_hash, origin, created_at, created_at, created_at
        from users, generate_series(1, 1000) n""",
    )
    hashed: list[object] = []

    class CountingPasswords:
        def __getattr__(self, name: str) -> object:
            return getattr(ports.passwords, name)

        async def verify(self, *arguments: object) -> object:
            hashed.append(arguments)
            return await ports.passwords.verify(*arguments)  # type: ignore[arg-type]

    change_ports(app, passwords=CountingPasswords())
    fields = {"form_token": form_token(await browser.open(SIGN_IN)), "password": WRONG}
    for minute in range(10):
        for number in range(100):
            await browser.send(SIGN_IN, **fields, email=f"user{100 * minute + number + 1}@example.com")
        assert len(hashed) == 10 * (minute + 1)
        clock.advance(timedelta(minutes=1))


async def test_signing_in_to_an_own_account_gives_no_more_attempts(
    app: QuartTrio, browser: FakeBrowser, user: Account, ports: Ports
) -> None:
    await add_account(ports, "victim@example.com")
    statuses = []
    for _ in range(12):
        own = FakeBrowser(app)
        await own.open(f"/auth/authorize?{urlencode({'state': 'x'})}")
        statuses.append((await own.sign_in()).status)
        statuses.append((await browser.sign_in("victim@example.com", WRONG)).status)
    assert statuses == [303, 401] * 10 + [429, 429] * 2
    assert await left(app) == 20 - 2, "of the last two, which did not sign in"


async def test_signing_in_to_an_own_account_pays_for_no_emails_to_others(app: QuartTrio, browser: FakeBrowser, user: Account) -> None:
    switch_on(app)
    statuses = []
    for number in range(7):
        statuses.append((await browser.submit(REQUEST_PAGE, SIGN_IN, email=f"victim{number}@example.com")).status)
        assert (await browser.sign_in()).status == 303
        await browser.submit("/app/sign-out")
    assert statuses == [303] * 5 + [429] * 2


async def test_kept_right_passwords_pay_for_no_wrong_ones(
    app: QuartTrio, browser: FakeBrowser, user: Account, ports: Ports, clock: FakeClock
) -> None:
    """A bucket that has refilled by itself gets only what it still misses, also in the last second."""
    authenticator = await add_mfa(ports, user)
    for _ in range(10):
        assert is_step(leads_to(await browser.sign_in()), "code")
    clock.advance(timedelta(seconds=59))
    stranger = FakeBrowser(app)
    statuses = [(await stranger.sign_in(f"victim{number}@example.com", WRONG)).status for number in range(12)]
    assert await browser.ends_at(await browser.show_code(authenticator.code())) == HOME
    statuses += [(await stranger.sign_in(f"victim{number}@example.com", WRONG)).status for number in range(12, 24)]
    assert statuses.count(401) == 10


async def test_a_sign_in_gives_back_what_it_took_and_nothing_else(app: QuartTrio, browser: FakeBrowser, user: Account) -> None:
    for _ in range(12):
        await ask(app, "GET", "/auth/reset-password")
    for _ in range(3):
        assert (await browser.open("/auth/authorize")).status == 200
    assert leads_to(await browser.sign_in(after="/app/account/devices")) == "/app/account/devices"
    await browser.submit("/app/sign-out")
    assert leads_to(await browser.sign_in()) == HOME
    assert await left(app) == 8


async def test_confirmations_count_only_if_they_fail(app: QuartTrio, browser: FakeBrowser, user: Account) -> None:
    await browser.sign_in()
    statuses = [
        (await browser.submit("/app/reauthenticate", password=password)).status
        for _ in range(5)
        for password in (PASSWORD, PASSWORD, WRONG)
    ]
    assert statuses == [303, 303, 401] * 3 + [429] * 6, "after three wrong ones, the bucket of second factors is empty"


async def test_a_charge_counts_in_the_time_in_which_it_would_be_given_back(
    app: QuartTrio, browser: FakeBrowser, user: Account, clock: FakeClock, pool: Pool
) -> None:
    """After that time, the bucket has refilled by itself, and nothing is given back."""
    assert (await browser.open("/auth/authorize")).status == 200
    clock.advance(timedelta(seconds=20))
    assert await left(app) == 20
    assert leads_to(await browser.sign_in()) == HOME
    assert await left(app) == 0
    assert await run_sql(pool, "select 1 from sign_in_charges") == []


async def by_password(browser: FakeBrowser, *_: object) -> Answer:
    return await browser.sign_in()


async def by_provider(browser: FakeBrowser, provider_sign_in: ProviderSignIn, *_: object) -> Answer:
    return await provider_sign_in.complete()


async def by_code(browser: FakeBrowser, _: ProviderSignIn, ports: Ports, sent: FakeMailTransport) -> Answer:
    page = leads_to(await browser.submit(REQUEST_PAGE, SIGN_IN, email=EMAIL))
    await deliver(ports)
    return await browser.submit(page, page, code=code_in(sent.emails[-1]))


async def by_link(browser: FakeBrowser, _: ProviderSignIn, ports: Ports, sent: FakeMailTransport) -> Answer:
    await browser.submit(REQUEST_PAGE, SIGN_IN, email=EMAIL)
    await deliver(ports)
    token = link(sent.emails[-1])
    return await browser.submit(LINK_PAGE, f"{LINK_PAGE}?token={token}", token=token)


@pytest.mark.parametrize("second_factor", [False, True])
@pytest.mark.parametrize("way", [by_password, by_provider, by_code, by_link])
async def test_each_way_to_sign_in_gives_everything_back(
    app: QuartTrio, provider_sign_in: ProviderSignIn, ports: Ports, sent: FakeMailTransport, pool: Pool, way: Any, second_factor: bool
) -> None:
    browser, user = provider_sign_in.browser, await add_account(ports)
    switch_on(app)
    await provider_sign_in.sign_in()  # links the identity
    await browser.submit("/app/sign-out")
    authenticator = await add_mfa(ports, user) if second_factor else None
    await run_sql(pool, "delete from rates")
    assert (await browser.open("/auth/authorize")).status == 200
    target = leads_to(await way(browser, provider_sign_in, ports, sent))
    if authenticator:
        assert is_step(target, "code")
        assert await taken(pool) > 0
        assert (await browser.show_code(authenticator.wrong())).status == 401
        target = leads_to(await browser.show_code(authenticator.code()))
    assert await browser.follow(target) == HOME
    assert await taken(pool) == (1 if authenticator else 0), "the wrong code"
    assert await run_sql(pool, "select 1 from sign_in_charges") == []


async def taken(pool: Pool) -> int:
    """Return how many buckets for this address are not full."""
    statement = "select count(*) from rates, jsonb_each_text(tats) where client = %s and value::float8 > %s"
    [(count,)] = await run_sql(pool, statement, PEER, FakeClock().now().timestamp() + 0.001)
    return int(count)


# Authorization requests


async def test_authorization_requests_count_only_where_they_show_a_page_without_a_session(
    app: QuartTrio, acme: Tenant, relying_party: RelyingParty, user: Account
) -> None:
    await give_consent(relying_party, user)
    stranger = FakeBrowser(app)
    for _ in range(25):
        assert "code" in redirect_parts(await relying_party.open_request())[1]
        assert (await relying_party.open_request(redirect_uri="https://other.example/")).status == 400
        answer = await stranger.open(path_of(relying_party, prompt="none"))
        assert redirect_parts(answer)[1]["error"] == "login_required"
    for path in (relying_party.request(), relying_party.request(redirect_uri="https://other.example/")):
        assert {(await stranger.open(path)).status for _ in range(10)} <= {200, 400}
    assert (await stranger.open(relying_party.request())).status == 429
    assert (await stranger.open(relying_party.request(redirect_uri="https://other.example/"))).status == 429
    assert redirect_parts(await stranger.open(path_of(relying_party, prompt="none")))[1]["error"] == "login_required"


@pytest.mark.parametrize("signed_in", [False, True])
@pytest.mark.parametrize("way", ["to the sign-in page", "to a provider"])
async def test_only_as_many_sign_ins_begin_as_the_limit_allows(
    app: QuartTrio, relying_party: RelyingParty, provider_sign_in: ProviderSignIn, user: Account, pool: Pool, way: str, signed_in: bool
) -> None:
    """The browser keeps no cookies, so that all its flows stay open."""
    cookies = dict(relying_party.browser.cookies) if signed_in else {}
    path = path_of(relying_party, **({"provider": provider_sign_in.name} if way == "to a provider" else {}))
    statuses = []
    for _ in range(30):
        stranger = FakeBrowser(app)
        stranger.cookies.update(cookies)
        stranger.cookies.pop("gatehouse-device", None)
        statuses.append((await stranger.open(path, follows=False)).status)
    assert statuses == [303] * 20 + [429] * 10
    assert await run_sql(pool, "select count(*) from sign_in_flows") == [(20,)]


async def test_only_as_many_bookmarks_of_saml_begin_a_sign_in_as_the_limit_allows(
    app: QuartTrio, shop: SamlApplication, pool: Pool
) -> None:
    statuses = [(await FakeBrowser(app).open(f"{shop.management}/login", follows=False)).status for _ in range(30)]
    assert statuses == [303] * 20 + [429] * 10
    assert await run_sql(pool, "select count(*) from sign_in_flows") == [(20,)]


async def test_an_answered_question_gives_back_what_its_request_took(app: QuartTrio, relying_party: RelyingParty) -> None:
    browser = relying_party.browser
    for number in range(30):
        page = await browser.open(path_of(relying_party, prompt="consent"))
        url, _ = redirect_parts(await browser.answer(page, "continue"))
        assert url == relying_party.redirect_uri, number
    assert await left(app) == 20


async def test_a_limited_pushed_request_can_be_opened_again(
    app: QuartTrio, relying_party: RelyingParty, user: Account, clock: FakeClock
) -> None:
    relying_party.browser = FakeBrowser(app)
    request_uri = await pushed(relying_party)
    await left(app)
    assert (await open_pushed(relying_party, request_uri)).status == 429
    clock.advance(timedelta(seconds=1))
    assert is_step(action_of(await open_pushed(relying_party, request_uri)), "sign-in")


# Userinfo


async def test_userinfo_counts_per_application_that_authenticates(
    app: QuartTrio, acme: Tenant, ports: Ports, relying_party: RelyingParty, user: Account
) -> None:
    await give_consent(relying_party, user)
    tokens = [await openid_tokens(relying_party) for _ in range(2)]
    assert [await userinfo(app, tokens[number % 2]) for number in range(40)] == [200] * 40
    assert await left(app) == 20


@pytest.mark.parametrize("edge", [{"client_rate": 0.1}], indirect=True)
@pytest.mark.parametrize("pkce_without_secret", [False, True])
async def test_userinfo_of_other_applications_counts_per_session(
    app: QuartTrio,
    relying_party: RelyingParty,
    mobile_app: RelyingParty,
    user: Account,
    pool: Pool,
    pkce_without_secret: bool,
    clock: FakeClock,
) -> None:
    await sign_in_browser(relying_party, user)
    await run_sql(pool, "update services set pkce_without_secret = %s", pkce_without_secret)
    statuses: dict[str, list[int]] = {}
    for client in (relying_party, mobile_app):
        await give_consent(client, user)
        statuses[client.slug] = []
        for _ in range(2):
            tokens = await openid_tokens(client)
            statuses[client.slug].append([await userinfo(app, tokens) for _ in range(21)].count(200))
            clock.advance(timedelta(minutes=1))
    assert statuses == {"shop": [20, 20] if pkce_without_secret else [2, 2], "till": [20, 20]}
    assert await left(app) == 20


async def test_userinfo_without_a_valid_token_counts_per_address(
    app: QuartTrio, relying_party: RelyingParty, user: Account, pool: Pool
) -> None:
    await give_consent(relying_party, user)
    ended, tokens = await openid_tokens(relying_party), await openid_tokens(relying_party)
    await run_sql(pool, "update sessions set ended_at = now() where id = %s", UUID(claims(ended)["sid"]))
    changed = tokens["access_token"][:-6] + "AAAAAA"
    for token in (ended["access_token"], changed, str(new_id()), None) * 5:
        assert (await ask(app, "GET", USERINFO, token=token)).status == 401
    for token in (ended["access_token"], changed, None):
        assert (await ask(app, "GET", USERINFO, token=token)).status == 429
        assert (await ask(app, "POST", USERINFO, token=token)).status == 429
    assert await userinfo(app, tokens) == 200
