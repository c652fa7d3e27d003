"""Service account credentials that are revoked and replaced while programs use them (security Z-1, Z-5)."""

from uuid import UUID

import pytest

from core.kernel.values import digest
from tests.programs.service_accounts import create, try_add_credential
from tests.support.builders import Answer, run_concurrently, run_sql
from tests.support.programs import Program
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

LAPS = 3


async def add_program(tenant: Tenant, account: str) -> Program:
    credential = (await try_add_credential(tenant, account)).json
    return Program(tenant.api, UUID(account.rpartition("/")[2]), credential["secret"], UUID(credential["id"]))


async def revoke(tenant: Tenant, account: str, robot: Program) -> Answer:
    return await tenant.api.delete(f"{account}/credentials/{robot.credential_id}", token=tenant.token("owner"))


async def test_after_a_revocation_no_request_succeeds(acme: Tenant) -> None:
    """Twenty requests and the revocation race. Requests that win are complete, and requests that lose change nothing."""
    account = await create(acme, role="admin", granted_capabilities=["members.manage"])
    for lap in range(LAPS):
        robot = await add_program(acme, account)
        token = await robot.token()
        issued: list[str] = []
        invited: list[int] = []

        async def act(number: int, robot: Program = robot, token: str = token, lap: int = lap) -> Answer:
            if number == 10:
                return await revoke(acme, account, robot)
            if number % 2:
                answer = await robot.ask()
                issued.extend([answer.json["access_token"]] if answer.status == 200 else [])  # noqa: B023
                return answer
            body = {"email": f"guest-{lap}-{number}@example.com", "role": "member"}
            answer = await acme.api.post(acme.invitations, body, token=token)
            invited.extend([number] if answer.status == 200 else [])  # noqa: B023
            return answer

        statuses = [answer.status for answer in await run_concurrently(20, act)]
        assert (statuses.count(204), set(statuses) <= {200, 204, 401}) == (1, True)
        stored = "select count(*) from invitations where org_id = %s and email like %s"
        assert await run_sql(acme.pool, stored, acme.org, f"guest-{lap}-%") == [(len(invited),)]
        for each in (token, *issued):
            assert (await acme.api.get(f"{acme.path}/members", token=each)).status == 401
        assert (await robot.ask()).status == 401


async def test_a_rotation_causes_no_refused_request(acme: Tenant) -> None:
    """A new secret is created, programs change to it, and the old secret is revoked."""
    account = await create(acme, role="member")
    current = await add_program(acme, account)
    for _ in range(LAPS):
        robots = [current]

        async def act(number: int, robots: list[Program] = robots, current: Program = current) -> Answer:
            if number == 0:
                robots.append(await add_program(acme, account))
            return await robots[-1].ask()

        assert {answer.status for answer in await run_concurrently(20, act)} == {200}
        old, current = robots[0], robots[-1]

        async def retire(number: int, old: Program = old, current: Program = current) -> Answer:
            return await (revoke(acme, account, old) if number == 0 else current.ask())

        assert sorted(answer.status for answer in await run_concurrently(20, retire)) == [200] * 19 + [204]
        assert (await old.ask()).status == 401
    assert await run_sql(acme.pool, "select secret_hash from credentials") == [(digest(current.secret),)]


async def test_twenty_deletions_at_once_delete_once(acme: Tenant) -> None:
    account = await create(acme, role="owner")
    robot = await add_program(acme, account)

    async def act(number: int) -> Answer:
        if number % 2:
            return await acme.api.delete(account, token=acme.token("owner"))
        return await try_add_credential(acme, account)

    statuses = [answer.status for answer in await run_concurrently(20, act)]
    assert (statuses.count(204), set(statuses) <= {201, 204, 400, 404}) == (1, True)
    assert (await robot.ask()).status == 401
    assert await run_sql(acme.pool, "select count(*) from credentials") == [(0,)]


async def test_one_owner_change_and_one_demotion_leave_no_account_above_its_owner(acme: Tenant) -> None:
    """The admin gets the account while they are demoted. Either the change is refused, or the account stops."""
    account = await create(acme, role="admin")
    robot = await add_program(acme, account)
    for _ in range(LAPS):

        async def act(number: int) -> Answer:
            if number == 0:
                return await acme.set_role("owner", "admin", "member")
            return await acme.api.patch(account, {"owner_id": acme.id("admin")}, token=acme.token("owner"))

        await run_concurrently(6, act)
        listed = (await acme.api.get(account, token=acme.token("owner"))).json
        assert listed["is_active"] is (listed["owner_id"] != acme.id("admin"))
        assert (await robot.ask()).status == (200 if listed["is_active"] else 401)
        await acme.set_role("owner", "admin", "admin")
        await acme.api.patch(account, {"owner_id": acme.id("owner")}, token=acme.token("owner"))
