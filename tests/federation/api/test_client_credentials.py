"""Tokens that programs get for themselves, and the requests that service accounts make with them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID, uuid4

import jwt
import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.oauth.model.clients import ASSERTION_TYPE
from core.kernel.access import allowed_scopes
from core.kernel.api_scopes import ApiScope
from core.kernel.roles import ADMIN, MEMBER, rights_of
from entrypoints.http.edge.access.declaration import access_of
from tests.fakes.outside import FakeClock
from tests.federation.api.client_authentication.keys import client_key
from tests.support.builders import BASE_URL, Answer, Api, run_concurrently, run_sql
from tests.support.dpop import proof_key
from tests.support.platform import Platform
from tests.support.programs import TOKEN, Program, add_credential, add_service_account
from tests.support.refusals import FORBIDDEN, NOT_ACTIVE, UNAUTHORIZED, refused
from tests.support.services import add_api_resource, add_service
from tests.support.tenants import Tenant

API: Final = f"{BASE_URL}/api"


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


def claims(token: str) -> Mapping[str, Any]:
    payload: Mapping[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return payload


async def add_robot(tenant: Tenant, role: str = "admin", owner: str = "owner", **settings: Any) -> Program:
    account = await add_service_account(tenant.pool, tenant.org, UUID(tenant.id(owner)), role, **settings)
    return await add_credential(tenant.pool, tenant.api, account, tenant.org)


@pytest.fixture
async def robot(acme: Tenant) -> Program:
    """A service account with the role admin."""
    return await add_robot(acme)


async def test_a_service_account_gets_a_token_for_the_api(acme: Tenant, robot: Program, clock: FakeClock) -> None:
    answer = await robot.ask()
    assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")
    scopes, token = " ".join(allowed_scopes(rights_of(ADMIN), None)), answer.json["access_token"]
    assert answer.json == {"access_token": token, "token_type": "Bearer", "expires_in": 900, "scope": scopes}
    assert jwt.get_unverified_header(token)["typ"] == "at+jwt"
    now = int(clock.now().timestamp())
    signed = claims(token)
    assert signed == {
        "iss": BASE_URL,
        "aud": API,
        "sub": str(robot.client_id),
        "client_id": str(robot.client_id),
        "credential_id": str(robot.credential_id),
        "jti": signed["jti"],
        "iat": now,
        "exp": now + 900,
        "scope": scopes,
        "token_use": "program",
        "org": "acme",
        "org_id": str(acme.org),
    }
    assert (await acme.api.get(f"{acme.path}/members", token=token)).json["members"]


async def test_the_token_has_only_the_requested_scopes(acme: Tenant, robot: Program) -> None:
    answer = await robot.ask(scope="members:read  audit:read")
    assert answer.json["scope"] == "members:read audit:read"
    token = answer.json["access_token"]
    assert (await acme.api.get(f"{acme.path}/audit-log", token=token)).status == 200
    other = await acme.api.get(f"{acme.path}/services", token=token)
    assert refused(other) == FORBIDDEN
    expected = (
        f'Bearer error="insufficient_scope", scope="services:read", resource_metadata="{BASE_URL}/.well-known/oauth-protected-resource/api"'
    )
    assert other.headers["WWW-Authenticate"] == expected


@pytest.mark.parametrize("scope", ["members:read made-up", "openid", "platform_users:read", "account:read", " "])
async def test_a_scope_that_the_account_cannot_have_is_refused(robot: Program, scope: str) -> None:
    assert error(await robot.ask(scope=scope)) == (400, "invalid_scope")


async def test_the_settings_narrow_the_scopes_also_of_tokens_from_before(acme: Tenant, pool: Pool) -> None:
    robot = await add_robot(acme, scopes=["members:read", "services:read"])
    token = await robot.token()
    assert claims(token)["scope"] == "members:read services:read"
    await run_sql(pool, "update service_accounts set scopes = '{services:read}'")
    assert refused(await acme.api.get(f"{acme.path}/members", token=token)) == FORBIDDEN
    assert (await acme.api.get(f"{acme.path}/services", token=token)).status == 200
    await run_sql(pool, "update service_accounts set scopes = '{platform_users:read}'")
    assert error(await robot.ask()) == (400, "invalid_scope"), "no scope is left"


@pytest.mark.parametrize(
    "change",
    [
        "update credentials set secret_hash = 'x'",
        "update credentials set expires_at = '2000-01-01'",
        "delete from credentials",
        "delete from service_accounts",
        "update memberships set role = 'admin' where role = 'owner'; update service_accounts set role = 'owner'",
        "update memberships set role = 'member' where role = 'owner'",
        "update users set deactivated_at = now()",
        "update users set anonymized_at = now()",
    ],
)
async def test_a_service_account_that_is_not_live_gets_no_token_and_is_refused(
    acme: Tenant, robot: Program, pool: Pool, change: str
) -> None:
    token = await robot.token()
    for statement in change.split("; "):
        await run_sql(pool, statement)
    assert error(await robot.ask()) == (401, "invalid_client")
    if "secret_hash" not in change:
        assert refused(await acme.api.get(f"{acme.path}/members", token=token)) == UNAUTHORIZED


async def test_a_suspended_organization_gets_no_token(acme: Tenant, robot: Program) -> None:
    token = await robot.token()
    await acme.set_status("suspended")
    answer = await robot.ask()
    assert (answer.status, answer.json["error_code"]) == NOT_ACTIVE
    assert refused(await acme.api.get(f"{acme.path}/members", token=token)) == NOT_ACTIVE


async def test_a_service_account_acts_in_its_own_organization_only(acme: Tenant, other_tenant: Tenant, robot: Program) -> None:
    token = await robot.token()
    assert refused(await acme.api.get(f"{other_tenant.path}/members", token=token)) == FORBIDDEN
    assert (await acme.api.get("/api/organizations/nowhere/members", token=token)).status == 404
    assert refused(await acme.api.get("/api/platform/organizations", token=token)) == FORBIDDEN
    assert refused(await acme.api.get("/api/user", token=token)) == FORBIDDEN


async def test_a_grant_by_name_opens_routes_with_an_effect_that_outlives_the_account(acme: Tenant) -> None:
    body = {"slug": "shop", "name": "Shop", "service_type": "web"}
    plain, granted = await add_robot(acme), await add_robot(acme, granted=["services.create", "organization.own"])
    refusal = await acme.api.post(f"{acme.path}/services", body, token=await plain.token())
    assert refused(refusal) == FORBIDDEN
    assert "services.create" in refusal.json["error"]
    token = await granted.token()
    assert (await acme.api.post(f"{acme.path}/services", body, token=token)).status == 200
    entries = (await acme.api.get(f"{acme.path}/audit-log?action=service.created", token=acme.token("owner"))).json["logs"]
    assert entries[0]["actor"] == {
        "id": str(granted.client_id),
        "email": "service-account@internal",
        "is_platform_owner": False,
        "kind": "service_account",
        "name": "Robot",
    }
    assert refused(await acme.api.delete(acme.path, token=token)) == FORBIDDEN, "the deletion cannot be granted"
    for path in ("select", "leave"):
        assert refused(await acme.api.post(f"{acme.path}/{path}", token=token)) == FORBIDDEN


async def test_an_account_cannot_do_more_than_its_role(acme: Tenant) -> None:
    member = await add_robot(acme, "member")
    token = await member.token()
    assert claims(token)["scope"] == " ".join(allowed_scopes(rights_of(MEMBER), None))
    assert refused(await acme.api.get(f"{acme.path}/audit-log", token=token)) == FORBIDDEN
    admin = await (await add_robot(acme, "admin")).token()
    invitation = {"email": "a@example.com", "role": "member"}
    assert refused(await acme.api.post(f"{acme.path}/invitations", invitation, token=admin)) == FORBIDDEN
    await run_sql(acme.pool, "update service_accounts set granted = '{members.manage}' where role = 'admin'")
    assert (await acme.api.post(f"{acme.path}/invitations", invitation, token=admin)).status == 200
    assert (await acme.list_invitations()).json[0]["inviter"]["email"] == "service-account@internal"


async def test_a_service_account_of_the_platform_calls_platform_routes(platform: Platform, acme: Tenant, pool: Pool, api: Api) -> None:
    account = await add_service_account(pool, None, platform.account.id, scopes=["platform_users:read", "platform_organizations:write"])
    robot = await add_credential(pool, api, account, None)
    token = await robot.token()
    assert "org" not in claims(token)
    assert (await api.get("/api/platform/users/search?email=a", token=token)).status == 200
    assert refused(await api.get("/api/platform/audit-log", token=token)) == FORBIDDEN, "it has no such scope"
    suspend = f"/api/platform/organizations/{acme.org}/suspend"
    assert refused(await api.post(suspend, {"reason": "x"}, token=token)) == FORBIDDEN, "it needs a grant"
    await run_sql(pool, "update service_accounts set granted = '{platform_organizations.manage}'")
    assert (await api.post(suspend, {"reason": "x"}, token=token)).status == 200
    assert refused(await api.get(f"{acme.path}/members", token=token)) == FORBIDDEN
    await run_sql(pool, "update service_accounts set granted = '{platform_users.manage}', scopes = null")
    manager = await robot.token()
    for method, path in (("DELETE", "mfa"), ("POST", "end-sessions"), ("POST", "password-reset"), ("POST", "deactivate")):
        answer = await api.call(method, f"/api/platform/users/{platform.account.id}/{path}", {"reason": "x"}, token=manager)
        assert refused(answer) == FORBIDDEN, f"{path}: it manages no platform owners"
    await run_sql(pool, "update users set is_platform_owner = false")
    assert refused(await api.get("/api/platform/users/search?email=a", token=token)) == UNAUTHORIZED


async def test_a_key_authenticates_once_per_assertion(acme: Tenant, pool: Pool, clock: FakeClock) -> None:
    account = await add_service_account(pool, acme.org, UUID(acme.id("owner")))
    program = await add_credential(pool, acme.api, account, acme.org, public_key=client_key(kid="one").jwk)

    def sign(kid: str = "one", **changes: Any) -> str:
        now = int(clock.now().timestamp())
        payload = {"iss": str(account), "sub": str(account), "aud": BASE_URL, "jti": str(uuid4()), "iat": now, "exp": now + 60, **changes}
        return jwt.encode(payload, client_key(kid=kid).private, "ES256", {"kid": kid})

    async def ask(text: str, **fields: str | None) -> Answer:
        return await program.ask(client_secret=None, client_assertion=text, client_assertion_type=ASSERTION_TYPE, **fields)

    good = sign()
    answer = await ask(good)
    assert answer.status == 200, answer.text
    for text in (good, sign("two"), sign(aud="https://other.example"), sign(sub=str(uuid4())), sign(exp=1)):
        assert error(await ask(text)) == (401, "invalid_client")
    assert (await ask(sign(), client_id=None)).status == 200
    raced = sign()
    assert sorted([answer.status for answer in await run_concurrently(8, lambda _: ask(raced))]) == [200] + [401] * 7


async def test_a_token_ends_with_its_credential(robot: Program, pool: Pool, clock: FakeClock) -> None:
    await run_sql(pool, "update credentials set expires_at = %s", clock.now() + timedelta(seconds=60))
    answer = (await robot.ask()).json
    assert (answer["expires_in"], claims(answer["access_token"])["exp"]) == (60, int(clock.now().timestamp()) + 60)


async def test_the_use_of_a_secret_is_recorded_at_most_once_a_minute(robot: Program, pool: Pool, clock: FakeClock) -> None:
    uses = "select last_used_at from credentials"
    assert await run_sql(pool, uses) == [(None,)]
    first = clock.now()
    await robot.token()
    clock.advance(timedelta(seconds=59))
    await robot.token()
    assert await run_sql(pool, uses) == [(first,)]
    clock.advance(timedelta(seconds=1))
    await robot.token()
    assert await run_sql(pool, uses) == [(clock.now(),)]


async def test_programs_get_tokens_for_an_api_resource(acme: Tenant, robot: Program, pool: Pool) -> None:
    service = await add_service(pool, acme.org)
    [(client_id,)] = await run_sql(pool, "select client_id from services")
    shop = Program(acme.api, client_id, "a client secret", client_id)
    resource = await add_api_resource(pool, acme.org, f"urn:gatehouse:{acme.org}:orders", scopes={"read": "Read", "write": "Write"})
    urn = f"urn:gatehouse:{acme.org}:orders"
    for program in (shop, robot):
        assert error(await program.ask(resource=urn)) == (400, "invalid_target"), "no admin allowed it"
    insert = "insert into api_resource_clients values (%s, %s, %s, '{read}', now())"
    await run_sql(pool, insert, acme.org, resource, service)
    insert = "insert into api_resource_service_accounts values (%s, %s, %s, '{read,write}', now())"
    await run_sql(pool, insert, acme.org, resource, robot.client_id)
    for program, scope in ((shop, "read"), (robot, "read write")):
        answer = await program.ask(resource=urn)
        assert (answer.status, answer.json["scope"], answer.json["expires_in"]) == (200, scope, 600), answer.text
        token = answer.json["access_token"]
        assert claims(token)["aud"] == urn
        assert refused(await acme.api.get(f"{acme.path}/members", token=token))[0] == 401, "it is not for our API"
        assert (await acme.api.get("/auth/userinfo", token=token)).status == 401
    assert error(await shop.ask(resource=urn, scope="write")) == (400, "invalid_scope")
    await run_sql(pool, """update api_resources set scope_implications = '{"read": ["write"]}'""")
    for asked, granted in ((None, "read write"), ("read", "read write"), ("write", "write")):
        assert (await shop.ask(resource=urn, scope=asked)).json["scope"] == granted
    await run_sql(pool, "update services set access_token_seconds = 120")
    assert (await shop.ask(resource=urn)).json["expires_in"] == 120
    assert error(await shop.ask()) == (400, "invalid_target"), "our own API is for service accounts"
    await run_sql(pool, "update services set service_type = 'spa', client_secret_hash = null")
    assert error(await shop.ask(resource=urn, client_secret=None)) == (400, "unauthorized_client")


async def test_the_tokens_of_an_application_end_with_its_secret_and_its_keys(acme: Tenant, pool: Pool) -> None:
    service = await add_service(pool, acme.org)
    [(client_id,)] = await run_sql(pool, "select client_id from services")
    urn = f"urn:gatehouse:{acme.org}:orders"
    resource = await add_api_resource(pool, acme.org, urn, scopes={"read": "Read"})
    await run_sql(pool, "insert into api_resource_clients values (%s, %s, %s, '{read}', now())", acme.org, resource, service)
    orders = await add_credential(pool, acme.api, resource, acme.org)
    path, secret = f"{acme.path}/services/shop", "a client secret"

    async def change(method: str, suffix: str, body: dict[str, Any]) -> Answer:
        answer = await acme.api.call(method, path + suffix, body, token=acme.token("admin"))
        assert answer.status == 200, answer.text
        return answer

    async def token() -> str:
        return await Program(acme.api, client_id, secret, client_id).token(resource=urn)

    for suffix, body, ends in (
        ("/rotate-secret", {"overlap_seconds": 60}, False),
        ("/rotate-secret", {}, True),
        ("", {"jwks": {"keys": [client_key("ES256", "es").jwk]}}, False),
        ("", {"jwks": {"keys": [client_key("ES256", "es").jwk, client_key("RS256", "rs").jwk]}}, False),
        ("", {"jwks": {"keys": [client_key("RS256", "rs").jwk]}}, True),
        ("", {"name": "Store"}, False),
        ("", {"jwks": None}, True),
    ):
        text = await token()
        assert (await introspect(orders, text))["active"]
        answer = await change("POST" if suffix else "PATCH", suffix, body)
        secret = answer.json.get("client_secret", secret)
        assert (await introspect(orders, text))["active"] != ends, (suffix, body)
    answer = await acme.api.call(
        "POST",
        "/auth/revoke",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        raw=urlencode({"token": await token(), "client_id": str(client_id), "client_secret": secret}).encode(),
    )
    assert error(answer) == (400, "unsupported_token_type")


async def test_an_api_resource_gets_no_token_for_itself(acme: Tenant, pool: Pool) -> None:
    resource = await add_api_resource(pool, acme.org, f"urn:gatehouse:{acme.org}:orders")
    program = await add_credential(pool, acme.api, resource, acme.org)
    assert error(await program.ask()) == (400, "unauthorized_client")


async def test_a_program_authenticates_nowhere_else(acme: Tenant, robot: Program, pool: Pool) -> None:
    for fields in ({"grant_type": "refresh_token", "refresh_token": "x"}, {"grant_type": "authorization_code", "code": "x"}):
        assert error(await robot.ask(**fields)) == (401, "invalid_client")
    assert error(await robot.ask(code="x")) == (400, "invalid_request")
    resource = await add_api_resource(pool, acme.org, f"urn:gatehouse:{acme.org}:orders")
    tokens = (await robot.token(), "unknown")
    refusals = {robot: (400, "unsupported_token_type"), await add_credential(pool, acme.api, resource, acme.org): (401, "invalid_client")}
    for program, refusal in refusals.items():
        for token in tokens:
            assert error(await program.ask(None, "/auth/revoke", grant_type=None, token=token)) == refusal
        request = {"response_type": "code", "redirect_uri": "https://shop.example.com/callback", "grant_type": None}
        assert error(await program.ask(None, "/auth/par", **request)) == (400, "unauthorized_client")
        for path in ("/auth/revoke", "/auth/par"):
            wrong = replace(program, secret=program.secret[:-1])
            assert error(await wrong.ask(None, path, token="x", **request)) == (401, "invalid_client")


async def test_the_token_is_bound_to_the_key_of_a_proof(acme: Tenant, robot: Program, clock: FakeClock) -> None:
    key, url = proof_key(), BASE_URL + TOKEN
    nonce = (await robot.ask({"DPoP": key.proof("POST", url, clock.now(), None)})).headers["DPoP-Nonce"]
    answer = await robot.ask({"DPoP": key.proof("POST", url, clock.now(), nonce)})
    assert answer.json["token_type"] == "DPoP"
    token, path = answer.json["access_token"], f"{acme.path}/members"
    assert claims(token)["cnf"] == {"jkt": key.thumbprint}
    assert refused(await acme.api.get(path, token=token)) == UNAUTHORIZED
    headers = {"Authorization": f"DPoP {token}", "DPoP": key.proof("GET", BASE_URL + path, clock.now(), nonce, token)}
    assert (await acme.api.get(path, headers=headers)).status == 200
    assert (await acme.api.get(path, headers=headers)).status == 401, "the proof was used"


async def test_every_scope_is_described_and_needed_by_a_route(app: QuartTrio) -> None:
    assert all(scope.description for scope in ApiScope)
    needed = {
        access_of(app.view_functions[rule.endpoint]).requirement(method).scope
        for rule in app.url_map.iter_rules()
        for method in rule.methods or ()
        if access_of(app.view_functions[rule.endpoint]).is_of_api
    }
    assert needed - {None} == set(ApiScope)


async def introspect(program: Program, token: str) -> dict[str, Any]:
    fields = {"client_id": str(program.client_id), "client_secret": program.secret, "token": token}
    answer = await program.api.call(
        "POST", "/auth/introspect", headers={"Content-Type": "application/x-www-form-urlencoded"}, raw=urlencode(fields).encode()
    )
    assert answer.status == 200, answer.text
    state: dict[str, Any] = answer.json
    return state


async def test_an_api_resource_sees_tokens_for_it_and_no_others(acme: Tenant, robot: Program, pool: Pool) -> None:
    urn = f"urn:gatehouse:{acme.org}:orders"
    resource = await add_api_resource(pool, acme.org, urn, scopes={"read": "Read"})
    await run_sql(
        pool, "insert into api_resource_service_accounts values (%s, %s, %s, '{read}', now())", acme.org, resource, robot.client_id
    )
    api = await add_credential(pool, acme.api, resource, acme.org)
    other = await add_credential(pool, acme.api, await add_api_resource(pool, acme.org, f"{urn}2"), acme.org)
    token, own = await robot.token(resource=urn), await robot.token()
    state = await introspect(api, token)
    assert state == await introspect(robot, token)
    signed = claims(token)
    assert state == {
        "active": True,
        "token_type": "Bearer",
        **{name: signed[name] for name in ("client_id", "sub", "iss", "aud", "jti", "scope", "iat", "exp")},
    }
    assert (await introspect(robot, own))["active"]
    for program, text in ((other, token), (api, own), (api, "unknown"), (other, own)):
        assert await introspect(program, text) == {"active": False}
    for change in (
        "update api_resource_service_accounts set own_scopes = '{}'",
        "update organizations set status = 'suspended' where slug = 'acme'",
    ):
        await run_sql(pool, change)
        assert await introspect(api, token) == {"active": False}
        await run_sql(pool, "update api_resource_service_accounts set own_scopes = '{read}'")
    await run_sql(pool, "update organizations set status = 'active'")
    assert (await introspect(api, token))["active"]
    await run_sql(pool, "delete from credentials where id = %s", robot.credential_id)
    assert await introspect(api, token) == {"active": False}, "revoked"
