"""Refused sign-ins through identity providers, and provider errors.

Covers security O-1, O-7 and O-8, and decisions 86, 87.
"""

import re
from datetime import timedelta
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.authentication.model.identities import OtherIdentityLinked
from core.kernel.connections import PLATFORM_CONNECTIONS
from core.kernel.values import new_secret
from tests.fakes.http_server import TRAP, in_json
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.fakes.provider import Person
from tests.federation.api.social.requests import CHALLENGE, REDIRECT_URI, SHOP, every_provider, verifying_providers
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, EMAIL, run_concurrently, run_sql
from tests.support.direct import set_up
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow


# Refusals at the start

REFUSED_REQUESTS: Final[dict[str, tuple[dict[str, str], int]]] = {
    "no service, with a redirect URI": ({"org": "acme", "redirect_uri": REDIRECT_URI}, 400),
    "an unknown organization alone": ({"org": "unknown"}, 404),
    "an organization that cannot exist": ({"org": "a\0b"}, 404),
    "no service, with a user code": ({"org": "acme", "user_code": "BCDF-GHJK"}, 400),
    "an unknown organization": ({"org": "unknown", "service": "shop"}, 404),
    "an unknown service": ({"org": "acme", "service": "nothing"}, 404),
    "another redirect URI": ({**SHOP, "redirect_uri": "https://evil.example"}, 400),
    "a plain challenge": ({**SHOP, "code_challenge": CHALLENGE, "code_challenge_method": "plain"}, 400),
    "an unknown ticket": ({"link": "x" * 43}, 400),
}


async def test_invalid_requests_are_not_redirected(provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    findings = []
    for mistake, (query, status) in REFUSED_REQUESTS.items():
        answer = await provider_sign_in.browser.open(f"/auth/{provider_sign_in.name}?{urlencode(query)}")
        if answer.status != status or "Location" in answer.headers:
            findings.append((mistake, answer.status, answer.text))
    assert findings == []
    assert await run_sql(provider_sign_in.pool, "select * from sign_in_flows") == []


async def test_an_inactive_organization_signs_no_users_in(provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    callback = await provider_sign_in.start(**SHOP)
    await run_sql(provider_sign_in.pool, "update organizations set status = 'suspended'")
    before = await provider_sign_in.snapshot()
    assert (await provider_sign_in.browser.open(f"/auth/{provider_sign_in.name}?{urlencode(SHOP)}")).status == 403
    assert (await provider_sign_in.browser.open(callback)).status == 403, "also for browsers that were at the provider"
    assert await provider_sign_in.snapshot() == before
    assert (await provider_sign_in.browser.open(f"/auth/authorize?{urlencode(SHOP)}")).status == 403, "and issues no code"


async def test_unknown_and_unconfigured_providers_are_404(provider_sign_in: ProviderSignIn) -> None:
    for name in ("codehost", "officesuite", "unknown", "Websuite", "websuite%20"):
        assert (await provider_sign_in.browser.open(f"/auth/{name}")).status == 404, name
        assert (await provider_sign_in.browser.open(f"/auth/{name}/callback?state=x&code=y")).status in (400, 404), name


# Refusals at the callback


async def check_refused(provider_sign_in: ProviderSignIn, callback: str, metrics: FakeMetrics) -> None:
    before = await provider_sign_in.snapshot()
    answer = await provider_sign_in.browser.open(callback)
    assert answer.status == 400, answer.text
    assert "started in another browser" in answer.text
    assert await provider_sign_in.snapshot() == before
    assert metrics.login_failures["state"] == 1


async def test_a_state_works_once(provider_sign_in: ProviderSignIn, metrics: FakeMetrics) -> None:
    callback = await provider_sign_in.start()
    assert (await provider_sign_in.browser.open(callback)).status == 303
    await check_refused(provider_sign_in, callback, metrics)


async def test_a_state_expires_after_15_minutes(provider_sign_in: ProviderSignIn, clock: FakeClock, metrics: FakeMetrics) -> None:
    callback = await provider_sign_in.start()
    clock.advance(timedelta(minutes=15))
    await check_refused(provider_sign_in, callback, metrics)


async def test_a_state_works_only_in_its_own_browser(provider_sign_in: ProviderSignIn, metrics: FakeMetrics) -> None:
    callback = await provider_sign_in.start()
    own_cookies = dict(provider_sign_in.browser.cookies)
    for cookies in ({}, {"gatehouse-device": new_secret()}):
        provider_sign_in.browser.cookies = cookies
        metrics.login_failures.clear()
        await check_refused(provider_sign_in, callback, metrics)
    provider_sign_in.browser.cookies = own_cookies
    assert (await provider_sign_in.browser.open(callback)).status == 303, "other browsers did not use it up"


async def test_a_state_works_only_for_its_own_provider(provider_sign_in: ProviderSignIn, metrics: FakeMetrics) -> None:
    callback = await provider_sign_in.start()
    other = next(each for each in PLATFORM_CONNECTIONS if each != provider_sign_in.provider.provider)
    await check_refused(provider_sign_in, callback.replace(f"/{provider_sign_in.name}/", f"/{other}/"), metrics)
    own_id = PLATFORM_CONNECTIONS[provider_sign_in.provider.provider][0]
    at_connection = callback.replace(f"/{provider_sign_in.name}/", f"/connections/{own_id}/")
    assert (await provider_sign_in.browser.open(at_connection)).status == 400, (
        "the endpoint of organizations ends no provider request of the platform"
    )
    assert (await provider_sign_in.browser.open(callback)).status == 303


async def test_invalid_states_are_refused(provider_sign_in: ProviderSignIn) -> None:
    await provider_sign_in.start()
    for query in ("", "?state=", "?code=x", "?state=%00", f"?state={'x' * 200}", "?state=unknown&code=x"):
        assert (await provider_sign_in.browser.open(f"/auth/{provider_sign_in.name}/callback{query}")).status == 400, query


async def test_of_twenty_parallel_callbacks_one_signs_in(provider_sign_in: ProviderSignIn) -> None:
    callback = await provider_sign_in.start()
    answers = await run_concurrently(20, lambda _: provider_sign_in.browser.open(callback))
    assert sorted(answer.status for answer in answers) == [303] + [400] * 19
    assert provider_sign_in.provider.counted["/token"] == 1


@pytest.mark.parametrize("slug", [None, "shop"])
async def test_parallel_first_sign_ins_create_one_account(
    provider_sign_in: ProviderSignIn, app: QuartTrio, acme: Tenant, shop: UUID, slug: str | None
) -> None:
    """The sign-ins are for the platform, or for the platform and a service."""
    streets = [ProviderSignIn(FakeBrowser(app), provider_sign_in.provider, provider_sign_in.pool) for _ in range(6)]
    ways = [SHOP if slug and number % 2 else {} for number in range(6)]
    backs = [await each.start(**way) for each, way in zip(streets, ways, strict=True)]
    answers = await run_concurrently(6, lambda number: streets[number].come_back(backs[number]))
    assert [answer.status for answer in answers] == [303] * 6, [answer.text for answer in answers]
    assert len({await each.user_id() for each in streets}) == 1
    assert len([row for row in await provider_sign_in.accounts() if row[0] == EMAIL]) == 1
    assert len(await provider_sign_in.identities()) == (2 if slug else 1)


# Provider errors


@every_provider
async def test_a_response_of_another_issuer_is_refused(provider_sign_in: ProviderSignIn, metrics: FakeMetrics) -> None:
    callback = await provider_sign_in.start()
    answer = await provider_sign_in.browser.open(re.sub("&iss=[^&]*", "&iss=https%3A%2F%2Felsewhere.example", callback))
    assert answer.status == 400
    assert metrics.login_failures == {"provider": 1}
    assert provider_sign_in.provider.counted["/token"] == 0


@every_provider
async def test_malformed_responses_are_refused_and_not_forwarded(provider_sign_in: ProviderSignIn) -> None:
    for parameters in ("", "code=", "code=%00", "code=%E2%80%AE", f"code={'x' * 4097}", "error=%00", "error=&code="):
        callback = await provider_sign_in.start()
        is_first = "?code=" in callback
        path = re.sub("(?<=[?])code=[^&]*", parameters, callback) if is_first else re.sub("&code=[^&]*", f"&{parameters}", callback)
        answer = await provider_sign_in.browser.open(path)
        assert (answer.status, provider_sign_in.provider.counted["/token"]) == (400, 0), parameters


@pytest.mark.parametrize("twice", ["code=x", "state=x", "iss=x"])
async def test_repeated_parameters_are_refused_and_do_not_use_up_the_state(provider_sign_in: ProviderSignIn, twice: str) -> None:
    callback = await provider_sign_in.start()
    assert (await provider_sign_in.browser.open(f"{callback}&{twice}")).status == (400 if twice.split("=")[0] + "=" in callback else 303)
    assert provider_sign_in.provider.counted["/token"] == (0 if twice.split("=")[0] + "=" in callback else 1)


@every_provider
async def test_invalid_scopes_are_ignored(provider_sign_in: ProviderSignIn) -> None:
    for scope in ("a\0b", "\ud800", 'a"b', "a\\b", "x" * 256):
        await run_sql(provider_sign_in.pool, "update identities set scopes = '{}'")
        provider_sign_in.provider.scope = f"read {scope}"
        await provider_sign_in.sign_in()
        assert await run_sql(provider_sign_in.pool, "select distinct scopes from identities") == [(["read"],)], scope


async def test_a_response_without_an_issuer_is_accepted(provider_sign_in: ProviderSignIn) -> None:
    provider_sign_in.provider.sends_iss = False
    await provider_sign_in.sign_in()


@every_provider
async def test_a_user_who_refuses_consent_sees_an_error(provider_sign_in: ProviderSignIn, metrics: FakeMetrics) -> None:
    provider_sign_in.provider.refuses = "access_denied"
    answer = await provider_sign_in.complete()
    assert answer.status == 400
    assert "did not get permission" in answer.text
    assert TRAP not in answer.text
    assert "what a provider says" not in answer.text
    assert metrics.login_failures == {"provider": 1}


async def test_a_refusal_is_reported_although_the_provider_was_removed_meanwhile(
    app: QuartTrio, provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID
) -> None:
    provider_sign_in.provider.refuses = "access_denied"
    callback = await provider_sign_in.start(**SHOP, redirect_uri=REDIRECT_URI, state="x y")
    await set_up(app, [])
    answer = await provider_sign_in.come_back(callback)
    assert parse_qs(urlsplit(answer.headers["Location"]).query)["error"] == ["access_denied"]
    assert (await provider_sign_in.browser.open(f"/auth/{provider_sign_in.name}")).status == 404


@pytest.mark.parametrize(
    ("error", "expected"), [("access_denied", "access_denied"), ("server_error", "server_error"), (TRAP, "server_error")]
)
async def test_the_waiting_application_gets_the_error(
    provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID, error: str, expected: str
) -> None:
    provider_sign_in.provider.refuses = error
    before = await provider_sign_in.snapshot()
    answer = await provider_sign_in.complete(**SHOP, redirect_uri=REDIRECT_URI, state="x y")
    assert (answer.status, answer.text) == (302, "")
    address, _, query = answer.headers["Location"].partition("?")
    assert address == REDIRECT_URI
    assert parse_qs(query) == {"error": [expected], "state": ["x y"], "iss": [BASE_URL]}
    assert await provider_sign_in.snapshot() == before


@every_provider
async def test_a_provider_that_fails_is_an_oauth_error(
    provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID, metrics: FakeMetrics
) -> None:
    provider_sign_in.provider.answers["/token"] = in_json({"error": "invalid_grant", "error_description": TRAP}, 500)
    callback = await provider_sign_in.start()
    answer = await provider_sign_in.browser.open(callback, (b"accept", b"application/json"))
    assert answer.status == 500
    assert "what a provider says" not in answer.text
    answer = await provider_sign_in.complete(**SHOP)
    assert answer.status == 302
    assert parse_qs(urlsplit(answer.headers["Location"]).query)["error"] == ["server_error"]
    assert metrics.login_failures == {"provider": 2}


async def test_head_requests_have_no_effect(provider_sign_in: ProviderSignIn) -> None:
    assert (await provider_sign_in.browser.open(f"/auth/{provider_sign_in.name}", method="HEAD")).status == 200
    assert await run_sql(provider_sign_in.pool, "select * from sign_in_flows") == []
    callback = await provider_sign_in.start()
    assert (await provider_sign_in.browser.open(callback, method="HEAD")).status == 200
    assert (await provider_sign_in.browser.open(callback)).status == 303


@verifying_providers
async def test_a_second_account_with_the_address_does_not_sign_in(provider_sign_in: ProviderSignIn, user: Account, shop: UUID) -> None:
    """The account can have one identity there per context.

    So it would sign in by its address every time, and no page would list it.
    """
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == user.id
    provider_sign_in.browser.cookies.clear()
    provider_sign_in.provider.person = Person(subject="4712")
    answer = await provider_sign_in.complete()
    assert (answer.status, str(OtherIdentityLinked.__doc__) in answer.text) == (403, True)
    assert await provider_sign_in.user_id() is None
    assert [row[4] for row in await provider_sign_in.identities()] == ["4711"]
    assert await run_sql(provider_sign_in.pool, "select reason from login_events where not success") == [("address",)]
    await provider_sign_in.sign_in(**SHOP)  # providers can tell every application another subject
    assert {row[1:5:3] for row in await provider_sign_in.identities()} == {(None, "4711"), (shop, "4712")}
    provider_sign_in.browser.cookies.clear()
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == user.id, "an account that is linked in any context signs in"
