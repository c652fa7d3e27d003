"""An identity is linked only after the second factor (security A-10, O-5, O-6).

A link gives permanent access, so one factor must not create it.

The module is longer than 400 lines, because all tests start from the pending sign-in that its
fixtures build.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.locks import SUBJECTS
from core.accounts.accounts_rules import Account
from core.kernel.providers import Provider
from core.kernel.values import new_id
from core.maintenance import housekeeping
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.fakes.provider import FakeProvider, Person
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import ACCOUNT, CODE, FakeBrowser, leads_to
from tests.support.builders import (
    EMAIL,
    NEW_PASSWORD,
    PASSWORD,
    Api,
    add_account,
    add_platform_owner,
    deliver,
    link,
    run_concurrently,
    run_during,
    run_sql,
    sign_in,
)
from tests.support.identities import add_identity
from tests.support.mfa import BACKUP_CODES, Authenticator, add_mfa
from tests.support.services import sign_in_to

pytestmark = pytest.mark.slow

SHOP: Final = {"org": "acme", "service": "shop"}
STRANGER: Final = Person(subject="666")  # the provider says that this user has the address of the account
verifying_providers = pytest.mark.parametrize("provider", [Provider.CODEHOST, Provider.WEBSUITE], indirect=True)


@pytest.fixture
async def token(ports: Ports, user: Account) -> str:
    """An access token of the user."""
    return (await sign_in(ports, user)).access_token


@pytest.fixture
async def waiting(provider_sign_in: ProviderSignIn, factor: Authenticator) -> ProviderSignIn:
    """A browser after the sign-in at the provider. It must enter the code of the user."""
    provider_sign_in.provider.person = STRANGER
    await sign_in_until_code(provider_sign_in)
    return provider_sign_in


async def sign_in_until_code(provider_sign_in: ProviderSignIn, /, **query: str) -> None:
    assert leads_to(await provider_sign_in.complete(**query)).startswith(CODE)
    assert await provider_sign_in.user_id() is None


def other_browser(provider_sign_in: ProviderSignIn, app: QuartTrio) -> ProviderSignIn:
    return ProviderSignIn(FakeBrowser(app), provider_sign_in.provider, provider_sign_in.pool)


async def subjects(provider_sign_in: ProviderSignIn) -> list[tuple[UUID | None, str]]:
    """Return the service and the subject of each identity."""
    return [(row[1], row[4]) for row in await provider_sign_in.identities()]


async def pending_subjects(provider_sign_in: ProviderSignIn) -> list[tuple[Any, ...]]:
    return await run_sql(provider_sign_in.pool, "select provider_user_id from pre_auths")


async def link_known(provider_sign_in: ProviderSignIn, user: UUID, service: UUID | None = None, **more: Any) -> UUID:
    """Link an identity as a sign-in would.

    The provider's user has another address, so only the subject matches.
    """
    provider_sign_in.provider.person = Person(email="x@elsewhere.example")
    name = await add_identity(provider_sign_in.pool, user, provider_sign_in.name, service, subject="4711", **more)
    await run_sql(provider_sign_in.pool, "update identities set issuer = %s where id = %s", provider_sign_in.provider.address, name)
    return name


@verifying_providers
async def test_without_the_code_nothing_is_linked(
    waiting: ProviderSignIn, api: Api, user: Account, factor: Authenticator, token: str, app: QuartTrio
) -> None:
    assert await waiting.identities() == []
    assert (await api.get("/api/user/identities", token=token)).json == []
    assert (await api.get(f"/api/provider-token/{waiting.name}", token=token)).status == 404
    exported = await api.get(f"/api/privacy/export/{user.id}", token=token)
    assert (exported.status, exported.json["oauth_identities"]) == (200, [])
    assert await run_sql(waiting.pool, "select 1 from mails union all select 1 from login_events union all select 1 from events") == []
    browser = other_browser(waiting, app).browser
    await browser.sign_in_with(factor)
    assert "not linked" in (await browser.open("/app/account/identities")).text
    assert (await api.delete("/api/user/mfa", token=token)).status == 200
    assert await pending_subjects(waiting) == []
    waiting.provider.person = Person(subject=STRANGER.subject, email="eve@example.com")
    await waiting.sign_in()
    assert await waiting.user_id() not in (None, user.id), "the identity was never linked to the user"


@verifying_providers
async def test_with_the_code_it_is_linked_and_its_token_is_good(
    waiting: ProviderSignIn, api: Api, user: Account, token: str, factor: Authenticator, clock: FakeClock
) -> None:
    clock.advance(timedelta(seconds=60))
    assert leads_to(await waiting.browser.show_code(factor.code())) == ACCOUNT
    assert await waiting.user_id() == user.id
    assert await waiting.identities() == [(EMAIL, None, waiting.name, waiting.provider.address, "666", EMAIL)]
    [linked] = (await api.get("/api/user/identities", token=token)).json
    assert linked["provider_user_id"] == "666"
    assert await run_sql(waiting.pool, "select linked_at from identities") == [(clock.now(),)]
    token_response = await api.get(f"/api/provider-token/{waiting.name}", token=token)
    assert token_response.status == 200
    assert token_response.json["access_token"].startswith("access-")
    assert [row[0] for row in await run_sql(waiting.pool, "select name from events")] == ["user.login.success"]
    assert await pending_subjects(waiting) == []


async def test_with_the_code_its_refresh_token_works_too(
    waiting: ProviderSignIn, api: Api, token: str, factor: Authenticator, clock: FakeClock, provider: FakeProvider
) -> None:
    provider.expires_in = 60
    browser = waiting
    await sign_in_until_code(browser)
    assert leads_to(await browser.browser.show_code(factor.code())) == ACCOUNT
    first = (await api.get(f"/api/provider-token/{browser.name}", token=token)).json["access_token"]
    clock.advance(timedelta(seconds=61))
    renewed = await api.get(f"/api/provider-token/{browser.name}", token=token)
    assert renewed.status == 200, renewed.text
    assert renewed.json["access_token"] != first


async def test_the_tokens_of_a_pending_identity_are_encrypted(waiting: ProviderSignIn) -> None:
    [(whole, access, refresh)] = await run_sql(waiting.pool, "select t::text, access_token, refresh_token from pre_auths t")
    assert "access-" not in whole
    assert b"access-" not in access
    assert b"refresh-" not in refresh


async def test_a_wrong_code_links_nothing_and_the_right_one_does_after_it(waiting: ProviderSignIn, factor: Authenticator) -> None:
    assert (await waiting.browser.show_code(factor.wrong())).status == 401
    assert await waiting.identities() == []
    assert leads_to(await waiting.browser.show_code(factor.code())) == ACCOUNT
    assert await subjects(waiting) == [(None, "666")]


async def test_too_many_wrong_codes_link_nothing(waiting: ProviderSignIn, factor: Authenticator, ports: Ports, clock: FakeClock) -> None:
    for _ in range(5):
        assert (await waiting.browser.show_code(factor.wrong())).status == 401
    assert (await waiting.browser.show_code(factor.code())).status == 401
    assert await waiting.identities() == []
    await check_deleted_by_sweep(waiting, ports, clock)


async def test_an_expired_sign_in_links_nothing(waiting: ProviderSignIn, factor: Authenticator, ports: Ports, clock: FakeClock) -> None:
    clock.advance(timedelta(minutes=10))
    assert (await waiting.browser.show_code(factor.code())).status == 401
    assert await waiting.identities() == []
    await check_deleted_by_sweep(waiting, ports, clock)


async def check_deleted_by_sweep(provider_sign_in: ProviderSignIn, ports: Ports, clock: FakeClock) -> None:
    clock.advance(timedelta(days=2))
    await housekeeping.sweep(ports, new_id())
    assert await pending_subjects(provider_sign_in) == []
    assert await provider_sign_in.identities() == []


async def reset_password(api: Api, token: str, ports: Ports, sent: FakeMailTransport) -> int:
    assert (await api.post("/api/auth/forgot-password", {"email": EMAIL})).status == 200
    await deliver(ports)
    return (await api.post("/api/auth/reset-password", {"token": link(sent.emails[-1]), "new_password": NEW_PASSWORD})).status


async def change_password(api: Api, token: str, ports: Ports, sent: FakeMailTransport) -> int:
    body = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    return (await api.post("/api/user/change-password", body, token=token)).status


async def change_address(api: Api, token: str, ports: Ports, sent: FakeMailTransport) -> int:
    return (await api.patch("/api/user", {"email": "new@example.com"}, token=token)).status


async def disable_mfa(api: Api, token: str, ports: Ports, sent: FakeMailTransport) -> int:
    return (await api.delete("/api/user/mfa", token=token)).status


async def anonymize(api: Api, token: str, ports: Ports, sent: FakeMailTransport) -> int:
    owner_token = (await sign_in(ports, await add_platform_owner(ports))).access_token
    user_id = (await api.get("/api/user", token=token)).json["id"]
    return (await api.delete(f"/api/privacy/forget/{user_id}", token=owner_token)).status


Ending = Callable[[Api, str, Ports, FakeMailTransport], Awaitable[int]]
ENDINGS: Final[Mapping[str, Ending]] = {
    "a reset password": reset_password,
    "a changed password": change_password,
    "a changed address": change_address,
    "a disabled second factor": disable_mfa,
    "an anonymized account": anonymize,
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_changes_that_end_the_sign_in_delete_the_pending_identity(
    waiting: ProviderSignIn, factor: Authenticator, api: Api, token: str, ports: Ports, sent: FakeMailTransport, ending: str
) -> None:
    assert await pending_subjects(waiting) == [("666",)]
    assert await ENDINGS[ending](api, token, ports, sent) == 200
    assert await pending_subjects(waiting) == []
    assert (await waiting.browser.show_code(factor.code())).status == 401
    assert await waiting.identities() == []
    assert await waiting.user_id() is None


# Known identities


async def test_an_identity_linked_here_gets_its_new_tokens_immediately(
    provider_sign_in: ProviderSignIn, api: Api, user: Account, token: str, ports: Ports
) -> None:
    await link_known(provider_sign_in, user.id, token="an old one")
    await add_mfa(ports, user)
    await sign_in_until_code(provider_sign_in)
    token_response = await api.get(f"/api/provider-token/{provider_sign_in.name}", token=token)
    assert token_response.json["access_token"].startswith("access-")
    assert await pending_subjects(provider_sign_in) == [(None,)]


async def test_a_known_identity_is_linked_at_a_service_with_the_code(
    provider_sign_in: ProviderSignIn, api: Api, user: Account, factor: Authenticator, shop: UUID, ports: Ports
) -> None:
    await link_known(provider_sign_in, user.id)
    session = await sign_in_to(ports, provider_sign_in.pool, shop, user)
    await sign_in_until_code(provider_sign_in, **SHOP)
    assert await subjects(provider_sign_in) == [(None, "4711")]
    path = f"/api/provider-token/{provider_sign_in.name}"
    assert (await api.get(path, token=session.access_token)).status == 404
    assert leads_to(await provider_sign_in.browser.show_code(factor.code())) == ACCOUNT
    assert await provider_sign_in.user_id() == user.id
    assert set(await subjects(provider_sign_in)) == {(None, "4711"), (shop, "4711")}
    assert (await api.get(path, token=session.access_token)).json["access_token"].startswith("access-")


async def test_an_address_match_is_linked_at_a_service_with_the_code(waiting: ProviderSignIn, factor: Authenticator, shop: UUID) -> None:
    await sign_in_until_code(waiting, **SHOP)
    assert await waiting.identities() == []
    assert leads_to(await waiting.browser.show_code(factor.code())) == ACCOUNT
    assert await subjects(waiting) == [(shop, "666")]


async def test_an_identity_unlinked_before_the_code_is_not_linked_elsewhere(
    provider_sign_in: ProviderSignIn, user: Account, factor: Authenticator, shop: UUID
) -> None:
    """Here the service unlinks it. If the user unlinks an identity, all pending sign-ins end."""
    name = await link_known(provider_sign_in, user.id, shop)
    await sign_in_until_code(provider_sign_in)
    await run_sql(provider_sign_in.pool, "delete from identities where id = %s", name)
    assert (await provider_sign_in.browser.show_code(factor.code())).status == 401
    assert await provider_sign_in.identities() == []
    assert await provider_sign_in.user_id() is None


async def test_a_service_deleted_before_the_code_gets_no_link(
    waiting: ProviderSignIn, user: Account, factor: Authenticator, shop: UUID
) -> None:
    await sign_in_until_code(waiting, **SHOP)
    await run_sql(waiting.pool, "delete from services where id = %s", shop)
    assert leads_to(await waiting.browser.show_code(factor.code())) == ACCOUNT
    assert await waiting.user_id() == user.id, "the user continues to the account page"
    assert await waiting.identities() == []


async def test_a_second_identity_at_a_provider_is_not_linked(waiting: ProviderSignIn, user: Account, factor: Authenticator) -> None:
    """The user linked another one before the code.

    The address still signs the user in, as without a second factor.
    """
    await add_identity(waiting.pool, user.id, waiting.name, subject="hers")
    assert leads_to(await waiting.browser.show_code(factor.code())) == ACCOUNT
    assert await waiting.user_id() == user.id
    assert await subjects(waiting) == [(None, "hers")]


# Sign-ins without a code


async def test_on_a_trusted_device_the_identity_is_linked_immediately(
    provider_sign_in: ProviderSignIn, user: Account, factor: Authenticator
) -> None:
    await provider_sign_in.browser.sign_in_with(factor, trust="yes")
    await provider_sign_in.browser.submit("/app/sign-out")
    provider_sign_in.provider.person = STRANGER
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == user.id
    assert await subjects(provider_sign_in) == [(None, "666")]
    assert await pending_subjects(provider_sign_in) == []


async def test_without_a_second_factor_the_identity_is_linked_immediately(provider_sign_in: ProviderSignIn, user: Account) -> None:
    provider_sign_in.provider.person = STRANGER
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == user.id
    assert await subjects(provider_sign_in) == [(None, "666")]


# Races


async def test_an_identity_that_another_user_linked_first_is_not_linked(
    waiting: ProviderSignIn, user: Account, factor: Authenticator, ports: Ports, app: QuartTrio
) -> None:
    eve = await add_account(ports, "eve@example.com")
    browser = other_browser(waiting, app)
    waiting.provider.person = Person(subject=STRANGER.subject, email="eve@example.com")
    await browser.sign_in()
    assert await browser.user_id() == eve.id
    refused = await waiting.browser.show_code(factor.code())
    assert refused.status == 401
    assert "cannot be continued" in refused.text
    assert await waiting.user_id() is None
    assert [row[0] for row in await waiting.identities()] == ["eve@example.com"]


async def test_a_concurrent_link_is_waited_for(waiting: ProviderSignIn, factor: Authenticator, ports: Ports) -> None:
    eve = await add_account(ports, "eve@example.com")
    name = f"{waiting.name} {waiting.provider.address} 666"
    linking = [
        (f"select pg_advisory_xact_lock({SUBJECTS}, hashtext(%s))", (name,)),
        (
            """
            insert into identities (id, user_id, provider, issuer, provider_user_id, linked_at)
            values (gen_random_uuid(), %s, %s, %s, '666', now())""",
            (eve.id, waiting.name, waiting.provider.address),
        ),
    ]
    refused = await run_during(waiting.pool, linking, lambda: waiting.browser.show_code(factor.code()))
    assert refused.status == 401
    assert [row[0] for row in await waiting.identities()] == ["eve@example.com"]
    assert await waiting.user_id() is None


async def test_a_concurrent_end_of_the_sign_in_is_waited_for(waiting: ProviderSignIn, user: Account, factor: Authenticator) -> None:
    ending = [
        ("select 1 from users where id = %s for no key update", (user.id,)),
        ("delete from pre_auths where user_id = %s", (user.id,)),
    ]
    assert (await run_during(waiting.pool, ending, lambda: waiting.browser.show_code(factor.code()))).status == 401
    assert await waiting.identities() == []


async def test_parallel_codes_all_sign_in_and_link_once(
    provider_sign_in: ProviderSignIn, app: QuartTrio, user: Account, factor: Authenticator, shop: UUID
) -> None:
    """They sign in to the platform and to a service, with further callbacks in parallel."""
    provider_sign_in.provider.person = STRANGER
    browsers = [other_browser(provider_sign_in, app) for _ in range(8)]
    for number, browser in enumerate(browsers):
        await sign_in_until_code(browser, **(SHOP if number % 2 else {}))
    late = [other_browser(provider_sign_in, app) for _ in range(4)]
    backs = [await browser.start(**(SHOP if number % 2 else {})) for number, browser in enumerate(late)]

    async def act(number: int) -> int:
        if number < len(browsers):
            return (await browsers[number].browser.show_code(BACKUP_CODES[number])).status
        return (await late[number - len(browsers)].browser.open(backs[number - len(browsers)])).status

    assert await run_concurrently(12, act) == [303] * 12
    assert {await browser.user_id() for browser in browsers} == {user.id}
    assert {await browser.user_id() for browser in late} == {None}
    assert sorted(await subjects(provider_sign_in), key=str) == sorted([(None, "666"), (shop, "666")], key=str)


async def test_of_two_users_with_the_same_identity_one_gets_it(
    provider_sign_in: ProviderSignIn, app: QuartTrio, user: Account, factor: Authenticator, ports: Ports
) -> None:
    eve = await add_account(ports, "eve@example.com")
    browsers = [other_browser(provider_sign_in, app) for _ in range(3)]
    provider_sign_in.provider.person = STRANGER
    for browser in browsers:
        await sign_in_until_code(browser)
    other = other_browser(provider_sign_in, app)
    provider_sign_in.provider.person = Person(subject=STRANGER.subject, email=eve.email)
    back = await other.start()

    async def act(number: int) -> int:
        if number < len(browsers):
            return (await browsers[number].browser.show_code(BACKUP_CODES[number])).status
        return (await other.browser.open(back)).status

    statuses = await run_concurrently(4, act)
    [(owner, *_)] = await provider_sign_in.identities()
    assert sorted(statuses) == ([303] + [401] * 3 if owner == eve.email else [303] * 4)
    assert await other.user_id() == (eve.id if owner == eve.email else None), "otherwise the code is required again"
