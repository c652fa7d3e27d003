"""Changes to permissions and roles at once: no change is lost, and no user keeps a role that is gone."""

import pytest

from core.kernel.roles import Permission
from tests.applications.api.authorization.store import DOCUMENT, Store
from tests.applications.api.evaluation.asking import Asking
from tests.support.builders import Answer, add_account, run_concurrently, run_sql
from tests.support.services import add_api_key, add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin

pytestmark = pytest.mark.slow

GROUP_ENTRIES = ("service.role.group_assigned", "service.role.group_unassigned")


@pytest.fixture
async def store(acme: Tenant) -> Store:
    """Acme's shop with DOCUMENT, in version 1."""
    service = await add_service(acme.pool, acme.org)
    store = Store(acme, service, await add_api_key(acme.pool, service, tuple(Permission)))
    assert (await store.put(DOCUMENT)).status == 200
    return store


async def test_of_twenty_documents_with_the_same_version_one_is_stored(store: Store) -> None:
    async def put(number: int) -> Answer:
        document = {"permissions": [{"name": f"p{number}", "description": None}], "roles": []}
        return await store.put(document, by=("admin", "owner", "key")[number % 3], **{"If-Match": '"1"'})

    answers = await run_concurrently(20, put)
    assert sorted(answer.status for answer in answers) == [200] + [412] * 19
    [winner] = [answer.json for answer in answers if answer.status == 200]
    assert (await store.get()).json == {name: winner[name] for name in ("version", "permissions", "roles")}
    assert winner["version"] == 2


async def test_twenty_single_changes_are_all_stored(store: Store) -> None:
    async def declare(number: int) -> Answer:
        return await store.call("POST", "/permissions", {"name": f"p{number}"}, by=("admin", "owner")[number % 2])

    assert {answer.status for answer in await run_concurrently(20, declare)} == {201}
    assert len((await store.document())["permissions"]) == 22
    assert (await store.get()).json["version"] == 21


async def test_the_limit_holds_for_twenty_roles_at_once(store: Store) -> None:
    roles = [{"slug": f"r{number}", "name": "R", "permissions": []} for number in range(45)]
    assert (await store.put({"permissions": [], "roles": roles})).status == 200

    async def create(number: int) -> Answer:
        return await store.call("POST", "/roles", {"slug": f"new{number}", "name": "R"})

    answers = await run_concurrently(20, create)
    assert sorted(answer.status for answer in answers) == [201] * 5 + [400] * 15


async def test_a_role_that_is_deleted_while_it_is_given_has_no_users(store: Store, acme: Tenant) -> None:
    users = [await add_account(acme.ports, f"user{number}@example.com") for number in range(19)]
    for user in users:
        await add_service_user(acme.ports, store.service, user.id)

    async def act(number: int) -> Answer:
        if number == len(users):
            return await store.call("DELETE", "/roles/editor?confirm=true")
        return await store.call("PUT", f"/roles/editor/users/{users[number].id}", by=("admin", "key")[number % 2])

    answers = await run_concurrently(len(users) + 1, act)
    assert answers[-1].status == 204
    assert {answer.status for answer in answers[:-1]} <= {204, 404}
    assert await store.holders() == []
    gone = [entry["details"]["user_count"] for entry in await acme.log() if entry["action"] == "service.role.deleted"]
    assert gone == [sum(answer.status == 204 for answer in answers[:-1])], "the entry has the number of users who lost the role"


async def test_a_member_who_leaves_while_getting_roles_keeps_none(store: Store, acme: Tenant) -> None:
    roles = [{"slug": f"r{number}", "name": "R", "permissions": []} for number in range(19)]
    assert (await store.put({"permissions": [], "roles": roles})).status == 200

    async def act(number: int) -> Answer:
        if number == len(roles):
            return await acme.remove("owner", "member")
        return await store.call("PUT", f"/roles/r{number}/users/{acme.id('member')}")

    answers = await run_concurrently(len(roles) + 1, act)
    assert answers[-1].status == 200
    assert {answer.status for answer in answers[:-1]} <= {204, 404}
    assert await store.holders() == []


async def test_the_limit_of_a_user_holds_for_twenty_assignments_at_once(store: Store, acme: Tenant) -> None:
    fill = """
        with roles as (
            insert into service_roles (id, org_id, service_id, slug, name, permissions, created_at, updated_at)
            select gen_random_uuid(), org_id, id, 'r' || number, 'R', '{}', now(), now()
            from services cross join generate_series(1, 515) number returning id, org_id, service_id, slug)
        insert into service_role_users (org_id, service_id, role_id, user_id, assigned_at)
        select org_id, service_id, id, %s, now() from roles where substr(slug, 2)::int <= 495"""
    await run_sql(acme.pool, fill, acme.id("member"))

    async def give(number: int) -> Answer:
        return await store.call("PUT", f"/roles/r{496 + number}/users/{acme.id('member')}")

    answers = await run_concurrently(20, give)
    assert sorted(answer.status for answer in answers) == [204] * 5 + [400] * 15


@pytest.mark.parametrize("to", ["user", "group"])
async def test_a_role_that_is_given_and_taken_at_once_is_in_the_state_of_the_last_entry(store: Store, acme: Tenant, to: str) -> None:
    """Every change is answered and recorded once, and the entries alternate. Decisions follow the stored state."""
    member, groups = acme.id("member"), GroupAdmin(acme)
    await add_service_user(acme.ports, store.service, acme.people["member"].id)
    group = await groups.create()
    await groups.add(group, member)
    await groups.assign("shop", group)
    path = f"/roles/editor/users/{member}" if to == "user" else f"/roles/editor/groups/{group}"

    async def act(number: int) -> list[tuple[str, int]]:
        by, methods = ("admin", "owner", "key")[number % 3], ("PUT", "DELETE", "PUT") if number % 2 else ("DELETE", "PUT", "DELETE")
        return [(method, (await store.call(method, path, by=by)).status) for method in methods]

    results = {result for results in await run_concurrently(20, act) for result in results}
    assert results <= {("PUT", 204), ("DELETE", 204), ("DELETE", 404)}
    given, taken = ("service.role.assigned", "service.role.unassigned") if to == "user" else GROUP_ENTRIES
    entries = [entry["action"] for entry in await acme.log() if entry["action"] in (given, taken)]
    assert entries == [(given, taken)[number % 2] for number in range(len(entries))]
    rows = await run_sql(acme.pool, f"select count(*) from service_role_{to}s")  # noqa: S608
    assert rows == [(len(entries) % 2,)]
    asking = Asking(store, store.key)
    assert await asking.reason(member, "documents:write") == ("editor" if rows == [(1,)] else "role_missing")
