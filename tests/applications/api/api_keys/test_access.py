"""The members that manage API keys, and concurrent changes (security I-4, T-1, T-2, Z-5)."""

from collections.abc import Awaitable, Callable

import pytest

from tests.applications.api.api_keys.shop import GOOD, Shop, open_shop
from tests.support.builders import Answer, add_account, add_platform_owner, impersonate, run_concurrently, run_during, run_sql, sign_in
from tests.support.refusals import FORBIDDEN, MISSING, refused
from tests.support.services import add_api_key
from tests.support.tenants import Tenant, Tenants

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
    created_key = await shop.add_key()
    before = await tenants.everything()
    answer = await CALLS[call](shop, shop.tenant.token("member"), created_key["id"])
    if call in WRITES:
        assert refused(answer) == FORBIDDEN
    else:
        assert answer.status == 200
    for token in (other_tenant.token("owner"), (await sign_in(tenants.ports, await add_platform_owner(tenants.ports))).access_token):
        assert refused(await CALLS[call](shop, token, created_key["id"])) == FORBIDDEN
    assert await shop.ids() == [created_key["id"]]
    assert [row for row in await tenants.everything() if row in before] == before


@pytest.mark.parametrize("call", CALLS)
async def test_the_organization_must_be_active_and_have_the_service(shop: Shop, other_tenant: Tenant, call: str) -> None:
    created_key, token = await shop.add_key(), shop.tenant.token("owner")
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
    missing, token = Shop(shop.tenant, shop.id, "nothing"), shop.tenant.token("owner")
    answers = [await shop.tenant.api.call("POST", missing.path, raw=raw, token=token) for raw in (b"{", b"{}", b"[]")]
    answers.append(await shop.tenant.api.get(f"{missing.path}?limit=x", token=token))
    assert {refused(answer) for answer in answers} == {MISSING}


async def test_an_impersonator_can_only_read_keys(shop: Shop, tenants: Tenants) -> None:
    created_key, steward = await shop.add_key(), await add_platform_owner(tenants.ports)
    token = await impersonate(tenants.ports, steward, shop.tenant.people["owner"], shop.tenant.org)
    for call in ("create", "delete"):
        assert refused(await CALLS[call](shop, token, created_key["id"])) == FORBIDDEN
    assert await shop.ids() == [created_key["id"]]
    assert [(await CALLS[call](shop, token, created_key["id"])).status for call in ("list", "get")] == [200, 200]


# Concurrency


@pytest.mark.slow
async def test_of_twenty_concurrent_deletions_one_succeeds(shop: Shop) -> None:
    created_key = await shop.add_key()
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


@pytest.mark.parametrize("caller", CHANGES)
@pytest.mark.parametrize("call", WRITES)
async def test_a_write_sees_the_change_that_it_waited_for(shop: Shop, call: str, caller: str) -> None:
    change, expected = CHANGES[caller]
    created_key = await shop.add_key()
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


@pytest.mark.parametrize("case", KEY_CHANGES)
async def test_a_key_that_became_invalid_during_a_wait_changes_nothing(shop: Shop, case: str) -> None:
    key = await add_api_key(shop.tenant.pool, shop.id)
    account = await add_account(shop.tenant.ports, "known@example.com")
    change, expected = KEY_CHANGES[case]
    changes = [("select 1 from organizations where id = %s for no key update", (shop.tenant.org,)), (change, ())]
    answer = await run_during(
        shop.tenant.pool,
        changes,
        lambda: shop.tenant.api.post("/api/service/users", {"email": "new@example.com"}, headers={"X-Api-Key": key}),
    )
    assert refused(answer) == expected
    assert await run_sql(shop.tenant.pool, "select email from users where email = 'new@example.com'") == []
    assert account.email == "known@example.com"
