"""Sign-ins after an identity is unlinked, and identity privacy (security O-6)."""

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.provider import Person
from tests.federation.api.social.links.clients import DESK, PAGE, SHOP, ApiClient, open_ticket, other_browser
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import ACCOUNT, is_step, leads_to
from tests.support.builders import EMAIL, add_platform_owner, run_concurrently, run_during, run_sql, sign_in
from tests.support.mfa import add_mfa, use_in_sessions
from tests.support.services import add_service
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("query", [{}, SHOP, DESK], ids=["account", "shop", "desk"])
async def test_an_unlinked_identity_does_not_open_the_account(
    provider_sign_in: ProviderSignIn, linked_client: ApiClient, app: QuartTrio, user: Account, query: dict[str, str]
) -> None:
    assert len(await provider_sign_in.identities()) == 3
    assert (await linked_client.unlink()).status == 200
    assert await provider_sign_in.identities() == []
    browser = other_browser(provider_sign_in, app)
    await browser.sign_in(**query)
    assert await browser.user_id() not in (None, user.id), "it signs in to a new account"
    assert [row[0] for row in await provider_sign_in.identities()] == ["x@codehost.example"]
    assert await linked_client.list_subjects() == []


async def test_an_identity_with_the_verified_address_links_again(
    provider_sign_in: ProviderSignIn, linked_client: ApiClient, app: QuartTrio, user: Account
) -> None:
    """The mailbox owner could reset the password as well."""
    assert (await linked_client.unlink()).status == 200
    provider_sign_in.provider.person = Person()
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == user.id
    assert await linked_client.list_subjects() == ["4711"]


async def test_a_sign_in_during_the_unlinking_fails(
    provider_sign_in: ProviderSignIn, linked_client: ApiClient, app: QuartTrio, user: Account
) -> None:
    browser = other_browser(provider_sign_in, app)
    callback = await browser.start(**SHOP)
    lock = ("select 1 from users where id = %s for no key update", (user.id,))
    unlinked = ("delete from identities where user_id = %s", (user.id,))
    assert (await run_during(provider_sign_in.pool, [lock, unlinked], lambda: browser.come_back(callback))).status == 400
    assert await browser.user_id() is None
    assert await provider_sign_in.identities() == []


async def test_no_parallel_sign_in_succeeds_after_the_unlinking(
    provider_sign_in: ProviderSignIn, linked_client: ApiClient, app: QuartTrio, user: Account
) -> None:
    browsers = [other_browser(provider_sign_in, app) for _ in range(8)]
    callbacks = [await browser.start(**query) for browser, query in zip(browsers, [{}, SHOP, DESK, SHOP] * 2, strict=True)]
    late_browser = other_browser(provider_sign_in, app)

    async def act(number: int) -> int:
        if number < len(browsers):
            return (await browsers[number].come_back(callbacks[number])).status
        answer = await linked_client.unlink()
        await late_browser.sign_in()
        return answer.status

    statuses = await run_concurrently(len(browsers) + 1, act)
    assert statuses.count(200) == 1  # the unlinking; the sign-ins are redirected or come too late
    assert set(statuses) <= {200, 303, 400}
    assert await late_browser.user_id() not in (None, user.id)
    assert EMAIL not in [row[0] for row in await provider_sign_in.identities()]


async def test_a_pending_second_factor_fails_after_the_unlinking(
    provider_sign_in: ProviderSignIn, linked_client: ApiClient, app: QuartTrio, user: Account, ports: Ports
) -> None:
    factor = await add_mfa(ports, user)
    browser = other_browser(provider_sign_in, app)
    assert is_step(leads_to(await browser.complete(**SHOP)), "code")
    await use_in_sessions(provider_sign_in.pool, user)
    assert (await linked_client.unlink()).status == 200
    assert (await browser.browser.show_code(factor.code())).status == 401
    assert await browser.user_id() is None


async def test_an_identity_at_a_service_opens_the_account_and_can_be_unlinked_at_the_service(
    provider_sign_in: ProviderSignIn, app: QuartTrio, acme: Tenant
) -> None:
    """An account that originates at a service is a full account."""
    await add_service(provider_sign_in.pool, acme.org)
    await provider_sign_in.sign_in(**SHOP)
    assert "You can sign in with Codehost." in (await provider_sign_in.browser.open(f"{ACCOUNT}/security")).text
    page = await provider_sign_in.browser.open(PAGE)
    assert "linked at an application" in page.text
    assert "not linked" not in page.text
    assert (await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/unlink", PAGE)).status == 400, (
        "it is the only way to sign in"
    )
    await run_sql(provider_sign_in.pool, "update users set password_hash = 'x', email = 'hers@example.com' where email = %s", EMAIL)
    await run_sql(provider_sign_in.pool, "update sessions set fresh = true")
    assert leads_to(await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/unlink", PAGE)) == PAGE
    assert "not linked" in (await provider_sign_in.browser.open(PAGE)).text
    assert "No accounts are linked." in (await provider_sign_in.browser.open(f"{ACCOUNT}/security")).text
    browser, first = other_browser(provider_sign_in, app), await provider_sign_in.user_id()
    await browser.sign_in(**SHOP)
    assert await browser.user_id() not in (None, first)


# Privacy


async def test_identities_are_exported_without_tokens_and_anonymized(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, ports: Ports, user: Account
) -> None:
    await provider_sign_in.sign_in()
    exported = await api_client.api.get(f"/api/privacy/export/{user.id}", token=api_client.token)
    assert [identity["provider_user_id"] for identity in exported.json["oauth_identities"]] == ["4711"]
    assert "access-" not in exported.text
    await run_sql(provider_sign_in.pool, "update identities set provider = 'websuite'")
    await run_sql(provider_sign_in.pool, "update sessions set fresh = true")
    callback = await open_ticket(provider_sign_in, await api_client.start_link())
    steward = (await sign_in(ports, await add_platform_owner(ports))).access_token
    assert (await api_client.api.delete(f"/api/privacy/forget/{user.id}", token=steward)).status == 200
    links = "(select 1 from sign_in_flows where target = 'link' or challenge is not null or num_nonnulls(user_id, session_id) > 0) f"
    for table in ("identities", links):
        assert await run_sql(provider_sign_in.pool, f"select * from {table}") == []  # noqa: S608
    assert (await provider_sign_in.browser.open(callback)).status == 400
