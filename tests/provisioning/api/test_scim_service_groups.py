"""The SCIM groups for services that only assigned users may use."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from core.provisioning.model.schemas import GROUP_URN
from tests.applications.api.service_users import check_counts
from tests.support.builders import EMAIL, add_account, run_concurrently, run_sql
from tests.support.scim import PATCH_URN, Directory, problem
from tests.support.services import add_service, add_service_user
from tests.support.tenants import Tenant


@pytest.fixture
async def service(acme: Tenant) -> UUID:
    id_ = await add_service(acme.pool, acme.org)
    await run_sql(acme.pool, "update services set access_policy = 'assigned' where id = %s", id_)
    return id_


async def change(directory: Directory, service: object, *operations: dict[str, Any]) -> Any:
    return await directory.call("PATCH", f"/Groups/{service}", {"schemas": [PATCH_URN], "Operations": list(operations)})


def add(*users: object) -> dict[str, Any]:
    return {"op": "add", "path": "members", "value": [{"value": str(user)} for user in users]}


def remove(user: object) -> dict[str, Any]:
    return {"op": "remove", "path": f'members[value eq "{user}"]'}


async def assigned(tenant: Tenant) -> dict[UUID, str]:
    await check_counts(tenant.pool)
    return dict(await run_sql(tenant.pool, "select user_id, enrolled_by from service_users"))


async def test_a_service_for_assigned_users_is_a_group(acme: Tenant, other_tenant: Tenant, directory: Directory, service: UUID) -> None:
    await add_service(acme.pool, acme.org, "open")
    foreign = await add_service(acme.pool, other_tenant.org, "foreign")
    await run_sql(acme.pool, "update services set access_policy = 'assigned' where id = %s", foreign)
    listing = await directory.get("/Groups")
    assert [group["displayName"] for group in listing["Resources"]] == ["Acme", "Shop"]
    assert (listing["totalResults"], listing["itemsPerPage"]) == (2, 2)
    assert ["members" in group for group in listing["Resources"]] == [True, False]
    [second] = (await directory.try_list("Groups", startIndex=2)).json["Resources"]
    member = acme.people["member"].id
    answer = await change(directory, service, add(member))
    assert (answer.status, answer.json["members"][0]["value"]) == (200, str(member))
    assert second == {name: value for name, value in (await directory.get(f"/Groups/{service}")).items() if name != "members"}
    for filter_, names in {
        'displayName eq "Shop"': ["Shop"],
        f'id eq "{service}"': ["Shop"],
        f'members eq "{member}"': ["Acme", "Shop"],
        'members eq "x"': [],
        f'displayName eq "Shop" and members eq "{acme.id("owner")}"': [],
    }.items():
        listing = (await directory.try_list("Groups", filter=filter_, excludedAttributes="members")).json
        assert [group["displayName"] for group in listing["Resources"]] == names, filter_
    [open_id] = (await run_sql(acme.pool, "select id from services where slug = 'open'"))[0]
    for group in (open_id, foreign, uuid4()):
        assert problem(await change(directory, group, add(member))) == (404, None)
        assert problem(await directory.call("GET", f"/Groups/{group}")) == (404, None)
    assert problem(await directory.call("DELETE", f"/Groups/{service}")) == (403, None)


async def test_adding_a_blocked_user_changes_nothing(acme: Tenant, directory: Directory, service: UUID) -> None:
    blocked, leaving, staying = [UUID((await directory.create_user(f"{name}@acme.example"))["id"]) for name in "abc"]
    assert (await change(directory, service, add(blocked, leaving, staying))).status == 200
    await directory.deactivate(blocked)
    stranger = (await add_account(acme.ports, "stranger@example.com")).id
    for users in ([blocked, stranger], [stranger]):
        assert problem(await change(directory, service, add(*users), remove(leaving))) == (400, "invalidValue")
    members = [{"value": str(user)} for user in (blocked, staying)]
    body = {"schemas": [GROUP_URN], "displayName": "Shop", "members": members}
    answer = await directory.call("PUT", f"/Groups/{service}", body)
    assert (answer.status, [member["value"] for member in answer.json["members"]]) == (200, [str(staying)])
    assert await assigned(acme) == {staying: "directory"}


async def test_the_external_id_of_a_group_is_kept(acme: Tenant, directory: Directory, service: UUID) -> None:
    operation = {"op": "replace", "path": "externalId", "value": "8aa1a0c0"}
    answer = await change(directory, service, operation, add(acme.people["member"].id))
    assert (answer.json["externalId"], len(answer.json["members"])) == ("8aa1a0c0", 1)
    listing = (await directory.try_list("Groups", filter='externalId eq "8aa1a0c0"')).json
    assert [group["id"] for group in listing["Resources"]] == [str(service)]
    assert (await directory.get(directory.group_path)).get("externalId") is None
    assert (await acme.entry("service.updated"))["details"]["changes"] == {"scim_external_id": {"old": None, "new": "8aa1a0c0"}}
    body = {"schemas": [GROUP_URN], "displayName": "Shop", "members": []}
    assert (await directory.call("PUT", f"/Groups/{service}", body)).json["externalId"] == "8aa1a0c0"


async def test_the_directory_ends_only_its_own_assignments(acme: Tenant, directory: Directory, service: UUID) -> None:
    own, by_admin = acme.people["member"].id, acme.people["admin"].id
    path = f"{acme.path}/services/shop/assignments"
    assert (await acme.api.call("PUT", f"{path}/{by_admin}", token=acme.token("admin"))).status == 204
    assert (await change(directory, service, add(own, by_admin))).status == 200
    assert await assigned(acme) == {own: "directory", by_admin: "admin"}
    group = await directory.get(f"/Groups/{service}")
    assert [member["value"] for member in group["members"]] == [str(own)]
    answer = await directory.call("PUT", f"/Groups/{service}", {"schemas": [GROUP_URN], "displayName": "Shop", "members": []})
    assert answer.status == 200, answer.text
    assert await assigned(acme) == {by_admin: "admin"}
    assert (await change(directory, service, remove(by_admin))).status == 200
    assert await assigned(acme) == {by_admin: "admin"}
    entries = [entry for entry in await acme.recorded() if entry[0].startswith("service.user.")]
    assert [(action, target, details["assigned_by"]) for action, _, target, _, details in entries] == [
        ("service.user.assigned", str(by_admin), "admin"),
        ("service.user.assigned", str(own), "directory"),
        ("service.user.unassigned", str(own), "directory"),
    ]


async def test_assignments_by_the_directory_end_when_the_service_is_no_longer_a_group(
    acme: Tenant, directory: Directory, service: UUID
) -> None:
    """Otherwise they would survive changes in the directory, and count again when the policy comes back."""
    own, used, by_admin = [acme.people[role].id for role in ("member", "owner", "admin")]
    path = f"{acme.path}/services/shop"
    assert (await change(directory, service, add(own, used))).status == 200
    await add_service_user(acme.ports, service, used)
    assert (await acme.api.call("PUT", f"{path}/assignments/{by_admin}", token=acme.token("admin"))).status == 204
    for policy in ("assigned", "members"):
        answer = await acme.api.call("PUT", f"{path}/access", {"policy": policy}, token=acme.token("admin"))
        assert answer.status == 200, answer.text
        present = {by_admin: "admin"} | ({own: "directory", used: "directory"} if policy == "assigned" else {used: "self"})
        assert await assigned(acme) == present
    entries = [entry for entry in await acme.recorded() if entry[0] == "service.user.unassigned"]
    assert [(target, details["assigned_by"]) for _, _, target, _, details in entries] == [
        (str(user), "directory") for user in sorted([own, used])
    ]


async def test_the_directory_assigns_only_users_that_it_knows(acme: Tenant, directory: Directory, service: UUID) -> None:
    stranger, known = await add_account(acme.ports, EMAIL), acme.people["member"].id
    assert problem(await change(directory, service, add(known, stranger.id))) == (400, "invalidValue")
    assert await assigned(acme) == {}


async def test_concurrent_changes_leave_one_assignment_each(acme: Tenant, directory: Directory, service: UUID) -> None:
    users = [person.id for person in acme.people.values()]

    async def act(number: int) -> None:
        user = users[number % len(users)]
        answer = await change(directory, service, add(user) if number < 15 else remove(user))
        assert answer.status == 200, answer.text

    await run_concurrently(20, act)
    assert set((await assigned(acme)).values()) <= {"directory"}
    actions = [entry["action"] for entry in await acme.log()]
    assert actions.count("service.user.assigned") - actions.count("service.user.unassigned") == len(await assigned(acme))
