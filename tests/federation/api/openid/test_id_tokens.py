"""ID tokens: from a code and from a refresh, and the response's scope (OpenID Connect Core sections 2, 3.1.3 and 12.2)."""

from base64 import urlsafe_b64encode
from datetime import timedelta
from hashlib import sha256
from uuid import UUID

import jwt
import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.openid.client import OpenIdClient
from tests.federation.api.relying import PKCE, VERIFIER, RelyingParty, claims, sign_in_browser
from tests.support.builders import BASE_URL, EMAIL, add_member, run_sql
from tests.support.services import add_plan, add_subscription

ALL = "openid profile email offline_access org roles"
PROFILE = {
    "name": "Ada Augusta Byron",
    "picture": "https://example.com/ada.png",
    "locale": "en-GB",
    "zoneinfo": "Europe/London",
}
OF_PROFILE = {**PROFILE, "given_name": "Ada Augusta", "family_name": "Byron"}


async def fill_profile(pool: Pool, user: Account) -> None:
    for column, value in PROFILE.items():
        await run_sql(pool, f"update users set {column} = %s where id = %s", value, user.id)  # noqa: S608


async def test_an_id_token_says_who_signed_in_where_when_and_how(
    signed_in: OpenIdClient, user: Account, clock: FakeClock, ports: Ports
) -> None:
    signed_in_at = int(clock.now().timestamp())
    clock.advance(timedelta(minutes=7))
    tokens = await signed_in.tokens(nonce="n-0S6_WzA2Mj")
    claims_of_id = await signed_in.id_claims(tokens)
    now = int(clock.now().timestamp())
    digest = sha256(tokens["access_token"].encode()).digest()
    assert claims_of_id == {
        "iss": BASE_URL,
        "sub": str(user.id),
        "aud": str(signed_in.party.client_id),
        "azp": str(signed_in.party.client_id),
        "nonce": "n-0S6_WzA2Mj",
        "iat": now,
        "exp": now + 900,
        "auth_time": signed_in_at,
        "acr": "pwd",
        "amr": ["pwd"],
        "at_hash": urlsafe_b64encode(digest[:16]).rstrip(b"=").decode(),
        "sid": claims(tokens)["sid"],
    }
    assert jwt.get_unverified_header(tokens["access_token"])["typ"] == "at+jwt"
    access = claims(tokens)
    assert (access["aud"], access["client_id"], access["scope"]) == (f"{BASE_URL}/auth/userinfo", claims_of_id["aud"], "openid")
    assert {name: access[name] for name in ("auth_time", "acr", "amr")} == {"auth_time": signed_in_at, "acr": "pwd", "amr": ["pwd"]}


async def test_without_openid_there_is_no_id_token_and_no_scope(signed_in: OpenIdClient) -> None:
    for scope in (None, "email profile", "read"):
        tokens = await signed_in.tokens(scope=scope, nonce="ignored")
        assert tokens.keys() == {"access_token", "token_type", "expires_in", "refresh_token"}
        access = claims(tokens)
        assert access["aud"] == access["client_id"] == str(signed_in.party.client_id)
        assert "scope" not in access


async def test_each_scope_gives_its_claims_in_the_id_token_and_at_userinfo(
    signed_in: OpenIdClient, user: Account, pool: Pool, clock: FakeClock, ports: Ports
) -> None:
    party, tenant = signed_in.party, signed_in.party.tenant
    await fill_profile(pool, user)
    await add_member(pool, tenant.org, user.id, "admin", confirmed=True)
    plan = await add_plan(pool, party.service)
    await add_subscription(ports, pool, party.service, user.id, plan, ends=clock.now() + timedelta(days=9))
    created = int(clock.now().timestamp())
    expected = {
        "openid": {},
        "profile": {**OF_PROFILE, "updated_at": created},
        "email": {"email": EMAIL, "email_verified": True},
        "offline_access": {},
        "org": {
            "org": "acme",
            "org_id": str(tenant.org),
            "org_name": "Acme",
            "plan": "Gold",
            "subscription_status": "active",
            "features": ["exports"],
        },
        "roles": {"roles": ["admin"]},
    }
    protocol = (await signed_in.id_claims(await signed_in.tokens())).keys()
    for scope, user_claims in expected.items():
        tokens = await signed_in.tokens(scope=f"openid {scope}")
        id_claims = await signed_in.id_claims(tokens)
        assert {name: value for name, value in id_claims.items() if name not in protocol} == user_claims, scope
        assert await signed_in.userinfo(tokens) == {"sub": str(user.id), **user_claims}, scope


async def test_claims_without_a_value_are_left_out(signed_in: OpenIdClient, user: Account, pool: Pool) -> None:
    tokens = await signed_in.tokens(scope=ALL)
    assert (await signed_in.userinfo(tokens)).keys() == {
        "sub",
        "updated_at",
        "email",
        "email_verified",
        "org",
        "org_id",
        "org_name",
        "roles",
    }
    assert (await signed_in.userinfo(tokens))["roles"] == [], "the user is no member"
    await run_sql(pool, "update users set name = 'Plato' where id = %s", user.id)
    answer = await signed_in.userinfo(tokens)
    assert (answer["name"], answer["given_name"], "family_name" in answer) == ("Plato", "Plato", False)


async def test_an_application_can_have_the_claims_of_scopes_at_userinfo_only(signed_in: OpenIdClient, user: Account, pool: Pool) -> None:
    await signed_in.configure(id_token_claims=False)
    await run_sql(pool, "update users set name = 'Ada Lovelace' where id = %s", user.id)
    requested = '{"id_token": {"name": null}}'
    tokens = await signed_in.tokens(scope="openid email roles", claims=requested, nonce="n")
    refreshed = await signed_in.refresh(tokens)
    for each in (tokens, refreshed):
        id_claims = await signed_in.id_claims(each)
        assert not {"email", "email_verified", "roles"} & id_claims.keys()
        assert id_claims["name"] == "Ada Lovelace", "the request names it"
        assert (await signed_in.userinfo(each))["email"] == EMAIL


async def test_a_refresh_gives_an_id_token_of_the_same_sign_in_without_nonce(
    signed_in: OpenIdClient, user: Account, pool: Pool, clock: FakeClock
) -> None:
    first = await signed_in.tokens(scope="openid email", nonce="n-0S6_WzA2Mj")
    before = await signed_in.id_claims(first)
    clock.advance(timedelta(hours=2))
    await run_sql(pool, "update users set email_verified_at = null where id = %s", user.id)
    second = await signed_in.refresh(first)
    after = await signed_in.id_claims(second)
    now = int(clock.now().timestamp())
    changes = {"iat": now, "exp": now + 900, "at_hash": after["at_hash"], "email_verified": False}
    assert after == {name: value for name, value in before.items() if name != "nonce"} | changes
    assert after["at_hash"] != before["at_hash"]
    assert (second["scope"], claims(second)["scope"]) == (first["scope"], first["scope"])
    third = await signed_in.refresh(second)
    assert (await signed_in.id_claims(third))["auth_time"] == before["auth_time"]


@pytest.mark.parametrize(
    ("scope", "granted"),
    [
        ("openid", "openid"),
        ("email openid", "openid email"),
        ("openid read:everything email  email", "openid email"),
        ("openid EMAIL", "openid"),
        ("openid offline_access", "openid"),  # no page asked the user (`test_consents`)
    ],
)
async def test_the_granted_scope_is_returned_without_unknown_ones(signed_in: OpenIdClient, scope: str, granted: str) -> None:
    await signed_in.tokens(scope="openid email")  # the user agrees
    tokens = await signed_in.tokens(scope=scope)
    assert (tokens["scope"], claims(tokens)["scope"]) == (granted, granted)


async def test_the_authentication_is_that_of_the_browsers_session(shop: OpenIdClient, user: Account) -> None:
    for provider, second_factor, acr, amr in (
        ("password", False, "pwd", ["pwd"]),
        ("password", True, "mfa", ["pwd", "otp", "mfa"]),
        ("email", False, "pwd", ["otp"]),
        ("email", True, "mfa", ["otp", "mfa"]),
        ("codehost", False, "pwd", None),
        ("codehost", True, "mfa", ["otp", "mfa"]),
    ):
        await sign_in_browser(shop.party, user, provider=provider, second_factor=second_factor)
        tokens = await shop.tokens()
        for each in (await shop.id_claims(tokens), claims(tokens), await shop.id_claims(await shop.refresh(tokens))):
            assert (each["acr"], each.get("amr")) == (acr, amr), (provider, second_factor)


async def test_a_public_client_gets_an_id_token_with_pkce(mobile_app: RelyingParty, user: Account) -> None:
    client = OpenIdClient(mobile_app)
    await sign_in_browser(mobile_app, user)
    claims_of_id = await client.id_claims(await client.tokens(nonce="n"))
    assert claims_of_id["nonce"] == "n"


async def test_an_application_learns_when_its_session_must_end_if_it_asks_or_is_an_enterprise_one(signed_in: OpenIdClient) -> None:
    pool, service = signed_in.party.tenant.pool, signed_in.party.service
    assert "session_expiry" not in await signed_in.id_claims(await signed_in.tokens())
    by_claim = await signed_in.tokens(claims='{"id_token":{"session_expiry":null}}')
    await run_sql(pool, "update services set enterprise = true where id = %s", service)
    code = (await signed_in.authorize(**PKCE))["code"]
    of_enterprise = (await signed_in.party.exchange(code, code_verifier=VERIFIER)).json
    for tokens in (by_claim, await signed_in.refresh(by_claim), of_enterprise):
        claims = await signed_in.id_claims(tokens)
        [(ends_at,)] = await run_sql(pool, "select ends_at from sessions where id = %s", UUID(claims["sid"]))
        assert claims["session_expiry"] == int(ends_at.timestamp())
