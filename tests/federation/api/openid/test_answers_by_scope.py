"""What an application's tokens show about its user: all routes that accept them, by the tokens' scopes (security J-9)."""

from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication.model.openid import Scope
from entrypoints.http.edge.access.declaration import ApplicationTokens, access_of
from tests.federation.api.openid.client import OpenIdClient
from tests.federation.api.relying import claims, give_consent
from tests.federation.api.test_introspection import introspect
from tests.proof.access.calls import routes
from tests.support.builders import EMAIL, run_sql
from tests.support.identities import add_identity

# Texts about the user in the database, by the scope that shows them.
ADDRESSES: Final = (EMAIL, "ada@codehost.example")
NAMES: Final = ("Ada Lovelace", "images.example")
OF_DEVICES: Final = ("203.0.113.77", "Ada's laptop", "203.0.113.78")
ENDS_ACCESS: Final = ("DELETE /api/user/identities/<provider>", "POST /api/auth/logout")


@pytest.fixture
async def known(signed_in: OpenIdClient, user: Account, pool: Pool) -> OpenIdClient:
    """The application, and a user with a profile, a device, a sign-in elsewhere and an identity. The user has agreed to all scopes."""
    await give_consent(signed_in.party, user, *Scope)
    await run_sql(
        pool,
        """
        update users set name = 'Ada Lovelace', picture = 'https://images.example/ada.png', email_verified_at = now()
        where id = %s""",
        user.id,
    )
    await run_sql(
        pool,
        """
        insert into devices (id, user_id, name, device_type, browser, os, last_used_at, last_ip, risk_score, risk_factors, created_at,
                             updated_at)
        values (gen_random_uuid(), %s, 'Ada''s laptop', 'browser', 'Firefox', 'Linux', now(), '203.0.113.77', 0, '{}', now(), now())""",
        user.id,
    )
    await run_sql(
        pool,
        """
        insert into login_events (id, user_id, org_id, service_id, provider, success, address, created_at)
        values (gen_random_uuid(), %s, %s, %s, 'password', true, '203.0.113.78', now())""",
        user.id,
        signed_in.party.tenant.org,
        signed_in.party.service,
    )
    await add_identity(pool, user.id, service=signed_in.party.service, email="ada@codehost.example")
    return signed_in


async def answers(app: QuartTrio, client: OpenIdClient, user: Account, token: str) -> dict[str, tuple[int, str]]:
    """Return the status and text from every reading route that accepts application tokens."""
    values = {"user_id": str(user.id), "provider": "codehost"}
    [[device]] = await run_sql(client.party.tenant.pool, "select id from devices where name = 'Ada''s laptop'")
    seen = {}
    for route, view in routes(app):
        if access_of(view).applications is ApplicationTokens.NONE or route in ENDS_ACCESS:
            continue
        method, rule = route.split()
        path = rule
        for name, value in {**values, "device_id": str(device)}.items():
            path = path.replace(f"<{name}>", value)
        answer = await client.party.api.call(method, path, token=token)
        seen[route] = (answer.status, answer.text)
    return seen


def shown(seen: dict[str, tuple[int, str]], texts: tuple[str, ...]) -> set[str]:
    return {route for route, (_, text) in seen.items() if any(each in text for each in texts)}


def refused_routes(seen: dict[str, tuple[int, str]]) -> set[str]:
    return {route for route, (status, _) in seen.items() if status == 403}


@pytest.mark.slow
async def test_each_route_answers_a_token_with_openid_by_its_scopes(app: QuartTrio, known: OpenIdClient, user: Account) -> None:
    without = {route for route, view in routes(app) if access_of(view).applications is ApplicationTokens.WITHOUT_OPENID}
    assert {"GET /api/user/devices", "GET /api/user/mfa/status", "GET /api/privacy/export/<user_id>"} <= without
    for scope, texts in (
        ("openid", ()),
        ("openid email", ADDRESSES),
        ("openid profile", NAMES),
        ("openid profile email", ADDRESSES + NAMES),
    ):
        tokens = await known.tokens(scope=scope)
        for each in (tokens, await known.refresh(tokens)):
            seen = await answers(app, known, user, each["access_token"])
            assert refused_routes(seen) == without, scope
            hidden = tuple(text for text in ADDRESSES + NAMES + OF_DEVICES if text not in texts)
            assert shown(seen, hidden) == set(), scope
            assert shown(seen, texts) == (
                {"GET /api/user"} | ({"GET /api/user/identities"} if "email" in scope else set()) if texts else set()
            )


async def test_a_token_without_openid_shows_what_is_documented(app: QuartTrio, known: OpenIdClient, user: Account) -> None:
    tokens = (await known.party.exchange(await known.party.code(scope=None, response_type="code"))).json
    seen = await answers(app, known, user, tokens["access_token"])
    assert refused_routes(seen) == set()
    assert "GET /api/user" in shown(seen, ADDRESSES)
    assert {"GET /api/user/devices", "GET /api/privacy/export/<user_id>"} <= shown(seen, OF_DEVICES)
    assert claims(tokens)["email"] == EMAIL
    assert (await introspect(known.party, tokens["access_token"]))["username"] == EMAIL


async def test_tokens_have_the_address_only_with_its_scope(known: OpenIdClient) -> None:
    """A refresh that leaves this scope or all scopes out hides the address, and a later refresh with the scope shows it again."""
    plain, full = await known.tokens(scope="openid profile"), await known.tokens(scope="openid email")
    for tokens, shows in ((plain, False), (await known.refresh(plain), False), (full, True), (await known.refresh(full), True)):
        await assert_address(known, tokens, shows=shows)
    full = await known.tokens(scope="openid email offline_access")
    for scope, shows in (("openid", False), ("offline_access", False), ("openid email", True), ("email", True)):
        answer = await known.party.refresh(full["refresh_token"], scope=scope)
        assert answer.status == 200, (scope, answer.text)
        full = answer.json
        await assert_address(known, full, shows=shows)


async def assert_address(client: OpenIdClient, tokens: dict[str, Any], *, shows: bool) -> None:
    signed = claims(tokens)
    assert ("email" in signed, "email_verified" in signed, EMAIL in str(signed)) == (shows, shows, shows)
    answer = await introspect(client.party, tokens["access_token"])
    assert (answer.get("username") == EMAIL) == (shows and answer["active"])
    profile = await client.party.api.get("/api/user", token=tokens["access_token"])
    assert profile.status == 401 or profile.json["email"] == (EMAIL if shows else None)


async def test_a_consent_page_names_the_address_only_if_it_is_asked_for(signed_in: OpenIdClient) -> None:
    assert "without your email address" in (await signed_in.open(scope="openid profile")).text
    assert "without your email address" not in (await signed_in.open(scope="openid email")).text
