"""Unique user names of present and former users (RFC 7643 section 4.1.1)."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

import pytest

from core.kernel.principals import SYSTEM, Role
from core.kernel.values import new_id
from core.tenancy.organizations_rules import Membership
from tests.provisioning.api.leavers.users import PRIVATE_EMAIL, change_own_email
from tests.support.builders import Answer, add_account, add_member, run_concurrently, run_sql
from tests.support.scim import GRACE, Directory, problem
from tests.support.tenants import Tenant


async def claim_by_creating(acme: Tenant, directory: Directory) -> Answer:
    return await directory.try_create_user(GRACE)


async def claim_by_renaming(acme: Tenant, directory: Directory) -> Answer:
    other = await directory.create_user("hopper@acme.example")
    return await directory.put(other["id"], userName=GRACE)


async def claim_by_activating(acme: Tenant, directory: Directory) -> Answer:
    """Give the address to a deactivated user, and activate them."""
    other = await directory.create_user("hopper@acme.example")
    await directory.deactivate(other["id"])
    await run_sql(acme.pool, "update users set email = %s where id = %s", GRACE, UUID(other["id"]))
    return await directory.activate(other["id"])


CLAIMS: Final = [claim_by_creating, claim_by_renaming, claim_by_activating]


@pytest.mark.parametrize("claim", CLAIMS)
async def test_a_former_member_is_forgotten_when_another_user_gets_the_user_name(
    acme: Tenant, directory: Directory, leaver_id: str, claim: Callable[[Tenant, Directory], Awaitable[Answer]]
) -> None:
    await directory.remove_member(leaver_id)
    await change_own_email(acme, leaver_id)
    answer = await claim(acme, directory)
    assert answer.status in (200, 201), answer.text
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]
    assert (await directory.get(f"/Users/{answer.json['id']}"))["userName"] == GRACE
    assert problem(await directory.call("GET", f"/Users/{leaver_id}")) == (404, None)
    assert problem(await directory.add_members(leaver_id)) == (400, "invalidValue")
    await acme.invite(PRIVATE_EMAIL)  # the user can join again by an invitation


@pytest.mark.parametrize("claim", CLAIMS)
async def test_a_blocked_user_is_forgotten_and_stays_blocked_when_another_user_gets_the_user_name(
    acme: Tenant, other_tenant: Tenant, directory: Directory, leaver_id: str, claim: Callable[[Tenant, Directory], Awaitable[Answer]]
) -> None:
    await add_member(other_tenant.pool, other_tenant.org, UUID(leaver_id))  # the account stays active
    await directory.deactivate(leaver_id)
    await change_own_email(acme, leaver_id)
    answer = await claim(acme, directory)
    assert answer.status in (200, 201), answer.text
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]
    assert problem(await directory.call("GET", f"/Users/{leaver_id}")) == (404, None)
    assert (await acme.try_invite(PRIVATE_EMAIL)).status == 409


async def test_a_former_member_is_forgotten_when_a_new_member_has_the_user_name(acme: Tenant, directory: Directory, leaver_id: str) -> None:
    await directory.remove_member(leaver_id)
    await change_own_email(acme, leaver_id)
    other = await add_account(acme.ports, GRACE)
    membership = Membership(
        id=new_id(), org_id=acme.org, user_id=other.id, role=Role.MEMBER, created_at=acme.ports.clock.now(), confirmed_at=None
    )
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.members.add(membership)
    assert (await directory.list_users(filter=f'userName eq "{GRACE}"'))["Resources"][0]["id"] == str(other.id)
    assert problem(await directory.call("GET", f"/Users/{leaver_id}")) == (404, None)


async def test_one_of_several_concurrent_requests_gets_the_user_name_of_a_former_member(
    acme: Tenant, directory: Directory, leaver_id: str
) -> None:
    other_users = [await directory.create_user(f"p{number}@acme.example") for number in range(3)]
    await directory.remove_member(leaver_id)
    await change_own_email(acme, leaver_id)

    async def claim(number: int) -> Answer:
        return await (directory.put(other_users[number]["id"], userName=GRACE) if number < 3 else directory.try_create_user())

    answers = await run_concurrently(6, claim)
    assert Counter(answer.status // 100 for answer in answers) == {2: 1, 4: 5}
    assert {problem(answer) for answer in answers if answer.status >= 400} == {(409, "uniqueness")}
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]
