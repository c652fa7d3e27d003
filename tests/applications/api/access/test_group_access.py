"""Group access to applications with the policy `assigned`."""

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.applications.model.users import GroupNotAssigned
from ports import Ports
from tests.support.builders import EMAIL, PASSWORD, Answer, Api, add_account, add_member, run_concurrently, run_sql, sign_in
from tests.support.services import add_service
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin

LOGIN = {"email": EMAIL, "password": PASSWORD, "org_slug": "acme", "service_slug": "store"}


@pytest.fixture
async def groups(acme: Tenant) -> GroupAdmin:
    """Acme has an application `store` for assigned users."""
    await add_service(acme.pool, acme.org, "store")
    await run_sql(acme.pool, "update services set access_policy = 'assigned'")
    return GroupAdmin(acme)


async def assigned_groups(acme: Tenant) -> list[tuple[str, int]]:
    answer = await acme.api.get(f"{acme.path}/services/store/groups", token=acme.token("member"))
    assert answer.json["total"] == len(answer.json["groups"])
    return [(each["name"], each["member_count"]) for each in answer.json["groups"]]


async def test_an_assigned_group_opens_the_application_until_the_user_leaves_it(
    groups: GroupAdmin, acme: Tenant, api: Api, user: Account, pool: Pool
) -> None:
    await add_member(pool, acme.org, user.id, confirmed=True)
    group = await groups.create()
    await groups.add(group, user.id)
    assert (await api.post("/api/auth/login", LOGIN)).status == 403
    for _ in range(2):
        assert (await groups.assign("store", group)).status == 204
    assert await assigned_groups(acme) == [("Engineering", 1)]
    session = (await api.post("/api/auth/login", LOGIN)).json
    assert (await groups.remove(group, user.id)).status == 204
    assert (await api.post("/api/auth/refresh", {"refresh_token": session["refresh_token"]})).status == 401
    assert (await api.post("/api/auth/login", LOGIN)).status == 403
    recorded = [entry for entry in await acme.recorded() if entry[0].startswith("service.group.")]
    details = {"service_slug": "store", "service_name": "Store", "group_name": "Engineering"}
    assert recorded == [("service.group.assigned", "group", group, acme.people["admin"].id, details)]


async def test_each_end_of_the_access_by_a_group_ends_openid_sessions(
    groups: GroupAdmin, acme: Tenant, ports: Ports, user: Account, pool: Pool
) -> None:
    """The user leaves, the assignment ends, the group is deleted, or another admission remains."""
    await add_member(pool, acme.org, user.id, confirmed=True)
    [(service,)] = await run_sql(pool, "select id from services where slug = 'store'")

    async def open_sessions() -> int:
        sql = "select count(*) from sessions where user_id = %s and service_id = %s and ended_at is null"
        [(number,)] = await run_sql(pool, sql, user.id, service)
        return int(number)

    async def enter(name: str) -> str:
        group = await groups.create(name)
        await groups.add(group, user.id)
        await groups.assign("store", group)
        session = await sign_in(ports, user, acme.org)
        # an OpenID Connect session at the application
        sql = "update sessions set service_id = %s, scope = '{openid}', ended_at = null where id = %s"
        await run_sql(pool, sql, service, session.session_id)
        assert await open_sessions() == 1
        return group

    group = await enter("First")
    await groups.remove(group, user.id)
    assert await open_sessions() == 0
    group = await enter("Second")
    assert (await groups.unassign("store", group)).status == 204
    assert await open_sessions() == 0
    again = await groups.unassign("store", group)
    assert (again.status, again.json["error"]) == (404, GroupNotAssigned.__doc__)
    group = await enter("Third")
    await acme.api.call("PUT", f"{acme.path}/services/store/assignments/{user.id}", token=acme.token("admin"))
    await groups.call("DELETE", f"/{group}")
    assert await open_sessions() == 1, "an admin assigned the user, too"
    await acme.api.delete(f"{acme.path}/services/store/assignments/{user.id}", token=acme.token("admin"))
    assert await open_sessions() == 0
    group = await enter("Fourth")
    await groups.call("DELETE", f"/{group}")
    assert await open_sessions() == 0


async def test_an_application_of_a_group_is_among_your_applications(groups: GroupAdmin, acme: Tenant, api: Api, pool: Pool) -> None:
    """The same holds for an end user who is not a member."""
    end_user = await add_account(acme.ports, "end-user@example.com")
    await add_service(pool, acme.org, "desk")
    await run_sql(
        pool,
        "insert into end_users (org_id, user_id, email, deactivated, created_at) values (%s, %s, %s, false, now())",
        *(acme.org, end_user.id, end_user.email),
    )
    group = await groups.create()
    assert (await groups.add(group, end_user.id)).status == 204
    session = await sign_in(acme.ports, end_user)

    async def own() -> list[str]:
        answer = await api.get("/api/user/applications", token=session.access_token)
        return [each["slug"] for each in answer.json["applications"]]

    assert "store" not in await own()
    await groups.assign("store", group)
    assert "store" in await own()


async def test_no_user_signs_in_after_the_answer_to_leaving_the_group(groups: GroupAdmin, acme: Tenant, api: Api, pool: Pool) -> None:
    group = await groups.create()
    await groups.assign("store", group)
    people = [await add_account(acme.ports, f"user{number}@example.com") for number in range(5)]
    for account in people:
        await add_member(pool, acme.org, account.id, confirmed=True)
        await groups.add(group, account.id)
    late: list[Answer] = []

    async def act(number: int) -> None:
        account, kind = people[number % 5], number // 5
        login = {**LOGIN, "email": str(account.email)}
        if kind == 0:
            assert (await groups.remove(group, account.id)).status == 204
            late.append(await api.post("/api/auth/login", login))
        else:
            assert (await api.post("/api/auth/login", login)).status in (200, 403)

    await run_concurrently(20, act)
    assert [answer.status for answer in late] == [403] * 5
