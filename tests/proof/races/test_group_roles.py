"""Group roles, given and taken while the members use their rights."""

import pytest
import trio

from core.kernel.roles import MEMBER, ROLES, Capability
from tests.support.builders import add_account, run_concurrently, run_sql
from tests.support.tenants import Tenant, Tenants
from tests.tenancy.groups import GroupAdmin, check_counts

pytestmark = pytest.mark.slow

CALLERS = 20
RIGHTS = sorted(ROLES[MEMBER].rights - {Capability.ORGANIZATION_VIEW} | {Capability.MEMBERS_MANAGE, Capability.ROLES_MANAGE})


async def add_group(tenants: Tenants) -> tuple[Tenant, str]:
    """Add an organization with Ann in a group that gives her rights, and return it with the group."""
    acme = await tenants.add("acme")
    body = {"slug": "keeper", "name": "Keeper", "capabilities": RIGHTS}
    assert (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status == 201
    await acme.join("ann", await add_account(acme.ports, "ann@acme.example", None))
    admin = GroupAdmin(acme, "owner")
    group = await admin.create()
    assert (await admin.call("PUT", f"/{group}/role", {"role": "keeper"})).status == 200
    assert (await admin.add(group, acme.id("ann"))).status == 204
    return acme, group


async def test_a_member_who_leaves_a_group_leaves_nothing_that_they_gave_by_it(tenants: Tenants) -> None:
    acme, group = await add_group(tenants)

    async def act(number: int) -> int:
        if number == CALLERS // 2:
            return (await GroupAdmin(acme, "owner").remove(group, acme.id("ann"))).status
        invitation = {"email": f"eve-{number}@example.com", "role": "keeper"}
        return (await acme.api.post(acme.invitations, invitation, token=acme.token("ann"))).status

    statuses = await run_concurrently(CALLERS, act)
    assert statuses[CALLERS // 2] == 204
    assert set(statuses) <= {200, 204, 403}
    assert await run_sql(acme.pool, "select count(*) from invitations where status = 'pending'") == [(0,)]
    await check_counts(acme.pool)
    await acme.check()


async def test_a_right_is_not_used_after_its_group_gives_it_no_longer(tenants: Tenants) -> None:
    """The group gives the role, and takes it away, while Ann invites. An invitation by a right that is gone is refused or canceled."""
    acme, group = await add_group(tenants)
    ended = trio.Event()

    async def act(number: int) -> list[int]:
        if number == 0:
            for _ in range(2):
                assert (await GroupAdmin(acme, "owner").call("DELETE", f"/{group}/role")).status == 204
                assert (await GroupAdmin(acme, "owner").call("PUT", f"/{group}/role", {"role": "keeper"})).status == 200
            assert (await GroupAdmin(acme, "owner").call("DELETE", f"/{group}/role")).status == 204
            ended.set()
            return []
        statuses = []
        for turn in range(4):
            was_ended = ended.is_set()
            answer = await acme.try_invite(f"eve-{number}-{turn}@example.com", "keeper", by="ann")
            assert not (was_ended and answer.status == 200), "the right was taken away before this request began"
            statuses.append(answer.status)
        return statuses

    statuses = {status for results in await run_concurrently(CALLERS, act) for status in results}
    assert statuses <= {200, 403}
    assert await run_sql(acme.pool, "select count(*) from invitations where status = 'pending'") == [(0,)]
    assert await run_sql(acme.pool, "select maps_groups from organizations where id = %s", acme.org) == [(False,)]
    await acme.check()


async def test_a_mapping_and_the_loss_of_its_rights_never_pass_each_other(tenants: Tenants) -> None:
    """Ann gives roles to other groups while she leaves the group that lets her: all roles have stopped, or were refused."""
    acme, group = await add_group(tenants)
    others = [await GroupAdmin(acme, "owner").create(f"Group {number}") for number in range(CALLERS)]

    async def act(number: int) -> int:
        if number == CALLERS // 2:
            return (await GroupAdmin(acme, "owner").remove(group, acme.id("ann"))).status
        return (await GroupAdmin(acme, "ann").call("PUT", f"/{others[number]}/role", {"role": "keeper"})).status

    statuses = await run_concurrently(CALLERS, act)
    assert statuses[CALLERS // 2] == 204
    assert set(statuses) <= {200, 204, 403}
    active = "select count(*) from groups where role is not null and mapping_stopped_at is null and mapped_by = %s"
    assert await run_sql(acme.pool, active, acme.people["ann"].id) == [(0,)]
    await acme.check()


async def test_a_role_is_not_deleted_while_a_group_gets_it(tenants: Tenants) -> None:
    acme, group = await add_group(tenants)
    others = [await GroupAdmin(acme, "owner").create(f"Group {number}") for number in range(CALLERS)]

    async def act(number: int) -> int:
        if number == CALLERS // 2:
            path = f"{acme.path}/roles/keeper?confirm=true&replacement=member"
            return (await acme.api.delete(path, token=acme.token("owner"))).status
        return (await GroupAdmin(acme, "owner").call("PUT", f"/{others[number]}/role", {"role": "keeper"})).status

    statuses = await run_concurrently(CALLERS, act)
    assert statuses[CALLERS // 2] == 204
    assert set(statuses) <= {200, 204, 400}
    assert await run_sql(acme.pool, "select count(*) from groups where role = 'keeper' or role_id is not null") == [(0,)]
    assert await run_sql(acme.pool, "select role from groups where id = %s", group) == [("member",)]
    await acme.check()
