"""Concurrent ways into an organization, while its directory blocks the user (security Z-5)."""

from uuid import UUID

import pytest

from tests.support.builders import Answer, add_account, add_member, run_concurrently, run_sql
from tests.support.scim import directory_of
from tests.support.tenants import Tenant
from tests.tenancy.invitations import accept

ADA = "ada@example.com"


@pytest.mark.slow
@pytest.mark.parametrize("origin", ["platform", "scim"])
async def test_a_blocked_user_is_never_a_member(acme: Tenant, origin: str) -> None:
    """The directory and the members deactivate, delete, activate, create, invite and unblock a user, all at the same time."""
    directory = await directory_of(acme)
    user_id = str((await add_account(acme.ports, ADA)).id)
    await add_member(acme.pool, acme.org, UUID(user_id), confirmed=True)
    if origin == "scim":
        await run_sql(acme.pool, "update users set origin = 'scim', origin_org_id = %s where id = %s", acme.org, UUID(user_id))
    block = f"{acme.path}/directory-blocks/{user_id}"

    async def invite_and_accept() -> Answer:
        invited = await acme.try_invite(ADA)
        return await accept(acme.api, invited.json["token"]) if invited.status == 200 else invited

    async def act(number: int) -> Answer:
        match number % 8:
            case 0 | 1:
                return await directory.deactivate(user_id)
            case 2:
                return await directory.activate(user_id)
            case 3 if origin == "platform":  # otherwise the account would be deleted
                return await directory.delete(user_id)
            case 4:
                return await directory.try_create_user(ADA)
            case 5:
                return await directory.add_members(user_id)
            case 6:
                return await invite_and_accept()
            case _:
                return await acme.api.delete(block, token=acme.token("owner"))

    for _ in range(3):
        answers = await run_concurrently(20, act)
        assert {answer.status for answer in answers} <= {200, 201, 204, 400, 404, 409}
        members = await acme.members()  # also checks the count
        is_blocked = await run_sql(acme.pool, "select 1 from directory_blocks where user_id = %s", UUID(user_id)) != []
        assert not (is_blocked and ADA in members)
        [(deactivated,)] = await run_sql(acme.pool, "select deactivated_at is not null from users where id = %s", UUID(user_id))
        assert is_blocked or not deactivated
        status = (await directory.call("GET", f"/Users/{user_id}")).status
        assert status == 200 or ADA not in members
