"""Factors and linked accounts that are added under a sign-in policy (security SP-3, PK-8, security O-5)."""

from collections.abc import Sequence
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.accounts.api.test_reset_and_policies import (
    AT_HIGH_RISK,
    BY_APP,
    CASES,
    EMAIL_OR_PASSKEY,
    PASSWORD_OR_PASSKEY,
    PROVIDER_OR_PASSKEY,
    TWO,
    reset,
    store_policy,
    try_to_add,
    try_to_link_by_address,
)
from tests.accounts.api.test_reset_and_policies import providers as providers  # the fixture
from tests.fakes.outside import FakeMailTransport
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.builders import EMAIL, NEW_PASSWORD, Api, add_account, run_sql, sign_in
from tests.support.identities import add_identity
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PasskeyUser
from tests.support.tenants import Tenant


@pytest.mark.parametrize(
    ("place", "document"),
    [
        *((place, document) for place, document in CASES if place is not None and document not in BY_APP),
        ("organization", AT_HIGH_RISK),
        ("organization", EMAIL_OR_PASSKEY),
        ("organization", {**PASSWORD_OR_PASSKEY, **TWO}),
    ],
)
async def test_a_new_password_adds_no_factor_beside_those_that_a_policy_asks_for(
    acme: Tenant,
    api: Api,
    app: QuartTrio,
    ports: Ports,
    sent: FakeMailTransport,
    provider_sign_in: ProviderSignIn,
    place: str,
    document: dict[str, Any],
) -> None:
    """The mailbox alone also links no account at an identity provider, even if the policy accepts this provider."""
    user = await add_account(ports)
    await PasskeyUser(api, (await sign_in(ports, user)).access_token).add()
    await store_policy(acme, place, user, document)
    await reset(api, app, ports, sent, on_page=False)
    assert await try_to_add(api, (await api.login(EMAIL, NEW_PASSWORD)).json["access_token"]) == [401] * 4
    assert "Sign in to the account as before" in await try_to_link_by_address(provider_sign_in)


@pytest.mark.parametrize(
    ("added", "document", "is_linked"),
    [
        ((), PROVIDER_OR_PASSKEY, True),  # an account that cannot meet the policy yet
        (("passkey",), PASSWORD_OR_PASSKEY, False),  # the account's passkey is asked for (PK-12)
        (("app",), TWO, True),
        (("app", "passkey"), PROVIDER_OR_PASSKEY, False),
    ],
)
async def test_the_address_links_an_account_where_the_sign_in_without_the_provider_is_enough(
    acme: Tenant,
    api: Api,
    ports: Ports,
    provider_sign_in: ProviderSignIn,
    added: Sequence[str],
    document: dict[str, Any],
    is_linked: bool,
) -> None:
    """The account's second factor is asked for before, and its code is used up in any case."""
    user = await add_account(ports)
    if "passkey" in added:
        await PasskeyUser(api, (await sign_in(ports, user)).access_token).add()
    app = await add_mfa(ports, user) if "app" in added else None
    await store_policy(acme, "organization", user, document)
    answer = await provider_sign_in.complete()
    code = "" if app is None else app.code()
    if app is not None:
        assert await provider_sign_in.identities() == []
        answer = await provider_sign_in.browser.show_code(code)
    assert (answer.status, len(await provider_sign_in.identities())) == ((303, 1) if is_linked else (403, 0)), answer.text
    if app is not None:
        challenge = (await api.login()).json["access_token"]
        assert (await api.post("/api/auth/mfa/verify", {"code": code}, token=challenge)).status == 401


@pytest.mark.parametrize("place", ["organization", "application"])
@pytest.mark.parametrize(
    ("of_platform", "of_shop", "accepted_in"),
    [
        (False, None, ()),
        (True, None, ("organization", "application")),
        (False, True, ("application",)),
        (True, False, ("organization",)),
    ],
)
async def test_the_first_factor_is_added_in_a_way_that_the_policy_accepts(
    acme: Tenant,
    api: Api,
    ports: Ports,
    pool: Pool,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    of_platform: bool,
    of_shop: bool | None,
    accepted_in: tuple[str, ...],
) -> None:
    """Otherwise a thief who has the password would meet a policy that accepts no passwords.

    Without another way, the password is enough.

    Sign-in by email is a way where the platform, or the application itself, offers it.
    """
    monkeypatch.setattr(type(ports.policy), "email_sign_in", of_platform)
    user = await add_account(ports)
    await store_policy(acme, place, user, EMAIL_OR_PASSKEY)
    await run_sql(pool, "update services set email_sign_in = %s", of_shop)
    token = (await sign_in(ports, user)).access_token
    answers = [
        await api.post("/api/user/passkeys/options", {"kind": "passkey"}, token=token),
        await api.call("PATCH", "/api/user", {"email": "new@example.com"}, token=token),
    ]
    assert [answer.status for answer in answers] == ([401] * 2 if place in accepted_in else [200] * 2), answers[0].text
    if place in accepted_in:
        assert "accepts only some ways to sign in: email, passkey. Confirm that it's you" in answers[0].text


@pytest.mark.parametrize("is_of_shop", [False, True])
async def test_an_account_that_is_linked_at_an_application_is_a_way_into_it(
    acme: Tenant, api: Api, ports: Ports, pool: Pool, is_of_shop: bool
) -> None:
    user = await add_account(ports)
    await store_policy(acme, "application", user, {"methods": ["passkey", "provider:websuite"]})
    [(shop,)] = await run_sql(pool, "select id from services")
    await add_identity(pool, user.id, "websuite", shop if is_of_shop else None)
    token = (await sign_in(ports, user)).access_token
    assert (await api.post("/api/user/passkeys/options", {"kind": "passkey"}, token=token)).status == 401
