"""The organization's sign-in policy, on the way to an external client."""

from datetime import timedelta

import pytest

from core.accounts.model.accounts import Account
from ports import Ports
from tests.accounts.api.test_reset_and_policies import put_policy
from tests.fakes.outside import FakeClock
from tests.federation.api.external.external import ExternalParty
from tests.support.browser import is_step, leads_to, main_of
from tests.support.builders import EMAIL, PASSWORD, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PasskeyUser


async def _begin(client: ExternalParty, *, has_access: bool) -> str:
    """Sign in with the password in a new browser, and return the next page. Users outside the organization may use the API."""
    if not has_access:
        await run_sql(client.tenant.pool, "update api_resources set access_policy = 'assigned'")
    client.browser.cookies.clear()
    page = await client.open()
    return leads_to(await client.browser.fill(page, email=EMAIL, password=PASSWORD, can_passkey="yes"))


@pytest.mark.parametrize("has_access", [True, False])
async def test_the_second_factors_show_the_policy_only_to_users_of_the_api(
    client: ExternalParty, user: Account, ports: Ports, has_access: bool
) -> None:
    await PasskeyUser(client.api, (await sign_in(ports, user)).access_token).add_key(second_factor=True)
    await add_mfa(ports, user)
    await put_policy(client.tenant, client.tenant.org, None, {"methods": ["password", "passkey"], "second_factor": ["everyone"]})
    page = main_of(await client.browser.open(await _begin(client, has_access=has_access)))
    assert ("requires a second factor" in page, "your authenticator app" in page) == (has_access, not has_access)


@pytest.mark.parametrize("is_trusted", [True, False], ids=["trusted device", "recent second factor"])
@pytest.mark.parametrize("has_access", [True, False], ids=["user of the API", "other user"])
async def test_a_policy_asks_only_users_of_the_api_for_the_second_factor_again(
    client: ExternalParty, user: Account, ports: Ports, clock: FakeClock, has_access: bool, is_trusted: bool
) -> None:
    """The app was used, and the policy accepts only the security key."""
    browser = client.browser
    await PasskeyUser(client.api, (await sign_in(ports, user)).access_token).add_key(second_factor=True)
    authenticator = await add_mfa(ports, user)
    await put_policy(client.tenant, client.tenant.org, None, {"methods": ["password", "passkey"], "second_factor": ["everyone"]})
    if not has_access:
        await run_sql(client.tenant.pool, "update api_resources set access_policy = 'assigned'")
    browser.cookies.clear()
    begun = await client.open()
    await browser.sign_in_with(authenticator, **({"trust": "yes"} if is_trusted else {}))
    if is_trusted:
        del browser.cookies["gatehouse-session"]
    clock.advance(timedelta(minutes=1))
    after = leads_to(await browser.fill(begun, email=EMAIL, password=PASSWORD))
    assert is_step(after, "code") is has_access


@pytest.mark.parametrize("has_access", [True, False])
async def test_the_offer_of_a_passkey_is_missing_only_for_users_of_the_api(client: ExternalParty, has_access: bool) -> None:
    """The policy page follows for them."""
    await put_policy(client.tenant, client.tenant.org, None, {"second_factor": ["everyone"]})
    assert (await _begin(client, has_access=has_access)).startswith("/app/passkey") is not has_access
