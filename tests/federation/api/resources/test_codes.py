"""Codes and tokens for an organization's API resource (RFC 8707 sections 2.1 and 2.2, decision 301)."""

from typing import Any

import pytest

from core.accounts.model.accounts import Account
from core.programs.model.api_resources import NoAccessToResource
from tests.federation.api.relying import add_relying_party, claims
from tests.federation.api.resources.orders import ORDERS, READ, WRITE, OrdersClient, error, seen
from tests.support.builders import BASE_URL, EMAIL, add_member, run_sql
from tests.support.services import add_api_resource
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin, add_group


async def test_a_request_without_openid_gives_a_token_for_the_api(orders: OrdersClient, user: Account) -> None:
    tokens = await orders.tokens(scope=f"{WRITE} {READ}")
    assert tokens.keys() == {"access_token", "token_type", "expires_in", "refresh_token", "scope"}, "no ID token"
    assert seen(tokens) == (ORDERS, f"{READ} {WRITE}", f"{READ} {WRITE}", 600)
    token = claims(tokens)
    assert (token["sub"], token["client_id"], token["iss"]) == (str(user.id), str(orders.party.client_id), BASE_URL)
    assert tokens["expires_in"] == 600
    assert seen(await orders.refreshed(tokens)) == seen(tokens)


async def test_a_request_with_openid_gives_an_id_token_too(orders: OrdersClient, user: Account) -> None:
    """The access token has only the API's scopes, and opens nothing else."""
    tokens = await orders.tokens(scope=f"openid email {READ}", nonce="n")
    assert seen(tokens) == (ORDERS, READ, f"openid email {READ}", 600)
    assert claims({"access_token": tokens["id_token"]}).items() >= {"sub": str(user.id), "email": EMAIL, "nonce": "n"}.items()
    for path in ("/auth/userinfo", "/api/user"):
        answer = await orders.party.api.get(path, token=tokens["access_token"])
        assert answer.status == 401, path
    refreshed = await orders.refreshed(tokens)
    assert seen(refreshed) == seen(tokens)
    assert claims({"access_token": refreshed["id_token"]})["email"] == EMAIL


@pytest.mark.parametrize(
    ("scope", "granted"),
    [
        (None, None),
        (f"{READ} unknown offline_access email", READ),
        (f"openid {READ}", f"openid {READ}"),
        ("openid unknown", "openid"),
    ],
)
async def test_scopes_are_judged_within_the_resource(orders: OrdersClient, scope: str | None, granted: str | None) -> None:
    tokens = await orders.tokens(scope=scope)
    assert tokens.get("scope") == granted
    assert claims(tokens).get("scope") == (READ if READ in (granted or "") else None)
    assert (await orders.party.api.get("/api/user", token=tokens["access_token"])).status == 401


async def test_a_request_for_unknown_scopes_only_is_refused(orders: OrdersClient) -> None:
    """`email` and `offline_access` mean nothing without `openid`."""
    for scope in ("unknown", "email", "offline_access", "Orders:read"):
        assert error(await orders.open(scope=scope)) == "invalid_scope", scope


@pytest.mark.parametrize(
    "spelling", ["https://api.example.com", "HTTPS://API.Example.com/", "https://api.example.com:443", "https://api.example.com:443/"]
)
async def test_spellings_of_the_identifier_are_equal_and_the_audience_is_the_registered_one(orders: OrdersClient, spelling: str) -> None:
    tokens = await orders.tokens(resource=spelling)
    assert claims(tokens)["aud"] == ORDERS
    code = await orders.code(resource=spelling)
    assert claims((await orders.party.exchange(code, resource=spelling)).json)["aud"] == ORDERS
    assert claims(await orders.refreshed(tokens, resource=spelling))["aud"] == ORDERS


async def test_the_lifetime_is_that_of_the_resource_and_at_most_that_of_the_application(orders: OrdersClient) -> None:
    await orders.change("update api_resources set token_seconds = 3600 where id = %s")
    tokens = await orders.tokens(scope=f"openid {READ}")
    assert tokens["expires_in"] == 3600, "longer than the tokens of the platform"
    id_token = claims({"access_token": tokens["id_token"]})
    assert id_token["exp"] - id_token["iat"] == 900
    await orders.change("update api_resources set token_seconds = 60 where id = %s")
    assert (await orders.refreshed(tokens))["expires_in"] == 60
    await run_sql(orders.party.tenant.pool, "update services set access_token_seconds = 120")
    await orders.change("update api_resources set token_seconds = 600 where id = %s")
    assert (await orders.tokens())["expires_in"] == 120


async def test_a_token_request_names_the_granted_resource_or_none(orders: OrdersClient, acme: Tenant) -> None:
    await add_api_resource(acme.pool, acme.org, "https://api.example.com/v2", services=(orders.party.service,))
    others = ["https://api.example.com/v2", f"{BASE_URL}/api", f"{BASE_URL}/auth/userinfo", "https://api.example.com/x", "x", "a b"]
    for scope in (READ, f"openid {READ}"):
        code = await orders.code(scope=scope)
        for other in others:
            assert error(await orders.party.exchange(code, resource=other)) == "invalid_target", other
        tokens = (await orders.party.exchange(code, resource=ORDERS)).json
        for other in others:
            assert error(await orders.refresh(tokens, resource=other)) == "invalid_target", other
        assert claims(await orders.refreshed(tokens, resource=ORDERS))["aud"] == ORDERS


async def test_a_grant_without_the_resource_never_becomes_one_with_it(orders: OrdersClient) -> None:
    for scope, resource in ((None, None), ("openid", None), ("openid", f"{BASE_URL}/api")):
        code = await orders.code(scope=scope, resource=resource)
        assert error(await orders.party.exchange(code, resource=ORDERS)) == "invalid_target"
        tokens = (await orders.party.exchange(code)).json
        assert error(await orders.refresh(tokens, resource=ORDERS)) == "invalid_target"
        assert claims(await orders.refreshed(tokens))["aud"] != ORDERS


async def test_a_refresh_can_narrow_the_scopes(orders: OrdersClient) -> None:
    tokens = await orders.tokens(scope=f"openid {READ} {WRITE} unknown")
    narrowed = await orders.refreshed(tokens, scope=f"{READ} unknown")
    assert (seen(narrowed)[:3], "id_token" in narrowed) == ((ORDERS, READ, READ), False)
    only_openid = await orders.refreshed(narrowed, scope="openid")
    assert (seen(only_openid)[:3], "id_token" in only_openid) == ((ORDERS, None, "openid"), True)
    assert error(await orders.refresh(only_openid, scope="unknown email")) == "invalid_scope"
    assert seen(await orders.refreshed(only_openid))[:3] == (ORDERS, f"{READ} {WRITE}", f"openid {READ} {WRITE}"), "the grant itself stays"


async def test_a_token_request_can_narrow_the_scopes(orders: OrdersClient) -> None:
    code = await orders.code(scope=f"openid {READ} {WRITE}")
    assert error(await orders.party.exchange(code, scope="unknown email")) == "invalid_scope"
    tokens = (await orders.party.exchange(code, scope=READ)).json
    assert (seen(tokens)[:3], "id_token" in tokens) == ((ORDERS, READ, READ), False)
    assert seen(await orders.refreshed(tokens))[:3] == (ORDERS, f"{READ} {WRITE}", f"openid {READ} {WRITE}"), "the grant itself stays"


async def test_a_removed_scope_leaves_codes_and_refreshed_tokens(orders: OrdersClient) -> None:
    code = await orders.code(scope=f"{READ} {WRITE}")
    tokens = await orders.tokens(scope=f"{READ} {WRITE}")
    await orders.change("update api_resources set scope_names = '{orders:write}', scope_descriptions = '{x}' where id = %s")
    assert seen((await orders.party.exchange(code)).json)[1:3] == (WRITE, WRITE)
    assert seen(await orders.refreshed(tokens))[1:3] == (WRITE, WRITE)


ENDS: dict[str, Any] = {
    "the resource is deleted": "delete from api_resources where id = %s",
    "the application may no longer ask": "delete from api_resource_clients where resource_id = %s",
    "the resource admits members only": "update api_resources set access_policy = 'members' where id = %s",
    "the resource admits assigned users only": "update api_resources set access_policy = 'assigned' where id = %s",
    "the directory blocks the user": "insert into directory_blocks (org_id, user_id, since) "
    "select r.org_id, s.user_id, now() from api_resources r, sessions s where r.id = %s and s.service_id is not null limit 1",
    "the domain is lost": "update domains set verified_at = null where org_id = (select org_id from api_resources where id = %s)",
    "another organization has verified the host": "with x as (insert into organizations "
    "(id, slug, name, status, device_trust_days, created_at, updated_at) select gen_random_uuid(), 'else', 'Else', status, "
    "device_trust_days, created_at, updated_at from organizations limit 1 returning id) "
    "insert into domains (org_id, domain, challenge, verified_at, created_at) "
    "select x.id, 'api.example.com', 'c', now(), now() from x where %s is not null",
}


@pytest.mark.parametrize("end", ENDS)
async def test_the_end_of_the_access_acts_at_each_step(orders: OrdersClient, end: str) -> None:
    code, tokens = await orders.code(), await orders.tokens()
    await orders.change(ENDS[end])
    assert error(await orders.open()) in ("invalid_target", "access_denied")
    refused = await orders.party.exchange(code)
    assert (refused.status, refused.json["error"]) == (403, "access_denied")
    assert error(await orders.refresh(tokens)) == "invalid_grant"


async def test_the_application_introspects_and_revokes_its_tokens(orders: OrdersClient) -> None:
    tokens = await orders.tokens(scope=READ)
    credentials = {"client_id": str(orders.party.client_id), "client_secret": orders.party.secret}

    async def introspect(token: str) -> dict[str, Any]:
        body: dict[str, Any] = (await orders.party.post("/auth/introspect", **credentials, token=token)).json
        return body

    of_access, of_refresh = [await introspect(tokens[name]) for name in ("access_token", "refresh_token")]
    assert (of_access["active"], of_access["aud"], of_access["scope"]) == (True, ORDERS, READ)
    assert (of_refresh["active"], of_refresh["scope"], "aud" in of_refresh) == (True, READ, False)
    await orders.change("update api_resources set access_policy = 'members' where id = %s")
    assert [await introspect(token) for token in (tokens["access_token"], tokens["refresh_token"])] == [{"active": False}] * 2
    await orders.change("update api_resources set access_policy = 'anyone' where id = %s")
    await orders.party.post("/auth/revoke", **credentials, token=tokens["access_token"])
    assert await introspect(tokens["access_token"]) == {"active": False}
    assert error(await orders.refresh(tokens)) == "invalid_grant"


async def test_a_refused_refresh_uses_nothing_up(orders: OrdersClient) -> None:
    tokens = await orders.tokens()
    await orders.change("update api_resources set access_policy = 'members' where id = %s")
    assert error(await orders.refresh(tokens)) == "invalid_grant"
    await orders.change("update api_resources set access_policy = 'anyone' where id = %s")
    assert (await orders.refresh(tokens)).status == 200


async def test_the_policy_decides_at_the_sign_in(orders: OrdersClient, acme: Tenant, user: Account) -> None:
    await orders.change("update api_resources set access_policy = 'members' where id = %s")
    assert error(await orders.open()) == "access_denied"
    assert "code" in await orders.authorize(resource=None, scope=None), "the application itself admits the user"
    await add_member(acme.pool, acme.org, user.id, confirmed=True)
    assert claims(await orders.tokens())["aud"] == ORDERS
    await orders.change("update api_resources set access_policy = 'assigned' where id = %s")
    assert error(await orders.open()) == "access_denied"
    await run_sql(acme.pool, "insert into api_resource_assignments values (%s, %s, %s, now())", acme.org, orders.resource, user.id)
    assert claims(await orders.tokens())["aud"] == ORDERS


async def test_a_group_gives_access_until_the_user_leaves_it(orders: OrdersClient, acme: Tenant, user: Account) -> None:
    await add_member(acme.pool, acme.org, user.id, confirmed=True)
    await orders.change("update api_resources set access_policy = 'assigned' where id = %s")
    group = await add_group(acme.pool, acme.org, user.id)
    assert error(await orders.open()) == "access_denied"
    await run_sql(acme.pool, "insert into api_resource_groups_assigned values (%s, %s, %s, now())", acme.org, orders.resource, group)
    tokens = await orders.tokens()
    assert claims(tokens)["aud"] == ORDERS
    assert (await orders.refresh(tokens)).status == 200
    tokens = await orders.tokens()
    assert (await GroupAdmin(acme).remove(str(group), user.id)).status == 204
    assert (await orders.refresh(tokens)).status == 400
    assert error(await orders.open()) == "access_denied"


async def test_an_application_that_may_not_ask_is_refused(orders: OrdersClient, acme: Tenant) -> None:
    other = OrdersClient(await add_relying_party(acme, orders.party.browser, "blog"), orders.resource)
    assert error(await other.open()) == "invalid_target"


async def test_a_refusal_at_the_token_endpoint_says_what_to_do(orders: OrdersClient) -> None:
    code = await orders.code()
    await orders.change("update api_resources set access_policy = 'members' where id = %s")
    assert (await orders.party.exchange(code)).json["error_description"] == NoAccessToResource.__doc__
