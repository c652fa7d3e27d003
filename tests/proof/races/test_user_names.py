"""Unique userNames while users join by an invitation, change their own address, and are created by the directory (decision 130)."""

import pytest

from tests.provisioning.api.leavers.users import PRIVATE_EMAIL, change_own_email, try_change_own_email
from tests.provisioning.api.users import add_own_account
from tests.support.builders import Answer, run_concurrently
from tests.support.scim import directory_of
from tests.support.tenants import Tenant
from tests.tenancy.invitations import accept


@pytest.mark.slow
async def test_a_user_name_finds_one_user(acme: Tenant) -> None:
    directory = await directory_of(acme)
    names = [f"{number}@example.com" for number in range(5)]
    tokens = [(await acme.invite(name))["token"] for name in names]
    members = [await add_own_account(acme, f"member{number}@example.com") for number in range(5)]
    former = (await directory.create_user(names[0]))["id"]
    await directory.remove_member(former)
    await change_own_email(acme, former, PRIVATE_EMAIL)

    async def act(number: int) -> Answer:
        name = names[number % 5]
        match number // 5:
            case 0:
                return await accept(acme.api, tokens[number % 5])
            case 1:
                return await try_change_own_email(acme, members[number % 5], name)
        return await directory.try_create_user(name, emails=[{"value": f"mail{number}@example.com", "primary": True}])

    answers = await run_concurrently(20, act)
    assert {answer.status for answer in answers} <= {200, 201, 400, 409}
    for name in names:
        assert await directory.find_user_names(f'userName eq "{name}"') == [name]
    for user in (await directory.list_users())["Resources"]:
        [found] = (await directory.list_users(filter=f'userName eq "{user["userName"]}"'))["Resources"]
        assert found["id"] == user["id"]
