"""Members and API keys give application roles to users, who lose them with their place in the organization."""

from uuid import uuid4

import pytest

from core.applications.model.authorization import MAX_ASSIGNMENTS
from core.kernel.roles import Permission
from tests.applications.api.authorization.store import DOCUMENT, Store
from tests.support.builders import add_account, add_member, run_sql
from tests.support.services import add_api_key, add_service, add_service_user
from tests.support.tenants import Tenant

both_callers = pytest.mark.parametrize("by", ["admin", "key"])
EDITORS = "/roles/editor/users"


@both_callers
async def test_a_user_of_the_service_gets_a_role_and_loses_it(declared: Store, acme: Tenant, by: str) -> None:
    user = await add_account(acme.ports, "ada@example.com")
    await add_service_user(acme.ports, declared.service, user.id)
    for status in (204, 204):  # the second time, nothing changes
        assert (await declared.call("PUT", f"{EDITORS}/{user.id}", by=by)).status == status
    assert await declared.holders() == [("editor", "ada@example.com")]
    for status in (204, 404):
        assert (await declared.call("DELETE", f"{EDITORS}/{user.id}", by=by)).status == status
    assert await declared.holders() == []
    details = {"service_slug": "shop", "service_name": "Shop", "role": "editor", "role_name": "Editor"}
    entries = [(entry["action"], entry["target_id"], entry["details"]) for entry in await acme.log()]
    for action in ("service.role.assigned", "service.role.unassigned"):
        assert [entry for entry in entries if entry[0] == action] == [(action, str(user.id), details)]


async def test_a_confirmed_member_gets_a_role_from_a_member_and_not_from_a_key(declared: Store, acme: Tenant) -> None:
    path = f"{EDITORS}/{acme.id('member')}"
    assert (await declared.call("PUT", path, by="key")).status == 404, "a key acts on users of its service only"
    assert (await declared.call("PUT", path)).status == 204
    assert (await declared.call("DELETE", path, by="key")).status == 404
    assert await declared.holders() == [("editor", acme.people["member"].email)]


async def test_strangers_unconfirmed_members_and_unknown_roles_are_not_found(declared: Store, acme: Tenant, other_tenant: Tenant) -> None:
    stranger, unconfirmed = await add_account(acme.ports, "s@example.com"), await add_account(acme.ports, "u@example.com")
    await add_member(acme.pool, acme.org, unconfirmed.id, confirmed=False)
    for user in (stranger.id, unconfirmed.id, other_tenant.id("member"), uuid4(), "nonsense"):
        for by in ("admin", "key"):
            for method in ("PUT", "DELETE"):
                assert (await declared.call(method, f"{EDITORS}/{user}", by=by)).status == 404
    assert (await declared.call("PUT", f"/roles/unknown/users/{acme.id('member')}")).status == 404
    assert await declared.holders() == []


async def test_users_of_a_role_are_listed_and_found(declared: Store, acme: Tenant) -> None:
    member, admin = acme.people["member"], acme.people["admin"]
    await declared.give("editor", admin.id, "2026-01-02")
    await declared.give("editor", member.id, "2026-01-01")
    await declared.give("viewer", member.id)
    answer = await declared.call("GET", EDITORS, by="member")
    assert [(user["user_id"], user["email"]) for user in answer.json["users"]] == [
        *((str(member.id), member.email), (str(admin.id), admin.email))
    ]
    assert answer.json["pagination"]["total"] == 2
    found = await declared.call("GET", f"{EDITORS}?search={admin.email.upper()}&limit=1")
    assert [user["email"] for user in found.json["users"]] == [admin.email]
    one = await declared.call("GET", f"{EDITORS}/{member.id}")
    assert one.json == {"user_id": str(member.id), "email": member.email, "assigned_at": "2026-01-01T00:00:00Z"}
    assert (await declared.call("GET", f"{EDITORS}/{acme.id('owner')}")).status == 404


async def test_a_role_is_given_by_email_address(declared: Store, acme: Tenant) -> None:
    answer = await declared.call("POST", EDITORS, {"email": acme.people["member"].email})
    assert (answer.status, answer.json["user_id"]) == (200, acme.id("member"))
    stranger = await add_account(acme.ports, "s@example.com")
    refusals = [(await declared.call("POST", EDITORS, {"email": email})) for email in (stranger.email, "unknown@example.com")]
    assert [(answer.status, answer.json["error"]) for answer in refusals] == [(404, refusals[0].json["error"])] * 2


async def test_a_user_can_have_a_limited_number_of_roles(declared: Store, acme: Tenant) -> None:
    fill = """
        with roles as (
            insert into service_roles (id, org_id, service_id, slug, name, permissions, created_at, updated_at)
            select gen_random_uuid(), org_id, id, 'r' || number, 'R', '{}', now(), now()
            from services cross join generate_series(1, %s) number returning id, org_id, service_id)
        insert into service_role_users (org_id, service_id, role_id, user_id, assigned_at)
        select org_id, service_id, id, %s, now() from roles"""
    await run_sql(acme.pool, fill, MAX_ASSIGNMENTS - 1, acme.id("member"))
    path = acme.id("member")
    assert (await declared.call("PUT", f"{EDITORS}/{path}")).status == 204
    refused = await declared.call("PUT", f"/roles/viewer/users/{path}")
    assert (refused.status, refused.code) == (400, "BAD_REQUEST")
    assert "500" in refused.json["error"]
    assert (await declared.call("PUT", f"{EDITORS}/{path}")).status == 204, "they have it"


async def test_roles_of_a_user_are_listed_for_members_and_keys(declared: Store, acme: Tenant) -> None:
    forum = await add_service(acme.pool, acme.org, "forum")
    user = await add_account(acme.ports, "ada@example.com")
    await add_service_user(acme.ports, declared.service, user.id)
    await acme.api.call("PUT", f"{acme.path}/services/forum/authorization", DOCUMENT, token=acme.token("admin"))
    await Store(acme, forum, "").give("viewer", user.id)
    await declared.give("editor", user.id)
    await declared.give("viewer", user.id)
    roles = (await acme.api.get(f"{acme.path}/users/{user.id}/roles", token=acme.token("member"))).json["roles"]
    assert [(role["service_slug"], role["slug"]) for role in roles] == [("forum", "viewer"), ("shop", "editor"), ("shop", "viewer")]
    assert roles[0] == {**roles[0], "service_name": "Forum", "name": "Viewer", "permissions": ["documents:read"]}
    by_key = (await declared.call("GET", f"/users/{user.id}/roles", by="key")).json
    assert [role["slug"] for role in by_key["roles"]] == ["editor", "viewer"]
    assert by_key["permissions"] == ["documents:read", "documents:write"]


async def test_a_key_needs_the_permission_for_roles(declared: Store, acme: Tenant) -> None:
    user = await add_account(acme.ports, "ada@example.com")
    await add_service_user(acme.ports, declared.service, user.id)
    declared.key = await add_api_key(acme.pool, declared.service, set(Permission) - {Permission.WRITE_ROLES})
    for method in ("PUT", "DELETE"):
        assert (await declared.call(method, f"{EDITORS}/{user.id}", by="key")).status == 403


# How an assignment ends


@pytest.fixture
async def assigned(declared: Store, acme: Tenant) -> Store:
    """The shop, where the member is an editor, and Ada, who uses it, too."""
    ada = await add_account(acme.ports, "ada@example.com")
    await add_service_user(acme.ports, declared.service, ada.id)
    for user in (ada.id, acme.id("member")):
        await declared.give("editor", user)
    return declared


async def test_a_member_who_leaves_loses_the_roles(assigned: Store, acme: Tenant) -> None:
    await add_service_user(acme.ports, assigned.service, acme.people["member"].id)  # who stays an end user
    assert (await acme.remove("owner", "member")).status == 200
    assert await assigned.holders() == [("editor", "ada@example.com")]


async def test_a_user_whom_a_key_removes_loses_the_roles(assigned: Store, acme: Tenant) -> None:
    forum = await add_service(acme.pool, acme.org, "forum")
    await acme.api.call("PUT", f"{acme.path}/services/forum/authorization", DOCUMENT, token=acme.token("admin"))
    [(ada,)] = await run_sql(acme.pool, "select id from users where email = 'ada@example.com'")
    await Store(acme, forum, "").give("viewer", ada)  # which she has as an end user in the shop
    key = await add_api_key(acme.pool, assigned.service, [Permission.DELETE_USERS])
    assert (await acme.api.delete(f"/api/service/users/{ada}", headers={"X-Api-Key": key})).status == 204
    assert await assigned.holders() == [("editor", acme.people["member"].email)]


async def test_an_end_user_who_is_unassigned_and_never_signed_in_loses_the_roles(declared: Store, acme: Tenant) -> None:
    bea = await add_account(acme.ports, "bea@example.com")
    await add_service_user(acme.ports, declared.service, bea.id, signed_in=False)
    await run_sql(acme.pool, "update service_users set enrolled_by = 'admin'")
    await declared.give("editor", bea.id)
    assert (await declared.call("DELETE", f"/assignments/{bea.id}")).status == 204
    assert await declared.holders() == []


async def test_users_of_a_deleted_service_lose_their_roles_elsewhere(assigned: Store, acme: Tenant) -> None:
    forum = await add_service(acme.pool, acme.org, "forum")
    await acme.api.call("PUT", f"{acme.path}/services/forum/authorization", DOCUMENT, token=acme.token("admin"))
    for (user,) in await run_sql(acme.pool, "select user_id from service_role_users"):
        await Store(acme, forum, "").give("viewer", user)
    assert (await acme.api.delete(assigned.path, token=acme.token("owner"))).status == 204
    assert await assigned.holders() == [("viewer", acme.people["member"].email)], "Ada used no other service, and is no member"
