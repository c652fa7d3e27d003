"""Sign-in through an identity provider, for the platform and for services.

The provider is a fake that runs over HTTP.

Covers security A-4, A-7, A-10, O-1, O-5, O-7 and O-8, and decisions 73, 86, 87, 101, 102 and 211.
"""

import re
from datetime import timedelta
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.http.providers import HttpProviders
from adapters.postgres.engine.pool import Pool
from core.kernel.providers import Provider
from core.kernel.values import digest, new_secret
from ports import Ports
from ports.outside import IdentityProviders
from tests.fakes.http_server import TRAP, in_json
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.fakes.provider import CLIENT, FakeProvider, Person
from tests.support.browser import ACCOUNT, CODE, Visitor, leads_to
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, Api, add_account, deliver, everyone, link, run_sql
from tests.support.direct import change_ports
from tests.support.mfa import add_mfa
from tests.support.provider_sign_in import ProviderSignIn
from tests.support.services import add_service
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

CHALLENGE: Final = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
BACK: Final = "https://shop.example.com/callback"


@pytest.fixture
def providers(provider: FakeProvider, clock: FakeClock) -> IdentityProviders:
    return HttpProviders({provider.provider: provider.settings()}, clock)


@pytest.fixture
async def shop(pool: Pool, acme: Tenant) -> UUID:
    return await add_service(pool, acme.org)


SHOP: Final = {"org": "acme", "service": "shop"}
of = pytest.mark.parametrize
every_provider = of("provider", list(Provider), indirect=True)
verifying_providers = of("provider", [Provider.CODEHOST, Provider.WEBSUITE], indirect=True)
officesuite = of("provider", [Provider.OFFICESUITE], indirect=True)


# The first sign-in


@every_provider
async def test_the_first_sign_in_creates_an_account(street: ProviderSignIn) -> None:
    assert leads_to(await street.complete()) == ACCOUNT
    verified = street.provider.provider is not Provider.OFFICESUITE
    assert await street.accounts() == [(EMAIL, verified, False, "platform", None)]
    assert await street.identities() == [(EMAIL, None, street.name, street.provider.address, "4711", EMAIL)]
    assert await run_sql(street.pool, "select provider from sessions where browser_hash is not null") == [(street.name,)]
    assert await run_sql(street.pool, "select provider, success from login_events") == [(street.name, True)]
    [(person,)] = await run_sql(street.pool, "select id::text from users")
    assert await run_sql(street.pool, "select name, target_id, actor_id::text from events order by created_at") == [
        ("user.signup.success", person, person),
        ("user.login.success", person, person),
    ]
    assert (await street.visitor.open(ACCOUNT)).status == 200


@every_provider
async def test_the_next_sign_in_finds_the_account_after_an_address_change(street: ProviderSignIn) -> None:
    await street.sign_in()
    first = await street.user_id()
    await street.visitor.submit("/app/sign-out")
    street.provider.person = Person(email="ada@married.example")
    await street.sign_in()
    assert await street.user_id() == first
    assert [row[0] for row in await street.accounts()] == [EMAIL], "the address here stays the same"
    assert [row[5] for row in await street.identities()] == ["ada@married.example"]


@every_provider
async def test_the_providers_tokens_are_encrypted_and_replaced_each_time(street: ProviderSignIn) -> None:
    await street.sign_in()
    [before] = await run_sql(street.pool, "select access_token, refresh_token, token_expires_at, scopes from identities")
    assert b"access-" not in before[0]
    assert b"refresh-" not in before[1]
    assert before[3] == (["read:user", "user:email"] if street.name == "codehost" else ["openid", "email"])
    street.provider.gives_refresh_token = False
    await street.sign_in()
    [after] = await run_sql(street.pool, "select access_token, refresh_token, token_expires_at, scopes from identities")
    assert after[0] != before[0]
    assert after[1:] == before[1:], "an old refresh token is kept if there is no new one"


@every_provider
async def test_the_database_has_only_hashes_of_state_and_cookie(street: ProviderSignIn) -> None:
    back = await street.start()
    state, code = (parse_qs(urlsplit(back).query)[name][0] for name in ("state", "code"))
    [row] = await run_sql(street.pool, "select t::text, state_hash, browser_hash, expires_at - created_at, after from provider_states t")
    assert row[1:] == (digest(state), digest(street.visitor.cookies["gatehouse-device"]), timedelta(minutes=15), ACCOUNT)
    assert state not in row[0]
    await street.visitor.open(back)
    assert await run_sql(street.pool, "select * from provider_states") == []
    verifier = next(form["code_verifier"] for path, form in street.provider.asked if path == "/token")
    assert verifier not in (state, code, row[0])
    assert len(verifier) == 43


# Matching accounts by email address


@verifying_providers
async def test_an_address_verified_on_both_sides_links(street: ProviderSignIn, ports: Ports) -> None:
    user = await add_account(ports)
    await street.sign_in()
    assert await street.user_id() == user.id
    assert await street.accounts() == [(EMAIL, True, True, "platform", None)], "the password is kept"
    assert [row[0] for row in await run_sql(street.pool, "select name from events")] == ["user.login.success"]


@officesuite
@of("verified", [True, False])
async def test_an_address_without_a_verified_claim_links_nothing(
    street: ProviderSignIn, ports: Ports, verified: bool, metrics: FakeMetrics
) -> None:
    await add_account(ports, verified=verified)
    before = await street.snapshot()
    answer = await street.complete()
    assert answer.status == 409
    assert "link the identity provider there" in answer.text
    assert await street.snapshot() == before
    assert metrics.login_failures == {"address": 1}


@of("is_verified", [False, None])
async def test_an_address_that_the_provider_has_not_verified_links_nothing(
    street: ProviderSignIn, ports: Ports, is_verified: bool | None
) -> None:
    await add_account(ports)
    street.provider.person = Person(email_verified=is_verified)
    before = await street.snapshot()
    assert (await street.complete()).status == 409
    assert await street.snapshot() == before


@verifying_providers
async def test_an_unverified_account_loses_its_earlier_credentials(street: ProviderSignIn, ports: Ports, app: QuartTrio) -> None:
    """An attacker registered with the user's address before the user came (security A-7)."""
    squatted = await add_account(ports, verified=False)
    await add_mfa(ports, squatted)
    await run_sql(
        street.pool,
        "insert into identities (id, user_id, provider, provider_user_id, linked_at) values (%s, %s, 'officesuite', 'eve', now())",
        squatted.id,
        squatted.id,
    )
    other = Visitor(app)
    await street.sign_in()
    assert await street.user_id() == squatted.id
    assert await street.accounts() == [(EMAIL, True, False, "platform", None)]
    assert [row[2] for row in await street.identities()] == [street.name]
    assert await run_sql(street.pool, "select * from mfa") == []
    assert (await other.sign_in()).status == 401, "the password does not work any longer"


@verifying_providers
async def test_an_address_entered_later_and_not_verified_links_nothing(street: ProviderSignIn, ports: Ports) -> None:
    await add_account(ports, email_verified_at=None)  # another address was verified before
    before = await street.snapshot()
    assert (await street.complete()).status == 409
    assert await street.snapshot() == before


@every_provider
async def test_the_first_sign_in_needs_an_address(street: ProviderSignIn, metrics: FakeMetrics) -> None:
    street.provider.person = Person(email=None)
    before = await street.snapshot()
    answer = await street.complete()
    assert answer.status == 400
    assert "did not share an email address" in answer.text
    assert await street.snapshot() == before
    assert metrics.login_failures == {"address": 1}


@every_provider
async def test_a_known_identity_needs_no_address(street: ProviderSignIn) -> None:
    await street.sign_in()
    street.provider.person = Person(email=None)
    await street.sign_in()
    assert [row[5] for row in await street.identities()] == [EMAIL]


@of("closed", ["deactivated_at", "anonymized_at"])
async def test_a_closed_account_stays_closed(street: ProviderSignIn, closed: str, metrics: FakeMetrics) -> None:
    await street.sign_in()
    await run_sql(street.pool, f"update users set {closed} = now()")  # noqa: S608
    await run_sql(street.pool, "update sessions set ended_at = now()")
    answer = await street.complete()
    assert answer.status == 401
    assert metrics.login_failures == {"closed": 1}
    if closed == "deactivated_at":  # the login events of an anonymized account are deleted
        logins = await run_sql(street.pool, "select provider, success from login_events order by success")
        assert logins == [(street.name, False), (street.name, True)]


@verifying_providers
async def test_a_closed_account_is_not_linked_either(street: ProviderSignIn, ports: Ports, clock: FakeClock) -> None:
    await add_account(ports, deactivated_at=clock.now())
    assert (await street.complete()).status == 401
    assert await street.identities() == []


@officesuite
async def test_an_unverified_address_gets_one_verification_email(street: ProviderSignIn, ports: Ports, sent: FakeMailTransport) -> None:
    await street.sign_in()
    await street.sign_in()
    await deliver(ports)
    [letter] = sent.letters
    assert letter.to == EMAIL
    assert (await street.visitor.open(f"/auth/verify-email?token={link(letter)}")).status == 200
    assert await street.accounts() == [(EMAIL, True, False, "platform", None)]
    await street.sign_in()
    assert len(await run_sql(street.pool, "select * from mails")) == 1


@officesuite
async def test_at_a_service_that_email_has_the_organizations_design(street: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    await street.sign_in(**SHOP)
    assert await run_sql(street.pool, "select kind, address, org_id from mails") == [("verify_email", EMAIL, acme.org)]


@verifying_providers
async def test_a_verified_address_gets_no_email(street: ProviderSignIn) -> None:
    await street.sign_in()
    assert await run_sql(street.pool, "select kind from mails") == []


@officesuite
async def test_a_user_with_an_unverified_address_is_signed_in_and_sees_it(street: ProviderSignIn) -> None:
    await street.sign_in()
    page = await street.visitor.open(ACCOUNT)
    assert page.status == 200
    assert "not verified" in page.text


async def test_the_issuer_is_part_of_the_identity(street: ProviderSignIn, app: QuartTrio) -> None:
    await street.sign_in()
    await run_sql(street.pool, "update identities set issuer = 'https://elsewhere.example'")
    street.provider.person = Person(email="eve@example.com")
    await street.sign_in()
    assert [row[0] for row in await street.accounts()] == [EMAIL, "eve@example.com"]


# The second factor


async def test_the_second_factor_is_required(street: ProviderSignIn, ports: Ports) -> None:
    await street.sign_in()
    account = await street.user_id()
    assert account is not None
    await street.visitor.submit("/app/sign-out")
    async with ports.storage.reading() as read:
        known = await read.accounts.by_id(account)
    assert known is not None
    factor = await add_mfa(ports, known)
    assert leads_to(await street.complete(next="/app/account/devices")) == f"{CODE}?next=%2Fapp%2Faccount%2Fdevices"
    assert await street.user_id() is None
    page = await street.visitor.submit(CODE, CODE, code=factor.code(), next="/app/account/devices")
    assert leads_to(page) == "/app/account/devices"
    assert await street.user_id() == account
    logins = await run_sql(street.pool, "select provider, success from login_events")
    assert logins == [(street.name, True)] * 2, "one before, and one after the code"


# Sign-in to a service


async def test_a_new_account_originates_at_the_service(street: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    answer = await street.complete(**SHOP, redirect_uri=BACK, state="xyz", code_challenge=CHALLENGE, code_challenge_method="S256")
    on = urlsplit(leads_to(answer))
    assert on.path == "/auth/authorize"
    assert {name: value for name, [value] in parse_qs(on.query).items()} == {
        **SHOP,
        "redirect_uri": BACK,
        "state": "xyz",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }
    assert [row[3:] for row in await street.accounts() if row[0] == EMAIL] == [("sign_up", acme.org)]
    assert [row[1] for row in await street.identities()] == [shop]
    signed_up = await run_sql(street.pool, "select org_id, data from events where name = 'user.signup.success'")
    assert signed_up == [(acme.org, {"service_id": str(shop)})]


async def test_the_same_identity_is_known_in_every_context(street: ProviderSignIn, acme: Tenant, shop: UUID, twin: Tenant) -> None:
    desk = await add_service(street.pool, twin.org, "desk")
    await street.sign_in(**SHOP)
    first = await street.user_id()
    await street.sign_in(org="twin", service="desk")
    assert await street.user_id() == first
    await street.sign_in()
    assert await street.user_id() == first
    assert {row[1] for row in await street.identities()} == {None, shop, desk}


@every_provider
async def test_a_service_uses_its_own_credentials_and_scopes(street: ProviderSignIn, acme: Tenant, shop: UUID, api: Api) -> None:
    street.provider.clients["of-the-shop"] = "the shop's secret"
    path = f"/api/organizations/acme/services/shop/oauth-credentials/{street.name}"
    owner = acme.token("owner")
    assert (await api.call("PUT", path, {"client_id": "of-the-shop", "client_secret": "the shop's secret"}, token=owner)).status == 200
    assert (await api.patch("/api/organizations/acme/services/shop", {f"{street.name}_scopes": ["calendar"]}, token=owner)).status == 200
    address = (await street.visitor.open(f"/auth/{street.name}?{urlencode(SHOP)}")).headers["Location"]
    query = parse_qs(urlsplit(address).query)
    assert query["client_id"] == ["of-the-shop"]
    assert query["scope"][0].split()[-1] == "calendar"
    await street.sign_in(**SHOP)
    assert {form["client_id"] for sent, form in street.provider.asked if sent == "/token"} == {"of-the-shop"}
    [(scopes,)] = await run_sql(street.pool, "select scopes from identities")
    assert scopes[-1] == "calendar", "also if the provider does not return the scopes"
    address = (await street.visitor.open(f"/auth/{street.name}")).headers["Location"]
    assert parse_qs(urlsplit(address).query)["client_id"] == [CLIENT.client_id], "the platform uses its own client"


async def test_a_service_with_credentials_needs_no_platform_credentials(
    app: QuartTrio, clock: FakeClock, street: ProviderSignIn, acme: Tenant, shop: UUID
) -> None:
    change_ports(app, providers=HttpProviders({Provider.WEBSUITE: street.provider.settings(client=None)}, clock))
    assert (await street.visitor.open("/auth/websuite")).status == 404
    assert (await street.visitor.open(f"/auth/websuite?{urlencode(SHOP)}")).status == 404
    page = f"/app/sign-in?{urlencode({'next': '/auth/authorize?' + urlencode(SHOP)})}"
    assert "Continue with" not in (await street.visitor.open(page)).text
    body = {"client_id": CLIENT.client_id, "client_secret": CLIENT.client_secret}
    path = "/api/organizations/acme/services/shop/oauth-credentials/websuite"
    assert (await acme.api.call("PUT", path, body, token=acme.token("owner"))).status == 200
    assert "/auth/websuite?org=acme&amp;service=shop" in (await street.visitor.open(page)).text
    assert "Continue with" not in (await street.visitor.open("/app/sign-in")).text
    await street.sign_in(**SHOP)
    assert await street.user_id() is not None


async def test_a_sign_in_with_a_user_code_continues_on_the_device_page(street: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    assert leads_to(await street.complete(user_code="BCDF-GHJK")) == "/auth/device/verify?user_code=BCDF-GHJK"
    assert [row[1] for row in await street.identities()] == [None]
    assert leads_to(await street.complete(user_code="BCDF-GHJK", **SHOP)) == "/auth/device/verify?user_code=BCDF-GHJK"
    assert {row[1] for row in await street.identities()} == {None, shop}


async def test_the_browser_continues_only_on_our_pages(street: ProviderSignIn) -> None:
    for target in ("//evil.example", "https://evil.example", "/\\evil.example", "/app/../..//evil.example"):
        assert leads_to(await street.complete(next=target)) == ACCOUNT, target


# Refusals at the start

REFUSED: Final[dict[str, tuple[dict[str, str], int]]] = {
    "half a service": ({"org": "acme"}, 400),
    "half a service, with a device": ({"org": "acme", "user_code": "BCDF-GHJK"}, 400),
    "an unknown organization": ({"org": "nobody", "service": "shop"}, 404),
    "an unknown service": ({"org": "acme", "service": "nothing"}, 404),
    "another redirect URI": ({**SHOP, "redirect_uri": "https://evil.example"}, 400),
    "a plain challenge": ({**SHOP, "code_challenge": CHALLENGE, "code_challenge_method": "plain"}, 400),
    "a ticket of nobody": ({"link": "x" * 43}, 400),
}


async def test_invalid_requests_are_not_redirected(street: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    findings = []
    for mistake, (query, status) in REFUSED.items():
        answer = await street.visitor.open(f"/auth/{street.name}?{urlencode(query)}")
        if answer.status != status or "Location" in answer.headers:
            findings.append((mistake, answer.status, answer.text))
    assert findings == []
    assert await run_sql(street.pool, "select * from provider_states") == []


async def test_an_inactive_organization_signs_no_users_in(street: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    back = await street.start(**SHOP)
    await run_sql(street.pool, "update organizations set status = 'suspended'")
    before = await street.snapshot()
    assert (await street.visitor.open(f"/auth/{street.name}?{urlencode(SHOP)}")).status == 403
    assert (await street.visitor.open(back)).status == 403, "also for browsers that were at the provider"
    assert await street.snapshot() == before
    assert (await street.visitor.open(f"/auth/authorize?{urlencode(SHOP)}")).status == 403, "and issues no code"


async def test_unknown_and_unconfigured_providers_are_404(street: ProviderSignIn) -> None:
    for name in ("codehost", "officesuite", "nobody", "Websuite", "websuite%20"):
        assert (await street.visitor.open(f"/auth/{name}")).status == 404, name
        assert (await street.visitor.open(f"/auth/{name}/callback?state=x&code=y")).status in (400, 404), name


# Refusals at the callback


async def refused(street: ProviderSignIn, back: str, metrics: FakeMetrics) -> None:
    before = await street.snapshot()
    answer = await street.visitor.open(back)
    assert answer.status == 400, answer.text
    assert "started in another browser" in answer.text
    assert await street.snapshot() == before
    assert metrics.login_failures["state"] == 1


async def test_a_state_works_once(street: ProviderSignIn, metrics: FakeMetrics) -> None:
    back = await street.start()
    assert (await street.visitor.open(back)).status == 303
    await refused(street, back, metrics)


async def test_a_state_expires_after_15_minutes(street: ProviderSignIn, clock: FakeClock, metrics: FakeMetrics) -> None:
    back = await street.start()
    clock.advance(timedelta(minutes=15))
    await refused(street, back, metrics)


async def test_a_state_works_only_in_its_own_browser(street: ProviderSignIn, metrics: FakeMetrics) -> None:
    back = await street.start()
    mine = dict(street.visitor.cookies)
    for cookies in ({}, {"gatehouse-device": new_secret()}):
        street.visitor.cookies = cookies
        metrics.login_failures.clear()
        await refused(street, back, metrics)
    street.visitor.cookies = mine
    assert (await street.visitor.open(back)).status == 303, "other browsers did not use it up"


async def test_a_state_works_only_for_its_own_provider(street: ProviderSignIn, metrics: FakeMetrics) -> None:
    back = await street.start()
    other = next(each.value for each in Provider if each is not street.provider.provider)
    await refused(street, back.replace(f"/{street.name}/", f"/{other}/"), metrics)
    assert (await street.visitor.open(back)).status == 303


async def test_invalid_states_are_refused(street: ProviderSignIn) -> None:
    await street.start()
    for query in ("", "?state=", "?code=x", "?state=%00", f"?state={'x' * 200}", "?state=unknown&code=x"):
        assert (await street.visitor.open(f"/auth/{street.name}/callback{query}")).status == 400, query


async def test_of_twenty_parallel_callbacks_one_signs_in(street: ProviderSignIn) -> None:
    back = await street.start()
    answers = await everyone(20, lambda _: street.visitor.open(back))
    assert sorted(answer.status for answer in answers) == [303] + [400] * 19
    assert street.provider.counted["/token"] == 1


@of("where", [None, "shop"])
async def test_parallel_first_sign_ins_create_one_account(
    street: ProviderSignIn, app: QuartTrio, acme: Tenant, shop: UUID, where: str | None
) -> None:
    """For the platform, or for the platform and a service."""
    streets = [ProviderSignIn(Visitor(app), street.provider, street.pool) for _ in range(6)]
    ways = [SHOP if where and number % 2 else {} for number in range(6)]
    backs = [await each.start(**way) for each, way in zip(streets, ways, strict=True)]
    answers = await everyone(6, lambda number: streets[number].visitor.open(backs[number]))
    assert [answer.status for answer in answers] == [303] * 6, [answer.text for answer in answers]
    assert len({await each.user_id() for each in streets}) == 1
    assert len([row for row in await street.accounts() if row[0] == EMAIL]) == 1
    assert len(await street.identities()) == (2 if where else 1)


# Errors of the provider


@every_provider
async def test_a_response_of_another_issuer_is_refused(street: ProviderSignIn, metrics: FakeMetrics) -> None:
    back = await street.start()
    answer = await street.visitor.open(re.sub("&iss=[^&]*", "&iss=https%3A%2F%2Felsewhere.example", back))
    assert answer.status == 400
    assert metrics.login_failures == {"provider": 1}
    assert street.provider.counted["/token"] == 0


@every_provider
async def test_malformed_responses_are_refused_and_not_forwarded(street: ProviderSignIn) -> None:
    for parameters in ("", "code=", "code=%00", "code=%E2%80%AE", f"code={'x' * 4097}", "error=%00", "error=&code="):
        back = await street.start()
        is_first = "?code=" in back
        path = re.sub("(?<=[?])code=[^&]*", parameters, back) if is_first else re.sub("&code=[^&]*", f"&{parameters}", back)
        answer = await street.visitor.open(path)
        assert (answer.status, street.provider.counted["/token"]) == (400, 0), parameters


@of("twice", ["code=x", "state=x", "iss=x"])
async def test_repeated_parameters_are_refused_and_do_not_use_up_the_state(street: ProviderSignIn, twice: str) -> None:
    back = await street.start()
    assert (await street.visitor.open(f"{back}&{twice}")).status == (400 if twice.split("=")[0] + "=" in back else 303)
    assert street.provider.counted["/token"] == (0 if twice.split("=")[0] + "=" in back else 1)


@every_provider
async def test_invalid_scopes_are_ignored(street: ProviderSignIn) -> None:
    for scope in ("a\0b", "\ud800", 'a"b', "a\\b", "x" * 256):
        await run_sql(street.pool, "update identities set scopes = '{}'")
        street.provider.scope = f"read {scope}"
        await street.sign_in()
        assert await run_sql(street.pool, "select distinct scopes from identities") == [(["read"],)], scope


async def test_a_response_without_an_issuer_is_accepted(street: ProviderSignIn) -> None:
    street.provider.says_iss = False
    await street.sign_in()


@every_provider
async def test_a_user_who_refuses_consent_sees_an_error(street: ProviderSignIn, metrics: FakeMetrics) -> None:
    street.provider.refuses = "access_denied"
    answer = await street.complete()
    assert answer.status == 400
    assert "did not get permission" in answer.text
    assert TRAP not in answer.text
    assert "what a provider says" not in answer.text
    assert metrics.login_failures == {"provider": 1}


@of(("error", "expected"), [("access_denied", "access_denied"), ("server_error", "server_error"), (TRAP, "server_error")])
async def test_the_waiting_application_gets_the_error(street: ProviderSignIn, acme: Tenant, shop: UUID, error: str, expected: str) -> None:
    street.provider.refuses = error
    before = await street.snapshot()
    answer = await street.complete(**SHOP, redirect_uri=BACK, state="x y")
    assert (answer.status, answer.text) == (302, "")
    address, _, query = answer.headers["Location"].partition("?")
    assert address == BACK
    assert parse_qs(query) == {"error": [expected], "state": ["x y"], "iss": [BASE_URL]}
    assert await street.snapshot() == before


@every_provider
async def test_a_provider_that_fails_is_an_oauth_error(street: ProviderSignIn, acme: Tenant, shop: UUID, metrics: FakeMetrics) -> None:
    street.provider.answers["/token"] = in_json({"error": "invalid_grant", "error_description": TRAP}, 500)
    back = await street.start()
    answer = await street.visitor.open(back, (b"accept", b"application/json"))
    assert answer.status == 500
    assert "what a provider says" not in answer.text
    answer = await street.complete(**SHOP)
    assert answer.status == 302
    assert parse_qs(urlsplit(answer.headers["Location"]).query)["error"] == ["server_error"]
    assert metrics.login_failures == {"provider": 2}


async def test_head_requests_have_no_effect(street: ProviderSignIn) -> None:
    assert (await street.visitor.open(f"/auth/{street.name}", method="HEAD")).status == 200
    assert await run_sql(street.pool, "select * from provider_states") == []
    back = await street.start()
    assert (await street.visitor.open(back, method="HEAD")).status == 200
    assert (await street.visitor.open(back)).status == 303


# The pages


async def test_the_sign_in_page_offers_the_configured_providers(street: ProviderSignIn) -> None:
    page = await street.visitor.open("/app/sign-in?next=/app/account/devices")
    assert page.text.count("Continue with") == 1
    assert f'href="/auth/{street.name}?next=%2Fapp%2Faccount%2Fdevices"' in page.text
    wrong = await street.visitor.sign_in(password="wrong")
    assert "Continue with" in wrong.text


async def test_the_sign_in_page_of_an_application_keeps_its_request(street: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    fields = {**SHOP, "redirect_uri": BACK, "state": "xyz"}
    page = await street.visitor.open(leads_to(await street.visitor.open(f"/auth/authorize?{urlencode(fields)}")))
    address = f"/auth/{street.name}?{urlencode(fields)}"
    assert address.replace("&", "&amp;") in page.text
    target = leads_to(await street.complete(**fields))
    assert target == f"/auth/authorize?{urlencode(fields)}"
    assert [row[1] for row in await street.identities()] == [shop]


async def test_the_previous_session_of_the_browser_ends(street: ProviderSignIn, ports: Ports) -> None:
    grace = await add_account(ports, "grace@example.com")
    assert leads_to(await street.visitor.sign_in("grace@example.com", PASSWORD)) == ACCOUNT
    await street.sign_in()
    assert await street.user_id() not in (None, grace.id)
    assert await run_sql(street.pool, "select count(*) from sessions where ended_at is null") == [(1,)]
