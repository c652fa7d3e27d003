"""What a service account gave above member ends with it (security R-4)."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from core.kernel.roles import MEMBER
from tests.programs.service_accounts import Robot, add_robot, with_new_secret
from tests.support.builders import Answer, add_account, run_concurrently, run_sql
from tests.support.platform import Platform
from tests.support.tenants import Tenant
from tests.tenancy.invitations import accept

GRANTS: dict[str, Any] = {"role": "owner", "granted_capabilities": ["roles.manage", "members.manage"]}


@pytest.fixture
async def robot(acme: Tenant) -> Robot:
    """The owner's service account, which may change roles."""
    return await add_robot(acme, **GRANTS)


async def delete(robot: Robot) -> None:
    assert (await robot.tenant.api.delete(robot.path, token=robot.tenant.token("owner"))).status == 204


async def change(robot: Robot, by: str = "owner", **fields: Any) -> Answer:
    return await robot.tenant.api.patch(robot.path, fields, token=robot.tenant.token(by))


async def demote(robot: Robot) -> None:
    assert (await change(robot, role="admin")).status == 200


async def take_capability(robot: Robot) -> None:
    assert (await change(robot, granted_capabilities=["members.manage"])).status == 200


async def transfer(robot: Robot) -> None:
    assert (await robot.tenant.transfer("owner", "admin")).status == 200


async def set_state(robot: Robot, platform: Platform, action: str) -> None:
    """Deactivate or reactivate the account's owner."""
    path = f"/api/platform/users/{robot.tenant.id('owner')}/{action}"
    assert (await platform.api.post(path, {"reason": "a stolen account"}, token=platform.token)).status == 200


@pytest.mark.parametrize("end", [delete, demote, take_capability, transfer])
async def test_invitations_and_roles_above_member_are_void(acme: Tenant, robot: Robot, end: Callable[[Robot], Awaitable[None]]) -> None:
    assert (await robot.invite("ada@example.com", "admin")).status == 200
    assert (await robot.invite("bob@example.com", "member")).status == 200
    assert (await robot.set_role("member", "admin")).status == 200
    await acme.invite("eve@example.com", "admin", by="owner")
    assert (await acme.try_invite("zoe@example.com", by="member")).status == 200  # the new admin invites
    await end(robot)
    statuses = await acme.statuses()
    eve = "cancelled" if end is transfer else "pending"  # the former owner's
    assert statuses == {
        "ada@example.com": "cancelled",
        "bob@example.com": "pending",
        "eve@example.com": eve,
        "zoe@example.com": "cancelled",
    }
    assert (await acme.check())["member"] == "member"
    [entry] = [entry for entry in await acme.log() if entry["action"] == "user.role_updated" and entry["details"]["new_role"] == "member"]
    assert (entry["target_id"], entry["details"]["old_role"]) == (acme.id("member"), "admin")


async def test_a_deactivation_of_the_owner_voids_what_the_account_gave(acme: Tenant, platform: Platform, robot: Robot) -> None:
    await robot.invite("ada@example.com", "admin")
    await robot.invite("bob@example.com", "member")
    await robot.set_role("member", "admin")
    await acme.invite("eve@example.com", "admin", by="owner")
    await set_state(robot, platform, "deactivate")
    assert await acme.statuses() == {"ada@example.com": "cancelled", "bob@example.com": "pending", "eve@example.com": "pending"}
    assert (await acme.check())["member"] == "member"
    await set_state(robot, platform, "reactivate")
    assert (await acme.check())["member"] == "member"
    assert (await robot.set_role("member", "admin")).status == 401, "its secret has ended"
    await acme.sign_in("owner")
    robot = await with_new_secret(acme, robot.path)
    assert (await robot.set_role("member", "admin")).status == 200


async def test_a_role_that_a_person_has_set_since_stays(acme: Tenant, robot: Robot) -> None:
    await robot.set_role("member", "admin")
    assert (await acme.set_role("owner", "member", "admin")).status == 200  # changes nothing but who answers for it
    await delete(robot)
    assert (await acme.check())["member"] == "admin"


async def test_a_role_that_another_account_has_set_since_stays(acme: Tenant, robot: Robot) -> None:
    other = await add_robot(acme, **GRANTS)
    for each in (robot, robot, other):
        await each.set_role("member", "member")
        await each.set_role("member", "admin")
    await delete(robot)
    assert (await acme.check())["member"] == "admin"
    await delete(other)
    assert (await acme.check())["member"] == "member"


async def test_an_accepted_invitation_to_admin_is_void_with_the_account(acme: Tenant, robot: Robot) -> None:
    token = (await robot.invite("ada@example.com", "admin")).json["token"]
    assert (await accept(acme.api, token)).status == 200
    assert (await acme.members())["ada@example.com"][0] == "admin"
    await delete(robot)
    assert (await acme.members())["ada@example.com"][0] == "member"


async def test_an_invitation_of_an_account_that_has_stopped_makes_no_admin(acme: Tenant, robot: Robot) -> None:
    admin, member = [(await robot.invite(f"{role}@example.com", role)).json["token"] for role in ("admin", "member")]
    await run_sql(acme.pool, "update users set deactivated_at = now() where id = %s", acme.people["owner"].id)
    assert (await accept(acme.api, admin)).status == 400
    assert (await accept(acme.api, member)).status == 200
    members = await acme.members()
    assert ("admin@example.com" in members, members["member@example.com"][0]) == (False, "member")


async def test_the_accounts_of_an_admin_who_was_made_one_stop_too(acme: Tenant, robot: Robot) -> None:
    await robot.set_role("member", "admin")
    own = await add_robot(acme, "member")
    assert (await own.call("GET", "/invitations")).status == 200
    await delete(robot)
    assert (await own.call("GET", "/invitations")).status == 401


async def test_other_organizations_keep_their_roles(acme: Tenant, other_tenant: Tenant, robot: Robot) -> None:
    await run_sql(
        acme.pool,
        "update memberships set promoted_by = %s where org_id = %s and role = 'admin'",
        robot.id,
        other_tenant.org,
    )
    await delete(robot)
    assert (await other_tenant.check())["admin"] == "admin"


@pytest.mark.parametrize("by_deletion", [True, False])
async def test_an_end_during_promotions_leaves_no_admin(acme: Tenant, platform: Platform, robot: Robot, by_deletion: bool) -> None:
    names = [f"member-{number}" for number in range(6)]
    for name in names:
        await acme.join(name, await add_account(acme.ports, f"{name}@acme.example", None), MEMBER)

    async def act(number: int) -> int:
        if number == 3:
            await (delete(robot) if by_deletion else set_state(robot, platform, "deactivate"))
            return 204
        return (await robot.set_role(names[number % 6], "admin")).status

    statuses = await run_concurrently(12, act)
    assert set(statuses) <= {200, 204, 401}
    roles = await acme.check()
    assert {roles[name] for name in names} == {"member"}
