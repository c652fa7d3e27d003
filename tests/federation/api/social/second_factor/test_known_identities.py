"""Identities that are already linked, or have a matching address, before the second factor (security A-10, O-5)."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.fakes.provider import Person
from tests.federation.api.social.requests import SHOP
from tests.federation.api.social.second_factor.pending import pending_identities, sign_in_until_code, subjects
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import FLOW, SIGN_IN, leads_to
from tests.support.builders import Api, deliver, run_sql
from tests.support.identities import add_identity
from tests.support.mfa import Authenticator, add_mfa
from tests.support.passkeys.users import PasskeyUser
from tests.support.services import add_service, sign_in_to
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow


async def link_known(provider_sign_in: ProviderSignIn, user: UUID, service: UUID | None = None, **more: Any) -> UUID:
    """Link an identity as a sign-in would.

    The provider's user has another address, so only the subject matches.
    """
    provider_sign_in.provider.person = Person(email="x@elsewhere.example")
    name = await add_identity(provider_sign_in.pool, user, provider_sign_in.name, service, subject="4711", **more)
    await run_sql(provider_sign_in.pool, "update identities set issuer = %s where id = %s", provider_sign_in.provider.address, name)
    return name


async def test_an_identity_that_is_already_linked_gets_its_new_tokens_immediately(
    provider_sign_in: ProviderSignIn, api: Api, user: Account, token: str, ports: Ports
) -> None:
    await link_known(provider_sign_in, user.id, token="an old one")
    await add_mfa(ports, user)
    await sign_in_until_code(provider_sign_in)
    token_response = await api.get(f"/api/provider-token/{provider_sign_in.name}", token=token)
    assert token_response.json["access_token"].startswith("access-")
    assert await pending_identities(provider_sign_in) == 0


async def test_a_known_identity_is_linked_at_a_service_with_the_code(
    provider_sign_in: ProviderSignIn, api: Api, user: Account, factor: Authenticator, shop: UUID, ports: Ports
) -> None:
    await link_known(provider_sign_in, user.id)
    session = await sign_in_to(ports, provider_sign_in.pool, shop, user)
    await sign_in_until_code(provider_sign_in, **SHOP)
    assert await subjects(provider_sign_in) == [(None, "4711")]
    path = f"/api/provider-token/{provider_sign_in.name}"
    assert (await api.get(path, token=session.access_token)).status == 404
    assert FLOW.fullmatch(leads_to(await provider_sign_in.browser.show_code(factor.code()))), "the application waits"
    assert await provider_sign_in.user_id() == user.id
    assert set(await subjects(provider_sign_in)) == {(None, "4711"), (shop, "4711")}
    assert (await api.get(path, token=session.access_token)).json["access_token"].startswith("access-")


async def test_an_address_match_is_linked_at_a_service_with_the_code(
    pending_sign_in: ProviderSignIn, factor: Authenticator, shop: UUID
) -> None:
    await sign_in_until_code(pending_sign_in, **SHOP)
    assert await pending_sign_in.identities() == []
    assert FLOW.fullmatch(leads_to(await pending_sign_in.browser.show_code(factor.code()))), "the application waits"
    assert await subjects(pending_sign_in) == [(shop, "666")]


async def test_an_identity_unlinked_before_the_code_is_not_linked_at_the_service(
    provider_sign_in: ProviderSignIn, user: Account, factor: Authenticator, shop: UUID
) -> None:
    """In this test, the service unlinks it. If the user unlinks an identity, all pending sign-ins end."""
    name = await link_known(provider_sign_in, user.id, shop)
    await sign_in_until_code(provider_sign_in)
    await run_sql(provider_sign_in.pool, "delete from identities where id = %s", name)
    assert (await provider_sign_in.browser.show_code(factor.code())).status == 401
    assert await provider_sign_in.identities() == []
    assert await provider_sign_in.user_id() is None


async def test_a_service_deleted_before_the_code_gets_no_link(
    pending_sign_in: ProviderSignIn, user: Account, factor: Authenticator, shop: UUID
) -> None:
    await sign_in_until_code(pending_sign_in, **SHOP)
    await run_sql(pending_sign_in.pool, "delete from services where id = %s", shop)
    browser = pending_sign_in.browser
    assert "no longer open" in (await browser.open(browser.code_path)).text
    path = leads_to(await browser.submit(browser.code_path, SIGN_IN, code=factor.code()))
    assert await pending_sign_in.user_id() == user.id
    assert await pending_sign_in.identities() == []
    page = await browser.open(path)
    assert ("You're signed in" in page.text, 'href="/app">Continue' in page.text) == (True, True)


async def test_a_second_identity_at_a_provider_is_not_linked(pending_sign_in: ProviderSignIn, user: Account, factor: Authenticator) -> None:
    """The user linked another identity before entering the code. The address alone does not sign in."""
    await add_identity(pending_sign_in.pool, user.id, pending_sign_in.name, subject="hers")
    assert (await pending_sign_in.browser.show_code(factor.code())).status == 403
    assert await pending_sign_in.user_id() is None
    assert await subjects(pending_sign_in) == [(None, "hers")]


@pytest.mark.parametrize("place", ["account", "application"])
@pytest.mark.parametrize("has_passkey", [True, False])
async def test_an_identity_of_an_application_becomes_no_way_in_without_the_passkey(
    provider_sign_in: ProviderSignIn,
    acme: Tenant,
    api: Api,
    user: Account,
    shop: UUID,
    ports: Ports,
    sent: FakeMailTransport,
    clock: FakeClock,
    has_passkey: bool,
    place: str,
) -> None:
    """The user is signed in as before. A new link is mailed, because it counts in other places (security PK-12, security A-13)."""
    if has_passkey:
        await PasskeyUser(api, (await api.login()).json["access_token"]).add()
    await link_known(provider_sign_in, user.id, await add_service(provider_sign_in.pool, acme.org, "other"))
    await deliver(ports)
    sent.emails.clear()
    clock.advance(timedelta(minutes=1))
    await provider_sign_in.sign_in(**(SHOP if place == "application" else {}))
    assert await provider_sign_in.user_id() == user.id
    added = (shop if place == "application" else None, "4711") in await subjects(provider_sign_in)
    await deliver(ports)
    mailed = [email.to for email in sent.emails if "linked" in email.subject]
    assert (added, mailed) == (not has_passkey, [] if has_passkey else [user.email])


async def test_a_passkey_asks_for_nothing_where_the_account_has_the_identity(
    provider_sign_in: ProviderSignIn, api: Api, user: Account, shop: UUID, ports: Ports, sent: FakeMailTransport
) -> None:
    await PasskeyUser(api, (await api.login()).json["access_token"]).add()
    await link_known(provider_sign_in, user.id)
    await deliver(ports)
    sent.emails.clear()
    await provider_sign_in.sign_in(**SHOP)
    assert set(await subjects(provider_sign_in)) == {(None, "4711"), (shop, "4711")}
    await deliver(ports)
    assert [email.subject for email in sent.emails if "linked" in email.subject] == []
