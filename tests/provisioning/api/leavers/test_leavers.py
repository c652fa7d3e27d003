"""Former members and deactivated users in the directory (security C-1, C-5, C-6)."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import pytest

from tests.fakes.outside import FakeClock
from tests.provisioning.api.leavers.users import PRIVATE_EMAIL, change_own_email, leave, unblock
from tests.support.builders import add_account, add_member, run_sql, sign_in
from tests.support.scim import GRACE, Directory, directory_of, problem
from tests.support.tenants import Tenant
from tests.tenancy.invitations import accept


async def is_deactivated(acme: Tenant, user_id: str) -> bool:
    [(value,)] = await run_sql(acme.pool, "select deactivated_at is not null from users where id = %s", UUID(user_id))
    return bool(value)


# Blocks


async def test_deactivating_ends_the_membership_of_an_account_that_is_deactivated_already(acme: Tenant, directory: Directory) -> None:
    user_id = str((await add_account(acme.ports, "ada@example.com")).id)
    await add_member(acme.pool, acme.org, UUID(user_id), confirmed=True)
    await run_sql(acme.pool, "update users set deactivated_at = now() where id = %s", UUID(user_id))
    assert (await directory.get(f"/Users/{user_id}"))["active"] is False
    assert (await directory.deactivate(user_id)).status == 200
    await run_sql(acme.pool, "update users set deactivated_at = null where id = %s", UUID(user_id))
    assert "ada@example.com" not in await acme.members()
    assert (await directory.get(f"/Users/{user_id}"))["active"] is False


async def test_a_patch_without_active_ends_no_membership(acme: Tenant, directory: Directory) -> None:
    user_id = str((await add_account(acme.ports, "ada@example.com")).id)
    await add_member(acme.pool, acme.org, UUID(user_id), confirmed=True)
    await run_sql(acme.pool, "update users set deactivated_at = now() where id = %s", UUID(user_id))
    answer = await directory.patch(user_id, {"op": "replace", "path": "displayName", "value": "Ada"})
    assert (answer.status, answer.json["active"]) == (200, False)
    await run_sql(acme.pool, "update users set deactivated_at = null where id = %s", UUID(user_id))
    assert "ada@example.com" in await acme.members()
    assert (await directory.get(f"/Users/{user_id}"))["active"] is True


async def test_a_provisioned_account_is_deleted_inside_and_outside_the_group(acme: Tenant, directory: Directory) -> None:
    for out in (False, True):
        user_id = (await directory.create_user())["id"]
        await directory.deactivate(user_id)
        if out:
            await directory.remove_member(user_id)
        assert (await directory.delete(user_id)).status == 204
        assert await run_sql(acme.pool, "select 1 from users where id = %s", UUID(user_id)) == []


async def test_a_user_created_inactive_does_not_count_as_a_member(acme: Tenant, directory: Directory) -> None:
    await acme.set_member_limit(3)
    user = await directory.create_user(active=False)
    assert user["active"] is False
    assert problem(await directory.activate(user["id"])) == (400, None)
    assert problem(await directory.try_create_user("ada@acme.example")) == (400, None)
    await acme.check()


# Former members


async def test_the_directory_forgets_and_cannot_restore_a_member_that_the_organization_removed(
    acme: Tenant, directory: Directory, leaver_id: str
) -> None:
    await leave(acme, leaver_id)
    await change_own_email(acme, leaver_id)
    assert problem(await directory.call("GET", f"/Users/{leaver_id}")) == (404, None)
    for email in (GRACE, PRIVATE_EMAIL):
        assert await directory.find_user_names(f'userName eq "{email}"') == []
    for answer in (
        await directory.activate(leaver_id),
        await directory.put(leaver_id, userName=GRACE, active=True),
        await directory.delete(leaver_id),
    ):
        assert problem(answer) == (404, None)
    for answer in (
        await directory.add_members(leaver_id),
        await directory.put_group(leaver_id, *(acme.id(name) for name in ("admin", "member"))),
    ):
        assert problem(answer) == (400, "invalidValue")
    assert "grace" not in await acme.check()
    assert (await directory.list_users())["totalResults"] == 3
    await acme.invite(PRIVATE_EMAIL)  # the user can join again by an invitation


async def test_the_organization_removes_no_deactivated_user(acme: Tenant, directory: Directory, leaver_id: str) -> None:
    """They have no membership. Their directory still knows them."""
    await directory.deactivate(leaver_id)
    assert (await acme.api.post(f"{acme.path}/members/{leaver_id}", token=acme.token("owner"))).status == 404
    assert (await acme.api.patch(f"{acme.path}/members/{leaver_id}", {"role": "admin"}, token=acme.token("owner"))).status == 404
    assert (await directory.add_members(leaver_id)).status == 200
    assert leaver_id not in await directory.group_member_ids()
    assert (await directory.get(f"/Users/{leaver_id}"))["active"] is False
    assert (await directory.put(leaver_id, userName=GRACE, active=True)).json["active"] is True
    assert leaver_id in await directory.group_member_ids()
    assert not await is_deactivated(acme, leaver_id)


@pytest.mark.parametrize("reason", ["out of the group", "deactivated"])
async def test_the_directory_does_not_see_the_new_address_of_a_former_member(
    acme: Tenant, other_tenant: Tenant, directory: Directory, clock: FakeClock, leaver_id: str, reason: str
) -> None:
    await add_member(other_tenant.pool, other_tenant.org, UUID(leaver_id))
    await (directory.remove_member(leaver_id) if reason == "out of the group" else directory.deactivate(leaver_id))
    before = await directory.get(f"/Users/{leaver_id}")
    clock.advance(timedelta(minutes=1))
    await change_own_email(acme, leaver_id)
    assert await directory.get(f"/Users/{leaver_id}") == before
    assert before in (await directory.list_users())["Resources"]
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]
    for filter_ in (
        f'userName eq "{PRIVATE_EMAIL}"',
        'userName ew "home.example"',
        f'id eq "{leaver_id}" and meta.lastModified gt "{before["meta"]["lastModified"]}"',
    ):
        assert await directory.find_user_names(filter_) == []
    user = await directory.patch(leaver_id, {"op": "add", "path": "displayName", "value": "Grace"})
    assert (user.json["userName"], user.json["displayName"]) == (GRACE, "Grace")
    assert PRIVATE_EMAIL not in (await directory.put(leaver_id, userName=GRACE)).text
    renamed = await directory.put(leaver_id, userName="else@acme.example")
    assert (renamed.json["userName"], renamed.json["emails"][0]["value"]) == ("else@acme.example", GRACE)
    await directory.put(leaver_id, userName=GRACE)
    at_twin = await (await directory_of(other_tenant)).get(f"/Users/{leaver_id}")  # a member there
    assert at_twin["userName"] == PRIVATE_EMAIL
    # Members have their present address.
    await (directory.add_members(leaver_id) if reason == "out of the group" else directory.activate(leaver_id))
    assert (await directory.get(f"/Users/{leaver_id}"))["userName"] == PRIVATE_EMAIL
    assert await directory.find_user_names(f'userName eq "{PRIVATE_EMAIL}"') == [PRIVATE_EMAIL]


async def test_anonymizing_removes_the_old_address_of_a_deactivated_user(acme: Tenant, directory: Directory, leaver_id: str) -> None:
    await directory.deactivate(leaver_id)
    answer = await acme.api.delete(f"/api/privacy/forget/{leaver_id}", token=acme.token("owner"))
    assert answer.status == 200, answer.text
    assert (await directory.get(f"/Users/{leaver_id}"))["userName"].startswith("anonymized-")
    assert await run_sql(acme.pool, "select 1 from scim_users where email = %s", GRACE) == []


async def test_the_directory_changes_the_address_of_a_deactivated_user(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    await directory.deactivate(user["id"])
    answer = await directory.put(user["id"], userName="hopper@acme.example")
    assert (answer.status, answer.json["userName"], answer.json["active"]) == (200, "hopper@acme.example", False)
    assert await directory.find_user_names('userName eq "hopper@acme.example"') == ["hopper@acme.example"]


async def test_deleting_an_organization_by_the_platform_reactivates_its_deactivated_accounts(
    acme: Tenant, directory: Directory, leaver_id: str
) -> None:
    owner = await add_account(acme.ports, "root@platform.example")
    await run_sql(acme.pool, "update users set is_platform_owner = true where id = %s", owner.id)
    await directory.deactivate(leaver_id)
    assert await is_deactivated(acme, leaver_id)
    session = await sign_in(acme.ports, owner)
    answer = await acme.api.delete(f"/api/platform/organizations/{acme.org}", token=session.access_token)
    assert answer.status == 204, answer.text
    assert not await is_deactivated(acme, leaver_id)
    assert (await acme.api.login(GRACE)).status == 200


# Invitations from before the user left


async def remove_from_group(acme: Tenant, directory: Directory, user_id: str) -> None:
    assert (await directory.remove_member(user_id)).status == 200


async def remove_by_owner(acme: Tenant, directory: Directory, user_id: str) -> None:
    await leave(acme, user_id)


async def delete_user(acme: Tenant, directory: Directory, user_id: str) -> None:
    assert (await directory.delete(user_id)).status == 204


async def deactivate_user(acme: Tenant, directory: Directory, user_id: str) -> None:
    assert (await directory.deactivate(user_id)).status == 200


@pytest.mark.parametrize("end_membership", [remove_from_group, remove_by_owner, delete_user, deactivate_user])
async def test_an_invitation_before_provisioning_is_revoked_when_the_user_leaves(
    acme: Tenant, directory: Directory, end_membership: Callable[[Tenant, Directory, str], Awaitable[None]]
) -> None:
    invitation = await acme.invite(GRACE, "admin")
    user_id = (await directory.create_user())["id"]
    await end_membership(acme, directory, user_id)
    assert (await accept(acme.api, invitation["invitation"]["token"])).status == 400
    assert GRACE not in await acme.check()
    entry = await acme.entry("invitation.revoked")
    assert entry["target_id"] == invitation["invitation"]["id"]


async def test_deleting_a_user_revokes_earlier_invitations_and_allows_new_ones(
    acme: Tenant, other_tenant: Tenant, directory: Directory, leaver_id: str
) -> None:
    await add_member(other_tenant.pool, other_tenant.org, UUID(leaver_id))
    assert (await directory.remove_member(leaver_id)).status == 200
    invitation = await acme.invite(GRACE)
    await delete_user(acme, directory, leaver_id)
    assert (await accept(acme.api, invitation["invitation"]["token"])).status == 400
    await unblock(acme, leaver_id)
    await acme.sign_in("grace")
    assert (await accept(acme.api, (await acme.invite(GRACE))["invitation"]["token"], token=acme.token("grace"))).status == 200
