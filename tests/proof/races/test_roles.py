"""An organization's roles, changed and deleted while members give them."""

import pytest

from core.kernel.roles import OWNER, RoleName
from tests.support.builders import add_account, run_concurrently, run_sql
from tests.support.tenants import Tenant, Tenants
from tests.tenancy.invitations import accept

pytestmark = pytest.mark.slow

CALLERS = 20
RIGHTS = ["members.view", "audit.view"]
GIVEN = """
    select count(*) filter (where role = 'auditor'), count(*) filter (where role_id is null and role = 'auditor') from (
        select role, role_id from memberships union all
        select role, role_id from invitations where status = 'pending' union all
        select role, role_id from service_accounts) held"""


async def add_tenant(tenants: Tenants, people: int) -> Tenant:
    """Add an organization with members, and the role `auditor` for the last member."""
    acme = await tenants.add("acme", cast={"owner": OWNER})
    body = {"slug": "auditor", "name": "Auditor", "capabilities": RIGHTS}
    assert (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status == 201
    for number in range(people):
        role = RoleName("auditor" if number == people - 1 else "member")
        await acme.join(f"user-{number}", await add_account(acme.ports, f"user-{number}@acme.example", None), role)
    return acme


async def check(acme: Tenant) -> None:
    """Check that nothing has a role that does not exist, and that no request failed."""
    await check_roles(acme)
    await acme.check()


async def check_roles(acme: Tenant) -> None:
    exists = await run_sql(acme.pool, "select count(*) from organization_roles where slug = 'auditor'")
    [(held, without_id)] = await run_sql(acme.pool, GIVEN)
    assert without_id == 0
    assert exists == [(1,)] or held == 0, "a deleted role is held"


async def delete(acme: Tenant) -> int:
    answer = await acme.api.delete(f"{acme.path}/roles/auditor?confirm=true&replacement=member", token=acme.token("owner"))
    return answer.status


async def test_deleting_a_role_and_inviting_to_it_never_pass_each_other(tenants: Tenants) -> None:
    acme = await add_tenant(tenants, 1)

    async def act(number: int) -> int:
        if number == CALLERS // 2:
            return await delete(acme)
        return (await acme.try_invite(f"eve-{number}@example.com", "auditor")).status

    statuses = await run_concurrently(CALLERS, act)
    assert statuses[CALLERS // 2] == 204
    assert set(statuses) <= {200, 204, 400}
    await check(acme)


async def test_deleting_a_role_and_giving_it_to_members_never_pass_each_other(tenants: Tenants) -> None:
    acme = await add_tenant(tenants, CALLERS)

    async def act(number: int) -> int:
        if number == CALLERS // 2:
            return await delete(acme)
        return (await acme.set_role("owner", f"user-{number}", "auditor")).status

    statuses = await run_concurrently(CALLERS, act)
    assert statuses[CALLERS // 2] == 204
    assert set(statuses) <= {200, 204, 400}
    await check(acme)


async def test_deleting_a_role_and_joining_by_an_invitation_to_it_never_pass_each_other(tenants: Tenants) -> None:
    """Users who join after the deletion have the replacement, and so have users who joined before."""
    acme = await add_tenant(tenants, 1)
    await acme.set_member_limit(CALLERS + 5)
    secrets = [(await acme.invite(f"eve-{number}@example.com", "auditor"))["token"] for number in range(CALLERS)]

    async def act(number: int) -> int:
        if number == CALLERS // 2:
            return await delete(acme)
        return (await accept(acme.api, secrets[number])).status

    statuses = await run_concurrently(CALLERS, act)
    assert statuses == [204 if number == CALLERS // 2 else 200 for number in range(CALLERS)]
    assert {role for role, _ in (await acme.members()).values()} == {"owner", "member"}
    await check_roles(acme)


async def test_a_role_is_deleted_once(tenants: Tenants) -> None:
    acme = await add_tenant(tenants, 2)
    statuses = await run_concurrently(CALLERS, lambda _: delete(acme))
    assert sorted(set(statuses)) == [204, 404]
    assert statuses.count(204) == 1
    await check(acme)


async def test_a_right_that_is_taken_away_is_not_used_by_a_change_that_began_later(tenants: Tenants) -> None:
    """A change takes its rights from the role as it is in its own transaction."""
    acme = await add_tenant(tenants, 1)
    path, rights = f"{acme.path}/roles/auditor", [*RIGHTS, "webhooks.manage"]
    assert (await acme.api.patch(path, {"capabilities": rights}, token=acme.token("owner"))).status == 200
    body = {"name": "Hook", "url": "https://hooks.acme.example/in", "events": ["user.invited"]}
    narrowed: list[int] = []

    async def act(number: int) -> int:
        if number == CALLERS // 2:
            status = (await acme.api.patch(f"{path}?confirm=true", {"capabilities": RIGHTS}, token=acme.token("owner"))).status
            narrowed.append(status)
            return status
        is_late = bool(narrowed)
        answer = await acme.api.post(f"{acme.path}/webhooks", {**body, "name": f"Hook {number}"}, token=acme.token("user-0"))
        assert not (is_late and answer.status == 200), "the right was taken away before this request began"
        return answer.status

    statuses = await run_concurrently(CALLERS, act)
    assert statuses[CALLERS // 2] == 200
    assert set(statuses) <= {200, 403}
    assert await run_sql(acme.pool, "select count(*) from webhooks") == [(statuses.count(200) - 1,)]


async def test_twenty_roles_at_once_keep_to_the_limit(tenants: Tenants) -> None:
    acme = await add_tenant(tenants, 1)
    for number in range(40):
        body = {"slug": f"role-{number}", "name": f"Role {number}", "capabilities": []}
        assert (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status == 201

    async def create(number: int) -> int:
        body = {"slug": f"late-{number}", "name": f"Late {number}", "capabilities": []}
        return (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status

    statuses = await run_concurrently(CALLERS, create)
    assert (statuses.count(201), statuses.count(400)) == (9, 11)
