"""The SCIM group over HTTP (security C-1, C-3, C-6, decisions 136, 137)."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.provisioning.users import ScimUsers
from core.provisioning.model.schemas import GROUP_URN
from tests.support.builders import add_account, run_concurrently, run_sql, sign_in
from tests.support.rows import in_another_task
from tests.support.scim import SCIM_JSON, Directory, directory_of, problem
from tests.support.services import add_service
from tests.support.tenants import Tenant


async def create_users(directory: Directory, *names: str) -> list[str]:
    return [(await directory.create_user(f"{name}@acme.example"))["id"] for name in names]


async def test_the_group_is_the_organization(acme: Tenant, directory: Directory) -> None:
    group = await directory.get(directory.group_path)
    created = group["meta"]["created"]
    assert {name: group[name] for name in group if name != "members"} == {
        "schemas": [GROUP_URN],
        "id": str(acme.org),
        "meta": {
            "resourceType": "Group",
            "created": created,
            "lastModified": created,
            "location": f"http://gatehouse.test/scim/v2/Groups/{acme.org}",
        },
        "externalId": None,
        "displayName": "Acme",
    }
    owner = acme.id("owner")
    assert {"value": owner, "$ref": f"http://gatehouse.test/scim/v2/Users/{owner}", "type": "User"} in group["members"]
    assert await directory.group_member_ids() == {acme.id(name) for name in acme.people}
    listing = await directory.get("/Groups")
    assert (listing["totalResults"], listing["startIndex"], listing["itemsPerPage"], listing["Resources"]) == (1, 1, 1, [group])


async def test_a_request_can_leave_the_members_out(acme: Tenant, directory: Directory) -> None:
    whole = await directory.get(directory.group_path)
    without = {name: value for name, value in whole.items() if name != "members"}
    assert await directory.get(f"{directory.group_path}?excludedAttributes=members") == without
    assert (await directory.get("/Groups?excludedAttributes=MEMBERS"))["Resources"] == [without]
    with_display_name = {"schemas": whole["schemas"], "id": whole["id"], "displayName": "Acme"}
    assert await directory.get(f"{directory.group_path}?attributes=displayName") == with_display_name
    values = await directory.get(f"{directory.group_path}?attributes=members.value")
    assert {tuple(member) for member in values["members"]} == {("value",)}


async def test_a_filter_selects_the_group(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    owner, other_id = acme.id("owner"), other_tenant.id("owner")
    for filter_, matches in {
        'displayName eq "Acme"': True,
        'DISPLAYNAME Eq "Acme"': True,
        'displayName eq "aCME"': True,
        'displayName ne "acme"': False,
        'displayName eq "Twin"': False,
        f'id eq "{acme.org}"': True,
        f'id eq "{other_tenant.org}"': False,
        f'members eq "{owner}"': True,
        f'members.value eq "{other_id}"': False,
        f'members[value eq "{owner}"]': True,
        f'id eq "{acme.org}" and members eq "{owner}"': True,
        f'not (members eq "{other_id}")': True,
        'members eq "x"': False,
        "members pr": True,
        'meta.created lt "2001-01-01T00:00:00Z"': False,
    }.items():
        listing = (await directory.try_list("Groups", filter=filter_, excludedAttributes="members")).json
        assert [group["id"] for group in listing["Resources"]] == ([str(acme.org)] if matches else []), filter_
        assert listing["totalResults"] == matches
    for filter_ in ("", 'members co "x"', f'members ne "{owner}"', 'userName eq "x"', "active eq true"):
        assert problem(await directory.try_list("Groups", filter=filter_)) == (400, "invalidFilter")
    for query, count in (({"startIndex": 2}, 0), ({"count": 0}, 0), ({"startIndex": -1, "count": 5}, 1)):
        listing = (await directory.try_list("Groups", **query)).json
        assert (listing["totalResults"], len(listing["Resources"])) == (1, count)


async def test_other_groups_do_not_exist(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    for group in (other_tenant.org, uuid4(), "x", str(acme.org).upper()):
        assert problem(await directory.call("GET", f"/Groups/{group}")) == (404, None)
        body: dict[str, Any] = {"schemas": [GROUP_URN], "members": []}
        assert problem(await directory.call("PUT", f"/Groups/{group}", body)) == (404, None)
        operations = [{"op": "remove", "path": "members"}]
        patch = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": operations}
        assert problem(await directory.call("PATCH", f"/Groups/{group}", patch)) == (404, None)
        assert problem(await directory.call("DELETE", f"/Groups/{group}")) == (404, None)
    assert problem(await directory.call("DELETE", f"/Groups/{acme.org}")) == (403, None)
    assert problem(await directory.call("POST", "/Groups", {"schemas": [GROUP_URN], "displayName": "x"})) == (501, None)
    assert len(await other_tenant.members()) == 3


# Members


async def test_members_are_removed_and_restored(acme: Tenant, directory: Directory) -> None:
    first, second = await create_users(directory, "first", "second")
    session = await sign_in(acme.ports, await account(acme, first), acme.org)
    assert (await directory.remove_member(first)).status == 200
    assert first not in await directory.group_member_ids()
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401
    assert await run_sql(acme.pool, "select member_count from organizations where id = %s", acme.org) == [(4,)]
    assert (await acme.entry("user.removed"))["details"] == {"role": "member"}
    assert (await directory.get(f"/Users/{first}"))["active"] is True  # the directory still knows users that it provisioned
    assert (await directory.list_users())["totalResults"] == 5
    assert (await directory.remove_member(first)).status == 200
    assert (await directory.remove_member(uuid4())).status == 200
    assert (await directory.add_members(first, second)).status == 200
    assert {first, second} <= await directory.group_member_ids()
    assert [entry["action"] for entry in await acme.log()].count("user.joined") == 3
    await directory.deactivate(second)
    assert second not in await directory.group_member_ids()
    assert (await directory.add_members(second)).status == 200
    assert second not in await directory.group_member_ids()
    assert "second@acme.example" not in await acme.members()
    await directory.activate(second)
    assert (await acme.members())["second@acme.example"] == ("member", True)
    assert (await directory.delete(first)).status == 204


async def account(acme: Tenant, user_id: str) -> Any:
    async with acme.ports.storage.reading() as read:
        return await read.accounts.by_id(UUID(user_id))


async def test_the_directory_forgets_a_removed_member_that_it_did_not_provision(acme: Tenant, directory: Directory) -> None:
    member = acme.id("member")
    await directory.patch(member, {"op": "add", "path": "externalId", "value": "x"})
    assert (await directory.remove_member(member)).status == 200
    assert problem(await directory.call("GET", f"/Users/{member}")) == (404, None)
    assert problem(await directory.add_members(member)) == (400, "invalidValue")


async def test_put_replaces_only_the_members(acme: Tenant, directory: Directory) -> None:
    first, second, third = await create_users(directory, "first", "second", "third")
    await directory.deactivate(third)
    answer = await directory.put_group(first, acme.id("admin"), displayName="Another name")
    assert (answer.status, answer.json["displayName"]) == (200, "Acme")
    assert {member["value"] for member in answer.json["members"]} == {first, acme.id("admin"), acme.id("owner")}
    assert await acme.members() == {
        "first@acme.example": ("member", True),
        "admin@acme.example": ("admin", True),  # unchanged
        "owner@acme.example": ("owner", True),
    }
    assert (await directory.put_group(second, third)).status == 200
    assert await directory.group_member_ids() == {second, acme.id("owner")}  # the third is blocked until they are activated
    assert (await directory.put_group()).status == 200
    assert await directory.group_member_ids() == {acme.id("owner")}


async def test_an_unknown_user_cannot_become_a_member(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    first = (await create_users(directory, "first"))[0]
    await directory.remove_member(first)
    other_id = str((await add_account(acme.ports, "other_id@example.com")).id)
    twins_id = (await (await directory_of(other_tenant)).create_user("twins_id@twin.example"))["id"]
    before = await acme.members()
    for unknown in (other_id, twins_id, other_tenant.id("owner"), str(uuid4()), "x"):
        assert problem(await directory.add_members(first, unknown)) == (400, "invalidValue")
        assert problem(await directory.put_group(first, unknown)) == (400, "invalidValue")
    assert await acme.members() == before


async def test_owners_are_not_removed(acme: Tenant, directory: Directory) -> None:
    promoted = (await create_users(directory, "first"))[0]
    await run_sql(acme.pool, "update users set is_platform_owner = true where id = %s", UUID(promoted))
    before = await acme.members()
    for user_id in (acme.id("owner"), promoted):
        operations = [{"op": "remove", "path": f'members[value eq "{acme.id("member")}"]'}]
        answer = await directory.patch_group(*operations, {"op": "remove", "path": f'members[value eq "{user_id}"]'})
        assert problem(answer) == (403, None)
    assert await acme.members() == before
    assert (await directory.put_group()).status == 200
    assert await directory.group_member_ids() == {acme.id("owner"), promoted}


@pytest.mark.parametrize("op", ["remove", "Remove"])
async def test_removing_all_members_removes_only_those_that_the_directory_provisioned(acme: Tenant, directory: Directory, op: str) -> None:
    first, second = await create_users(directory, "first", "second")
    await directory.patch(acme.id("member"), {"op": "add", "path": "externalId", "value": "x"})  # known, and not provisioned
    people = {acme.id(name) for name in acme.people}
    assert (await directory.patch_group({"op": op, "path": "members"})).status == 200
    assert await directory.group_member_ids() == people
    added = {"op": "Add", "path": "members", "value": [{"value": second}]}
    assert (await directory.patch_group(added, {"op": op, "path": "members"}, {**added, "value": [{"value": first}]})).status == 200
    assert await directory.group_member_ids() == {*people, first}


async def test_the_external_id_of_the_group_is_kept(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    async def external_id() -> Any:
        return (await directory.get(f"{directory.group_path}?excludedAttributes=members"))["externalId"]

    before = await directory.get(directory.group_path)
    answer = await directory.patch_group({"op": "Add", "path": "externalId", "value": "8aa1a0c0"})
    assert (answer.json["externalId"], answer.json["members"]) == ("8aa1a0c0", before["members"])
    assert (await acme.entry("organization.updated"))["details"] == {"scim_external_id": {"old": None, "new": "8aa1a0c0"}}
    for filter_, count in (('externalId eq "8aa1a0c0"', 1), ('externalId eq "8AA1A0C0"', 0), ("externalId pr", 1)):
        assert (await directory.try_list("Groups", filter=filter_)).json["totalResults"] == count
        assert (await (await directory_of(other_tenant)).try_list("Groups", filter=filter_)).json["totalResults"] == 0
    assert (await directory.call("PUT", directory.group_path, {"displayName": "Acme"})).json["externalId"] == "8aa1a0c0"
    assert (await directory.call("PUT", directory.group_path, {"externalId": "other"})).json["externalId"] == "other"
    await directory.patch_group({"op": "replace", "value": {"id": str(acme.org), "externalId": "third", "displayName": "x"}})
    assert await external_id() == "third"
    for value in (5, "x" * 257, "a\x1bb"):
        assert problem(await directory.patch_group({"op": "add", "path": "externalId", "value": value})) == (400, "invalidValue")
    await directory.patch_group({"op": "remove", "path": "externalId"})
    assert await external_id() is None


async def test_the_member_limit_is_enforced(acme: Tenant, directory: Directory) -> None:
    user_ids = await create_users(directory, "first", "second", "third")
    for user_id in user_ids:
        await directory.remove_member(user_id)
    await acme.set_member_limit(4)
    assert problem(await directory.add_members(*user_ids)) == (400, None)
    assert len(await acme.members()) == 3
    answers = await run_concurrently(3, lambda n: directory.add_members(user_ids[n]))
    assert sorted(answer.status for answer in answers) == [200, 400, 400]
    assert (await directory.put_group(*user_ids)).status == 200  # removes the other members


async def test_invitations_by_a_removed_member_are_revoked(acme: Tenant, directory: Directory) -> None:
    await acme.invite("new@example.com", by="admin")
    await directory.remove_member(acme.id("admin"))
    assert await acme.statuses() == {"new@example.com": "cancelled"}


PATCHES: list[tuple[list[dict[str, Any]], str]] = [
    ([{"op": "add", "value": {"members": [{"value": "0"}]}}], "0"),
    ([{"op": "Add", "path": "members", "value": [{"value": "0", "$ref": None}, {"value": "1"}]}], "01"),
    ([{"op": "add", "path": "members", "value": {"value": "0"}}], "0"),
    ([{"op": "add", "path": "members", "value": ["0"]}], "0"),
    ([{"op": "replace", "path": "members", "value": [{"value": "1"}]}], "1"),
    ([{"op": "replace", "path": GROUP_URN, "value": {"members": [{"value": "1"}]}}], "1"),
    ([{"op": "replace", "value": {"id": "x", "displayName": "x", "members": [{"value": "1"}]}}], "1"),
    ([{"op": "add", "path": "members", "value": [{"value": "0"}]}, {"op": "remove", "path": 'members[value eq "0"]'}], ""),
    (
        [{"op": "replace", "path": "members", "value": [{"value": "0"}, {"value": "1"}]}, {"op": "Remove", "path": "members[value eq 0]"}],
        "1",
    ),
    (
        [
            {"op": "replace", "path": "members", "value": [{"value": "0"}, {"value": "1"}]},
            {"op": "Remove", "path": "members", "value": [{"value": "1"}]},
        ],
        "0",
    ),
    (
        [
            {"op": "add", "path": "members", "value": [{"value": "0"}, {"value": "1"}]},
            {"op": "remove", "path": 'members[value eq "0" or value eq "1"]'},
        ],
        "",
    ),
    ([{"op": "remove", "path": "members"}, {"op": "add", "path": "members", "value": [{"value": "1"}]}], "1"),
    ([{"op": "replace", "path": "displayName", "value": "x"}], ""),
    ([{"op": "add", "path": "members", "value": [{"value": "0"}]}, {"op": "replace", "path": "members", "value": None}], "0"),
    ([{"op": "add", "path": "members", "value": [{"value": "0"}]}, {"op": "replace", "value": {"members": None}}], "0"),
    ([{"op": "add", "path": "members", "value": [{"value": "0"}]}, {"op": "add", "path": "members", "value": None}], "0"),
    ([{"op": "add", "path": "members", "value": [{"value": "0"}]}, {"op": "remove", "path": "members", "value": None}], "0"),
    ([{"op": "add", "path": "members", "value": [{"value": "0"}]}, {"op": "remove", "path": "members", "value": []}], "0"),
]


async def test_patches_change_the_members(acme: Tenant, directory: Directory) -> None:
    user_ids = await create_users(directory, "first", "second")
    owner = {acme.id("owner")}
    for operations, expected in PATCHES:
        await directory.put_group()
        answer = await directory.patch_group(*with_ids(operations, user_ids))
        assert answer.status == 200, answer.text
        assert {member["value"] for member in answer.json["members"]} - owner == {user_ids[int(n)] for n in expected}, operations


def with_ids(value: Any, ids: list[str]) -> Any:
    match value:
        case "0" | "1":
            return ids[int(value)]
        case str():
            return value.replace('"0"', f'"{ids[0]}"').replace('"1"', f'"{ids[1]}"').replace(" 0]", f" {ids[0]}]")
        case list():
            return [with_ids(item, ids) for item in value]
        case dict():
            return {name: with_ids(item, ids) for name, item in value.items()}
    return value


async def test_a_patch_with_a_mistake_changes_nothing(acme: Tenant, directory: Directory) -> None:
    first = (await create_users(directory, "first"))[0]
    before = await directory.get(directory.group_path)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"op": "replace", "path": "owner", "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": "members.role", "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": f'members[value eq "{first}"].value', "value": "x"}, "mutability"),
        ({"op": "replace", "path": "members.value", "value": None}, "mutability"),
        ({"op": "add", "path": f'members[value eq "{first}"]', "value": {}}, "noTarget"),
        ({"op": "replace", "path": f'members[value eq "{first}"]', "value": None}, "noTarget"),
        ({"op": "remove", "path": 'members[type eq "User"]'}, "invalidFilter"),
        ({"op": "add", "path": "members", "value": [{"display": "x"}]}, "invalidValue"),
        ({"op": "add", "path": "members", "value": 5}, "invalidValue"),
        ({"op": "add", "path": "members"}, "invalidValue"),
        ({"op": "replace", "path": "id", "value": "x"}, "mutability"),
        ({"op": "remove", "path": "displayName"}, "mutability"),
        ({"op": "remove"}, "noTarget"),
    ]
    for operation, kind in cases:
        answer = await directory.patch_group({"op": "remove", "path": f'members[value eq "{first}"]'}, operation)
        assert problem(answer) == (400, kind), operation
    assert await directory.get(directory.group_path) == before


async def test_the_restored_membership_of_a_foreign_account_is_not_confirmed(acme: Tenant, directory: Directory) -> None:
    first = (await create_users(directory, "first"))[0]
    await run_sql(acme.pool, "update users set origin = 'platform', origin_org_id = null where id = %s", UUID(first))
    await directory.remove_member(first)
    await directory.add_members(first)
    assert (await acme.members())["first@acme.example"] == ("member", False)


async def test_a_request_without_members_removes_no_members(acme: Tenant, directory: Directory) -> None:
    await create_users(directory, "grace", "ada")
    before = await directory.group_member_ids()
    body = {"schemas": [GROUP_URN], "displayName": "Acme"}
    for answer in (
        await directory.call("PUT", directory.group_path, body),
        await directory.call("PUT", directory.group_path, {**body, "members": None}),
        await directory.patch_group({"op": "remove", "path": "members", "value": []}),
        await directory.patch_group({"op": "replace", "path": "members", "value": None}),
        await directory.patch_group({"op": "replace", "value": {"members": None}}),
        await directory.patch_group({"op": "add", "path": "members", "value": None}),
    ):
        assert answer.status == 200, answer.text
        assert await directory.group_member_ids() == before
    service = await add_service(acme.pool, acme.org, "shop")
    await run_sql(acme.pool, "update services set access_policy = 'assigned' where id = %s", service)
    for group in (directory.group_path, f"/Groups/{service}"):
        for raw in (None, b"", b"{}", b" { } ", b"[]", b"null"):
            answer = await acme.api.call("PUT", f"/scim/v2{group}", token=directory.token, headers={"Content-Type": SCIM_JSON}, raw=raw)
            assert problem(answer) == (400, "invalidSyntax"), raw
        assert problem(await directory.call("PUT", group)) == (400, "invalidSyntax"), "neither a body nor its type"
    assert await directory.group_member_ids() == before
    assert (await directory.put_group()).status == 200
    assert await directory.group_member_ids() == {acme.id("owner")}


async def test_duplicate_names_in_a_member_are_refused(directory: Directory) -> None:
    [first] = await create_users(directory, "first")
    duplicate = {"value": first, "VALUE": first}
    for answer in (
        await directory.patch_group({"op": "add", "path": "members", "value": [duplicate]}),
        await directory.patch_group({"op": "replace", "value": {"members": [], "Members": []}}),
        await directory.call("PUT", directory.group_path, {"schemas": [GROUP_URN], "members": [duplicate]}),
    ):
        assert problem(answer) == (400, "invalidValue")


async def test_a_member_who_becomes_a_platform_owner_during_the_request_stays(
    acme: Tenant, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    [user_id] = await create_users(directory, "grace")
    lock = ScimUsers.lock

    async def lock_after_promotion(self: ScimUsers, org_id: UUID, user_ids: Sequence[UUID]) -> None:
        await in_another_task(lambda: run_sql(acme.pool, "update users set is_platform_owner = true where id = %s", UUID(user_id)))
        await lock(self, org_id, user_ids)

    monkeypatch.setattr(ScimUsers, "lock", lock_after_promotion)
    assert (await directory.remove_member(user_id)).status == 403
    assert (await directory.put_group(acme.id("owner"))).status == 200
    assert user_id in await directory.group_member_ids()
