"""API keys of a service, managed by members.

The rules are decisions 8, 9, 14, 15, 16, 17, 104, 105, 106, 107, 108, and security K-1, K-2, K-6,
I-4, S-6, T-1, T-2, Z-5. The module is longer than 400 lines, because its tests share fixtures and
helpers.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from quart_trio import QuartTrio

from core.kernel.policy import Policy
from core.kernel.principals import Permission
from core.kernel.values import digest, rfc3339
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, add_account, add_platform_owner, impersonate, run_concurrently, run_during, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.services import add_api_key, add_service
from tests.support.tenants import Tenant, Tenants

FIELDS = ["id", "service_id", "name", "prefix", "permissions", "expires_at", "created_at", "created_by", "last_used_at"]
GOOD = {"name": "Robot", "permissions": ["read:users"]}


@dataclass(slots=True)
class Shop:
    """A service of a tenant, and its keys."""

    tenant: Tenant
    id: UUID
    slug: str = "shop"

    @property
    def path(self) -> str:
        return f"{self.tenant.path}/services/{self.slug}/api-keys"

    async def create(self, body: Any = None, by: str = "owner") -> Answer:
        return await self.tenant.api.post(self.path, GOOD if body is None else body, token=self.tenant.token(by))

    async def created(self, by: str = "owner", **fields: Any) -> dict[str, Any]:
        answer = await self.create({**GOOD, **fields}, by)
        assert answer.status == 201, answer.text
        key: dict[str, Any] = answer.json
        return key

    async def list_keys(self, query: str = "", by: str = "member") -> dict[str, Any]:
        answer = await self.tenant.api.get(f"{self.path}{query}", token=self.tenant.token(by))
        assert answer.status == 200, answer.text
        keys: dict[str, Any] = answer.json
        return keys

    async def get(self, key_id: object, by: str = "member") -> Answer:
        return await self.tenant.api.get(f"{self.path}/{key_id}", token=self.tenant.token(by))

    async def delete(self, key_id: object, by: str = "owner") -> Answer:
        return await self.tenant.api.delete(f"{self.path}/{key_id}", token=self.tenant.token(by))

    async def use(self, key: str) -> Answer:
        return await self.tenant.api.get("/api/service/users", headers={"X-Api-Key": key})

    async def ids(self) -> list[str]:
        return [str(id_) for (id_,) in await run_sql(self.tenant.pool, "select id from api_keys where service_id = %s", self.id)]


async def open_shop(tenant: Tenant, slug: str = "shop") -> Shop:
    return Shop(tenant, await add_service(tenant.pool, tenant.org, slug), slug)


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    return await open_shop(acme)


# Creation


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
    assert (await shop.use(key)).status == 200
    # Only the hash is stored, and neither key nor hash is shown or recorded.
    [(stored,)] = await run_sql(shop.tenant.pool, "select key_hash from api_keys")
    assert stored == digest(key)
    records = await run_sql(
        shop.tenant.pool, "select details::text, target_id from audit_log union all select data::text, target_id from events"
    )
    shown = [(await shop.get(created_key["id"])).text, str(await shop.list_keys()), *(str(row) for row in records)]
    secret = key.removeprefix(f"{prefix}_")
    assert not any(secret in text or stored.hex() in text for text in shown)


async def test_without_a_lifetime_a_key_does_not_expire(shop: Shop) -> None:
    assert (await shop.created())["expires_at"] is None
    assert (await shop.created(expires_in_days=None))["expires_at"] is None
    # Names need not be unique.
    assert (await shop.list_keys())["total"] == 2


@pytest.mark.parametrize("days", [1, 3650])
async def test_a_key_expires_after_its_lifetime(shop: Shop, clock: FakeClock, days: int) -> None:
    created_key = await shop.created(expires_in_days=days)
    assert created_key["expires_at"] == rfc3339(clock.now() + timedelta(days=days))
    clock.advance(timedelta(days=days) - timedelta(seconds=1))
    assert (await shop.use(created_key["key"])).status == 200
    clock.advance(timedelta(seconds=1))
    assert refused(await shop.use(created_key["key"])) == (401, "UNAUTHORIZED")
    await shop.tenant.sign_in("member")
    assert (await shop.get(created_key["id"])).json["expires_at"] == created_key["expires_at"], "expired keys stay in the list"
    assert (await shop.list_keys())["total"] == 1


@pytest.mark.parametrize(("environment", "prefix_start"), [("live", "sk_live_"), ("test", "sk_test_")])
async def test_keys_contain_the_environment_of_the_installation(shop: Shop, app: QuartTrio, environment: Any, prefix_start: str) -> None:
    before = await shop.created()
    change_ports(app, policy=Policy(key_environment=environment))
    created_key = await shop.created()
    assert re.fullmatch(rf"{prefix_start}[a-z2-7]{{6}}", created_key["prefix"])
    assert re.fullmatch(rf"{created_key['prefix']}_[A-Za-z0-9_-]{{43}}", created_key["key"])
    assert [(await shop.use(key)).status for key in (before["key"], created_key["key"])] == [200, 200], "both forms work side by side"


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
    for what, body in BODIES.items():
        assert refused(await shop.create(body)) == BAD, what
    assert await shop.ids() == []
    assert await shop.tenant.log() == []


async def test_the_refusal_of_an_unknown_permission_lists_all_permissions(shop: Shop) -> None:
    error = (await shop.create({**GOOD, "permissions": ["write:everything"]})).json["error"]
    assert all(permission in error for permission in Permission)
    assert "write:everything" not in error


async def test_each_permission_can_be_granted_and_all_together(shop: Shop) -> None:
    for permission in Permission:
        assert (await shop.created(permissions=[permission]))["permissions"] == [permission]
    assert (await shop.created(permissions=[*Permission]))["permissions"] == [*Permission]


# Lists


async def test_the_list_has_all_keys_of_the_service_oldest_first(shop: Shop, other_tenant: Tenant, clock: FakeClock) -> None:
    second, other = await open_shop(shop.tenant, "second"), await open_shop(other_tenant)
    for elsewhere in (second, other):
        await elsewhere.created(name="elsewhere")
    created_key = []
    for number in range(5):
        clock.advance(timedelta(minutes=1))
        created_key.append(await shop.created(name=f"n{number}", expires_in_days=1 if number == 0 else None))
    clock.advance(timedelta(days=2))
    for name in ("owner", "admin", "member"):
        await shop.tenant.sign_in(name)
        found = await shop.list_keys(by=name)
        assert [key["name"] for key in found["api_keys"]] == ["n0", "n1", "n2", "n3", "n4"]
        assert (list(found), found["total"]) == (["api_keys", "total"], 5)
    assert list(found["api_keys"][0]) == FIELDS
    assert found["api_keys"][0] == {**{name: value for name, value in created_key[0].items() if name != "key"}, "last_used_at": None}
    for query, names in (
        ("?limit=2", ["n0", "n1"]),
        ("?limit=2&offset=3", ["n3", "n4"]),
        ("?offset=5", []),
        ("?limit=0&offset=-7", ["n0"]),
        (f"?limit={10**30}", ["n0", "n1", "n2", "n3", "n4"]),
        (f"?offset={10**30}", []),
    ):
        page = await shop.list_keys(query)
        assert ([key["name"] for key in page["api_keys"]], page["total"]) == (names, 5), query
    for query in ("?limit=x", "?offset=1.5", "?limit="):
        assert refused(await shop.tenant.api.get(shop.path + query, token=shop.tenant.token("member"))) == BAD


async def test_a_service_without_keys_has_an_empty_list(shop: Shop) -> None:
    assert await shop.list_keys() == {"api_keys": [], "total": 0}


async def test_the_last_use_is_stored_to_the_minute(shop: Shop, clock: FakeClock) -> None:
    created_key = await shop.created()

    async def last_used() -> Any:
        return (await shop.get(created_key["id"])).json["last_used_at"]

    clock.advance(timedelta(seconds=5))
    first = clock.now()
    await shop.use(created_key["key"])
    assert await last_used() == rfc3339(first)
    clock.advance(timedelta(seconds=59))
    await shop.use(created_key["key"])
    assert await last_used() == rfc3339(first)
    clock.advance(timedelta(seconds=1))
    await shop.use(created_key["key"])
    assert await last_used() == rfc3339(clock.now())


async def test_a_key_is_found_only_in_its_service(shop: Shop, other_tenant: Tenant) -> None:
    second, other = await open_shop(shop.tenant, "second"), await open_shop(other_tenant)
    await shop.tenant.join("both", other_tenant.people["owner"])
    keys = {name: (await one.created())["id"] for name, one in {"second": second, "other": other}.items()}
    mine = (await shop.created())["id"]
    for key_id in (*keys.values(), uuid4(), "x", mine.upper(), f"{mine}%20", shop.id):
        assert refused(await shop.get(key_id)) == MISSING, key_id
        assert refused(await shop.delete(key_id)) == MISSING, key_id
    assert len(await shop.ids() + await second.ids() + await other.ids()) == 3


# Deletion


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_a_deleted_key_is_refused_immediately(shop: Shop, by: str) -> None:
    created_key, kept = await shop.created(), await shop.created()
    assert (await shop.use(created_key["key"])).status == 200
    answer = await shop.delete(created_key["id"], by)
    assert (answer.status, answer.text) == (204, "")
    assert refused(await shop.use(created_key["key"])) == (401, "UNAUTHORIZED")
    assert (await shop.use(kept["key"])).status == 200
    assert refused(await shop.get(created_key["id"])) == refused(await shop.delete(created_key["id"])) == MISSING
    assert [key["id"] for key in (await shop.list_keys())["api_keys"]] == [kept["id"]]


async def test_a_key_outlives_the_account_that_created_it(shop: Shop) -> None:
    created_key = await shop.created(by="admin")
    maker = shop.tenant.id("admin")
    assert (await shop.tenant.remove("owner", "admin")).status == 200
    await run_sql(shop.tenant.pool, "delete from users where id = %s", maker)
    assert (await shop.use(created_key["key"])).status == 200
    assert (await shop.get(created_key["id"])).json["created_by"] == maker


# Records


async def test_creation_and_deletion_are_recorded_without_the_key(shop: Shop, clock: FakeClock) -> None:
    created_key = await shop.created(permissions=["read:users", "write:service"], expires_in_days=1)
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
    first, second = [await shop.created(permissions=["write:users", "delete:users"]) for _ in range(2)]
    for number, created_key in enumerate([first, second]):
        clock.advance(timedelta(seconds=1))
        headers = {"X-Api-Key": created_key["key"]}
        user = (await tenants.api.post("/api/service/users", {"email": f"n{number}@example.com"}, headers=headers)).json["id"]
        clock.advance(timedelta(seconds=1))
        assert (await tenants.api.delete(f"/api/service/users/{user}", headers=headers)).status == 204
    log, token = f"{shop.tenant.path}/audit-log", shop.tenant.token("owner")
    [entry, created] = (await tenants.api.get(f"{log}?actor_id={first['id']}", token=token)).json["logs"]
    assert entry["actor"] == {"id": first["id"], "email": "api-key@internal", "is_platform_owner": False}
    assert (entry["action"], entry["details"]) == ("user.removed", {"service_slug": "shop", "permanently": True})
    assert entry["ip_address"]
    assert (created["action"], created["actor"], created["details"]) == ("user.created", entry["actor"], {"service_slug": "shop"})
    everything = (await tenants.api.get(log, token=token)).json
    actions = ["user.removed", "user.created"] * 2 + ["api_key.created"] * 2
    assert [one["action"] for one in everything["logs"]] == actions
    assert [one["actor"]["id"] for one in everything["logs"]][:4] == [second["id"]] * 2 + [first["id"]] * 2
    by_nobody = (await tenants.api.get(f"{log}?actor_id={uuid4()}", token=token)).json
    assert (by_nobody["logs"], by_nobody["pagination"]["total"]) == ([], 0)


# Access

Call = Callable[[Shop, str, object], Awaitable[Answer]]
CALLS: dict[str, Call] = {
    "create": lambda shop, token, key: shop.tenant.api.post(shop.path, GOOD, token=token),
    "list": lambda shop, token, key: shop.tenant.api.get(shop.path, token=token),
    "get": lambda shop, token, key: shop.tenant.api.get(f"{shop.path}/{key}", token=token),
    "delete": lambda shop, token, key: shop.tenant.api.delete(f"{shop.path}/{key}", token=token),
}
WRITES = ["create", "delete"]


@pytest.mark.parametrize("call", CALLS)
async def test_members_can_only_read_and_other_callers_can_do_nothing(
    shop: Shop, tenants: Tenants, other_tenant: Tenant, call: str
) -> None:
    created_key = await shop.created()
    before = await tenants.everything()
    plain = await CALLS[call](shop, shop.tenant.token("member"), created_key["id"])
    if call in WRITES:
        assert refused(plain) == FORBIDDEN
    else:
        assert plain.status == 200
    for token in (other_tenant.token("owner"), (await sign_in(tenants.ports, await add_platform_owner(tenants.ports))).access_token):
        assert refused(await CALLS[call](shop, token, created_key["id"])) == FORBIDDEN
    assert await shop.ids() == [created_key["id"]]
    assert [row for row in await tenants.everything() if row in before] == before


@pytest.mark.parametrize("call", CALLS)
async def test_the_organization_must_be_active_and_have_the_service(shop: Shop, other_tenant: Tenant, call: str) -> None:
    created_key, token = await shop.created(), shop.tenant.token("owner")
    await open_shop(other_tenant, "theirs")
    for slug in ("theirs", "nothing", "Shop", "shop%20", str(shop.id)):
        assert refused(await CALLS[call](Shop(shop.tenant, shop.id, slug), token, created_key["id"])) == MISSING, slug
    nowhere = Shop(Tenant(other_tenant.api, other_tenant.ports, other_tenant.pool, other_tenant.org, "nowhere"), shop.id)
    assert refused(await CALLS[call](nowhere, token, created_key["id"])) == MISSING
    await shop.tenant.set_status("suspended")
    for slug in ("shop", "nothing"):
        assert refused(await CALLS[call](Shop(shop.tenant, shop.id, slug), token, created_key["id"])) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert await shop.ids() == [created_key["id"]]


async def test_an_unknown_service_is_refused_before_the_request_is_parsed(shop: Shop) -> None:
    nothing, token = Shop(shop.tenant, shop.id, "nothing"), shop.tenant.token("owner")
    answers = [await shop.tenant.api.call("POST", nothing.path, raw=raw, token=token) for raw in (b"{", b"{}", b"[]")]
    answers.append(await shop.tenant.api.get(f"{nothing.path}?limit=x", token=token))
    assert {refused(answer) for answer in answers} == {MISSING}


async def test_an_impersonator_cannot_create_a_key(shop: Shop, tenants: Tenants) -> None:
    created_key, steward = await shop.created(), await add_platform_owner(tenants.ports)
    token = await impersonate(tenants.ports, steward, shop.tenant.people["owner"], shop.tenant.org)
    assert refused(await CALLS["create"](shop, token, created_key["id"])) == FORBIDDEN
    assert await shop.ids() == [created_key["id"]]
    assert [(await CALLS[call](shop, token, created_key["id"])).status for call in (("list", "get", "delete"))] == [200, 200, 204]
    assert (await shop.tenant.entry("api_key.deleted"))["impersonator_id"] == steward.id


# Concurrency


@pytest.mark.slow
async def test_of_twenty_concurrent_deletions_one_succeeds(shop: Shop) -> None:
    created_key = await shop.created()
    answers = await run_concurrently(20, lambda number: shop.delete(created_key["id"], "owner" if number % 2 else "admin"))
    assert sorted(answer.status for answer in answers) == [204] + [404] * 19
    assert await shop.tenant.actions() == {"api_key.created": 1, "api_key.deleted": 1}


@pytest.mark.slow
async def test_twenty_concurrent_creations_create_twenty_keys(shop: Shop) -> None:
    answers = await run_concurrently(20, lambda _: shop.create())
    assert {answer.status for answer in answers} == {201}
    assert len({answer.json["key"] for answer in answers}) == (await shop.list_keys())["total"] == 20


# Changes that happen while a write, already authenticated, waits for the lock on the organization
CHANGES: dict[str, tuple[str, tuple[int, str]]] = {
    "demoted admin": ("update memberships set role = 'member' where user_id = %(admin)s", FORBIDDEN),
    "removed admin": ("delete from memberships where user_id = %(admin)s", FORBIDDEN),
    "suspended organization": ("update organizations set status = 'suspended'", (403, "ORGANIZATION_NOT_ACTIVE")),
    "deleted service": ("delete from services", MISSING),
}


@pytest.mark.parametrize("who", CHANGES)
@pytest.mark.parametrize("call", WRITES)
async def test_a_write_that_waited_sees_the_change_it_waited_for(shop: Shop, call: str, who: str) -> None:
    change, expected = CHANGES[who]
    created_key = await shop.created()
    changes = [
        ("select 1 from organizations where id = %s for no key update", (shop.tenant.org,)),
        (change, {"admin": shop.tenant.people["admin"].id}),
    ]
    answer = await run_during(shop.tenant.pool, changes, lambda: CALLS[call](shop, shop.tenant.token("admin"), created_key["id"]))
    assert refused(answer) == expected
    assert await shop.tenant.actions() == {"api_key.created": 1}


# Changes that happen while a write by a key waits for the lock on the organization
KEY_CHANGES: dict[str, tuple[str, tuple[int, str]]] = {
    "deleted": ("delete from api_keys", (401, "UNAUTHORIZED")),
    "expired": ("update api_keys set expires_at = '2020-01-01'", (401, "UNAUTHORIZED")),
    "deleted service": ("delete from services", (401, "UNAUTHORIZED")),
    "suspended organization": ("update organizations set status = 'suspended'", (403, "ORGANIZATION_NOT_ACTIVE")),
    "deleted organization": ("delete from organizations", (401, "UNAUTHORIZED")),
}


@pytest.mark.parametrize("what", KEY_CHANGES)
async def test_a_key_that_became_invalid_during_a_wait_changes_nothing(shop: Shop, what: str) -> None:
    key = await add_api_key(shop.tenant.pool, shop.id)
    account = await add_account(shop.tenant.ports, "known@example.com")
    change, expected = KEY_CHANGES[what]
    changes = [("select 1 from organizations where id = %s for no key update", (shop.tenant.org,)), (change, ())]
    answer = await run_during(
        shop.tenant.pool,
        changes,
        lambda: shop.tenant.api.post("/api/service/users", {"email": "new@example.com"}, headers={"X-Api-Key": key}),
    )
    assert refused(answer) == expected
    assert await run_sql(shop.tenant.pool, "select email from users where email = 'new@example.com'") == []
    assert account.email == "known@example.com"
