"""The times `created` and `lastModified` on users and groups."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.fakes.outside import FakeClock
from tests.provisioning.api.leavers.users import PRIVATE_EMAIL, change_own_email
from tests.support.builders import run_sql
from tests.support.scim import Directory
from tests.support.services import add_api_key, add_service, add_service_user
from tests.support.tenants import Tenant


def times(user: dict[str, Any]) -> tuple[str, str]:
    return user["meta"]["created"], user["meta"]["lastModified"]


async def test_created_stays_and_last_modified_follows_each_change_of_a_user(acme: Tenant, directory: Directory, clock: FakeClock) -> None:
    user = await directory.create_user()
    created, modified = times(user)
    user_id = user["id"]
    actions: list[Any] = [
        lambda: directory.patch(user_id, {"op": "add", "path": "displayName", "value": "Grace"}),
        lambda: directory.put(user_id, userName="hopper@acme.example"),
        lambda: change_own_email(acme, user_id, PRIVATE_EMAIL),
        lambda: directory.deactivate(user_id),
        lambda: directory.activate(user_id),
        lambda: directory.remove_member(user_id),
        lambda: directory.add_members(user_id),
    ]
    for number, action in enumerate(actions):
        clock.advance(timedelta(seconds=1))
        await action()
        before, modified = modified, times(await directory.get(f"/Users/{user_id}"))[1]
        assert modified > before, number
        assert times(await directory.get(f"/Users/{user_id}"))[0] == created, number
        assert await directory.find_user_names(f'meta.lastModified gt "{before}" and meta.created eq "{created}"') != []
    clock.advance(timedelta(seconds=1))
    await directory.patch_group({"op": "add", "path": "members", "value": [{"value": user_id}]})  # already a member
    assert times(await directory.get(f"/Users/{user_id}")) == (created, modified)


async def test_created_stays_and_last_modified_follows_each_change_of_the_group(
    acme: Tenant, directory: Directory, clock: FakeClock
) -> None:
    async def now() -> tuple[str, str]:
        return times(await directory.get(f"{directory.group_path}?excludedAttributes=members"))

    since = clock.now() - timedelta(days=1)
    await run_sql(acme.pool, "update organizations set created_at = %s, updated_at = %s", since, since)
    created, modified = await now()
    user_id = (await directory.create_user())["id"]
    served_id = (await directory.create_user("served@acme.example"))["id"]
    shop = await add_service(acme.pool, acme.org)
    key = await add_api_key(acme.pool, shop)
    await add_service_user(acme.ports, shop, UUID(served_id))
    actions: list[Any] = [
        lambda: directory.patch_group({"op": "add", "path": "externalId", "value": "8aa1a0c0"}),
        lambda: directory.create_user("ada@acme.example"),
        lambda: directory.remove_member(user_id),
        lambda: directory.add_members(user_id),
        lambda: directory.delete(user_id),
        lambda: acme.remove("owner", "member"),
        lambda: acme.api.delete(f"/api/service/users/{served_id}", headers={"X-API-Key": key}),
    ]
    for number, action in enumerate(actions):
        clock.advance(timedelta(seconds=1))
        await action()
        before, (created_now, modified) = modified, await now()
        assert (created_now, modified > before) == (created, True), number
        groups = (await directory.try_list("Groups", filter=f'meta.lastModified gt "{before}"', excludedAttributes="members")).json
        assert groups["totalResults"] == 1
    clock.advance(timedelta(seconds=1))
    await directory.put_group(acme.id("admin"), *(await directory.group_member_ids()))
    assert await now() == (created, modified)
