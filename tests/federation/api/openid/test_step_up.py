"""`acr_values` and essential `acr`: step-up to the second factor (OpenID Connect Core section 5.5.1.1)."""

import json
from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from tests.fakes.outside import FakeClock
from tests.federation.api.openid.client import OpenIdClient, error, result
from tests.federation.api.relying import sign_in_browser
from tests.support.browser import action_of, is_step, leads_to
from tests.support.builders import Answer, run_sql
from tests.support.mfa import Authenticator


def acr(essential: bool, *values: str) -> str:
    """Return the parameter `claims` that asks for these classes."""
    member: dict[str, object] = {"essential": essential}
    member |= {"value": values[0]} if len(values) == 1 else {"values": values}
    return json.dumps({"id_token": {"acr": member}})


ESSENTIAL_MFA = acr(True, "mfa")


def is_code_page(answer: Answer) -> bool:
    """Return whether the user is asked for the second factor."""
    return is_step(leads_to(answer), "code")


async def test_an_essential_second_factor_is_asked_for(
    signed_in: OpenIdClient, user: Account, factor: Authenticator, clock: FakeClock
) -> None:
    """The session had one factor. The user shows both factors again in the same sign-in."""
    await signed_in.agree_before(user)
    clock.advance(timedelta(seconds=1))
    assert error(await signed_in.open(claims=ESSENTIAL_MFA, prompt="none")) == "login_required"
    page = await signed_in.open(claims=ESSENTIAL_MFA)
    assert is_code_page(await signed_in.sign_in_again(page))
    browser = signed_in.party.browser
    path = leads_to(await browser.show_code(factor.code()))
    tokens = await signed_in.party.exchange(result(await browser.open(path))["code"])
    claims = await signed_in.id_claims(tokens.json)
    assert (claims["acr"], claims["amr"], claims["auth_time"]) == ("mfa", ["pwd", "otp", "mfa"], int(clock.now().timestamp()))
    assert "code" in await signed_in.authorize(claims=ESSENTIAL_MFA, prompt="none"), "the new session has both factors"


async def test_without_a_second_factor_an_essential_one_cannot_be_met(signed_in: OpenIdClient, user: Account, clock: FakeClock) -> None:
    await signed_in.agree_before(user)
    clock.advance(timedelta(seconds=1))
    path = leads_to(await signed_in.sign_in_again(await signed_in.open(claims=ESSENTIAL_MFA)))
    assert error(await signed_in.party.browser.open(path)) == "unmet_authentication_requirements"


async def test_a_trusted_device_never_makes_the_second_factor(
    shop: OpenIdClient, user: Account, factor: Authenticator, clock: FakeClock, pool: Pool
) -> None:
    browser = shop.party.browser
    await shop.agree_before(user)
    await browser.sign_in_with(factor, trust="yes")
    assert (await shop.id_claims(await shop.tokens()))["acr"] == "mfa"
    browser.cookies.pop("gatehouse-session")
    clock.advance(timedelta(minutes=1))
    assert not is_code_page(await browser.sign_in()), "the device is trusted"
    claims = await shop.id_claims(await shop.tokens())
    assert (claims["acr"], claims["amr"]) == ("pwd", ["pwd"])
    clock.advance(timedelta(minutes=1))
    assert error(await shop.open(claims=ESSENTIAL_MFA, prompt="none")) == "login_required"
    for changes in ({"claims": ESSENTIAL_MFA}, {"acr_values": "mfa"}, {"max_age": "1"}, {"prompt": "login"}):
        page = await shop.open(**changes)
        assert is_code_page(await shop.sign_in_again(page)), f"{changes}: both factors are shown anew"
    assert await run_sql(pool, "select count(*) from devices where user_id = %s", user.id) == [(1,)], "it is still the same device"
    browser.cookies.pop("gatehouse-session")
    assert not is_code_page(await browser.sign_in()), "it is still trusted"


async def test_a_trusted_device_is_not_locked_out_when_both_factors_are_asked_for(
    shop: OpenIdClient, user: Account, factor: Authenticator, clock: FakeClock
) -> None:
    """Wrong passwords from elsewhere do not count against it (security A-3)."""
    browser = shop.party.browser
    await browser.sign_in_with(factor, trust="yes")
    clock.advance(timedelta(minutes=1))
    page = await shop.open(prompt="login")
    while (await shop.party.api.login(password="wrong")).status != 429:
        pass
    assert is_code_page(await shop.sign_in_again(page))


async def test_a_voluntary_second_factor_is_a_wish(signed_in: OpenIdClient, user: Account, clock: FakeClock) -> None:
    """The user has none."""
    await signed_in.agree_before(user)
    clock.advance(timedelta(seconds=1))
    for changes in ({"acr_values": "mfa"}, {"acr_values": "mfa pwd"}, {"claims": acr(False, "mfa")}):
        tokens = await signed_in.party.exchange(result(await signed_in.open(**changes))["code"])
        assert (await signed_in.id_claims(tokens.json))["acr"] == "pwd", changes


async def test_a_voluntary_second_factor_is_asked_for_if_the_user_has_one(
    signed_in: OpenIdClient, user: Account, factor: Authenticator, clock: FakeClock
) -> None:
    await signed_in.agree_before(user)
    clock.advance(timedelta(seconds=1))
    for changes in ({"acr_values": "mfa"}, {"acr_values": "mfa pwd"}, {"claims": acr(False, "mfa", "pwd")}):
        assert "<h1>Sign in" in (await signed_in.open(**changes)).text, changes


async def test_one_factor_meets_its_class(signed_in: OpenIdClient, user: Account, factor: Authenticator) -> None:
    await signed_in.agree_before(user)
    for changes in (
        {"acr_values": "pwd"},
        {"acr_values": "pwd mfa"},
        {"acr_values": "urn:example:gold"},
        {"claims": acr(True, "pwd")},
        {"claims": acr(True, "mfa", "pwd")},
        {"claims": '{"id_token": {"acr": {"essential": true}}}'},
        {"claims": '{"id_token": {"acr": null}}'},
        {"claims": '{"userinfo": {"acr": {"essential": true, "value": "mfa"}}}'},
    ):
        assert "code" in await signed_in.authorize(**changes), changes


@pytest.mark.parametrize("prompt", [None, "none"])
async def test_an_essential_class_that_does_not_exist_cannot_be_met(signed_in: OpenIdClient, user: Account, prompt: str | None) -> None:
    await signed_in.agree_before(user)
    answer = await signed_in.open(claims=acr(True, "urn:example:gold"), prompt=prompt)
    assert error(answer) == "unmet_authentication_requirements"


async def test_a_session_with_both_factors_meets_an_essential_one(shop: OpenIdClient, user: Account) -> None:
    await sign_in_browser(shop.party, user, provider="email", second_factor=True)
    claims = await shop.id_claims(await shop.tokens(claims=ESSENTIAL_MFA))
    assert (claims["acr"], claims["amr"]) == ("mfa", ["otp", "mfa"])


async def use_passkey(shop: OpenIdClient, user: Account) -> None:
    """Sign the browser in with a passkey."""
    await sign_in_browser(shop.party, user, provider="passkey", second_factor=True)
    proof = [{"method": "passkey", "at": "2026-03-14T15:09:26+00:00", "user_verified": True, "phishing_resistant": True}]
    statement = "update sessions set proofs = %s, strength = 3 where browser_hash is not null"
    await run_sql(shop.party.tenant.pool, statement, Jsonb(proof))


async def test_a_passkey_is_phishing_resistant_unless_the_request_asks_for_another_class(shop: OpenIdClient, user: Account) -> None:
    await use_passkey(shop, user)
    expected = [
        ({}, "phr"),
        ({"acr_values": "mfa"}, "phr"),
        ({"claims": ESSENTIAL_MFA}, "mfa"),
        ({"claims": acr(True, "phr")}, "phr"),
        ({"claims": acr(True, "mfa", "phr")}, "phr"),
        ({"claims": acr(True, "pwd", "mfa")}, "mfa"),
    ]
    for changes, name in expected:
        tokens = await shop.tokens(prompt="none" if changes else None, **changes)
        claims = await shop.id_claims(tokens)
        assert (claims["acr"], claims["amr"]) == (name, ["swk", "user", "mfa"]), changes
        refreshed = await shop.id_claims(await shop.refresh(tokens))
        assert refreshed["acr"] == name, f"{changes}: also in later tokens"


async def test_only_a_passkey_meets_the_phishing_resistant_class(shop: OpenIdClient, user: Account) -> None:
    await sign_in_browser(shop.party, user, provider="password", second_factor=True)
    await shop.agree_before(user)
    assert error(await shop.open(claims=acr(True, "phr"), prompt="none")) == "login_required"
    assert "code" in await shop.authorize(claims=acr(True, "phr", "mfa"), prompt="none")


async def test_an_application_can_require_a_second_factor_in_each_request(signed_in: OpenIdClient, user: Account, clock: FakeClock) -> None:
    await signed_in.agree_before(user)
    assert "code" in await signed_in.authorize(prompt="none")
    await run_sql(signed_in.party.tenant.pool, "update services set required_acr = 'mfa' where id = %s", signed_in.party.service)
    assert error(await signed_in.open(prompt="none")) == "login_required"
    assert error(await signed_in.open(prompt="none", claims=acr(True, "pwd"))) == "login_required", "a request cannot lower it"
    clock.advance(timedelta(seconds=1))
    path = leads_to(await signed_in.sign_in_again(await signed_in.open()))
    assert error(await signed_in.party.browser.open(path)) == "unmet_authentication_requirements"


async def test_an_application_that_asks_for_more_meanwhile_gets_it(
    shop: OpenIdClient, user: Account, factor: Authenticator, clock: FakeClock
) -> None:
    """The device is trusted, so that the password alone would lead back to the sign-in page without end."""
    browser = shop.party.browser
    await browser.sign_in_with(factor, trust="yes")
    browser.cookies.pop("gatehouse-session")
    clock.advance(timedelta(minutes=1))
    page = await shop.open()
    await shop.configure(required_acr="mfa")
    weak = await shop.sign_in_again(page)
    page = await browser.open(leads_to(weak))
    assert is_step(action_of(page), "sign-in"), "the password alone was too weak"
    assert await run_sql(shop.party.tenant.pool, "select wants_fresh from sign_in_flows where closed_at is null") == [(True,)]
    assert is_code_page(await shop.sign_in_again(page))
