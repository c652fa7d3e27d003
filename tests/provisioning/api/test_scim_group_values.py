"""The values in groups that a directory creates: empty lists, ids in capitals, and other forms."""

import pytest

from core.provisioning.model.schemas import GROUP_URN
from tests.support.builders import run_sql
from tests.support.scim import Directory, GroupDirectory, directory_of, problem
from tests.support.services import add_service
from tests.support.tenants import Tenant


@pytest.fixture
async def directory(acme: Tenant) -> Directory:
    return await directory_of(acme, groups=True)


@pytest.fixture
def groups(directory: Directory) -> GroupDirectory:
    return GroupDirectory(directory)


async def test_only_groups_with_members_have_the_attribute_members(groups: GroupDirectory, directory: Directory, acme: Tenant) -> None:
    """An empty list is no value (RFC 7644 section 3.4.2.2)."""
    ada = (await directory.create_user("ada@acme.example"))["id"]
    full, empty = await groups.create("Full", ada), await groups.create("Empty")
    shop, closed = [await add_service(acme.pool, acme.org, slug) for slug in ("shop", "closed")]
    await run_sql(acme.pool, "update services set access_policy = 'assigned'")
    patch = {"op": "add", "path": "members", "value": [{"value": ada}]}
    assert (await groups.patch(str(shop), patch)).status == 200
    for filter_, expected in {
        "members pr": {str(acme.org), str(shop), full},
        "not (members pr)": {str(closed), empty},
        "members.value eq null": {str(closed), empty},
    }.items():
        found = (await directory.try_list("Groups", filter=filter_)).json["Resources"]
        assert {group["id"] for group in found} == expected, filter_


async def test_ids_of_members_can_have_capitals(groups: GroupDirectory, directory: Directory) -> None:
    ada, tim = [(await directory.create_user(f"{name}@acme.example"))["id"] for name in ("ada", "tim")]
    group = await groups.create("Engineering", ada.upper())
    assert (await groups.patch(group, {"op": "add", "path": "members", "value": [{"value": tim.upper(), "type": "User"}]})).status == 204
    assert await groups.members(group) == {ada, tim}
    found = (await directory.try_list("Groups", filter=f'members eq "{ada.upper()}" and displayName eq "Engineering"')).json
    assert [each["id"] for each in found["Resources"]] == [group]
    assert (await groups.patch(group, {"op": "remove", "path": f'members[value eq "{ada.upper()}"]'})).status == 204
    assert (await groups.patch(group, {"op": "remove", "path": "members", "value": [{"value": tim.upper()}]})).status == 204
    assert await groups.members(group) == set()


async def test_values_in_another_form_are_refused(groups: GroupDirectory, directory: Directory) -> None:
    ada = (await directory.create_user("ada@acme.example"))["id"]
    group = await groups.create("Engineering", ada)
    for operation, scim_type in (
        ({"op": "replace", "path": f'members[value eq "{ada}"].display', "value": "Ada"}, "noTarget"),
        ({"op": "replace", "path": "displayName", "value": ["Research"]}, "invalidValue"),
        ({"op": "add", "path": "members", "value": [ada]}, "invalidValue"),
        ({"op": "add", "path": "members", "value": ada}, "invalidValue"),
    ):
        assert problem(await groups.patch(group, operation)) == (400, scim_type), operation
    body = {"schemas": [GROUP_URN], "displayName": "Other", "members": [ada]}
    assert problem(await directory.call("POST", "/Groups", body)) == (400, "invalidValue")
    assert await groups.members(group) == {ada}
