"""SAML sign-ons that need more than the browser session: ForceAuthn, or a second factor.

With ForceAuthn, an identity provider must ask the user again, or there is no assertion (security X-8).
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.connections import CODEHOST, OFFICESUITE, PLATFORM_CONNECTIONS, WEBSUITE, PlatformCredentials
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.fakes.provider import FakeProvider, Person
from tests.federation.api.relying import add_relying_party
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import action_of, form_token, is_step, leads_to
from tests.support.builders import EMAIL, PASSWORD, Api, add_account, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PasskeyUser
from tests.support.refusals import FORBIDDEN, refused
from tests.support.saml import SamlApplication, posted_response
from tests.support.saml.browser import SamlBrowser, sign_in_over_api
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

PROVIDER_SESSION_AGE: Final = timedelta(hours=3)  # since the user signed in at the provider


@pytest.fixture(params=[WEBSUITE])
def provider(request: pytest.FixtureRequest, clock: FakeClock) -> Iterator[FakeProvider]:
    with FakeProvider(request.param, now=lambda: clock.now().timestamp()) as running:
        running.signed_in_at = (clock.now() - PROVIDER_SESSION_AGE).timestamp()
        yield running


@pytest.fixture
def providers(provider: FakeProvider) -> list[PlatformCredentials]:
    return [provider.connection()]


openid = pytest.mark.parametrize("provider", [WEBSUITE, OFFICESUITE], indirect=True)
codehost = pytest.mark.parametrize("provider", [CODEHOST], indirect=True)
OFFER: Final = "Continue with"
REAUTHENTICATE: Final = "/api/auth/reauthenticate"


async def link(provider_sign_in: ProviderSignIn, account: Account) -> None:
    columns = "id, user_id, provider, issuer, provider_user_id, linked_at"
    row = (account.id, account.id, provider_sign_in.name, provider_sign_in.provider.address, provider_sign_in.provider.person.subject)
    await run_sql(provider_sign_in.pool, f"insert into identities ({columns}) values (%s, %s, %s, %s, %s, now())", *row)  # noqa: S608


def flow_of(path: str) -> str:
    return path.rpartition("/")[2]


async def provider_query(provider_sign_in: ProviderSignIn, path: str) -> dict[str, list[str]]:
    answer = await provider_sign_in.browser.open(f"/auth/{provider_sign_in.name}?{urlencode({'flow': flow_of(path)})}")
    return parse_qs(urlsplit(answer.headers["Location"]).query)


async def start_sign_on(browser: SamlBrowser, shop: SamlApplication, clock: FakeClock, **more: Any) -> str:
    """Return the path of the sign-on that waits in the browser."""
    path = (action_of(await browser.open(await browser.start_sign_on(shop, **more)))).removesuffix("/sign-in")
    clock.advance(timedelta(seconds=1))
    return path


def has_assertion(text: str) -> bool:
    return "SAMLResponse" in text


@openid
async def test_the_provider_asks_a_signed_in_user_again(
    provider_sign_in: ProviderSignIn, browser: SamlBrowser, shop: SamlApplication, user: Account, clock: FakeClock
) -> None:
    await link(provider_sign_in, user)
    path = await start_sign_on(browser, shop, clock, ForceAuthn="true")
    assert OFFER in (await browser.open(path)).text
    query = await provider_query(provider_sign_in, path)
    assert (query["prompt"], query["max_age"]) == (["login"], ["0"]), "also if the configured URL has a query"
    assert leads_to(await provider_sign_in.complete(flow=flow_of(path))) == path
    assert posted_response(await browser.open(path)).name_id == EMAIL


@openid
async def test_a_provider_that_does_not_ask_again_is_refused(
    provider_sign_in: ProviderSignIn, browser: SamlBrowser, shop: SamlApplication, user: Account, clock: FakeClock
) -> None:
    await link(provider_sign_in, user)
    provider_sign_in.provider.reauthenticates = False
    path = await start_sign_on(browser, shop, clock, ForceAuthn="true")
    page = await provider_sign_in.complete(flow=flow_of(path))
    assert page.status == 400
    assert "requires you to sign in again" in page.text
    assert await provider_sign_in.user_id() is None
    assert not has_assertion((await browser.open(path)).text)


async def test_a_provider_that_states_no_time_is_believed(
    provider_sign_in: ProviderSignIn, browser: SamlBrowser, shop: SamlApplication, user: Account, clock: FakeClock
) -> None:
    await link(provider_sign_in, user)
    provider_sign_in.provider.sends_auth_time = False
    path = await start_sign_on(browser, shop, clock, ForceAuthn="true")
    await provider_sign_in.sign_in(flow=flow_of(path))
    assert posted_response(await browser.open(path)).name_id == EMAIL


async def test_without_force_authn_the_provider_does_not_ask_again(
    provider_sign_in: ProviderSignIn, browser: SamlBrowser, shop: SamlApplication, user: Account, clock: FakeClock
) -> None:
    await link(provider_sign_in, user)
    path = await start_sign_on(browser, shop, clock)
    query = await provider_query(provider_sign_in, path)
    assert query["prompt"] == ["select"]
    assert "max_age" not in query
    await provider_sign_in.sign_in(flow=flow_of(path))
    assert posted_response(await browser.open(path)).name_id == EMAIL


@pytest.mark.parametrize("provider", list(PLATFORM_CONNECTIONS), indirect=True)
async def test_a_session_that_started_without_asking_is_not_fresh(
    provider_sign_in: ProviderSignIn, browser: SamlBrowser, shop: SamlApplication, user: Account, clock: FakeClock
) -> None:
    """Any person at the browser could start such a session for another page here and return with it."""
    await link(provider_sign_in, user)
    path = await start_sign_on(browser, shop, clock, ForceAuthn="true")
    await provider_sign_in.sign_in(next="/app/account")
    assert await provider_sign_in.user_id() == user.id
    page = await browser.open(path)
    assert not has_assertion(page.text)
    assert is_step(action_of(page), "sign-in")
    assert await browser.sign_in_at(path) == path
    assert posted_response(await browser.open(path)).name_id == EMAIL, "a person typed the password"


async def test_the_fresh_sign_in_of_one_user_does_not_count_for_another(
    provider_sign_in: ProviderSignIn, browser: SamlBrowser, shop: SamlApplication, user: Account, ports: Ports, clock: FakeClock
) -> None:
    await link(provider_sign_in, user)
    eve = await add_account(ports, "eve@example.com")
    provider_sign_in.provider.person = Person(subject="666", email="eve@example.com")
    path = await start_sign_on(browser, shop, clock, ForceAuthn="true")
    await provider_sign_in.sign_in(flow=flow_of(path))
    assert await provider_sign_in.user_id() == eve.id
    await provider_sign_in.browser.submit("/app/sign-out")
    provider_sign_in.provider.person = Person()
    await provider_sign_in.sign_in(next="/app/account")
    assert await provider_sign_in.user_id() == user.id
    assert not has_assertion((await browser.open(path)).text)


async def test_the_fresh_sign_in_for_one_sign_on_does_not_count_for_another(
    provider_sign_in: ProviderSignIn, browser: SamlBrowser, shop: SamlApplication, user: Account, clock: FakeClock
) -> None:
    await link(provider_sign_in, user)
    first = await start_sign_on(browser, shop, clock, ForceAuthn="true")
    second = await browser.start_sign_on(shop, ForceAuthn="true")
    await provider_sign_in.sign_in(flow=flow_of(first))
    assert not has_assertion((await browser.open(second)).text)
    assert has_assertion((await browser.open(first)).text)


async def test_a_fresh_sign_in_with_a_second_factor_counts(
    provider_sign_in: ProviderSignIn, browser: SamlBrowser, shop: SamlApplication, user: Account, ports: Ports, clock: FakeClock
) -> None:
    await link(provider_sign_in, user)
    factor = await add_mfa(ports, user)
    path = await start_sign_on(browser, shop, clock, ForceAuthn="true")
    assert is_step(leads_to(await provider_sign_in.complete(flow=flow_of(path))), "code")
    assert not has_assertion((await browser.open(path)).text)
    assert leads_to(await browser.show_code(factor.code())) == path
    assert posted_response(await browser.open(path)).name_id == EMAIL


async def test_a_provider_still_works_after_a_sign_in_over_the_api(
    provider_sign_in: ProviderSignIn, api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account
) -> None:
    """SAML has no identities, so the user signs in with the identity that is linked on the platform."""
    await link(provider_sign_in, user)
    continuation = await browser.start_sign_on(shop)
    path = action_of(await browser.open(continuation)).removesuffix("/sign-in")
    assert (await sign_in_over_api(api, continuation)).status == 200
    before = await provider_sign_in.identities()
    assert leads_to(await provider_sign_in.complete(flow=flow_of(path))) == path
    assert [(row[:5]) for row in await provider_sign_in.identities()] == [row[:5] for row in before]
    assert posted_response(await browser.open(path)).name_id == EMAIL


@codehost
async def test_a_provider_that_cannot_ask_again_is_not_offered(
    provider_sign_in: ProviderSignIn, browser: SamlBrowser, shop: SamlApplication, user: Account, clock: FakeClock
) -> None:
    await link(provider_sign_in, user)
    assert OFFER in (await browser.open(await browser.start_sign_on(shop))).text
    path = await start_sign_on(browser, shop, clock, ForceAuthn="true")
    page = await browser.open(path)
    assert OFFER not in page.text
    assert "asks you to sign in again" in page.text
    assert f'<a href="{path}/forgot-password">set a password</a>' in page.text
    assert "asks you to sign in again" not in (await browser.open(await browser.start_sign_on(shop))).text
    await provider_sign_in.sign_in(flow=flow_of(path))  # by its URL
    assert await provider_sign_in.user_id() == user.id
    assert not has_assertion((await browser.open(path)).text)


@codehost
@pytest.mark.parametrize(
    ("parameters", "is_offered"),
    [
        ({"prompt": "consent"}, True),
        ({"prompt": "select_account"}, True),
        ({"acr_values": "mfa", "scope": "openid", "response_type": "code"}, True),
        ({"prompt": "login"}, False),
        ({"max_age": "60"}, False),
    ],
)
async def test_an_authorization_request_hides_such_a_provider_only_if_it_asks_for_a_new_sign_in(
    provider_sign_in: ProviderSignIn, acme: Tenant, browser: SamlBrowser, parameters: dict[str, str], is_offered: bool
) -> None:
    party = await add_relying_party(acme, browser)
    page = await browser.open(party.request(**parameters))
    assert (OFFER in page.text, "asks you to sign in again" in page.text) == (is_offered, not is_offered)


async def test_an_application_can_require_a_second_factor(
    api: Api, browser: SamlBrowser, shop: SamlApplication, acme: Tenant, user: Account, ports: Ports, pool: Pool
) -> None:
    """At its request, from a bookmark and over the API. A password alone signs in, and gets no assertion."""
    await run_sql(pool, "update services set required_acr = 'mfa'")
    after = await browser.sign_in_at(await browser.start_sign_on(shop))
    page = await browser.open(after)
    assert (page.status, "requires a second factor" in page.text) == (403, True), page.text
    bookmark = await browser.sign_in_at(f"{shop.management}/login")
    assert (await browser.open(bookmark)).status == 403
    assert refused(await api.get(f"{shop.management}/login", token=acme.token("member"))) == FORBIDDEN
    assert 'href="/app/account/security"' in page.text, "the page leads to the setup"
    factor = await add_mfa(ports, user)
    await browser.send("/app/sign-out", form_token=form_token(page), next=after)
    assert is_step(await browser.sign_in_at(after), "code")
    assert leads_to(await browser.show_code(factor.code(), trust="yes")) == after
    assert posted_response(await browser.open(after)).name_id == EMAIL
    del browser.cookies["gatehouse-session"]
    page = await browser.open(await browser.start_sign_on(shop))
    assert "This application requires a second factor in each sign-in." in page.text
    assert is_step(await browser.sign_in_at(await browser.start_sign_on(shop)), "code"), "the trust in the device is not enough"


@pytest.mark.parametrize("acr", ["mfa", "phr"])
async def test_over_the_api_the_newest_sign_in_of_the_session_has_the_strength(
    api: Api, shop: SamlApplication, user: Account, ports: Ports, pool: Pool, clock: FakeClock, acr: str
) -> None:
    """A reauthentication adds it, or takes it away."""
    await run_sql(pool, "update services set required_acr = %s", acr)
    holder = PasskeyUser(api, (await sign_in(ports, user)).access_token)
    await holder.add()
    holder.token = (await api.login()).json["access_token"]
    app = await add_mfa(ports, user)

    async def confirm(**factors: Any) -> int:
        assert (await api.post(REAUTHENTICATE, factors, token=holder.token)).status == 200
        return (await api.get(f"{shop.management}/login", token=holder.token)).status

    assert refused(await api.get(f"{shop.management}/login", token=holder.token)) == FORBIDDEN
    options = (await api.post(f"{REAUTHENTICATE}/passkey/options", token=holder.token)).json["publicKey"]
    assert await confirm(passkey=holder.authenticator.get(options)) == 200
    clock.advance(timedelta(minutes=1))
    assert await confirm(password=PASSWORD, code=app.code()) == (200 if acr == "mfa" else 403)
