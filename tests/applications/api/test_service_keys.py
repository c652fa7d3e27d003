"""Authentication with API keys in the service API.

The rules are decisions 48, 107, and security J-7, K-1, K-2, P-6, T-5.
"""

from datetime import timedelta
from itertools import product

import pytest
from quart_trio import QuartTrio

from core.applications.model.api_keys import MAX_KEY_LENGTH
from core.kernel.roles import Permission
from core.kernel.values import new_secret
from entrypoints.http.edge.access.declaration import access_of
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, run_sql
from tests.support.direct import ask
from tests.support.paths import filled
from tests.support.refusals import FORBIDDEN, NOT_ACTIVE, UNAUTHORIZED
from tests.support.services import add_api_key, add_service, sign_in_to
from tests.support.tenants import Tenant, Tenants

USERS = "/api/service/users"


def outcome(answer: Answer) -> tuple[int, str]:
    return (answer.status, "") if answer.status < 400 else (answer.status, answer.code)


def routes(app: QuartTrio) -> dict[tuple[str, str], Permission]:
    """Return the permission that every route requires."""
    permissions: dict[tuple[str, str], Permission] = {}
    for rule in app.url_map.iter_rules():
        access = access_of(app.view_functions[rule.endpoint])
        if access.permission is not None:
            permissions |= {(method, filled(rule.rule)): access.permission for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}}
    return permissions


@pytest.mark.slow
async def test_each_permission_allows_only_its_routes(app: QuartTrio, acme: Tenant) -> None:
    service = await add_service(acme.pool, acme.org)
    allowing_permissions: set[Permission] = set()
    for permission in Permission:
        key = (await add_api_key(acme.pool, service, [permission])).encode()
        for (method, path), needed in routes(app).items():
            answer = await ask(app, method, path, headers=[(b"x-api-key", key)])
            if needed is permission:
                allowing_permissions.add(permission)
                assert answer.status in (200, 400, 404), (permission, method, path)
            else:
                assert outcome(answer) == FORBIDDEN, (permission, method, path)
                assert needed in answer.json["error"]
    assert allowing_permissions == {*Permission}


async def test_the_routes_of_users_require_these_permissions(app: QuartTrio) -> None:
    users = {(method, path): permission for (method, path), permission in routes(app).items() if path.startswith(USERS)}
    one = filled(f"{USERS}/<user_id>")
    assert users == {
        ("GET", USERS): Permission.READ_USERS,
        ("GET", one): Permission.READ_USERS,
        ("POST", USERS): Permission.WRITE_USERS,
        ("PATCH", one): Permission.WRITE_USERS,
        ("DELETE", one): Permission.DELETE_USERS,
        ("GET", f"{one}/roles"): Permission.READ_USERS,
        ("GET", f"{one}/attributes"): Permission.READ_USERS,
        ("PATCH", f"{one}/attributes"): Permission.WRITE_USERS,
    }


async def test_all_invalid_keys_are_refused_in_the_same_way(app: QuartTrio, tenants: Tenants, acme: Tenant, clock: FakeClock) -> None:
    service = await add_service(acme.pool, acme.org)
    good = await add_api_key(acme.pool, service)
    expired = await add_api_key(acme.pool, service, expires_at=clock.now())
    session = await sign_in_to(tenants.ports, acme.pool, service, acme.people["member"])
    wrong = {
        "expired just now": expired,
        "unknown": f"sk_abcdef_{new_secret()}",
        "start of a valid key": good[:20],
        "end of a valid key": good[10:],
        "in upper case": good.upper(),
        "with a suffix": f"{good}x",
        "prefix only": "sk_abcdef",
        "empty": "",
        "access token of a member": acme.token("owner"),
        "access token of a service": session.access_token,
        "a refresh token": session.refresh_token,
        "just too long": "s" * (MAX_KEY_LENGTH + 1),
        "very long": "s" * 10_000,
        "a wildcard": "%",
        "a statement": "' or 1=1 --",
        "not ASCII": "sk_ü",
    }
    sentences = set()
    for case, key in wrong.items():
        answer = await ask(app, "GET", USERS, headers=[(b"x-api-key", key.encode("latin-1"))])
        assert outcome(answer) == UNAUTHORIZED, case
        sentences.add(answer.json["error"])
    answer = await ask(app, "GET", USERS)
    assert outcome(answer) == UNAUTHORIZED
    assert sentences == {answer.json["error"]}
    assert (await tenants.api.get(USERS, headers={"X-Api-Key": good})).status == 200


async def test_a_key_is_accepted_only_in_its_header(app: QuartTrio, tenants: Tenants, acme: Tenant) -> None:
    key, token = await add_api_key(acme.pool, await add_service(acme.pool, acme.org)), acme.token("owner")

    async def get(path: str, **headers: str) -> Answer:
        return await tenants.api.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    for headers in ({"Authorization": f"Bearer {key}"}, {"Authorization": key}, {"Cookie": f"X-Api-Key={key}"}, {"Api_Key": key}):
        assert outcome(await get(f"{USERS}?api_key={key}&X-Api-Key={key}", **headers)) == UNAUTHORIZED
    body = await tenants.api.post(USERS, {"email": "a@example.com", "x-api-key": key})
    assert outcome(body) == UNAUTHORIZED
    # With a key, the Authorization header is ignored. Other routes do not accept keys.
    for authorization in (f"Bearer {token}", "Bearer not.a.token", "Basic eDp5", ""):
        assert (await get(USERS, X_Api_Key=key, Authorization=authorization)).status == 200
    for path in ("/api/user", f"{acme.path}/members", "/api/platform/organizations"):
        assert outcome(await get(path, X_Api_Key=key)) == UNAUTHORIZED
    for ignored in (key, "sk_x", ""):
        assert (await get("/api/user", X_Api_Key=ignored, Authorization=f"Bearer {token}")).status == 200
    twice = await ask(app, "GET", USERS, headers=[(b"x-api-key", key.encode()), (b"X-Api-Key", key.encode())])
    assert outcome(twice) == (400, "BAD_REQUEST")


async def test_refusals_have_a_fixed_order(tenants: Tenants, acme: Tenant) -> None:
    service = await add_service(acme.pool, acme.org)
    reads, writes = await add_api_key(acme.pool, service, ["read:users"]), await add_api_key(acme.pool, service, ["write:users"])

    async def send(key: str, raw: bytes = b"{") -> tuple[int, str]:
        return outcome(await tenants.api.call("POST", USERS, raw=raw, headers={"X-Api-Key": key}))

    assert [await send(key) for key in ("sk_x", reads, writes)] == [UNAUTHORIZED, FORBIDDEN, (400, "BAD_REQUEST")]
    for status in ("pending", "suspended", "rejected"):
        await acme.set_status(status)
        assert [await send(key) for key in ("sk_x", reads, writes)] == [UNAUTHORIZED, FORBIDDEN, NOT_ACTIVE]
    await acme.set_status("active")
    assert await send(writes, b'{"email": "ada@example.com"}') == (200, "")


INVALIDATIONS = {
    "deleted": "delete from api_keys",
    "expired": "update api_keys set expires_at = '2026-01-01'",
    "of a deleted service": "delete from services",
    "of a deleted organization": "delete from organizations",
}


@pytest.mark.parametrize("case", INVALIDATIONS)
async def test_invalidated_keys_are_refused(tenants: Tenants, acme: Tenant, case: str) -> None:
    key = await add_api_key(acme.pool, await add_service(acme.pool, acme.org))
    assert (await tenants.api.get(USERS, headers={"X-Api-Key": key})).status == 200
    await run_sql(acme.pool, INVALIDATIONS[case])
    assert outcome(await tenants.api.get(USERS, headers={"X-Api-Key": key})) == UNAUTHORIZED


async def test_the_use_of_a_key_is_stored_once_a_minute_for_any_response(tenants: Tenants, acme: Tenant, clock: FakeClock) -> None:
    key = await add_api_key(acme.pool, await add_service(acme.pool, acme.org), ["read:users"])
    ages = []
    for seconds, path in product((0, 30, 30, 59, 1), (USERS, "/api/service/info")):
        clock.advance(timedelta(seconds=seconds if path == USERS else 0))
        await tenants.api.get(path, headers={"X-Api-Key": key})
        [(used_at,)] = await run_sql(acme.pool, "select last_used_at from api_keys")
        ages.append((clock.now() - used_at).total_seconds())
    assert ages == [0, 0, 30, 30, 0, 0, 59, 59, 0, 0]


async def test_a_key_sees_only_the_users_of_its_service(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> None:
    """This holds for two services in the same organization, and for a service with the same slug in another organization."""
    services = [
        await add_service(tenant.pool, tenant.org, slug) for tenant, slug in ((acme, "shop"), (acme, "second"), (other_tenant, "shop"))
    ]
    keys = [await add_api_key(acme.pool, service) for service in services]
    user_ids = []
    for number, key in enumerate(keys):
        answer = await tenants.api.post(USERS, {"email": f"n{number}@example.com"}, headers={"X-Api-Key": key})
        user_ids.append(answer.json["id"])
    for key, user_id in zip(keys, user_ids, strict=True):
        headers = {"X-Api-Key": key}
        listing = (await tenants.api.get(USERS, headers=headers)).json
        assert ([user["id"] for user in listing["users"]], listing["total"]) == ([user_id], 1)
        for user in user_ids:
            expected = 200 if user == user_id else 404
            assert (await tenants.api.get(f"{USERS}/{user}", headers=headers)).status == expected
            if user != user_id:
                assert (await tenants.api.patch(f"{USERS}/{user}", {"email": "x@example.com"}, headers=headers)).status == 404
                assert (await tenants.api.delete(f"{USERS}/{user}", headers=headers)).status == 404
