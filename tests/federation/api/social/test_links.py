"""Linking accounts at identity providers, and the providers' tokens.

Covers security O-6 and O-7, and decisions 75 and 77.

The module is longer than 400 lines, because all tests share the API client and the fake provider of
its fixtures.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.kernel.principals import SYSTEM
from core.kernel.providers import Provider
from ports import Ports
from tests.fakes.http_server import TRAP, in_json
from tests.fakes.outside import FakeClock
from tests.fakes.provider import CLIENT, FakeProvider, Person
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import ACCOUNT, CODE, FakeBrowser, form_token, leads_to
from tests.support.builders import EMAIL, Answer, Api, add_account, add_platform_owner, run_concurrently, run_during, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.refusals import MISSING, refused
from tests.support.services import add_service, sign_in_to
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

PAGE = "/app/account/identities"
TOKEN_LIFETIME = timedelta(minutes=4)  # the lifetime of the provider's tokens; ours live longer


@pytest.fixture(params=[Provider.CODEHOST])
def provider(request: pytest.FixtureRequest, clock: FakeClock) -> Iterator[FakeProvider]:
    with FakeProvider(request.param, now=lambda: clock.now().timestamp()) as running:
        running.expires_in = int(TOKEN_LIFETIME.total_seconds())
        yield running


@dataclass(slots=True)
class ApiClient:
    """An API client with an access token of the user, which links accounts."""

    api: Api
    token: str
    name: str

    async def start_link(self) -> str:
        """Start linking. Return the path to open in a browser."""
        answer = await self.api.post(f"/api/user/identities/{self.name}/link", token=self.token)
        assert answer.status == 200, answer.text
        address = urlsplit(answer.json["authorization_url"])
        return f"{address.path}?{address.query}"

    async def list_subjects(self) -> list[str]:
        answer = await self.api.get("/api/user/identities", token=self.token)
        return [identity["provider_user_id"] for identity in answer.json]

    async def unlink(self) -> Answer:
        return await self.api.delete(f"/api/user/identities/{self.name}", token=self.token)

    async def get_token(self) -> Answer:
        return await self.api.get(f"/api/provider-token/{self.name}", token=self.token)


@pytest.fixture
async def api_client(api: Api, ports: Ports, user: Account, provider: FakeProvider) -> ApiClient:
    return ApiClient(api, (await sign_in(ports, user)).access_token, provider.provider.value)


async def open_ticket(provider_sign_in: ProviderSignIn, path: str) -> str:
    """Open the path of a ticket and visit the provider. Return the path of the callback."""
    page = await provider_sign_in.browser.open(path)
    address = page.headers["Location"] if page.status == 302 else link_target(page)  # a signed-in user is redirected immediately
    return provider_sign_in.provider.visit(address).removeprefix("http://gatehouse.test")


def link_target(page: Answer) -> str:
    """Return the URL of the button on the page that asks whether to link."""
    assert page.status == 200, page.text
    assert EMAIL in page.text
    [address] = re.findall(r'<a class="button" href="([^"]*)"', page.text)
    return unescape(address)


async def security_events(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(pool, "select action, actor_id, details from audit_log where action like 'security.%%'")


# Through the API


async def test_an_api_client_starts_a_link_and_a_browser_finishes_it(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, user: Account, acme: Tenant
) -> None:
    await acme.join("ada", user)
    await run_sql(provider_sign_in.pool, "update memberships set confirmed_at = now()")
    answer = await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))
    assert answer.status == 200
    assert "Account linked" in answer.text
    assert await provider_sign_in.user_id() is None, "linking signs no user in"
    assert await api_client.list_subjects() == ["4711"]
    assert await provider_sign_in.identities() == [(EMAIL, None, provider_sign_in.name, provider_sign_in.provider.address, "4711", EMAIL)]
    assert await security_events(provider_sign_in.pool) == [("security.identity.linked", user.id, {"provider": provider_sign_in.name})]
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == user.id


async def test_a_ticket_works_once_and_expires_after_a_minute(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock
) -> None:
    first, second = await api_client.start_link(), await api_client.start_link()
    await open_ticket(provider_sign_in, first)
    assert (await provider_sign_in.browser.open(first)).status == 400
    clock.advance(timedelta(seconds=60))
    assert (await provider_sign_in.browser.open(second)).status == 400


async def test_a_ticket_works_only_for_its_own_provider(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    path = await api_client.start_link()
    assert (await provider_sign_in.browser.open(path.replace(provider_sign_in.name, "websuite"))).status == 404
    await open_ticket(provider_sign_in, path)


async def test_a_link_needs_the_session_that_started_it(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    back = await open_ticket(provider_sign_in, await api_client.start_link())
    await api_client.api.post("/api/auth/logout", token=api_client.token)
    assert (await provider_sign_in.browser.open(back)).status == 401
    assert await provider_sign_in.identities() == []


async def test_a_link_finishes_only_in_the_browser_that_opened_it(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, app: QuartTrio
) -> None:
    back = await open_ticket(provider_sign_in, await api_client.start_link())
    other = FakeBrowser(app)
    await other.open(f"/auth/{provider_sign_in.name}")
    assert (await other.open(back)).status == 400
    assert await provider_sign_in.identities() == []


async def test_a_signed_in_user_cannot_use_another_users_ticket(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, ports: Ports
) -> None:
    """An attacker could send the URL to a signed-in user."""
    await add_account(ports, "eve@example.com")
    assert leads_to(await provider_sign_in.browser.sign_in("eve@example.com")) == ACCOUNT
    answer = await provider_sign_in.browser.open(await api_client.start_link())
    assert answer.status == 403
    assert "Another user is signed in" in answer.text
    await provider_sign_in.browser.submit("/app/sign-out")
    back = await open_ticket(provider_sign_in, await api_client.start_link())
    assert leads_to(await provider_sign_in.browser.sign_in("eve@example.com")) == ACCOUNT
    assert (await provider_sign_in.browser.open(back)).status == 403
    assert await provider_sign_in.identities() == []


async def test_a_browser_without_a_session_is_asked_before_linking(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    """The provider may redirect without asking, so our page must ask."""
    answer = await provider_sign_in.browser.open(await api_client.start_link())
    assert "Location" not in answer.headers
    assert "Refresh" not in answer.headers
    assert f"<strong>{EMAIL}</strong>" in answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


async def test_a_signed_in_user_is_redirected_immediately(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    await provider_sign_in.browser.sign_in(EMAIL)
    answer = await provider_sign_in.browser.open(await api_client.start_link())
    assert answer.status == 302
    await provider_sign_in.browser.open(provider_sign_in.provider.visit(answer.headers["Location"]).removeprefix("http://gatehouse.test"))
    assert await api_client.list_subjects() == ["4711"]


async def test_an_identity_of_another_user_is_not_linked(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, app: QuartTrio, acme: Tenant
) -> None:
    """Whatever the context of that identity."""
    shop = await add_service(provider_sign_in.pool, acme.org)
    provider_sign_in.provider.person = Person(email="eve@example.com")
    await ProviderSignIn(FakeBrowser(app), provider_sign_in.provider, provider_sign_in.pool).sign_in(org="acme", service="shop")
    answer = await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))
    assert answer.status == 409
    assert [row[:2] for row in await provider_sign_in.identities()] == [("eve@example.com", shop)], "it stays with its user"


async def test_a_second_identity_at_a_provider_is_not_linked(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    first, second = await api_client.start_link(), await api_client.start_link()
    assert (await provider_sign_in.browser.open(await open_ticket(provider_sign_in, first))).status == 200
    provider_sign_in.provider.person = Person(subject="4712")
    assert (await provider_sign_in.browser.open(await open_ticket(provider_sign_in, second))).status == 400
    assert await api_client.list_subjects() == ["4711"]


async def test_an_identity_at_a_service_can_also_be_linked_to_the_account(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, app: QuartTrio, acme: Tenant
) -> None:
    shop = await add_service(provider_sign_in.pool, acme.org)
    await ProviderSignIn(FakeBrowser(app), provider_sign_in.provider, provider_sign_in.pool).sign_in(org="acme", service="shop")
    assert (await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))).status == 200
    assert {row[1] for row in await provider_sign_in.identities()} == {None, shop}


async def test_of_twenty_parallel_uses_of_a_ticket_one_works(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    path = await api_client.start_link()
    answers = await run_concurrently(20, lambda _: provider_sign_in.browser.open(path))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19


async def test_a_provider_that_fails_links_nothing(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    provider_sign_in.provider.refuses = "access_denied"
    assert (await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))).status == 400
    provider_sign_in.provider.refuses = TRAP
    answer = await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))
    assert answer.status == 500
    assert "what a provider says" not in answer.text
    assert await provider_sign_in.identities() == []


# On the account page


async def link_on_page(provider_sign_in: ProviderSignIn) -> None:
    page = await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/link", PAGE)
    assert page.status == 200, page.text
    wait, _, address = page.headers["Refresh"].partition("; url=")
    assert (wait, address in page.text) == ("0", True)
    assert leads_to(await provider_sign_in.browser.open(await open_ticket(provider_sign_in, address))) == PAGE


async def test_an_identity_is_linked_and_unlinked_on_the_account_page(provider_sign_in: ProviderSignIn, user: Account) -> None:
    await provider_sign_in.browser.sign_in()
    assert "No accounts are linked." in (await provider_sign_in.browser.open(ACCOUNT)).text
    assert "not linked" in (await provider_sign_in.browser.open(PAGE)).text
    await link_on_page(provider_sign_in)
    page = await provider_sign_in.browser.open(PAGE)
    assert "Account linked." in page.text
    assert EMAIL in page.text
    assert "not linked" not in page.text
    assert "You can sign in with Codehost." in (await provider_sign_in.browser.open(ACCOUNT)).text
    assert leads_to(await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/unlink", PAGE)) == PAGE
    assert "Account unlinked." in (await provider_sign_in.browser.open(PAGE)).text
    assert await provider_sign_in.identities() == []


async def test_forms_of_other_sites_link_nothing(provider_sign_in: ProviderSignIn, user: Account) -> None:
    await provider_sign_in.browser.sign_in()
    for what in ("link", "unlink"):
        assert (await provider_sign_in.browser.send(f"{PAGE}/{provider_sign_in.name}/{what}", form_token="guessed")).status == 403
        token = form_token(await provider_sign_in.browser.open(PAGE))
        foreign = (b"sec-fetch-site", b"cross-site")
        assert (await provider_sign_in.browser.send(f"{PAGE}/{provider_sign_in.name}/{what}", foreign, form_token=token)).status == 403
    assert await run_sql(provider_sign_in.pool, "select * from link_tickets") == []


async def test_the_page_explains_refusals(provider_sign_in: ProviderSignIn) -> None:
    await provider_sign_in.sign_in()
    answer = await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/unlink", PAGE)
    assert answer.status == 400
    assert "your only way to sign in" in answer.text
    answer = await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/link", PAGE)
    assert answer.status == 400
    assert "You have already linked" in answer.text
    assert (await provider_sign_in.browser.submit(f"{PAGE}/websuite/link", PAGE)).status == 404
    assert (await provider_sign_in.browser.submit(f"{PAGE}/websuite/unlink", PAGE)).status == 404


async def test_the_last_identity_stays_if_the_password_cannot_sign_in(provider_sign_in: ProviderSignIn) -> None:
    await provider_sign_in.sign_in()
    await run_sql(provider_sign_in.pool, "update users set password_hash = 'of some password', email_verified_at = null")
    assert (await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/unlink", PAGE)).status == 400
    await run_sql(provider_sign_in.pool, "update users set email_verified_at = now()")
    assert (await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/unlink", PAGE)).status == 303


# After unlinking


SHOP, DESK = {"org": "acme", "service": "shop"}, {"org": "twin", "service": "desk"}


@pytest.fixture
async def linked_client(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, app: QuartTrio, acme: Tenant, other_tenant: Tenant
) -> ApiClient:
    """The user linked an identity with another address, and signed in with it at services of two
    organizations.
    """
    await add_service(provider_sign_in.pool, acme.org)
    await add_service(provider_sign_in.pool, other_tenant.org, "desk")
    provider_sign_in.provider.person = Person(email="x@codehost.example")
    assert (await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))).status == 200
    for service in (SHOP, DESK):
        await other_browser(provider_sign_in, app).sign_in(**service)
    return api_client


def other_browser(provider_sign_in: ProviderSignIn, app: QuartTrio) -> ProviderSignIn:
    return ProviderSignIn(FakeBrowser(app), provider_sign_in.provider, provider_sign_in.pool)


@pytest.mark.parametrize("where", [{}, SHOP, DESK], ids=["account", "shop", "desk"])
async def test_an_unlinked_identity_does_not_open_the_account(
    provider_sign_in: ProviderSignIn, linked_client: ApiClient, app: QuartTrio, user: Account, where: dict[str, str]
) -> None:
    assert len(await provider_sign_in.identities()) == 3
    assert (await linked_client.unlink()).status == 200
    assert await provider_sign_in.identities() == []
    browser = other_browser(provider_sign_in, app)
    await browser.sign_in(**where)
    assert await browser.user_id() not in (None, user.id), "it signs in to a new account"
    assert [row[0] for row in await provider_sign_in.identities()] == ["x@codehost.example"]
    assert await linked_client.list_subjects() == []


async def test_an_identity_with_the_verified_address_links_again(
    provider_sign_in: ProviderSignIn, linked_client: ApiClient, app: QuartTrio, user: Account
) -> None:
    """The owner of the mailbox could reset the password as well (decision 64)."""
    assert (await linked_client.unlink()).status == 200
    provider_sign_in.provider.person = Person()
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == user.id
    assert await linked_client.list_subjects() == ["4711"]


async def test_a_sign_in_during_the_unlinking_fails(
    provider_sign_in: ProviderSignIn, linked_client: ApiClient, app: QuartTrio, user: Account
) -> None:
    browser = other_browser(provider_sign_in, app)
    back = await browser.start(**SHOP)
    locked = ("select 1 from users where id = %s for no key update", (user.id,))
    unlinked = ("delete from identities where user_id = %s", (user.id,))
    assert (await run_during(provider_sign_in.pool, [locked, unlinked], lambda: browser.browser.open(back))).status == 400
    assert await browser.user_id() is None
    assert await provider_sign_in.identities() == []


async def test_no_parallel_sign_in_succeeds_after_the_unlinking(
    provider_sign_in: ProviderSignIn, linked_client: ApiClient, app: QuartTrio, user: Account
) -> None:
    browsers = [other_browser(provider_sign_in, app) for _ in range(8)]
    backs = [await browser.start(**where) for browser, where in zip(browsers, [{}, SHOP, DESK, SHOP] * 2, strict=True)]
    late = other_browser(provider_sign_in, app)

    async def act(number: int) -> int:
        if number < len(browsers):
            return (await browsers[number].browser.open(backs[number])).status
        answer = await linked_client.unlink()
        await late.sign_in()
        return answer.status

    statuses = await run_concurrently(len(browsers) + 1, act)
    assert statuses.count(200) == 1  # the unlinking; the sign-ins are redirected or come too late
    assert set(statuses) <= {200, 303, 400}
    assert await late.user_id() not in (None, user.id)
    assert EMAIL not in [row[0] for row in await provider_sign_in.identities()]


async def test_a_pending_second_factor_fails_after_the_unlinking(
    provider_sign_in: ProviderSignIn, linked_client: ApiClient, app: QuartTrio, user: Account, ports: Ports
) -> None:
    factor = await add_mfa(ports, user)
    browser = other_browser(provider_sign_in, app)
    assert leads_to(await browser.complete(**SHOP)).startswith(CODE)
    assert (await linked_client.unlink()).status == 200
    assert (await browser.browser.submit(CODE, CODE, code=factor.code())).status == 401
    assert await browser.user_id() is None


async def test_an_identity_at_a_service_opens_the_account_and_is_unlinked_there(
    provider_sign_in: ProviderSignIn, app: QuartTrio, acme: Tenant
) -> None:
    """An account that originates at a service is a full account."""
    await add_service(provider_sign_in.pool, acme.org)
    await provider_sign_in.sign_in(**SHOP)
    assert "You can sign in with Codehost." in (await provider_sign_in.browser.open(ACCOUNT)).text
    page = await provider_sign_in.browser.open(PAGE)
    assert "linked at an application" in page.text
    assert "not linked" not in page.text
    assert (await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/unlink", PAGE)).status == 400, (
        "it is the only way to sign in"
    )
    await run_sql(provider_sign_in.pool, "update users set password_hash = 'x', email = 'hers@example.com' where email = %s", EMAIL)
    assert leads_to(await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/unlink", PAGE)) == PAGE
    assert "not linked" in (await provider_sign_in.browser.open(PAGE)).text
    assert "No accounts are linked." in (await provider_sign_in.browser.open(ACCOUNT)).text
    browser, first = other_browser(provider_sign_in, app), await provider_sign_in.user_id()
    await browser.sign_in(**SHOP)
    assert await browser.user_id() not in (None, first)


# The provider's token


async def test_the_providers_token_is_returned(provider_sign_in: ProviderSignIn, api_client: ApiClient) -> None:
    await provider_sign_in.sign_in()
    answer = await api_client.get_token()
    assert answer.status == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.json.keys() == {"provider", "access_token", "expires_at", "scopes"}
    assert answer.json["access_token"].startswith("access-")
    assert answer.json["scopes"] == ["read:user", "user:email"]
    assert provider_sign_in.provider.counted["/token"] == 1


async def test_an_expired_token_is_refreshed(provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock) -> None:
    await provider_sign_in.sign_in()
    first = (await api_client.get_token()).json
    for _ in range(3):  # with the refresh token from the previous refresh
        clock.advance(TOKEN_LIFETIME)
        second = (await api_client.get_token()).json
        assert second["access_token"] != first["access_token"]
        assert second["expires_at"] > first["expires_at"]
        assert (await api_client.get_token()).json == second
        first = second
    assert provider_sign_in.provider.counted["/token"] == 4


async def test_a_token_without_an_expiry_is_not_refreshed(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock
) -> None:
    provider_sign_in.provider.expires_in = None
    await provider_sign_in.sign_in()
    clock.advance(2 * TOKEN_LIFETIME)
    answer = await api_client.get_token()
    assert (answer.status, answer.json["expires_at"]) == (200, None)
    assert provider_sign_in.provider.counted["/token"] == 1


async def test_of_parallel_requests_one_refreshes_the_token_and_all_get_it(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock
) -> None:
    """A provider with one-time refresh tokens would treat a second use as theft."""
    await provider_sign_in.sign_in()
    clock.advance(TOKEN_LIFETIME)
    answers = await run_concurrently(10, lambda _: api_client.get_token())
    assert {answer.status for answer in answers} == {200}
    assert len({answer.json["access_token"] for answer in answers}) == 1
    assert provider_sign_in.provider.counted["/token"] == 2
    clock.advance(TOKEN_LIFETIME)
    assert (await api_client.get_token()).status == 200, "the new refresh token is stored"


async def test_a_failed_refresh_is_an_oauth_error_and_can_be_retried(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock
) -> None:
    await provider_sign_in.sign_in()
    clock.advance(TOKEN_LIFETIME)
    provider_sign_in.provider.answers["/token"] = in_json({"error": "invalid_grant", "error_description": TRAP})
    answer = await api_client.get_token()
    assert refused(answer) == (500, "OAUTH_ERROR")
    assert "what a provider says" not in answer.text
    provider_sign_in.provider.answers.clear()
    assert (await api_client.get_token()).status == 200


async def test_an_expired_token_without_a_refresh_token_is_not_found(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock
) -> None:
    provider_sign_in.provider.gives_refresh_token = False
    await provider_sign_in.sign_in()
    clock.advance(TOKEN_LIFETIME)
    assert refused(await api_client.get_token()) == (500, "OAUTH_ERROR")
    assert provider_sign_in.provider.counted["/token"] == 1


async def test_a_sign_in_during_the_refresh_keeps_its_tokens(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock, ports: Ports, user: Account
) -> None:
    await provider_sign_in.sign_in()
    clock.advance(TOKEN_LIFETIME)
    now = clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        claim = await tx.identities.claim_renewal(user.id, None, Provider.CODEHOST, now, now + timedelta(seconds=15))
        assert claim is not None
        assert await tx.identities.claim_renewal(user.id, None, Provider.CODEHOST, now, now + timedelta(seconds=15)) is None
    await provider_sign_in.sign_in()
    fresh = (await api_client.get_token()).json["access_token"]
    renewed = await ports.providers.refresh(Provider.CODEHOST, CLIENT, claim.refresh_token)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        assert not await tx.identities.complete_renewal(claim, renewed)
    assert (await api_client.get_token()).json["access_token"] == fresh


async def test_an_abandoned_refresh_does_not_block_the_token(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, clock: FakeClock
) -> None:
    await provider_sign_in.sign_in()
    clock.advance(TOKEN_LIFETIME)
    await run_sql(provider_sign_in.pool, "update identities set renewing_until = %s", clock.now())
    assert (await api_client.get_token()).status == 200


async def test_each_context_has_its_own_token_and_credentials(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, ports: Ports, user: Account, acme: Tenant, clock: FakeClock
) -> None:
    shop = await add_service(provider_sign_in.pool, acme.org)
    provider_sign_in.provider.clients["of-the-shop"] = "its secret"
    path = f"/api/organizations/acme/services/shop/oauth-credentials/{provider_sign_in.name}"
    body = {"client_id": "of-the-shop", "client_secret": "its secret"}
    assert (await acme.api.call("PUT", path, body, token=acme.token("owner"))).status == 200
    await provider_sign_in.sign_in(org="acme", service="shop")
    assert refused(await api_client.get_token()) == MISSING
    application = ApiClient(api_client.api, (await sign_in_to(ports, provider_sign_in.pool, shop, user)).access_token, api_client.name)
    clock.advance(TOKEN_LIFETIME)
    application.token = (await sign_in_to(ports, provider_sign_in.pool, shop, user)).access_token
    assert (await application.get_token()).status == 200
    assert {form["client_id"] for sent, form in provider_sign_in.provider.requests if sent == "/token"} == {"of-the-shop"}


# Privacy


async def test_identities_are_exported_without_tokens_and_anonymized(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, ports: Ports, user: Account
) -> None:
    await provider_sign_in.sign_in()
    exported = await api_client.api.get(f"/api/privacy/export/{user.id}", token=api_client.token)
    assert [identity["provider_user_id"] for identity in exported.json["oauth_identities"]] == ["4711"]
    assert "access-" not in exported.text
    await run_sql(provider_sign_in.pool, "update identities set provider = 'websuite'")
    back = await open_ticket(provider_sign_in, await api_client.start_link())
    steward = (await sign_in(ports, await add_platform_owner(ports))).access_token
    assert (await api_client.api.delete(f"/api/privacy/forget/{user.id}", token=steward)).status == 200
    for table in ("identities", "provider_states", "link_tickets"):
        assert await run_sql(provider_sign_in.pool, f"select * from {table}") == []  # noqa: S608
    assert (await provider_sign_in.browser.open(back)).status == 400
