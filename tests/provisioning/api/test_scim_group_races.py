"""Groups pushed at once, and during sign-ins."""

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from tests.support.builders import PASSWORD, Api, add_account, add_member, run_concurrently, run_sql
from tests.support.scim import GroupDirectory, directory_of
from tests.support.services import add_service
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin, check_counts


@pytest.fixture
async def groups(acme: Tenant) -> GroupDirectory:
    return GroupDirectory(await directory_of(acme, groups=True))


async def open_store(groups: GroupDirectory, acme: Tenant, size: int) -> tuple[list[Account], str]:
    """Add an application that only a group with so many users may use. Return the users and the group."""
    await add_service(acme.pool, acme.org, "store")
    await run_sql(acme.pool, "update services set access_policy = 'assigned'")
    people = [await add_account(acme.ports, f"user{number}@example.com") for number in range(size)]
    for account in people:
        await add_member(acme.pool, acme.org, account.id, confirmed=True)
    group = await groups.create("Engineering", *[account.id for account in people])
    await GroupAdmin(acme).assign("store", group)
    return people, group


async def test_twenty_pushes_at_once_keep_names_members_and_counts(groups: GroupDirectory, acme: Tenant, pool: Pool) -> None:
    answers = await run_concurrently(20, lambda number: groups.try_create(f"Group {number % 4}"))
    assert sorted(answer.status for answer in answers) == [201] * 4 + [409] * 16
    group = next(answer.json["id"] for answer in answers if answer.status == 201)
    ids = [acme.id(name) for name in ("owner", "admin", "member")]

    async def act(number: int) -> None:
        user = ids[number % 3]
        answer = await (groups.add if number % 2 else groups.remove)(group, user)
        assert answer.status == 204, answer.text

    await run_concurrently(20, act)
    await check_counts(pool)


async def test_no_user_signs_in_after_the_answer_to_a_push_that_removes_them(
    groups: GroupDirectory, acme: Tenant, api: Api, pool: Pool
) -> None:
    people, group = await open_store(groups, acme, 5)
    late: list[int] = []

    async def act(number: int) -> None:
        account, kind = people[number % 5], number // 5
        login = {"email": str(account.email), "password": PASSWORD, "org_slug": "acme", "service_slug": "store"}
        if kind == 0:
            assert (await groups.remove(group, account.id)).status == 204
            late.append((await api.post("/api/auth/login", login)).status)
        else:
            assert (await api.post("/api/auth/login", login)).status in (200, 403)

    await run_concurrently(20, act)
    assert late == [403] * 5
    await check_counts(pool)


async def test_pushes_during_sign_ins_leave_sessions_only_to_members_of_the_group(
    groups: GroupDirectory, acme: Tenant, api: Api, pool: Pool
) -> None:
    """Users sign in and refresh while pushes add and remove them. Afterwards a session continues only if its user is in the group."""
    people, group = await open_store(groups, acme, 8)
    tokens: list[tuple[str, str]] = []

    async def sign_in(number: int) -> None:
        login = {"email": str(people[number].email), "password": PASSWORD, "org_slug": "acme", "service_slug": "store"}
        answer = await api.post("/api/auth/login", login)
        for _ in range(3):
            if answer.status == 200:
                tokens.append((str(people[number].id), answer.json["refresh_token"]))
                answer = await api.post("/api/auth/refresh", {"refresh_token": tokens[-1][1]})
        assert answer.status in (200, 401, 403), answer.text

    async def act(number: int) -> None:
        if number < len(people):
            return await sign_in(number)
        joining = [account.id for account in people[number % 4 :: 3]]
        leaving = [account.id for account in people[number % 3 :: 2]]
        for answer in (await groups.remove(group, *leaving), await groups.add(group, *joining), await groups.remove(group, *joining[:2])):
            assert answer.status == 204, answer.text
        return None

    await run_concurrently(16, act)
    inside = await groups.members(group)
    assert inside
    newest = dict(tokens)
    continued = {user for user, token in newest.items() if (await api.post("/api/auth/refresh", {"refresh_token": token})).status == 200}
    assert continued <= inside
    for account in people:
        login = {"email": str(account.email), "password": PASSWORD, "org_slug": "acme", "service_slug": "store"}
        assert ((await api.post("/api/auth/login", login)).status == 200) == (str(account.id) in inside)
    await check_counts(pool)
