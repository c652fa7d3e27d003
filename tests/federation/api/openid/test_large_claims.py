"""Claims that are too large for an ID token, read from their source (OpenID Connect Core section 5.6.2)."""

from typing import Any, Final

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from core.accounts.model.accounts import Account
from core.authentication.model.claim_rules import MAX_GROUPS
from core.authentication.model.openid import Scope
from tests.federation.api.openid.client import USERINFO, OpenIdClient
from tests.federation.api.relying import SECRET
from tests.support.builders import BASE_URL, Answer, add_member, run_sql
from tests.support.tenants import Tenant

GROUPS: Final = [f"g{number:03}" for number in range(MAX_GROUPS + 1)]


@pytest.fixture
async def application(signed_in: OpenIdClient, user: Account, acme: Tenant) -> OpenIdClient:
    """An application with a user who is in too many groups."""
    await signed_in.agree_before(user, *Scope)
    await add_member(acme.pool, acme.org, user.id, "member", confirmed=True)
    sql = """
        with added as (
            insert into groups (id, org_id, name, name_key, member_count, created_at, updated_at, members_changed_at)
            select gen_random_uuid(), %s, name, name, 1, now(), now(), now() from unnest(%s::text[]) name returning id, org_id)
        insert into group_members (org_id, group_id, user_id, added_at) select org_id, id, %s, now() from added"""
    await run_sql(acme.pool, sql, acme.org, GROUPS, user.id)
    return signed_in


async def source_of(application: OpenIdClient) -> dict[str, str]:
    claims = await application.id_claims(await application.tokens(scope="openid email groups"))
    assert "groups" not in claims
    source: dict[str, str] = claims["_claim_sources"][claims["_claim_names"]["groups"]]
    return source


async def resolve(application: OpenIdClient, source: dict[str, str]) -> dict[str, Any]:
    """Return the claims from the source, as the Kubernetes API server does: a JWT by the issuer for the same client."""
    assert source["endpoint"] == BASE_URL + USERINFO
    answer = await application.party.api.get(USERINFO, token=source["access_token"])
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/jwt"), answer.text
    keys = KeySet.import_key_set((await application.party.api.get("/.well-known/jwks.json")).json)
    token = jwt.decode(answer.text, keys, algorithms=["RS256"])
    now = int(application.party.tenant.ports.clock.now().timestamp())
    client_id = {"essential": True, "value": str(application.party.client_id)}
    issuer = {"essential": True, "value": BASE_URL}
    jwt.JWTClaimsRegistry(now, iss=issuer, aud=client_id, exp={"essential": True}).validate(token.claims)  # type: ignore[arg-type]
    return dict(token.claims)


async def test_the_source_of_an_id_token_has_the_groups(application: OpenIdClient, user: Account) -> None:
    claims = await resolve(application, await source_of(application))
    assert (claims["groups"], claims["sub"]) == (GROUPS, str(user.id))
    assert "email" not in claims, "it fits into the ID token"


async def test_the_token_of_a_source_opens_nothing_else(application: OpenIdClient, acme: Tenant, user: Account) -> None:
    source, api = await source_of(application), application.party.api

    async def ask(path: str) -> Answer:
        return await api.get(path, token=source["access_token"])

    for path in ("/api/user", f"{acme.path}/members", "/api/user/devices", "/scim/v2/Users"):
        assert (await ask(path)).status == 401, path
    sent = {"client_id": str(application.party.client_id), "client_secret": SECRET, "token": source["access_token"]}
    assert (await application.party.post("/auth/introspect", **sent)).json == {"active": False}, "it is in an ID token, which many see"
    assert (await application.party.post("/auth/revoke", **sent)).status == 200
    assert (await application.post_userinfo(access_token=source["access_token"])).headers["Content-Type"] == "application/jwt"
    await run_sql(acme.pool, "update sessions set ended_at = now() where user_id = %s and service_id is not null", user.id)
    assert (await ask(USERINFO)).status == 401
