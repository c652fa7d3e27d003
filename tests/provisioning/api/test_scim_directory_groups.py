"""Groups that a directory creates, with *directory groups* switched on for its token."""

from collections import Counter
from urllib.parse import quote
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.provisioning.model.schemas import GROUP_URN, USER_URN
from ports import Ports
from tests.support.builders import add_account, add_member, run_sql
from tests.support.scim import GRACE, Directory, GroupDirectory, directory_of, problem
from tests.support.services import add_service, add_service_user, sign_in_to
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin, add_group, check_counts


@pytest.fixture
async def directory(acme: Tenant) -> Directory:
    return await directory_of(acme, groups=True)


@pytest.fixture
def groups(directory: Directory) -> GroupDirectory:
    return GroupDirectory(directory)


async def test_a_directory_creates_changes_and_deletes_a_group(groups: GroupDirectory, directory: Directory, acme: Tenant) -> None:
    ada, tim = [(await directory.create_user(f"{name}@acme.example"))["id"] for name in ("ada", "tim")]
    created = await groups.try_create("Engineering", ada, externalId="8aa1a0c0")
    group = created.json["id"]
    assert created.headers["Location"] == created.json["meta"]["location"]
    members = [member["value"] for member in created.json["members"]]
    assert (created.json["displayName"], created.json["externalId"], members) == ("Engineering", "8aa1a0c0", [ada])
    assert await directory.get(f"/Groups/{group}") == created.json
    answer = await groups.patch(
        group,
        {"op": "Replace", "path": "displayName", "value": "Research"},
        {"op": "Replace", "path": "externalId", "value": "9bb"},
        {"op": "Add", "path": "members", "value": [{"value": tim}]},
        {"op": "Remove", "path": f'members[value eq "{ada}"]'},
    )
    assert (answer.status, answer.text) == (204, "")
    changed = await directory.get(f"/Groups/{group}")
    assert (changed["displayName"], changed["externalId"], [member["value"] for member in changed["members"]]) == ("Research", "9bb", [tim])
    whole = {"schemas": [GROUP_URN], "displayName": "Lab", "members": [{"value": ada}], "externalId": None}
    replaced = (await directory.call("PUT", f"/Groups/{group}", whole)).json
    assert (replaced["displayName"], replaced["externalId"]) == ("Lab", None)
    assert await groups.members(group) == {ada}
    assert (await directory.call("DELETE", f"/Groups/{group}")).status == 204
    assert [problem(await directory.call(method, f"/Groups/{group}")) for method in ("GET", "DELETE")] == [(404, None)] * 2
    actions = Counter(entry["action"] for entry in await acme.log() if entry["action"].startswith("group."))
    assert actions == {"group.created": 1, "group.updated": 2, "group.member_added": 3, "group.member_removed": 2, "group.deleted": 1}


async def test_a_user_has_the_groups_of_the_directory(groups: GroupDirectory, directory: Directory, acme: Tenant) -> None:
    ada = (await directory.create_user("ada@acme.example"))["id"]
    assert "groups" not in await directory.get(f"/Users/{ada}")
    ids = {name: await groups.create(name, ada) for name in ("Research", "Engineering")}
    by_hand = await add_group(acme.pool, acme.org, UUID(ada), name="By hand")
    user = await directory.get(f"/Users/{ada}")
    assert [(group["display"], group["value"], group["type"]) for group in user["groups"]] == [
        ("Engineering", ids["Engineering"], "direct"),
        ("Research", ids["Research"], "direct"),
    ]
    assert (await directory.get(user["groups"][0]["$ref"].partition("/scim/v2")[2]))["displayName"] == "Engineering"
    listed = await directory.get("/Users?filter=" + quote(f'id eq "{ada}"'))
    assert listed["Resources"] == [user]
    for query, has_groups in (("excludedAttributes=groups", False), ("attributes=userName", False), ("attributes=groups", True)):
        assert ("groups" in await directory.get(f"/Users/{ada}?{query}")) is has_groups
    body = {"schemas": [USER_URN], "userName": "ada@acme.example", "groups": [{"value": str(by_hand)}]}
    assert (await directory.call("PUT", f"/Users/{ada}", body)).json["groups"] == user["groups"], "read-only"
    other = await directory_of(acme)
    assert "groups" not in await other.get(f"/Users/{ada}"), "without directory groups"
    await groups.patch(ids["Research"], {"op": "Remove", "path": "members"})
    assert [group["display"] for group in (await directory.get(f"/Users/{ada}"))["groups"]] == ["Engineering"]


async def test_without_the_switch_groups_are_neither_created_nor_seen(groups: GroupDirectory, acme: Tenant) -> None:
    group = await groups.create("Engineering")
    other = await directory_of(acme)
    body = {"schemas": [GROUP_URN], "displayName": "Another"}
    assert problem(await other.call("POST", "/Groups", body)) == (501, None)
    assert problem(await other.call("DELETE", f"/Groups/{group}")) == (404, None)
    assert [each["displayName"] for each in (await other.get("/Groups"))["Resources"]] == ["Acme"]
    patch = {"Operations": [{"op": "replace", "value": {"displayName": "x"}}]}
    for method, sent in (("GET", None), ("PUT", body), ("PATCH", patch)):
        assert problem(await other.call(method, f"/Groups/{group}", sent)) == (404, None)
    [schema] = [each for each in (await other.get("/Schemas"))["Resources"] if each["id"] == GROUP_URN]
    assert schema["attributes"][0]["mutability"] == "readOnly"


async def test_the_switch_counts_from_the_next_request_on(groups: GroupDirectory, acme: Tenant) -> None:
    admin = GroupAdmin(acme)
    group = await groups.create("Engineering")
    path = f"{acme.path}/scim-tokens"
    [token] = (await acme.api.get(path, token=acme.token("admin"))).json["tokens"]
    assert token["directory_groups"] is True
    managed = await admin.call("PATCH", f"/{group}", {"name": "Research"})
    assert (managed.status, managed.json["error"]) == (409, "The directory Directory manages this group. Change the group there.")
    assert (await admin.get(group))["directory"] == "Directory"
    refused = [
        await admin.call("DELETE", f"/{group}"),
        await admin.add(group, acme.id("member")),
        await admin.remove(group, acme.id("owner")),
    ]
    assert [answer.status for answer in refused] == [409] * 3
    off = await acme.api.patch(f"{path}/{token['id']}", {"directory_groups": False}, token=acme.token("admin"))
    assert (off.status, off.json["directory_groups"]) == (200, False)
    assert (await groups.try_create("Another")).status == 501
    assert (await admin.get(group))["directory"] is None
    assert (await admin.call("PATCH", f"/{group}", {"name": "Research"})).status == 200, "admins manage it while no directory can"
    on = await acme.api.patch(f"{path}/{token['id']}", {"directory_groups": True}, token=acme.token("admin"))
    assert on.status == 200
    assert await groups.find('displayName eq "research"') == ["Research"]
    details = [entry["details"]["changes"] for entry in await acme.log() if entry["action"] == "scim_token.updated"]
    assert details == [{"directory_groups": {"old": old, "new": not old}} for old in (True, False)]
    unknown = await acme.api.patch(f"{path}/{group}", {"directory_groups": True}, token=acme.token("admin"))
    assert unknown.status == 404


async def test_a_new_token_continues_with_the_groups_of_a_revoked_one(groups: GroupDirectory, acme: Tenant) -> None:
    group = await groups.create("Engineering")
    [old] = (await acme.api.get(f"{acme.path}/scim-tokens", token=acme.token("admin"))).json["tokens"]
    new = GroupDirectory(await directory_of(acme, groups=True))
    assert (await acme.api.delete(f"{acme.path}/scim-tokens/{old['id']}", token=acme.token("admin"))).status == 204
    assert (await new.add(group, acme.id("member"))).status == 204
    assert await new.members(group) == {acme.id("member")}


async def test_names_are_unique_in_any_case(groups: GroupDirectory, acme: Tenant) -> None:
    """Among the groups of directories and admins, applications for assigned users, and the organization."""
    await add_service(acme.pool, acme.org, "store")
    await run_sql(acme.pool, "update services set access_policy = 'assigned'")
    await GroupAdmin(acme).create("Sales")
    await groups.create("Engineering")
    second = await groups.create("Second")
    for name in ("engineering", "SALES", "Store", "acme"):
        assert problem(await groups.try_create(name)) == (409, "uniqueness"), name
        assert problem(await groups.patch(second, {"op": "replace", "path": "displayName", "value": name})) == (409, "uniqueness"), name
    assert (await groups.patch(second, {"op": "replace", "path": "displayName", "value": "SECOND"})).status == 204
    assert await groups.find('displayName eq "ENGINEERING"') == ["Engineering"]
    assert await groups.find('displayName eq "sales"') == [], "an admin manages this group"
    wrong: list[dict[str, object]] = [{"displayName": name} for name in ("", "\u200b", "x" * 257, 5)]
    for body in (dict[str, object](members=[]), *wrong):
        assert problem(await groups.directory.call("POST", "/Groups", {"schemas": [GROUP_URN], **body})) == (400, "invalidValue"), body


async def test_groups_are_found_by_name_in_any_case(directory: Directory, groups: GroupDirectory) -> None:
    """/Schemas says so, too (RFC 7643 section 8.7.1)."""
    await groups.create("Demo")
    assert await groups.find('displayName eq "demo"') == ["Demo"]
    assert await groups.find('displayName eq "aCME"') == ["Acme"]
    schemas = (await directory.get("/Schemas"))["Resources"]
    exact = {schema["name"]: each["caseExact"] for schema in schemas for each in schema["attributes"] if each["name"] == "displayName"}
    assert exact == {"User": False, "Group": False}
    [name] = [each for schema in schemas if schema["name"] == "Group" for each in schema["attributes"] if each["name"] == "displayName"]
    assert (name["mutability"], name["required"], name["uniqueness"]) == ("readWrite", True, "server")


async def test_groups_are_filtered_by_members_ids_and_external_ids(directory: Directory, groups: GroupDirectory) -> None:
    ada, tim = [(await directory.create_user(f"{name}@acme.example"))["id"] for name in ("ada", "tim")]
    first = await groups.create("First", ada, externalId="e1")
    await groups.create("Second", ada, tim, externalId="E1")
    assert await groups.find(f'members eq "{ada}"') == ["Acme", "First", "Second"]
    assert await groups.find(f'members[value eq "{tim}"]') == ["Acme", "Second"]
    assert await groups.find(f'id eq "{first}" and members eq "{tim}"') == []
    assert await groups.find('externalId eq "e1"') == ["First"]
    assert await groups.find(f'id eq "{first}"') == ["First"]
    assert "members" not in await directory.get(f"/Groups/{first}?excludedAttributes=members")
    listed = await directory.get("/Groups?startIndex=2&count=1")
    assert ([each["displayName"] for each in listed["Resources"]], listed["totalResults"]) == (["First"], 3)


async def test_members_are_users_of_the_organization_or_of_the_directory(
    groups: GroupDirectory, acme: Tenant, other_tenant: Tenant, user: Account, pool: Pool, ports: Ports
) -> None:
    end_user, unconfirmed = await add_account(ports, "end-user@example.com"), await add_account(ports, "new@example.com")
    await add_service_user(ports, await add_service(pool, acme.org, "store"), end_user.id)
    await add_member(pool, acme.org, unconfirmed.id)
    known = {str(end_user.id), str(unconfirmed.id), acme.id("owner")}
    group = await groups.create("Engineering", *known)
    assert await groups.members(group) == known
    for stranger in (user.id, other_tenant.id("member"), "no-id"):
        assert problem(await groups.add(group, acme.id("member"), stranger)) == (400, "invalidValue")
        assert problem(await groups.try_create("Another", stranger)) == (400, "invalidValue")
    assert await groups.members(group) == known, "nothing was changed"
    assert "Another" not in await groups.find("displayName pr")
    await check_counts(pool)
    full = await groups.directory.call("PUT", f"/Groups/{group}", {"schemas": [GROUP_URN], "displayName": "Engineering"})
    assert full.status == 200
    assert await groups.members(group) == known, "a body without members changes none"
    assert (await groups.patch(group, {"op": "remove", "path": "members"})).status == 204
    assert await groups.members(group) == set()


async def test_members_that_are_groups_are_ignored_and_logged(groups: GroupDirectory, acme: Tenant) -> None:
    """Entra ID names a nested group by its id, without a type."""
    nested = await groups.create("Nested")
    group = await groups.create("Engineering", acme.id("owner"))
    base = "http://localhost:8080/scim/v2/Groups"
    for item in ({"value": nested, "type": "Group"}, {"value": "unknown", "type": "group"}, {"value": nested, "$ref": f"{base}/{nested}"}):
        answer = await groups.patch(group, {"op": "add", "path": "members", "value": [item, {"value": acme.id("member")}]})
        assert answer.status == 204, answer.text
        await groups.remove(group, acme.id("member"))
    assert (await groups.add(group, nested)).status == 204
    whole = {"schemas": [GROUP_URN], "displayName": "Engineering", "members": [{"value": nested}, {"value": acme.id("owner")}]}
    assert (await groups.directory.call("PUT", f"/Groups/{group}", whole)).status == 200
    assert (await groups.try_create("Third", nested)).status == 201
    assert await groups.members(group) == {acme.id("owner")}
    requests = (await acme.api.get(f"{acme.path}/scim-requests?failed=false", token=acme.token("owner"))).json["requests"]
    noted = [
        request["method"]
        for request in requests
        if request["error"] == "Members that are groups were ignored. Assign the users of these groups instead."
    ]
    assert sorted(noted) == ["PATCH"] * 4 + ["POST", "PUT"]
    assert problem(await groups.directory.add_members(nested)) == (400, "invalidValue"), "the organization is another kind of group"


async def test_a_deactivated_user_stays_in_the_groups_of_the_directory(groups: GroupDirectory, directory: Directory, pool: Pool) -> None:
    """Directories do not add the user again when they activate them."""
    user = (await directory.create_user())["id"]
    group = await groups.create("Engineering", user)
    await directory.deactivate(user)
    assert await groups.members(group) == {user}
    second = await groups.create("Second", user)
    await directory.activate(user)
    assert await groups.members(second) == await groups.members(group) == {user}
    await directory.remove_member(user)
    assert await groups.members(group) == set(), "the user left the organization"
    await groups.add(group, user)
    await directory.delete(user)
    assert await groups.members(group) == set()
    await check_counts(pool)


async def test_an_admin_who_removes_a_block_ends_the_memberships(groups: GroupDirectory, directory: Directory, acme: Tenant) -> None:
    user = (await directory.create_user())["id"]
    group = await groups.create("Engineering", user)
    await directory.deactivate(user)
    answer = await acme.api.delete(f"{acme.path}/directory-blocks/{user}", token=acme.token("owner"))
    assert answer.status == 204, answer.text
    assert await groups.members(group) == set()


async def test_a_pushed_group_opens_an_application_only_to_confirmed_members(
    groups: GroupDirectory, directory: Directory, acme: Tenant, pool: Pool, ports: Ports
) -> None:
    store = await add_service(pool, acme.org, "store")
    await run_sql(pool, "update services set access_policy = 'assigned'")
    created, unconfirmed = (await directory.create_user(GRACE))["id"], await add_account(ports, "new@example.com")
    await add_member(pool, acme.org, unconfirmed.id)
    group = await groups.create("Engineering", created, unconfirmed.id)
    assert (await GroupAdmin(acme).assign("store", group)).status == 204, "an admin assigns a group of the directory"

    async def may_use(user: object) -> bool | None:
        async with ports.storage.reading() as read:
            return await read.end_users.may_use(acme.org, store, user, ports.clock.now())  # type: ignore[arg-type]

    assert (await may_use(created), await may_use(unconfirmed.id)) == (True, False)
    await run_sql(pool, "update memberships set confirmed_at = now() where user_id = %s", unconfirmed.id)
    assert await may_use(unconfirmed.id) is True
    for user in (created, unconfirmed.id):
        seen = [await directory.deactivate(user), await may_use(user), await directory.activate(user), await may_use(user)]
        assert seen[1::2] == [False, user == created], "a user with an own account confirms the membership again"
    await groups.remove(group, created, unconfirmed.id)
    assert (await may_use(created), await may_use(unconfirmed.id)) == (False, False)


async def test_a_patch_that_removes_users_ends_their_sessions(groups: GroupDirectory, acme: Tenant, pool: Pool, ports: Ports) -> None:
    store = await add_service(pool, acme.org, "store")
    await run_sql(pool, "update services set access_policy = 'assigned'")
    people = [await add_account(ports, f"user{number}@example.com") for number in range(3)]
    for account in people:
        await add_member(pool, acme.org, account.id, confirmed=True)
    group = await groups.create("Engineering", *[account.id for account in people])
    await GroupAdmin(acme).assign("store", group)
    for account in people:
        await sign_in_to(ports, pool, store, account)
    await groups.remove(group, people[0].id, people[1].id)
    open_ = await run_sql(pool, "select user_id from sessions where service_id = %s and ended_at is null", store)
    assert open_ == [(people[2].id,)]
    await groups.directory.call("DELETE", f"/Groups/{group}")
    assert await run_sql(pool, "select user_id from sessions where service_id = %s and ended_at is null", store) == []


async def test_a_directory_reaches_no_group_of_another_organization(groups: GroupDirectory, other_tenant: Tenant) -> None:
    other = GroupDirectory(await directory_of(other_tenant, groups=True))
    group = await groups.create("Engineering")
    assert await other.create("Engineering") != group, "another organization may have the name"
    answers = [
        await other.directory.call("GET", f"/Groups/{group}"),
        await other.add(group, other_tenant.id("member")),
        await other.directory.call("PUT", f"/Groups/{group}", {"displayName": "x"}),
        await other.directory.call("DELETE", f"/Groups/{group}"),
    ]
    assert [problem(answer) for answer in answers] == [(404, None)] * 4


async def test_a_full_group_and_organization_are_refused(groups: GroupDirectory, acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.tenancy.model.groups.MAX_GROUP_MEMBERS", 2)
    monkeypatch.setattr("core.tenancy.model.groups.MAX_GROUPS", 2)
    ids = [acme.id(name) for name in ("owner", "admin", "member")]
    assert problem(await groups.try_create("First", *ids)) == (400, None)
    group = await groups.create("First", *ids[:2])
    assert problem(await groups.add(group, ids[2])) == (400, None)
    assert (await groups.patch(group, {"op": "replace", "path": "members", "value": [{"value": ids[2]}]})).status == 204
    await groups.create("Second")
    assert problem(await groups.try_create("Third")) == (400, None)
