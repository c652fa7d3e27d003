"""An identity is linked only after the second factor (security A-10, O-5, O-6).

A link gives permanent access, so one factor must not create it.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.locks import SUBJECTS
from core.accounts.model.accounts import Account
from core.kernel.values import new_id
from core.maintenance import housekeeping
from ports import Ports
from tests.accounts.email_changes import change_email
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.fakes.provider import FakeProvider, Person
from tests.federation.api.social.requests import SHOP, verifying_providers
from tests.federation.api.social.second_factor.pending import STRANGER, pending_identities, sign_in_until_code, subjects
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import HOME, SIGN_IN, FakeBrowser, leads_to
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
from tests.support.mfa import BACKUP_CODES, Authenticator

pytestmark = pytest.mark.slow


def other_browser(provider_sign_in: ProviderSignIn, app: QuartTrio) -> ProviderSignIn:
    return ProviderSignIn(FakeBrowser(app), provider_sign_in.provider, provider_sign_in.pool)


@verifying_providers
async def test_without_the_code_nothing_is_linked(
    pending_sign_in: ProviderSignIn, api: Api, user: Account, factor: Authenticator, token: str, app: QuartTrio
) -> None:
    assert await pending_sign_in.identities() == []
    assert (await api.get("/api/user/identities", token=token)).json == []
    assert (await api.get(f"/api/provider-token/{pending_sign_in.name}", token=token)).status == 404
    exported = await api.get(f"/api/privacy/export/{user.id}", token=token)
    assert (exported.status, exported.json["oauth_identities"]) == (200, [])
    assert (
        await run_sql(pending_sign_in.pool, "select 1 from mails union all select 1 from login_events union all select 1 from events") == []
    )
    browser = other_browser(pending_sign_in, app).browser
    await browser.sign_in_with(factor)
    assert "not linked" in (await browser.open("/app/account/identities")).text
    assert (await api.delete("/api/user/mfa", token=token)).status == 200
    assert await pending_identities(pending_sign_in) == 0
    pending_sign_in.provider.person = Person(subject=STRANGER.subject, email="eve@example.com")
    await pending_sign_in.sign_in()
    assert await pending_sign_in.user_id() not in (None, user.id), "the identity was never linked to the user"


@verifying_providers
async def test_with_the_code_the_identity_is_linked_and_its_token_is_valid(
    pending_sign_in: ProviderSignIn, api: Api, user: Account, token: str, factor: Authenticator, clock: FakeClock
) -> None:
    clock.advance(timedelta(seconds=60))
    assert leads_to(await pending_sign_in.browser.show_code(factor.code())) == HOME
    assert await pending_sign_in.user_id() == user.id
    assert await pending_sign_in.identities() == [(EMAIL, None, pending_sign_in.name, pending_sign_in.provider.address, "666", EMAIL)]
    [linked] = (await api.get("/api/user/identities", token=token)).json
    assert linked["provider_user_id"] == "666"
    assert await run_sql(pending_sign_in.pool, "select linked_at from identities") == [(clock.now(),)]
    token_response = await api.get(f"/api/provider-token/{pending_sign_in.name}", token=token)
    assert token_response.status == 200
    assert token_response.json["access_token"].startswith("access-")
    assert {row[0] for row in await run_sql(pending_sign_in.pool, "select name from events")} == {
        "security.identity.linked",
        "user.login.success",
    }
    assert await pending_identities(pending_sign_in) == 0


async def test_with_the_code_the_refresh_token_works_too(
    pending_sign_in: ProviderSignIn, api: Api, token: str, factor: Authenticator, clock: FakeClock, provider: FakeProvider
) -> None:
    provider.expires_in = 60
    browser = pending_sign_in
    await sign_in_until_code(browser)
    assert leads_to(await browser.browser.show_code(factor.code())) == HOME
    first = (await api.get(f"/api/provider-token/{browser.name}", token=token)).json["access_token"]
    clock.advance(timedelta(seconds=61))
    answer = await api.get(f"/api/provider-token/{browser.name}", token=token)
    assert answer.status == 200, answer.text
    assert answer.json["access_token"] != first


async def test_the_tokens_of_a_pending_identity_are_encrypted(pending_sign_in: ProviderSignIn) -> None:
    [(whole, identity)] = await run_sql(pending_sign_in.pool, "select t::text, identity from sign_in_flows t")
    assert "access-" not in whole
    assert b"access-" not in identity
    assert b"refresh-" not in identity


async def test_a_wrong_code_links_nothing_and_the_right_code_still_links(pending_sign_in: ProviderSignIn, factor: Authenticator) -> None:
    assert (await pending_sign_in.browser.show_code(factor.wrong())).status == 401
    assert await pending_sign_in.identities() == []
    assert leads_to(await pending_sign_in.browser.show_code(factor.code())) == HOME
    assert await subjects(pending_sign_in) == [(None, "666")]


async def test_too_many_wrong_codes_link_nothing(
    pending_sign_in: ProviderSignIn, factor: Authenticator, ports: Ports, clock: FakeClock
) -> None:
    for _ in range(5):
        assert (await pending_sign_in.browser.show_code(factor.wrong())).status == 401
    assert (await pending_sign_in.browser.show_code(factor.code())).status == 401
    assert await pending_sign_in.identities() == []
    await check_deleted_by_sweep(pending_sign_in, ports, clock)


async def test_an_expired_sign_in_links_nothing(
    pending_sign_in: ProviderSignIn, factor: Authenticator, ports: Ports, clock: FakeClock
) -> None:
    clock.advance(timedelta(minutes=10))
    assert (await pending_sign_in.browser.show_code(factor.code())).status == 401
    assert await pending_sign_in.identities() == []
    await check_deleted_by_sweep(pending_sign_in, ports, clock)


async def check_deleted_by_sweep(provider_sign_in: ProviderSignIn, ports: Ports, clock: FakeClock) -> None:
    clock.advance(timedelta(days=2))
    await housekeeping.sweep(ports, new_id())
    assert await pending_identities(provider_sign_in) == 0
    assert await provider_sign_in.identities() == []


async def reset_password(api: Api, token: str, ports: Ports, sent: FakeMailTransport) -> int:
    assert (await api.post("/api/auth/forgot-password", {"email": EMAIL})).status == 200
    await deliver(ports)
    return (await api.post("/api/auth/reset-password", {"token": link(sent.emails[-1]), "new_password": NEW_PASSWORD})).status


async def change_password(api: Api, token: str, ports: Ports, sent: FakeMailTransport) -> int:
    body = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    return (await api.post("/api/user/change-password", body, token=token)).status


async def change_address(api: Api, token: str, ports: Ports, sent: FakeMailTransport) -> int:
    return (await change_email(api, ports, token, "new@example.com")).status


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
    pending_sign_in: ProviderSignIn, factor: Authenticator, api: Api, token: str, ports: Ports, sent: FakeMailTransport, ending: str
) -> None:
    assert await pending_identities(pending_sign_in) == 1
    assert await ENDINGS[ending](api, token, ports, sent) == 200
    assert await pending_identities(pending_sign_in) == 0
    page = await pending_sign_in.browser.submit(pending_sign_in.browser.code_path, SIGN_IN, code=factor.code())
    if ending == "an anonymized account":  # its sign-ins are deleted
        assert (page.status, "no longer open" in page.text) == (200, True)
    else:
        assert (page.status, "cannot be continued" in page.text) == (401, True)
    assert await pending_sign_in.identities() == []
    assert await pending_sign_in.user_id() is None


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
    assert await pending_identities(provider_sign_in) == 0


async def test_without_a_second_factor_the_identity_is_linked_immediately(provider_sign_in: ProviderSignIn, user: Account) -> None:
    provider_sign_in.provider.person = STRANGER
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == user.id
    assert await subjects(provider_sign_in) == [(None, "666")]


# Races


async def test_an_identity_that_another_user_linked_first_is_not_linked(
    pending_sign_in: ProviderSignIn, user: Account, factor: Authenticator, ports: Ports, app: QuartTrio
) -> None:
    eve = await add_account(ports, "eve@example.com")
    browser = other_browser(pending_sign_in, app)
    pending_sign_in.provider.person = Person(subject=STRANGER.subject, email="eve@example.com")
    await browser.sign_in()
    assert await browser.user_id() == eve.id
    page = await pending_sign_in.browser.show_code(factor.code())
    assert page.status == 401
    assert "cannot be continued" in page.text
    assert await pending_sign_in.user_id() is None
    assert [row[0] for row in await pending_sign_in.identities()] == ["eve@example.com"]


async def test_a_concurrent_link_is_waited_for(pending_sign_in: ProviderSignIn, factor: Authenticator, ports: Ports) -> None:
    eve = await add_account(ports, "eve@example.com")
    name = f"{pending_sign_in.name} {pending_sign_in.provider.address} 666"
    linking = [
        (f"select pg_advisory_xact_lock({SUBJECTS}, hashtext(%s))", (name,)),
        (
            """
            insert into identities (id, user_id, provider, issuer, provider_user_id, linked_at)
            values (gen_random_uuid(), %s, %s, %s, '666', now())""",
            (eve.id, pending_sign_in.name, pending_sign_in.provider.address),
        ),
    ]
    page = await run_during(pending_sign_in.pool, linking, lambda: pending_sign_in.browser.show_code(factor.code()))
    assert page.status == 401
    assert [row[0] for row in await pending_sign_in.identities()] == ["eve@example.com"]
    assert await pending_sign_in.user_id() is None


async def test_a_concurrent_end_of_the_sign_in_is_waited_for(pending_sign_in: ProviderSignIn, user: Account, factor: Authenticator) -> None:
    ending = [
        ("select 1 from users where id = %s for no key update", (user.id,)),
        ("update sign_in_flows set user_id = null, proofs = '[]', identity = null, proofs_expire_at = null where user_id = %s", (user.id,)),
    ]
    assert (await run_during(pending_sign_in.pool, ending, lambda: pending_sign_in.browser.show_code(factor.code()))).status == 401
    assert await pending_sign_in.identities() == []


async def test_parallel_codes_all_sign_in_and_create_one_link(
    provider_sign_in: ProviderSignIn, app: QuartTrio, user: Account, factor: Authenticator, shop: UUID
) -> None:
    """The codes sign in to the platform and to a service, with further callbacks in parallel."""
    provider_sign_in.provider.person = STRANGER
    browsers = [other_browser(provider_sign_in, app) for _ in range(8)]
    for number, browser in enumerate(browsers):
        await sign_in_until_code(browser, **(SHOP if number % 2 else {}))
    late_browsers = [other_browser(provider_sign_in, app) for _ in range(4)]
    backs = [await browser.start(**(SHOP if number % 2 else {})) for number, browser in enumerate(late_browsers)]

    async def act(number: int) -> int:
        if number < len(browsers):
            return (await browsers[number].browser.show_code(BACKUP_CODES[number])).status
        return (await late_browsers[number - len(browsers)].come_back(backs[number - len(browsers)])).status

    assert await run_concurrently(12, act) == [303] * 12
    assert {await browser.user_id() for browser in browsers} == {user.id}
    assert {await browser.user_id() for browser in late_browsers} == {None}
    assert sorted(await subjects(provider_sign_in), key=str) == sorted([(None, "666"), (shop, "666")], key=str)


async def test_one_of_two_users_with_the_same_identity_gets_the_link(
    provider_sign_in: ProviderSignIn, app: QuartTrio, user: Account, factor: Authenticator, ports: Ports
) -> None:
    eve = await add_account(ports, "eve@example.com")
    browsers = [other_browser(provider_sign_in, app) for _ in range(3)]
    provider_sign_in.provider.person = STRANGER
    for browser in browsers:
        await sign_in_until_code(browser)
    other = other_browser(provider_sign_in, app)
    provider_sign_in.provider.person = Person(subject=STRANGER.subject, email=eve.email)
    callback = await other.start()

    async def act(number: int) -> int:
        if number < len(browsers):
            return (await browsers[number].browser.show_code(BACKUP_CODES[number])).status
        return (await other.come_back(callback)).status

    statuses = await run_concurrently(4, act)
    [(owner, *_)] = await provider_sign_in.identities()
    assert sorted(statuses) == ([303] + [401] * 3 if owner == eve.email else [303] * 4)
    assert await other.user_id() == (eve.id if owner == eve.email else None), "otherwise the code is required again"
