"""Introspection by an API (RFC 7662, decision 302): only user tokens for this API."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from core.accounts.model.accounts import Account
from tests.fakes.outside import FakeClock
from tests.federation.api.client_authentication.keys import proof
from tests.federation.api.relying import claims, openid_tokens
from tests.federation.api.resources.orders import ORDERS, READ, WRITE, OrdersClient
from tests.support.builders import BASE_URL, EMAIL, run_sql, sign_in
from tests.support.programs import Program, add_credential
from tests.support.services import add_api_resource, verify_domain
from tests.support.tenants import Tenant

INACTIVE = {"active": False}


@pytest.fixture
async def orders_api(orders: OrdersClient) -> Program:
    """The API with its secret."""
    return await program(orders.party.tenant, orders.resource)


async def program(tenant: Tenant, resource: UUID) -> Program:
    return await add_credential(tenant.pool, tenant.api, resource, tenant.org)


async def introspect(program: Program, token: str) -> dict[str, Any]:
    answer = await program.api.post(
        "/auth/introspect", {"client_id": str(program.client_id), "client_secret": program.secret, "token": token}
    )
    assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store"), answer.text
    state: dict[str, Any] = answer.json
    return state


async def test_an_api_sees_the_state_of_access_tokens_for_it(orders: OrdersClient, orders_api: Program, user: Account) -> None:
    for scope in (READ, f"openid {READ}"):
        token = (await orders.tokens(scope=scope))["access_token"]
        signed = claims({"access_token": token})
        assert await introspect(orders_api, token) == {
            "active": True,
            "token_type": "Bearer",
            **({} if "openid" in scope else {"username": EMAIL}),
            "sub": str(user.id),
            "aud": ORDERS,
            "scope": READ,
            "iss": BASE_URL,
            **{name: signed[name] for name in ("client_id", "sid", "jti", "iat", "exp")},
        }
    without = (await orders.tokens(scope=None))["access_token"]
    assert "scope" not in await introspect(orders_api, without)


async def test_an_api_sees_no_other_tokens(
    orders: OrdersClient, orders_api: Program, acme: Tenant, other_tenant: Tenant, user: Account
) -> None:
    """An API sees no tokens for an API with the same identifier elsewhere, no refresh tokens, and no platform tokens."""
    tokens = await orders.tokens(scope=f"openid {READ}")
    other = await program(acme, await add_api_resource(acme.pool, acme.org, f"{ORDERS}v2", services=(orders.party.service,)))
    await verify_domain(acme.pool, other_tenant.org, "other.example")
    twin = await program(other_tenant, await add_api_resource(acme.pool, other_tenant.org, ORDERS))
    for stranger in (other, twin):
        assert await introspect(stranger, tokens["access_token"]) == INACTIVE
    of_other = (await orders.tokens(resource=f"{ORDERS}v2"))["access_token"]
    assert (await introspect(other, of_other))["active"]
    unseen = [
        of_other,
        tokens["refresh_token"],
        tokens["id_token"],
        (await openid_tokens(orders.party))["access_token"],
        (await openid_tokens(orders.party, resource=f"{BASE_URL}/api"))["access_token"],
        (await sign_in(acme.ports, user)).access_token,
        orders_api.secret,
        "unknown",
    ]
    assert [await introspect(orders_api, token) for token in unseen] == [INACTIVE] * len(unseen)


CHANGES = {
    "the resource was deleted and created again": "update sessions set api_resource_id = gen_random_uuid() where %s is not null",
    "the application may no longer ask": "delete from api_resource_clients where resource_id = %s",
    "the user lost access": "update api_resources set access_policy = 'assigned' where id = %s",
    "the domain is lost": "update domains set verified_at = null where %s is not null",
    "the session ended": "update sessions set ended_at = now() where api_resource_id = %s",
    "the account is deactivated": "update users set deactivated_at = now() where %s is not null",
    "the organization is suspended": "update organizations set status = 'suspended' where %s is not null",
    "the user left the application": "delete from service_users where %s is not null",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_changes_act_at_once(orders: OrdersClient, orders_api: Program, change: str) -> None:
    token = (await orders.tokens())["access_token"]
    assert (await introspect(orders_api, token))["active"]
    await orders.change(CHANGES[change])
    assert await introspect(orders_api, token) == INACTIVE


async def test_a_withdrawn_consent_acts_at_once(orders: OrdersClient, orders_api: Program, user: Account, acme: Tenant) -> None:
    token = (await orders.tokens())["access_token"]
    session = (await sign_in(acme.ports, user)).access_token
    assert (await acme.api.delete(f"/api/user/consents/{orders.party.service}", token=session)).status == 204
    assert await introspect(orders_api, token) == INACTIVE


async def test_a_removed_scope_is_missing_at_once(orders: OrdersClient, orders_api: Program) -> None:
    token = (await orders.tokens(scope=f"{READ} {WRITE}"))["access_token"]
    await orders.change("update api_resources set scope_names = '{orders:write}', scope_descriptions = '{x}' where id = %s")
    assert (await introspect(orders_api, token))["scope"] == WRITE
    await orders.change("update api_resources set scope_names = '{}', scope_descriptions = '{}' where id = %s")
    state = await introspect(orders_api, token)
    assert (state["active"], "scope" in state) == (True, False)


async def test_an_expired_token_is_inactive(orders: OrdersClient, orders_api: Program, clock: FakeClock) -> None:
    token = (await orders.tokens())["access_token"]
    clock.advance(timedelta(seconds=599))
    assert (await introspect(orders_api, token))["active"]
    clock.advance(timedelta(seconds=1))
    assert await introspect(orders_api, token) == INACTIVE


async def test_an_api_authenticates_as_a_client_does(orders: OrdersClient, orders_api: Program) -> None:
    tokens = await orders.tokens()
    for fields in (
        {},
        {"client_id": str(orders_api.client_id)},
        {"client_id": str(orders_api.client_id), "client_secret": "wrong"},
        proof("x"),
    ):
        answer = await orders.party.post("/auth/introspect", **fields, token=tokens["access_token"])
        assert (answer.status, answer.json["error"]) == (401, "invalid_client"), fields
    own = {"client_id": str(orders_api.client_id), "client_secret": orders_api.secret}
    assert (await orders.party.post("/auth/token", **own, grant_type="client_credentials")).json["error"] == "unauthorized_client"
    assert (await orders.party.refresh(tokens["refresh_token"], **own)).status == 401
    assert (await orders.party.post("/auth/revoke", **own, token=tokens["access_token"])).json["error"] == "invalid_client"
    assert (await introspect(orders_api, tokens["access_token"]))["active"], "an API revokes nothing"
    await run_sql(orders.party.tenant.pool, "update credentials set expires_at = now() - interval '1 year'")
    answer = await orders.party.post("/auth/introspect", **own, token=tokens["access_token"])
    assert answer.status == 401
