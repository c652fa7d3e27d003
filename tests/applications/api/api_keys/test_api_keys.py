"""Creating, listing, deleting and recording API keys (decisions 104, 107, 108; security K-1, K-2, K-6, S-6)."""

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from core.kernel.policy import Policy
from core.kernel.roles import Permission
from core.kernel.values import digest, rfc3339
from tests.applications.api.api_keys.shop import GOOD, Shop, open_shop
from tests.fakes.outside import FakeClock
from tests.support.builders import run_sql
from tests.support.direct import change_ports
from tests.support.refusals import BAD, MISSING, refused
from tests.support.tenants import Tenant, Tenants

FIELDS = ["id", "service_id", "name", "prefix", "permissions", "expires_at", "created_at", "created_by", "last_used_at"]


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_a_key_is_returned_once_and_works_immediately(shop: Shop, clock: FakeClock, by: str) -> None:
    answer = await shop.create({"name": "  Nightly import ", "permissions": ["write:users", "read:users"], "expires_in_days": 30}, by)
    assert answer.status == 201
    assert answer.headers["Cache-Control"] == "no-store"
    created_key = answer.json
    key, prefix = created_key.pop("key"), created_key["prefix"]
    assert re.fullmatch(r"sk_[a-z2-7]{6}", prefix)
    assert re.fullmatch(rf"{prefix}_[A-Za-z0-9_-]{{43}}", key)
    assert created_key == {
        "id": created_key["id"],
        "service_id": str(shop.id),
        "name": "Nightly import",
        "prefix": prefix,
        "permissions": ["write:users", "read:users"],
        "expires_at": rfc3339(clock.now() + timedelta(days=30)),
        "created_at": rfc3339(clock.now()),
        "created_by": shop.tenant.id(by),
    }
    assert (await shop.get(created_key["id"])).json == {**created_key, "last_used_at": None}
    assert (await shop.call_with(key)).status == 200
    # Only the hash is stored, and neither key nor hash is shown or recorded.
    [(key_hash,)] = await run_sql(shop.tenant.pool, "select key_hash from api_keys")
    assert key_hash == digest(key)
    records = await run_sql(
        shop.tenant.pool, "select details::text, target_id from audit_log union all select data::text, target_id from events"
    )
    texts = [(await shop.get(created_key["id"])).text, str(await shop.list_keys()), *(str(row) for row in records)]
    secret = key.removeprefix(f"{prefix}_")
    assert not any(secret in text or key_hash.hex() in text for text in texts)


async def test_without_a_lifetime_a_key_does_not_expire(shop: Shop) -> None:
    assert (await shop.add_key())["expires_at"] is None
    assert (await shop.add_key(expires_in_days=None))["expires_at"] is None
    # Names need not be unique.
    assert (await shop.list_keys())["total"] == 2


@pytest.mark.parametrize("days", [1, 3650])
async def test_a_key_expires_after_its_lifetime(shop: Shop, clock: FakeClock, days: int) -> None:
    created_key = await shop.add_key(expires_in_days=days)
    assert created_key["expires_at"] == rfc3339(clock.now() + timedelta(days=days))
    clock.advance(timedelta(days=days) - timedelta(seconds=1))
    assert (await shop.call_with(created_key["key"])).status == 200
    clock.advance(timedelta(seconds=1))
    assert refused(await shop.call_with(created_key["key"])) == (401, "UNAUTHORIZED")
    await shop.tenant.sign_in("member")
    assert (await shop.get(created_key["id"])).json["expires_at"] == created_key["expires_at"], "expired keys stay in the list"
    assert (await shop.list_keys())["total"] == 1


@pytest.mark.parametrize(("environment", "prefix_start"), [("live", "sk_live_"), ("test", "sk_test_")])
async def test_keys_contain_the_environment_of_the_installation(shop: Shop, app: QuartTrio, environment: Any, prefix_start: str) -> None:
    before = await shop.add_key()
    change_ports(app, policy=Policy(key_environment=environment))
    created_key = await shop.add_key()
    assert re.fullmatch(rf"{prefix_start}[a-z2-7]{{6}}", created_key["prefix"])
    assert re.fullmatch(rf"{created_key['prefix']}_[A-Za-z0-9_-]{{43}}", created_key["key"])
    assert [(await shop.call_with(key)).status for key in (before["key"], created_key["key"])] == [200, 200], "both forms work side by side"


BODIES: dict[str, dict[str, Any]] = {
    "no name": {"permissions": ["read:users"]},
    "a name of spaces": {**GOOD, "name": "   "},
    "an empty name": {**GOOD, "name": ""},
    "a name too long": {**GOOD, "name": "x" * 101},
    "a name with a line break": {**GOOD, "name": "a\nb"},
    "a name that is a number": {**GOOD, "name": 5},
    "no permissions": {"name": "Robot"},
    "an empty list": {**GOOD, "permissions": []},
    "null for permissions": {**GOOD, "permissions": None},
    "one permission, not in a list": {**GOOD, "permissions": "read:users"},
    "an unknown permission": {**GOOD, "permissions": ["read:everything"]},
    "an unknown one among others": {**GOOD, "permissions": ["read:users", "admin"]},
    "a permission in capitals": {**GOOD, "permissions": ["READ:USERS"]},
    "a permission twice": {**GOOD, "permissions": ["read:users", "read:users"]},
    "a number for a permission": {**GOOD, "permissions": [5]},
    "far too many": {**GOOD, "permissions": ["read:users"] * 101},
    **{f"{days!r} days": {**GOOD, "expires_in_days": days} for days in (0, -1, 3651, 10**18, 1.5, "30", True, [30])},
}


async def test_invalid_keys_are_refused(shop: Shop) -> None:
    for mistake, body in BODIES.items():
        assert refused(await shop.create(body)) == BAD, mistake
    assert await shop.ids() == []
    assert await shop.tenant.log() == []


async def test_the_refusal_of_an_unknown_permission_lists_all_permissions(shop: Shop) -> None:
    error = (await shop.create({**GOOD, "permissions": ["write:everything"]})).json["error"]
    assert all(permission in error for permission in Permission)
    assert "write:everything" not in error


async def test_each_permission_can_be_granted_and_all_together(shop: Shop) -> None:
    for permission in Permission:
        assert (await shop.add_key(permissions=[permission]))["permissions"] == [permission]
    assert (await shop.add_key(permissions=[*Permission]))["permissions"] == [*Permission]


# Lists


async def test_the_list_has_all_keys_of_the_service_newest_first(shop: Shop, other_tenant: Tenant, clock: FakeClock) -> None:
    second, other = await open_shop(shop.tenant, "second"), await open_shop(other_tenant)
    for other_shop in (second, other):
        await other_shop.add_key(name="elsewhere")
    created_key = []
    for number in range(5):
        clock.advance(timedelta(minutes=1))
        created_key.append(await shop.add_key(name=f"n{number}", expires_in_days=1 if number == 0 else None))
    clock.advance(timedelta(days=2))
    for name in ("owner", "admin", "member"):
        await shop.tenant.sign_in(name)
        listing = await shop.list_keys(by=name)
        assert [key["name"] for key in listing["api_keys"]] == ["n4", "n3", "n2", "n1", "n0"]
        assert (list(listing), listing["total"]) == (["api_keys", "total"], 5)
    assert list(listing["api_keys"][-1]) == FIELDS
    assert listing["api_keys"][-1] == {**{name: value for name, value in created_key[0].items() if name != "key"}, "last_used_at": None}
    for query, names in (
        ("?limit=2", ["n4", "n3"]),
        ("?limit=2&offset=3", ["n1", "n0"]),
        ("?offset=5", []),
        ("?limit=0&offset=-7", ["n4"]),
        (f"?limit={10**30}", ["n4", "n3", "n2", "n1", "n0"]),
        (f"?offset={10**30}", []),
    ):
        page = await shop.list_keys(query)
        assert ([key["name"] for key in page["api_keys"]], page["total"]) == (names, 5), query
    for query in ("?limit=x", "?offset=1.5", "?limit="):
        assert refused(await shop.tenant.api.get(shop.path + query, token=shop.tenant.token("member"))) == BAD


async def test_a_service_without_keys_has_an_empty_list(shop: Shop) -> None:
    assert await shop.list_keys() == {"api_keys": [], "total": 0}


async def test_the_last_use_is_stored_to_the_minute(shop: Shop, clock: FakeClock) -> None:
    created_key = await shop.add_key()

    async def last_used() -> Any:
        return (await shop.get(created_key["id"])).json["last_used_at"]

    clock.advance(timedelta(seconds=5))
    first = clock.now()
    await shop.call_with(created_key["key"])
    assert await last_used() == rfc3339(first)
    clock.advance(timedelta(seconds=59))
    await shop.call_with(created_key["key"])
    assert await last_used() == rfc3339(first)
    clock.advance(timedelta(seconds=1))
    await shop.call_with(created_key["key"])
    assert await last_used() == rfc3339(clock.now())


async def test_a_key_is_found_only_in_its_service(shop: Shop, other_tenant: Tenant) -> None:
    second, other = await open_shop(shop.tenant, "second"), await open_shop(other_tenant)
    await shop.tenant.join("both", other_tenant.people["owner"])
    keys = {name: (await one.add_key())["id"] for name, one in {"second": second, "other": other}.items()}
    own_key_id = (await shop.add_key())["id"]
    for key_id in (*keys.values(), uuid4(), "x", own_key_id.upper(), f"{own_key_id}%20", shop.id):
        assert refused(await shop.get(key_id)) == MISSING, key_id
        assert refused(await shop.delete(key_id)) == MISSING, key_id
    assert len(await shop.ids() + await second.ids() + await other.ids()) == 3


# Deletion


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_a_deleted_key_is_refused_immediately(shop: Shop, by: str) -> None:
    created_key, other_key = await shop.add_key(), await shop.add_key()
    assert (await shop.call_with(created_key["key"])).status == 200
    answer = await shop.delete(created_key["id"], by)
    assert (answer.status, answer.text) == (204, "")
    assert refused(await shop.call_with(created_key["key"])) == (401, "UNAUTHORIZED")
    assert (await shop.call_with(other_key["key"])).status == 200
    assert refused(await shop.get(created_key["id"])) == refused(await shop.delete(created_key["id"])) == MISSING
    assert [key["id"] for key in (await shop.list_keys())["api_keys"]] == [other_key["id"]]


async def test_a_key_outlives_the_account_that_created_it(shop: Shop) -> None:
    created_key = await shop.add_key(by="admin")
    maker = shop.tenant.id("admin")
    assert (await shop.tenant.remove("owner", "admin")).status == 200
    await run_sql(shop.tenant.pool, "delete from users where id = %s", maker)
    assert (await shop.call_with(created_key["key"])).status == 200
    assert (await shop.get(created_key["id"])).json["created_by"] == maker


# Records


async def test_creation_and_deletion_are_recorded_without_the_key(shop: Shop, clock: FakeClock) -> None:
    created_key = await shop.add_key(permissions=["read:users", "write:service"], expires_in_days=1)
    clock.advance(timedelta(seconds=1))
    assert (await shop.delete(created_key["id"], "admin")).status == 204
    names = {"api_key_id": created_key["id"], "service_id": str(shop.id), "service_slug": "shop", "name": "Robot"}
    expires_at = created_key["expires_at"]
    owner, admin = (shop.tenant.people[name].id for name in ("owner", "admin"))
    details = {**names, "permissions": ["read:users", "write:service"], "expires_at": expires_at}
    assert await shop.tenant.recorded() == [
        ("api_key.created", "api_key", created_key["id"], owner, details),
        ("api_key.deleted", "api_key", created_key["id"], admin, names),
    ]
    assert await shop.tenant.actions() == {"api_key.created": 1, "api_key.deleted": 1}


async def test_changes_by_a_key_are_recorded_with_the_key_as_actor(shop: Shop, tenants: Tenants, clock: FakeClock) -> None:
    first, second = [await shop.add_key(permissions=["write:users", "delete:users"]) for _ in range(2)]
    for number, created_key in enumerate([first, second]):
        clock.advance(timedelta(seconds=1))
        headers = {"X-Api-Key": created_key["key"]}
        user = (await tenants.api.post("/api/service/users", {"email": f"n{number}@example.com"}, headers=headers)).json["id"]
        clock.advance(timedelta(seconds=1))
        assert (await tenants.api.delete(f"/api/service/users/{user}", headers=headers)).status == 204
    log, token = f"{shop.tenant.path}/audit-log", shop.tenant.token("owner")
    [entry, created] = (await tenants.api.get(f"{log}?actor_id={first['id']}", token=token)).json["logs"]
    assert entry["actor"] == {"id": first["id"], "email": "api-key@internal", "is_platform_owner": False, "kind": "api_key", "name": None}
    assert (entry["action"], entry["details"]) == ("user.removed", {"service_slug": "shop", "permanently": True})
    assert entry["ip_address"]
    assert (created["action"], created["actor"], created["details"]) == ("user.created", entry["actor"], {"service_slug": "shop"})
    log_page = (await tenants.api.get(log, token=token)).json
    actions = ["user.removed", "user.created"] * 2 + ["api_key.created"] * 2
    assert [one["action"] for one in log_page["logs"]] == actions
    assert [one["actor"]["id"] for one in log_page["logs"]][:4] == [second["id"]] * 2 + [first["id"]] * 2
    by_unknown = (await tenants.api.get(f"{log}?actor_id={uuid4()}", token=token)).json
    assert (by_unknown["logs"], by_unknown["pagination"]["total"]) == ([], 0)
