"""Concurrent changes to members (security Z-5, Z-6)."""

from collections.abc import Mapping

import pytest

from core.kernel.roles import ADMIN, MEMBER, OWNER, RoleName
from tests.support.builders import Answer, add_account, run_concurrently, run_during, run_sql, sign_in
from tests.support.tenants import Tenant, Tenants
from tests.tenancy.members import CALLS, CAST


@pytest.fixture
def cast() -> Mapping[str, RoleName]:
    return CAST


async def add_members(tenants: Tenants, size: int, role: RoleName = MEMBER) -> Tenant:
    return await tenants.add("acme", cast={"owner": OWNER} | {f"n{number}": role for number in range(size)})


@pytest.mark.slow
async def test_one_of_twenty_concurrent_transfers_wins(tenants: Tenants) -> None:
    acme = await add_members(tenants, 20)
    answers = await run_concurrently(20, lambda number: acme.transfer("owner", f"n{number}"))
    assert sorted(answer.status for answer in answers) == [200] + [403] * 19
    [winner] = [answer.json for answer in answers if answer.status == 200]
    roles = await acme.check()
    assert roles["owner"] == "admin"
    assert [acme.id(name) for name, role in roles.items() if role == "owner"] == [winner["new_owner"]["user_id"]]
    assert [entry[0] for entry in await acme.recorded()].count("organization.owner.changed") == 1


@pytest.mark.slow
async def test_concurrent_transfers_around_a_circle_leave_one_owner(tenants: Tenants) -> None:
    """Twenty admins in a circle transfer the ownership to the next admin, all at the same time."""
    acme = await add_members(tenants, 19, ADMIN)
    names = list(acme.people)
    for _ in range(3):
        answers = await run_concurrently(20, lambda number: acme.transfer(names[number], names[(number + 1) % 20]))
        assert {answer.status for answer in answers} <= {200, 403}
        assert [answer.status for answer in answers].count(200) >= 1
        roles = await acme.check()
        assert list(roles.values()).count("admin") == 19


@pytest.mark.slow
async def test_concurrent_transfers_removals_and_role_changes_leave_one_owner_and_a_correct_count(
    tenants: Tenants, other_tenant: Tenant
) -> None:
    acme = await add_members(tenants, 10)
    await acme.join("admin", await add_account(tenants.ports, "admin@acme.example", None), ADMIN)
    for number in range(10):
        await acme.add_pending_invitation("owner", f"guest-{number}@example.com", ADMIN if number % 2 else MEMBER)

    async def act(number: int) -> Answer:
        name = f"n{number % 10}"
        match number % 4:
            case 0:
                return await acme.transfer("owner", name)
            case 1:
                return await acme.remove("admin", name)
            case 2:
                return await acme.set_role("owner", name, "admin")
        return await acme.remove("admin", "owner")

    answers = await run_concurrently(20, act)
    # 401: the former owner was removed before the request arrived.
    assert {answer.status for answer in answers} <= {200, 400, 401, 403, 404}
    removals = sum(answer.status == 200 and answer.json.get("message") == "The member was removed." for answer in answers)
    roles = await acme.check()
    assert len(roles) == 12 - removals
    if roles.get("owner") != "owner":
        assert await run_sql(
            tenants.pool, "select count(*) from invitations where status = 'pending' and role = 'admin' and org_id = %s", acme.org
        ) == [(0,)]
    log = [entry[0] for entry in await acme.recorded()]
    assert log.count("user.removed") == removals
    assert await other_tenant.check() == CAST


@pytest.mark.slow
async def test_a_transfer_and_a_removal_of_the_same_member_exclude_each_other(tenants: Tenants) -> None:
    acme = await tenants.add("acme", cast={"owner": OWNER, "admin": ADMIN, "heir": MEMBER})

    async def act(number: int) -> Answer:
        return await (acme.transfer("owner", "heir") if number % 2 else acme.remove("admin", "heir"))

    answers = await run_concurrently(20, act)
    roles = await acme.check()
    assert [answer.status for answer in answers].count(200) == 1
    if "heir" in roles:
        assert roles == {"owner": "admin", "admin": "admin", "heir": "owner"}
        assert sorted(answer.status for answer in answers) == [200] + [400] * 10 + [403] * 9
    else:
        assert roles == {"owner": "owner", "admin": "admin"}
        assert sorted(answer.status for answer in answers) == [200] + [400] * 10 + [404] * 9


@pytest.mark.slow
async def test_one_of_twenty_concurrent_removals_wins(tenants: Tenants, acme: Tenant) -> None:
    callers = ["owner", "admin", "deputy"]
    answers = await run_concurrently(20, lambda number: acme.remove(callers[number % 3], "member"))
    assert sorted(answer.status for answer in answers) == [200] + [404] * 19
    assert len(await acme.check()) == len(CAST) - 1
    assert len(await acme.recorded()) == 1


@pytest.mark.slow
async def test_no_session_survives_a_removal_by_a_concurrent_refresh_or_selection(tenants: Tenants, acme: Tenant) -> None:
    member = acme.people["member"]
    sessions = [await sign_in(tenants.ports, member) for _ in range(10)]
    chosen = [await sign_in(tenants.ports, member, acme.org) for _ in range(9)]

    async def act(number: int) -> Answer:
        if number == 0:
            return await acme.remove("admin", "member")
        if number <= 10:
            return await tenants.api.post(f"{acme.path}/select", token=sessions[number - 1].access_token)
        return await tenants.api.post("/api/auth/refresh", {"refresh_token": chosen[number - 11].refresh_token})

    answers = await run_concurrently(20, act)
    assert {answer.status for answer in answers} <= {200, 401, 403}
    query = "select count(*) from sessions where org_id = %s and user_id = %s and ended_at is null"
    assert await run_sql(tenants.pool, query, acme.org, member.id) == [(0,)]
    tokens = [answer.json["access_token"] for answer in answers if "access_token" in answer.json]
    assert {(await tenants.api.get(f"{acme.path}/members", token=token)).status for token in tokens} <= {401}


async def test_a_removal_locks_the_account_before_its_sessions(tenants: Tenants, acme: Tenant) -> None:
    """Otherwise it would deadlock with a password change, which also ends sessions (security Z-6)."""
    member = acme.people["member"]
    await sign_in(tenants.ports, member, acme.org)
    changes = [("select 1 from users where id = %s for no key update", (member.id,))]
    assert (await run_during(tenants.pool, changes, lambda: acme.remove("admin", "member"))).status == 200
    query = "select 1 from sessions where org_id = %s and user_id = %s and ended_at is null"
    assert await run_sql(tenants.pool, query, acme.org, member.id) == []


@pytest.mark.slow
async def test_one_admin_remains_when_admins_remove_each_other_concurrently(tenants: Tenants) -> None:
    acme = await add_members(tenants, 10, ADMIN)

    async def act(number: int) -> Answer:
        return await acme.remove(f"n{number % 10}", f"n{(number + 1 + number // 10) % 10}")

    answers = await run_concurrently(20, act)
    # An admin who has been removed is refused when the request arrives, or after the lock.
    assert {answer.status for answer in answers} <= {200, 401, 403, 404}
    roles = await acme.check()
    assert len(roles) == 11 - [answer.status for answer in answers].count(200) >= 2


@pytest.mark.slow
async def test_twenty_equal_concurrent_role_changes_are_recorded_once(tenants: Tenants, acme: Tenant) -> None:
    answers = await run_concurrently(20, lambda _: acme.set_role("owner", "member", "admin"))
    assert {answer.status for answer in answers} == {200}
    assert len(await acme.recorded()) == 1


# A request was accepted, then waited for another transaction's lock. It must see that transaction's
# change.
SECOND: dict[str, tuple[str, str, str, int]] = {
    "a demoted admin cannot remove a member": ("update memberships set role = 'member' where user_id = %(admin)s", "admin", "removal", 403),
    "a removed admin cannot remove a member": ("delete from memberships where user_id = %(admin)s", "admin", "removal", 403),
    "a former owner cannot change roles": (SWAP := "update memberships set role = 'admin' where user_id = %(owner)s", "owner", "role", 403),
    "a former owner cannot transfer the ownership": (SWAP, "owner", "transfer", 403),
    "an admin cannot remove a member of a suspended organization": (
        "update organizations set status = 'suspended'",
        "admin",
        "removal",
        403,
    ),
    "a removed member cannot be removed again": ("delete from memberships where user_id = %(member)s", "admin", "removal", 404),
    "a removed member cannot get a role": ("delete from memberships where user_id = %(member)s", "owner", "role", 404),
    "a removed member cannot become the owner": ("delete from memberships where user_id = %(member)s", "owner", "transfer", 400),
    "a deactivated member cannot become the owner": (
        "update users set deactivated_at = now() where id = %(member)s",
        "owner",
        "transfer",
        400,
    ),
}


@pytest.mark.parametrize("name", SECOND)
async def test_a_write_sees_the_change_that_it_waited_for(tenants: Tenants, acme: Tenant, name: str) -> None:
    first, caller, call, status = SECOND[name]
    changes = [
        ("select 1 from organizations where id = %s for no key update", (acme.org,)),
        (first, {person: account.id for person, account in acme.people.items()}),
    ]
    answer = await run_during(tenants.pool, changes, lambda: CALLS[call](acme, acme.token(caller), acme.id("member")))
    assert answer.status == status
    assert await acme.recorded() == []


@pytest.mark.slow
async def test_of_twenty_concurrent_ways_out_one_ends_the_membership(tenants: Tenants, acme: Tenant) -> None:
    tokens = [(await sign_in(tenants.ports, acme.people["member"])).access_token for _ in range(10)]
    owner_token = acme.token("owner")

    async def act(number: int) -> int:
        if number % 2:
            return (await tenants.api.post(f"{acme.path}/members/{acme.id('member')}", token=owner_token)).status
        return (await tenants.api.post(f"{acme.path}/leave", token=tokens[number // 2])).status

    statuses = await run_concurrently(20, act)
    assert sum(status < 400 for status in statuses) == 1
    assert set(statuses) <= {200, 204, 403, 404}
    assert [entry["action"] for entry in await acme.log()].count("user.removed") == 1
