"""Groups that admins manage: names, members, and what happens when memberships end."""

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.tenancy.model import groups as model
from ports import Ports
from tests.support.builders import add_account, add_member, run_concurrently, run_sql
from tests.support.refusals import refused
from tests.support.scim import directory_of
from tests.support.services import add_api_key, add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin, check_counts, group_ids_of


@pytest.fixture
def groups(acme: Tenant) -> GroupAdmin:
    return GroupAdmin(acme)


async def test_an_admin_creates_changes_and_deletes_a_group(groups: GroupAdmin, acme: Tenant) -> None:
    created = (await groups.call("POST", "", {"name": " Engineering ", "description": "Everyone who builds"})).json
    group = created["id"]
    assert (created["name"], created["description"], created["directory"], created["member_count"]) == (
        "Engineering",
        "Everyone who builds",
        None,
        0,
    )
    assert await groups.get(group) == created
    changed = (await groups.call("PATCH", f"/{group}", {"name": "Research", "description": None})).json
    assert (changed["name"], changed["description"]) == ("Research", None)
    assert refused(await groups.call("PATCH", f"/{group}", {})) == (400, "BAD_REQUEST")
    assert (await groups.call("PATCH", f"/{group}", {"name": "Research"})).json == changed, "nothing is written again"
    assert (await groups.call("DELETE", f"/{group}")).status == 204
    assert (await groups.call("GET", f"/{group}")).json["error"] == model.OrganizationGroupNotFound.__doc__
    assert await acme.actions() == {"group.created": 1, "group.updated": 1, "group.deleted": 1}
    assert (await acme.log())[1]["details"]["changes"] == {
        "name": {"old": "Engineering", "new": "Research"},
        "description": {"old": "Everyone who builds", "new": None},
    }


async def test_groups_are_listed_by_name_and_found_in_any_case(groups: GroupAdmin, other_tenant: Tenant) -> None:
    await GroupAdmin(other_tenant).create("Foreign")
    for name in ("sales", "Engineering", "Straße"):
        await groups.create(name)
    assert await groups.names() == ["Engineering", "sales", "Straße"]
    assert await groups.names("?search=STRASSE") == ["Straße"]
    assert await groups.names("?search=%25") == []
    pages = [(await groups.call("GET", f"?limit=2&page={page}")).json for page in (1, 2, 3)]
    assert [([each["name"] for each in page["groups"]], page["pagination"]["total"]) for page in pages] == [
        (["Engineering", "sales"], 3),
        (["Straße"], 3),
        ([], 3),
    ]


async def test_names_are_unique_among_groups_assigned_applications_and_the_organization(groups: GroupAdmin, acme: Tenant) -> None:
    await add_service(acme.pool, acme.org, "store")  # its name is "Store"
    await run_sql(acme.pool, "update services set access_policy = 'assigned' where slug = 'store'")
    await add_service(acme.pool, acme.org, "desk")
    await groups.create("Engineering")
    group = await groups.create("Desk")  # everyone may use the application with this name
    for name, owner in (("ENGINEERING", "A group"), ("stORE", "An application"), ("ACME", "The organization itself")):
        for answer in (await groups.call("POST", "", {"name": name}), await groups.call("PATCH", f"/{group}", {"name": name})):
            assert refused(answer) == (409, "CONFLICT")
            assert answer.json["error"].startswith(owner), answer.text
    assert (await groups.call("PATCH", f"/{group}", {"name": "DESK"})).status == 200, "the case of the own name"


async def test_members_and_end_users_can_be_in_groups(
    groups: GroupAdmin, acme: Tenant, other_tenant: Tenant, user: Account, pool: Pool
) -> None:
    group = await groups.create()
    for stranger in (user.id, other_tenant.id("member"), "no-id"):
        answer = await groups.add(group, stranger)
        assert (answer.status, answer.json["error"]) == (404, model.GroupUserNotFound.__doc__)
    await add_member(pool, acme.org, user.id)
    assert (await groups.add(group, user.id)).status == 404, "the user has not confirmed the membership"
    end_user = await add_account(acme.ports, "end-user@example.com")
    await add_service_user(acme.ports, await add_service(pool, acme.org, "store"), end_user.id)
    for _ in range(2):
        assert (await groups.add(group, end_user.id)).status == 204
    added = await groups.call("POST", f"/{group}/members", {"email": f" {str(acme.people['member'].email).upper()} "})
    assert (added.status, added.json) == (200, {"user_id": acme.id("member")})
    unknown = await groups.call("POST", f"/{group}/members", {"email": "unknown@example.com"})
    assert (unknown.status, unknown.json["error"]) == (404, model.GroupUserNotFound.__doc__)
    assert await groups.emails(group) == ["end-user@example.com", acme.people["member"].email]
    assert await groups.emails(group, "?search=END-") == ["end-user@example.com"]
    assert await groups.emails(group, "?search=%25") == []
    assert (await groups.remove(group, end_user.id)).status == 204
    again = await groups.remove(group, end_user.id)
    assert (again.status, again.json["error"]) == (404, model.NotInGroup.__doc__)
    assert await acme.actions() == {"group.created": 1, "group.member_added": 2, "group.member_removed": 1}
    last = (await acme.log())[-1]
    assert (last["target_id"], last["details"]) == (
        group,
        {"group_name": "Engineering", "count": 1, "user_id": str(end_user.id), "user_ids": [str(end_user.id)]},
    )
    assert (await groups.get(group))["member_count"] == 1


async def test_members_who_see_no_end_users_do_not_see_the_users_of_groups(groups: GroupAdmin, acme: Tenant) -> None:
    group = await groups.create()
    path = f"{groups.path}/{group}/members"
    assert (await acme.api.get(path, token=acme.token("member"))).status == 200
    await acme.api.patch(acme.path, {"members_see_end_users": False}, token=acme.token("admin"))
    assert (await acme.api.get(path, token=acme.token("member"))).status == 403
    assert (await acme.api.get(path, token=acme.token("admin"))).status == 200


async def test_a_group_of_another_organization_does_not_exist(groups: GroupAdmin, acme: Tenant, other_tenant: Tenant) -> None:
    foreign = await GroupAdmin(other_tenant).create("Foreign")
    await add_service(acme.pool, acme.org, "store")
    answers = [
        *[await groups.call(method, f"/{foreign}", body) for method, body in (("GET", None), ("PATCH", {"name": "x"}), ("DELETE", None))],
        *[await groups.call("GET", f"/{foreign}/members"), await groups.call("POST", f"/{foreign}/members", {"email": "a@example.com"})],
        *[await groups.add(foreign, acme.id("member")), await groups.remove(foreign, other_tenant.id("member"))],
        *[await groups.assign("store", foreign), await groups.unassign("store", foreign)],
    ]
    assert [answer.status for answer in answers] == [404] * 9
    assert await GroupAdmin(other_tenant).names() == ["Foreign"]


async def test_the_end_of_a_membership_ends_memberships_in_groups(groups: GroupAdmin, acme: Tenant) -> None:
    group = await groups.create()
    removed, leaver = acme.people["member"], await add_account(acme.ports, "leaver@example.com")
    await acme.join("leaver", leaver)
    for account in (removed, leaver):
        await groups.add(group, account.id)
    assert (await acme.remove("owner", "member")).status == 200
    assert await groups.emails(group) == ["leaver@example.com"]
    assert (await acme.api.post(f"{acme.path}/leave", token=acme.token("leaver"))).status in (200, 204)
    assert await groups.emails(group) == []
    assert (await acme.actions())["group.member_added"] == 2


async def test_a_user_of_no_application_leaves_the_groups(
    groups: GroupAdmin, acme: Tenant, user: Account, pool: Pool, ports: Ports
) -> None:
    """An organization keeps no group with the address of a user that it has no relation to."""
    group = await groups.create()
    services = [await add_service(pool, acme.org, slug) for slug in ("store", "desk")]
    for service in services:
        await add_service_user(ports, service, user.id)
    both = acme.people["member"]
    await add_service_user(ports, services[1], both.id)
    for account in (user, both):
        assert (await groups.add(group, account.id)).status == 204
    key = {"X-Api-Key": await add_api_key(pool, services[0])}
    assert (await acme.api.call("DELETE", f"/api/service/users/{user.id}", headers=key)).status in (200, 204)
    assert await groups.emails(group) == [user.email, both.email], "the user has another application here"
    answer = await acme.api.delete(f"{acme.path}/services/desk", token=acme.token("owner"))
    assert answer.status == 204, answer.text
    assert await groups.emails(group) == [both.email]


async def test_a_user_that_the_directory_blocks_leaves_the_groups_of_admins(groups: GroupAdmin, acme: Tenant) -> None:
    directory = await directory_of(acme)
    user = await directory.create_user()
    group = await groups.create()
    assert (await groups.add(group, user["id"])).status == 204
    await directory.deactivate(user["id"])
    assert await groups.emails(group) == []
    await directory.activate(user["id"])
    assert (await groups.add(group, user["id"])).status == 204
    await directory.patch_group({"op": "remove", "path": f'members[value eq "{user["id"]}"]'})
    assert await groups.emails(group) == []


async def test_an_account_that_is_deleted_is_not_counted(groups: GroupAdmin, acme: Tenant, pool: Pool) -> None:
    directory = await directory_of(acme)
    user = await directory.create_user()
    first, second = await groups.create("First"), await groups.create("Second")
    for group in (first, second):
        await groups.add(group, user["id"])
        await groups.add(group, acme.id("member"))
    assert (await directory.delete(user["id"])).status == 204
    await check_counts(pool)
    assert [(await groups.get(group))["member_count"] for group in (first, second)] == [1, 1]


async def test_a_deleted_organization_leaves_no_group(groups: GroupAdmin, acme: Tenant, pool: Pool) -> None:
    group = await groups.create()
    await groups.add(group, acme.id("member"))
    assert (await acme.api.delete(acme.path, token=acme.token("owner"))).status == 204
    assert await run_sql(pool, "select (select count(*) from groups), (select count(*) from group_members)") == [(0, 0)]


async def test_twenty_admins_at_once_keep_the_names_the_limit_and_the_counts(
    groups: GroupAdmin, acme: Tenant, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.tenancy.model.groups.MAX_GROUPS", 5)
    answers = await run_concurrently(20, lambda number: groups.call("POST", "", {"name": f"Group {number % 10}"}))
    statuses = sorted(answer.status for answer in answers)
    assert (statuses[:5], set(statuses[5:]) <= {400, 409}) == ([201] * 5, True)
    names = await groups.names()
    assert len(names) == len(set(names)) == 5
    group = (await groups.call("GET")).json["groups"][0]["id"]
    people = [await add_account(acme.ports, f"user{number}@example.com") for number in range(4)]
    for account in people:
        await add_member(pool, acme.org, account.id, confirmed=True)

    async def act(number: int) -> None:
        change = groups.add if number % 2 else groups.remove
        assert (await change(group, people[number % 4].id)).status in (204, 404)

    await run_concurrently(20, act)
    await check_counts(pool)
    assert (await group_ids_of(pool, people[0].id)) == set(), "only added users are members"


async def test_a_full_group_takes_no_further_user(groups: GroupAdmin, acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.tenancy.model.groups.MAX_GROUP_MEMBERS", 2)
    group = await groups.create()
    assert [(await groups.add(group, acme.id(name))).status for name in ("owner", "admin", "member")] == [204, 204, 400]
