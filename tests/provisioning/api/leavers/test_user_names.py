"""Unique user names for present and former users (RFC 7643 section 4.1.1)."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

import pytest

from core.kernel.causes import SYSTEM
from core.kernel.roles import MEMBER
from core.kernel.values import new_id
from core.tenancy.model.organizations import Membership
from tests.provisioning.api.leavers.users import PRIVATE_EMAIL, change_own_email
from tests.provisioning.api.users import add_own_account
from tests.support.builders import Answer, add_account, add_member, run_concurrently, run_sql
from tests.support.scim import GRACE, Directory, problem
from tests.support.tenants import Tenant
from tests.tenancy.invitations import accept


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


async def test_a_former_member_stays_known_when_a_new_member_has_the_user_name(acme: Tenant, directory: Directory, leaver_id: str) -> None:
    await directory.remove_member(leaver_id)
    await change_own_email(acme, leaver_id)
    other = await add_account(acme.ports, GRACE)
    membership = Membership(
        id=new_id(), org_id=acme.org, user_id=other.id, role=MEMBER, created_at=acme.ports.clock.now(), confirmed_at=None
    )
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.members.add(membership)
    [named] = (await directory.list_users(filter=f'userName eq "{GRACE}"'))["Resources"]
    assert named["id"] == str(other.id)
    assert (await directory.get(f"/Users/{leaver_id}"))["userName"] == leaver_id
    assert (await directory.add_members(leaver_id)).status == 200
    assert (await directory.get(f"/Users/{leaver_id}"))["userName"] == PRIVATE_EMAIL


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


async def join_by_invitation(acme: Tenant, directory: Directory, name: str) -> None:
    invitation = await acme.invite(name)
    await directory.create_user(name, emails=[{"value": "other@acme.example", "primary": True}])
    assert (await accept(acme.api, invitation["token"])).status == 200


async def get_by_own_change(acme: Tenant, directory: Directory, name: str) -> None:
    user_id = await add_own_account(acme)
    await directory.create_user(name, emails=[{"value": "other@acme.example", "primary": True}])
    await change_own_email(acme, user_id, name)


async def return_to_the_group(acme: Tenant, directory: Directory, name: str) -> None:
    user_id = (await directory.create_user())["id"]
    await directory.remove_member(user_id)
    await change_own_email(acme, user_id, name)
    await directory.create_user(name, emails=[{"value": "other@acme.example", "primary": True}])
    assert (await directory.add_members(user_id)).status == 200


@pytest.mark.parametrize("arrive", [join_by_invitation, get_by_own_change, return_to_the_group])
async def test_a_member_whose_address_is_the_user_name_of_another_user_has_the_id_as_user_name(
    acme: Tenant, directory: Directory, arrive: Callable[[Tenant, Directory, str], Awaitable[None]]
) -> None:
    name = "name@acme.example"
    await arrive(acme, directory, name)
    [named] = (await directory.list_users(filter=f'userName eq "{name.upper()}"'))["Resources"]
    [member] = (await directory.list_users(filter=f'emails.value eq "{name}"'))["Resources"]
    assert (named["emails"][0]["value"], member["userName"]) == ("other@acme.example", member["id"])
    assert (await directory.list_users(filter=f'userName eq "{member["id"]}"'))["Resources"] == [member]
    assert [user for user in (await directory.list_users())["Resources"] if user["userName"] == name] == [named]
    assert await directory.get(f"/Users/{member['id']}") == member
    assert (await directory.put(member["id"], **member)).json == member
    assert problem(await directory.put(member["id"], userName=name)) == (409, "uniqueness")
    await directory.patch(named["id"], {"op": "replace", "path": "userName", "value": "next"})
    assert (await directory.list_users(filter=f'userName eq "{name}"'))["Resources"] == [{**member, "userName": name}]


async def test_one_of_the_users_who_had_an_address_one_after_the_other_has_it_as_user_name(
    acme: Tenant, directory: Directory, leaver_id: str
) -> None:
    other_id = (await directory.create_user("hopper@acme.example"))["id"]
    await directory.remove_member(leaver_id)
    await change_own_email(acme, leaver_id)
    await change_own_email(acme, other_id, GRACE)
    user_names = [(await directory.get(f"/Users/{user_id}"))["userName"] for user_id in (leaver_id, other_id)]
    assert user_names == [leaver_id, GRACE]
    await directory.remove_member(other_id)
    user_names = [(await directory.get(f"/Users/{user_id}"))["userName"] for user_id in (leaver_id, other_id)]
    assert user_names in ([leaver_id, GRACE], [GRACE, other_id])
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]
