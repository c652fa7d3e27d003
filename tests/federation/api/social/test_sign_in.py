"""Sign-in through an identity provider, for the platform and for services.

The provider is a fake that runs over HTTP.

Covers security A-4, A-7, A-10, O-1, O-5, O-7 and O-8, and decisions 73, 86, 87, 102.
"""

from datetime import timedelta
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from core.authentication import connections
from core.federation.connections.routing import KNOWN_ROUTES_TTL
from core.kernel.connections import CODEHOST, OFFICESUITE
from core.kernel.values import digest
from ports import Ports
from tests.accounts.email_changes import change_email
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.fakes.provider import CLIENT, Person
from tests.federation.api.social.requests import CHALLENGE, REDIRECT_URI, SHOP, every_provider, verifying_providers
from tests.federation.provider_sign_in import ProviderSignIn, flow_in, provider_requests_of
from tests.support.browser import ACCOUNT, HOME, FakeBrowser, action_of, is_step, leads_to
from tests.support.builders import EMAIL, Api, add_account, deliver, link, run_sql, sign_in
from tests.support.direct import set_up
from tests.support.mfa import add_mfa
from tests.support.services import add_service
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow
officesuite = pytest.mark.parametrize("provider", [OFFICESUITE], indirect=True)


# The first sign-in


@every_provider
async def test_the_first_sign_in_creates_an_account(provider_sign_in: ProviderSignIn) -> None:
    assert leads_to(await provider_sign_in.complete()) == HOME
    verified = provider_sign_in.provider.provider != OFFICESUITE
    assert await provider_sign_in.accounts() == [(EMAIL, verified, False, "platform", None)]
    assert await provider_sign_in.identities() == [(EMAIL, None, provider_sign_in.name, provider_sign_in.provider.address, "4711", EMAIL)]
    begun = await run_sql(provider_sign_in.pool, "select proofs -> 0 ->> 'provider' from sessions where browser_hash is not null")
    assert begun == [(provider_sign_in.name,)]
    assert await run_sql(provider_sign_in.pool, "select provider, success from login_events") == [(provider_sign_in.name, True)]
    [(person,)] = await run_sql(provider_sign_in.pool, "select id::text from users")
    assert await run_sql(provider_sign_in.pool, "select name, target_id, actor_id::text from events order by created_at") == [
        ("user.signup.success", person, person),
        ("user.login.success", person, person),
    ]
    assert (await provider_sign_in.browser.open(ACCOUNT)).status == 200


@every_provider
async def test_the_next_sign_in_finds_the_account_after_an_address_change(provider_sign_in: ProviderSignIn) -> None:
    await provider_sign_in.sign_in()
    first = await provider_sign_in.user_id()
    await provider_sign_in.browser.submit("/app/sign-out")
    provider_sign_in.provider.person = Person(email="ada@married.example")
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == first
    assert [row[0] for row in await provider_sign_in.accounts()] == [EMAIL], "the address here stays the same"
    assert [row[5] for row in await provider_sign_in.identities()] == ["ada@married.example"]


@every_provider
async def test_the_providers_tokens_are_encrypted_and_replaced_each_time(provider_sign_in: ProviderSignIn) -> None:
    await provider_sign_in.sign_in()
    [before] = await run_sql(provider_sign_in.pool, "select access_token, refresh_token, token_expires_at, scopes from identities")
    assert b"access-" not in before[0]
    assert b"refresh-" not in before[1]
    assert before[3] == (["read:user", "user:email"] if provider_sign_in.name == "codehost" else ["openid", "email"])
    provider_sign_in.provider.gives_refresh_token = False
    await provider_sign_in.sign_in()
    [after] = await run_sql(provider_sign_in.pool, "select access_token, refresh_token, token_expires_at, scopes from identities")
    assert after[0] != before[0]
    assert after[1:] == before[1:], "an old refresh token is kept if there is no new one"


@every_provider
async def test_the_database_has_only_hashes_of_state_and_cookie(provider_sign_in: ProviderSignIn) -> None:
    callback = await provider_sign_in.start()
    state, code = (parse_qs(urlsplit(callback).query)[name][0] for name in ("state", "code"))
    columns = "challenge_hash, browser_hash, challenge_expires_at - challenge_begun_at, request"
    [row] = await run_sql(provider_sign_in.pool, f"select t::text, {columns} from sign_in_flows t")  # noqa: S608
    assert row[1:] == (digest(state), digest(provider_sign_in.browser.cookies["gatehouse-device"]), timedelta(minutes=15), HOME)
    assert state not in row[0]
    await provider_sign_in.browser.open(callback)
    assert await provider_requests_of(provider_sign_in.pool) == []
    assert await run_sql(provider_sign_in.pool, "select 1 from sign_in_flows where challenge is not null or closed_at is null") == []
    verifier = next(form["code_verifier"] for path, form in provider_sign_in.provider.requests if path == "/token")
    assert verifier not in (state, code, row[0])
    assert len(verifier) == 43


# Matching accounts by email address


@verifying_providers
async def test_an_address_verified_on_both_sides_links(provider_sign_in: ProviderSignIn, ports: Ports) -> None:
    user = await add_account(ports)
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == user.id
    assert await provider_sign_in.accounts() == [(EMAIL, True, True, "platform", None)], "the password is kept"
    assert [row[0] for row in await run_sql(provider_sign_in.pool, "select name from events")] == ["user.login.success"]


@officesuite
@pytest.mark.parametrize("verified", [True, False])
async def test_an_address_without_a_verified_claim_links_nothing(
    provider_sign_in: ProviderSignIn, ports: Ports, verified: bool, metrics: FakeMetrics
) -> None:
    await add_account(ports, verified=verified)
    before = await provider_sign_in.snapshot()
    answer = await provider_sign_in.complete()
    assert answer.status == 409
    assert "link the identity provider there" in answer.text
    assert await provider_sign_in.snapshot() == before
    assert metrics.login_failures == {"address": 1}


@pytest.mark.parametrize("is_verified", [False, None])
async def test_an_address_that_the_provider_has_not_verified_links_nothing(
    provider_sign_in: ProviderSignIn, ports: Ports, is_verified: bool | None
) -> None:
    await add_account(ports)
    provider_sign_in.provider.person = Person(email_verified=is_verified)
    before = await provider_sign_in.snapshot()
    assert (await provider_sign_in.complete()).status == 409
    assert await provider_sign_in.snapshot() == before


@verifying_providers
async def test_an_unverified_account_loses_its_earlier_credentials(provider_sign_in: ProviderSignIn, ports: Ports, app: QuartTrio) -> None:
    """An attacker registered with the user's address before the user came (security A-7)."""
    squatted = await add_account(ports, verified=False)
    await add_mfa(ports, squatted)
    await run_sql(
        provider_sign_in.pool,
        "insert into identities (id, user_id, provider, provider_user_id, linked_at) values (%s, %s, 'officesuite', 'eve', now())",
        squatted.id,
        squatted.id,
    )
    other = FakeBrowser(app)
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == squatted.id
    assert await provider_sign_in.accounts() == [(EMAIL, True, False, "platform", None)]
    assert [row[2] for row in await provider_sign_in.identities()] == [provider_sign_in.name]
    assert await run_sql(provider_sign_in.pool, "select * from mfa") == []
    assert (await other.sign_in()).status == 401, "the password does not work any longer"


@verifying_providers
async def test_an_address_entered_later_and_not_verified_links_nothing(provider_sign_in: ProviderSignIn, ports: Ports) -> None:
    await add_account(ports, email_verified_at=None)  # another address was verified before
    before = await provider_sign_in.snapshot()
    assert (await provider_sign_in.complete()).status == 409
    assert await provider_sign_in.snapshot() == before


@pytest.mark.parametrize("provider", [CODEHOST, OFFICESUITE], indirect=True)
async def test_a_reserved_address_gets_no_account(provider_sign_in: ProviderSignIn, ports: Ports, api: Api) -> None:
    """The address's former account can still undo the address change (security A-9)."""
    token = (await sign_in(ports, await add_account(ports))).access_token
    assert (await change_email(api, ports, token, "lovelace@example.com")).status == 200
    before = await provider_sign_in.snapshot()
    assert (await provider_sign_in.complete()).status == 409
    assert await provider_sign_in.snapshot() == before


@every_provider
async def test_the_first_sign_in_needs_an_address(provider_sign_in: ProviderSignIn, metrics: FakeMetrics) -> None:
    provider_sign_in.provider.person = Person(email=None)
    before = await provider_sign_in.snapshot()
    answer = await provider_sign_in.complete()
    assert answer.status == 400
    assert "did not share an email address" in answer.text
    assert await provider_sign_in.snapshot() == before
    assert metrics.login_failures == {"address": 1}


@every_provider
async def test_a_known_identity_needs_no_address(provider_sign_in: ProviderSignIn) -> None:
    await provider_sign_in.sign_in()
    provider_sign_in.provider.person = Person(email=None)
    await provider_sign_in.sign_in()
    assert [row[5] for row in await provider_sign_in.identities()] == [EMAIL]


@pytest.mark.parametrize("closure", ["deactivated_at", "anonymized_at"])
async def test_a_closed_account_stays_closed(provider_sign_in: ProviderSignIn, closure: str, metrics: FakeMetrics) -> None:
    await provider_sign_in.sign_in()
    await run_sql(provider_sign_in.pool, f"update users set {closure} = now()")  # noqa: S608
    await run_sql(provider_sign_in.pool, "update sessions set ended_at = now()")
    answer = await provider_sign_in.complete()
    assert answer.status == 401
    assert metrics.login_failures == {"closed": 1}
    if closure == "deactivated_at":  # an anonymized account's login events are deleted
        logins = await run_sql(provider_sign_in.pool, "select provider, success from login_events order by success")
        assert logins == [(provider_sign_in.name, False), (provider_sign_in.name, True)]


@verifying_providers
async def test_a_closed_account_is_not_linked_either(provider_sign_in: ProviderSignIn, ports: Ports, clock: FakeClock) -> None:
    await add_account(ports, deactivated_at=clock.now())
    assert (await provider_sign_in.complete()).status == 401
    assert await provider_sign_in.identities() == []


@officesuite
async def test_an_unverified_address_gets_one_verification_email(
    provider_sign_in: ProviderSignIn, ports: Ports, sent: FakeMailTransport
) -> None:
    await provider_sign_in.sign_in()
    await provider_sign_in.sign_in()
    await deliver(ports)
    [letter] = sent.emails
    assert letter.to == EMAIL
    assert (await provider_sign_in.browser.open(f"/auth/verify-email?token={link(letter)}")).status == 200
    assert await provider_sign_in.accounts() == [(EMAIL, True, False, "platform", None)]
    await provider_sign_in.sign_in()
    assert len(await run_sql(provider_sign_in.pool, "select * from mails")) == 1


@officesuite
async def test_at_a_service_that_email_has_the_organizations_design(provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    await provider_sign_in.sign_in(**SHOP)
    assert await run_sql(provider_sign_in.pool, "select kind, address, org_id from mails") == [("verify_email", EMAIL, acme.org)]


@verifying_providers
async def test_a_verified_address_gets_no_email(provider_sign_in: ProviderSignIn) -> None:
    await provider_sign_in.sign_in()
    assert await run_sql(provider_sign_in.pool, "select kind from mails") == []


@officesuite
async def test_a_user_with_an_unverified_address_is_signed_in_and_sees_it(provider_sign_in: ProviderSignIn) -> None:
    await provider_sign_in.sign_in()
    page = await provider_sign_in.browser.open(ACCOUNT)
    assert page.status == 200
    assert "not verified" in page.text


async def test_the_issuer_is_part_of_the_identity(provider_sign_in: ProviderSignIn, app: QuartTrio) -> None:
    await provider_sign_in.sign_in()
    await run_sql(provider_sign_in.pool, "update identities set issuer = 'https://elsewhere.example'")
    await provider_sign_in.browser.submit("/app/sign-out")
    provider_sign_in.provider.person = Person(email="eve@example.com")
    await provider_sign_in.sign_in()
    assert [row[0] for row in await provider_sign_in.accounts()] == [EMAIL, "eve@example.com"]


# The second factor


async def test_the_second_factor_is_required(provider_sign_in: ProviderSignIn, ports: Ports) -> None:
    await provider_sign_in.sign_in()
    account = await provider_sign_in.user_id()
    assert account is not None
    await provider_sign_in.browser.submit("/app/sign-out")
    async with ports.storage.reading() as read:
        account_before = await read.accounts.by_id(account)
    assert account_before is not None
    factor = await add_mfa(ports, account_before)
    assert is_step(leads_to(await provider_sign_in.complete(next="/app/account/devices")), "code")
    assert await provider_sign_in.user_id() is None
    page = await provider_sign_in.browser.show_code(factor.code())
    assert await provider_sign_in.browser.follow(leads_to(page)) == "/app/account/devices"
    assert await provider_sign_in.user_id() == account
    logins = await run_sql(provider_sign_in.pool, "select provider, success from login_events")
    assert logins == [(provider_sign_in.name, True)] * 2, "one before, and one after the code"


# Sign-in to a service


async def test_a_new_account_originates_at_the_service(provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    answer = await provider_sign_in.complete(
        **SHOP, redirect_uri=REDIRECT_URI, state="xyz", code_challenge=CHALLENGE, code_challenge_method="S256"
    )
    page = await provider_sign_in.browser.open(leads_to(answer))
    assert is_step(action_of(page), "confirm"), "the organization does not know the user yet"
    [(kept,)] = await run_sql(provider_sign_in.pool, "select request from sign_in_flows")
    assert {name: value for name, [value] in parse_qs(kept).items()} == {
        **SHOP,
        "redirect_uri": REDIRECT_URI,
        "state": "xyz",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }
    address, _, query = leads_to(await provider_sign_in.browser.answer(page, "continue")).partition("?")
    assert (address, parse_qs(query)["state"], "code" in parse_qs(query)) == (REDIRECT_URI, ["xyz"], True)
    assert [row[3:] for row in await provider_sign_in.accounts() if row[0] == EMAIL] == [("sign_up", acme.org)]
    assert [row[1] for row in await provider_sign_in.identities()] == [shop]
    signed_up = await run_sql(provider_sign_in.pool, "select org_id, data from events where name = 'user.signup.success'")
    assert signed_up == [(acme.org, {"service_id": str(shop)})]


async def test_the_same_identity_is_known_in_every_context(
    provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID, other_tenant: Tenant
) -> None:
    desk = await add_service(provider_sign_in.pool, other_tenant.org, "desk")
    await provider_sign_in.sign_in(**SHOP)
    first = await provider_sign_in.user_id()
    await provider_sign_in.sign_in(org="twin", service="desk")
    assert await provider_sign_in.user_id() == first
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == first
    assert {row[1] for row in await provider_sign_in.identities()} == {None, shop, desk}


@every_provider
async def test_a_service_uses_its_own_credentials_and_scopes(provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID, api: Api) -> None:
    provider_sign_in.provider.clients["of-the-shop"] = "the shop's secret"
    path = f"/api/organizations/acme/services/shop/oauth-credentials/{provider_sign_in.name}"
    owner = acme.token("owner")
    assert (await api.call("PUT", path, {"client_id": "of-the-shop", "client_secret": "the shop's secret"}, token=owner)).status == 200
    assert (
        await api.patch("/api/organizations/acme/services/shop", {f"{provider_sign_in.name}_scopes": ["calendar"]}, token=owner)
    ).status == 200
    address = (await provider_sign_in.browser.open(f"/auth/{provider_sign_in.name}?{urlencode(SHOP)}")).headers["Location"]
    query = parse_qs(urlsplit(address).query)
    assert query["client_id"] == ["of-the-shop"]
    assert query["scope"][0].split()[-1] == "calendar"
    await provider_sign_in.sign_in(**SHOP)
    assert {form["client_id"] for sent, form in provider_sign_in.provider.requests if sent == "/token"} == {"of-the-shop"}
    [(scopes,)] = await run_sql(provider_sign_in.pool, "select scopes from identities")
    assert scopes[-1] == "calendar", "also if the provider does not return the scopes"
    address = (await provider_sign_in.browser.open(f"/auth/{provider_sign_in.name}")).headers["Location"]
    assert parse_qs(urlsplit(address).query)["client_id"] == [CLIENT.client_id], "the platform uses its own client"


async def test_a_service_with_credentials_needs_no_platform_credentials(
    app: QuartTrio, clock: FakeClock, provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID
) -> None:
    await set_up(app, [provider_sign_in.provider.connection(client=None)])
    assert (await provider_sign_in.browser.open("/auth/websuite")).status == 404
    assert (await provider_sign_in.browser.open(f"/auth/websuite?{urlencode(SHOP)}")).status == 404
    page = action_of(await provider_sign_in.browser.open(f"/auth/authorize?{urlencode(SHOP)}"))
    assert is_step(page, "sign-in")
    assert "Continue with" not in (await provider_sign_in.browser.open(page)).text
    body = {"client_id": CLIENT.client_id, "client_secret": CLIENT.client_secret}
    path = "/api/organizations/acme/services/shop/oauth-credentials/websuite"
    assert (await acme.api.call("PUT", path, body, token=acme.token("owner"))).status == 200
    assert f"/auth/websuite?flow={flow_in(page)}" in (await provider_sign_in.browser.open(page)).text
    assert "Continue with" not in (await provider_sign_in.browser.open("/app/sign-in")).text
    await provider_sign_in.sign_in(**SHOP)
    assert await provider_sign_in.user_id() is not None


async def test_a_sign_in_with_a_user_code_continues_on_the_device_page(provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    assert leads_to(await provider_sign_in.complete(user_code="BCDF-GHJK")) == "/auth/device/verify?user_code=BCDF-GHJK"
    assert [row[1] for row in await provider_sign_in.identities()] == [None]
    assert leads_to(await provider_sign_in.complete(user_code="BCDF-GHJK", **SHOP)) == "/auth/device/verify?user_code=BCDF-GHJK"
    assert {row[1] for row in await provider_sign_in.identities()} == {None, shop}


async def test_the_browser_continues_only_on_our_pages(provider_sign_in: ProviderSignIn) -> None:
    for target in ("//evil.example", "https://evil.example", "/\\evil.example", "/app/../..//evil.example"):
        assert leads_to(await provider_sign_in.complete(next=target)) == HOME, target


# The pages


async def test_the_sign_in_page_offers_the_configured_providers(provider_sign_in: ProviderSignIn) -> None:
    page = await provider_sign_in.browser.open("/app/sign-in?next=/app/account/devices")
    assert page.text.count("Continue with") == 1
    assert f'href="/auth/{provider_sign_in.name}?next=%2Fapp%2Faccount%2Fdevices"' in page.text
    wrong = await provider_sign_in.browser.sign_in(password="wrong")
    assert "Continue with" in wrong.text


async def test_a_sign_in_page_follows_a_start_with_other_settings_within_30_seconds(
    ports: Ports, provider_sign_in: ProviderSignIn, clock: FakeClock
) -> None:
    assert "Continue with" in (await provider_sign_in.browser.open("/app/sign-in")).text
    await connections.fill(ports, [])
    clock.advance(KNOWN_ROUTES_TTL)
    assert "Continue with" not in (await provider_sign_in.browser.open("/app/sign-in")).text


async def test_the_sign_in_page_of_an_application_keeps_its_request(provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    fields = {**SHOP, "redirect_uri": REDIRECT_URI, "state": "xyz"}
    page = await provider_sign_in.browser.open(f"/auth/authorize?{urlencode(fields)}")
    flow = flow_in(action_of(page))
    assert f'href="/auth/{provider_sign_in.name}?flow={flow}"' in page.text
    target = leads_to(await provider_sign_in.complete(flow=flow))
    assert target == f"/app/flow/{flow}"
    assert [row[1] for row in await provider_sign_in.identities()] == [shop]
    on = leads_to(await provider_sign_in.browser.answer(await provider_sign_in.browser.open(target), "continue"))
    assert on.startswith(f"{REDIRECT_URI}?")
    assert parse_qs(urlsplit(on).query)["state"] == ["xyz"]
