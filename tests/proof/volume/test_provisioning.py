"""SCIM requests that change thousands of members or have thousands of operations."""

import threading
from typing import Any
from uuid import UUID

import pytest

from core.provisioning.model import patches
from core.provisioning.model.patches import apply_operations
from tests.support.builders import run_sql
from tests.support.scim import GRACE, Directory, problem
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow


async def test_one_request_changes_thousands_of_members(acme: Tenant, directory: Directory) -> None:
    await acme.set_member_limit(20_000)
    await run_sql(
        acme.pool,
        """
        with inserted as (
            insert into users (id, email, origin, origin_org_id, created_at, updated_at)
            select gen_random_uuid(), 'p' || n || '@acme.example', 'scim', %s, now(), now() from generate_series(1, 3000) n returning id)
        insert into scim_users (org_id, user_id, provisioned, membership_id, joined_at, updated_at)
        select %s, id, true, gen_random_uuid(), now(), now() from inserted""",
        acme.org,
        acme.org,
    )
    ids = [str(row[0]) for row in await run_sql(acme.pool, "select id from users where origin = 'scim'")]
    analyze = "analyze users, scim_users, memberships"  # the database does this by itself some time after a bulk insert
    await run_sql(acme.pool, analyze)
    answer = await directory.put_group(*ids)
    assert (answer.status, len(answer.json["members"])) == (200, 3001)
    await run_sql(acme.pool, analyze)
    assert len(await acme.members()) == 3001
    assert (await directory.put_group()).status == 200
    assert await acme.members() == {"owner@acme.example": ("owner", True)}
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == []
    listed = await directory.list_users(startIndex=2990, count=1000)
    assert (listed["totalResults"], listed["itemsPerPage"]) == (3001, 12)
    for query, most in (({}, 100), ({"count": 1001}, 1000), ({"count": 10**9}, 1000)):
        listed = await directory.list_users(**query)
        assert (listed["totalResults"], listed["itemsPerPage"], len(listed["Resources"])) == (3001, most, most)


async def test_a_patch_of_the_group_can_have_thousands_of_operations(acme: Tenant, directory: Directory) -> None:
    first, second = [(await directory.create_user(f"{name}@acme.example"))["id"] for name in ("first", "second")]
    ids = [*(str(UUID(int=number)) for number in range(20_000)), first]
    assert (await directory.patch_group(*({"op": "remove", "path": f'members[value eq "{id_}"]'} for id_ in ids))).status == 200
    assert await directory.group_member_ids() == {second, *(acme.id(name) for name in acme.people)}


async def test_a_large_patch_is_applied_in_a_thread(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()

    def observed(*args: Any) -> Any:
        threads.add(threading.get_ident())
        return apply_operations(*args)

    monkeypatch.setattr(patches, "apply_operations", observed)
    user = await directory.create_user()
    assert (await directory.patch(user["id"], {"op": "add", "path": "displayName", "value": "n"})).status == 200
    assert threads == {threading.get_ident()}
    threads.clear()
    operations = [{"op": "add", "path": "displayName", "value": f"n{number}"} for number in range(15_000)]
    answer = await directory.patch(user["id"], *operations)
    assert (answer.status, answer.json["displayName"]) == (200, "n14999")
    assert threads
    assert threading.get_ident() not in threads
    assert problem(await directory.patch(user["id"], *operations, {"op": "remove", "path": "userName"})) == (400, "mutability")
    assert problem(await directory.patch(user["id"], *operations * 2)) == (413, None)
    assert (await directory.get(f"/Users/{user['id']}"))["displayName"] == "n14999"
