"""The platform's service accounts, and the routes that they can call."""

from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.access import NeedsPerson
from core.programs.model.service_accounts import (
    CapabilityNotGrantable,
    NoServiceAccountChanges,
    OwnerNotYourself,
    ServiceAccountNotFound,
    ServiceAccountScopeUnknown,
)
from ports import Ports
from tests.programs.service_accounts import accounts, create
from tests.support.builders import Answer, add_account, run_sql
from tests.support.platform import Platform
from tests.support.programs import Program
from tests.support.tenants import Tenant

PATH = "/api/platform/service-accounts"


def message(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


async def try_create(platform: Platform, **fields: Any) -> Answer:
    return await platform.api.post(PATH, {"name": "Robot", **fields}, token=platform.token)


async def created(platform: Platform, **fields: Any) -> dict[str, Any]:
    answer = await try_create(platform, **fields)
    assert answer.status == 201, answer.text
    account: dict[str, Any] = answer.json
    return account


async def add_robot(platform: Platform, **fields: Any) -> Program:
    account = await created(platform, **fields)
    answer = await platform.api.post(f"{PATH}/{account['id']}/credentials", {"kind": "secret", "name": "Main"}, token=platform.token)
    return Program(platform.api, UUID(account["id"]), answer.json["secret"], UUID(answer.json["id"]))


async def test_a_platform_owner_creates_changes_and_deletes_an_account(platform: Platform, pool: Pool) -> None:
    account = await created(platform, name="Provisioning", scopes=["platform_users:read"])
    owner = platform.account
    assert account == {
        "id": account["id"],
        "name": "Provisioning",
        "owner_id": str(owner.id),
        "owner_email": owner.email,
        "is_active": True,
        "scopes": ["platform_users:read"],
        "granted_capabilities": [],
        "created_by": str(owner.id),
        "created_at": account["created_at"],
    }
    path = f"{PATH}/{account['id']}"
    changes: dict[str, Any] = {"name": "Deactivation", "scopes": None, "granted_capabilities": ["platform_users.manage"]}
    for _ in range(2):  # the second request changes nothing
        changed = await platform.api.patch(path, changes, token=platform.token)
        assert (changed.status, changed.json) == (200, account | changes)
    listed = (await platform.api.get(PATH, token=platform.token)).json
    assert (listed["service_accounts"], listed["pagination"]["total"]) == ([account | changes], 1)
    assert (await platform.api.get(path, token=platform.token)).json == account | changes
    assert (await platform.api.delete(path, token=platform.token)).status == 204
    assert message(await platform.api.get(path, token=platform.token)) == (404, ServiceAccountNotFound.__doc__)
    entries = await run_sql(pool, "select action, org_id, target_id, actor_id from audit_log order by created_at, xmin::text::bigint")
    assert [entry for entry in entries if entry[0].startswith("service_account")] == [
        (f"service_account.{verb}", None, account["id"], owner.id) for verb in ("created", "updated", "deleted")
    ]


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"scopes": ["members:read"]}, ServiceAccountScopeUnknown),
        ({"scopes": ["account:read"]}, ServiceAccountScopeUnknown),
        ({"granted_capabilities": ["platform.own"]}, CapabilityNotGrantable),
        ({"granted_capabilities": ["members.manage"]}, CapabilityNotGrantable),
    ],
)
async def test_values_that_no_account_can_have_are_refused(platform: Platform, fields: dict[str, Any], refusal: type[Exception]) -> None:
    text = refusal.__doc__ if "scopes" in fields else CapabilityNotGrantable(fields["granted_capabilities"]).message
    assert message(await try_create(platform, **fields)) == (400, text)
    path = f"{PATH}/{(await created(platform))['id']}"
    assert message(await platform.api.patch(path, fields, token=platform.token)) == (400, text)
    assert message(await platform.api.patch(path, {}, token=platform.token)) == (400, NoServiceAccountChanges.__doc__)


async def test_a_platform_owner_makes_only_themselves_the_owner(platform: Platform, ports: Ports, pool: Pool) -> None:
    other = await add_account(ports, "other@platform.example", None)
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", other.id)
    account = await created(platform)
    path, fields, own = f"{PATH}/{account['id']}", {"owner_id": str(other.id)}, {"owner_id": str(platform.account.id)}
    for answer in (await try_create(platform, **fields), await platform.api.patch(path, fields, token=platform.token)):
        assert message(answer) == (403, OwnerNotYourself.__doc__)
    await run_sql(pool, "update service_accounts set owner_id = %s", other.id)
    assert (await platform.api.patch(path, fields, token=platform.token)).json["owner_id"] == fields["owner_id"]  # no change
    assert (await platform.api.patch(path, own, token=platform.token)).json["owner_id"] == own["owner_id"]


async def test_the_rights_are_those_of_scopes_and_grants(platform: Platform, acme: Tenant, ports: Ports, pool: Pool) -> None:
    reader = await add_robot(platform, scopes=["platform_users:read"])
    manager = await add_robot(platform, granted_capabilities=["platform_users.manage"])
    user = await add_account(ports, "user@example.com", None)
    paths = {"GET": "/api/platform/users/search", "POST": f"/api/platform/users/{user.id}/deactivate"}
    for robot, statuses in ((reader, (200, 403)), (manager, (200, 200))):
        token = await robot.token()
        body = {"reason": "left the company"}
        answers = [await platform.api.call(method, path, body if method == "POST" else None, token=token) for method, path in paths.items()]
        assert tuple(answer.status for answer in answers) == statuses
        assert (await platform.api.get(f"{acme.path}/members", token=token)).status == 403
        assert (await platform.api.get("/api/user", token=token)).status == 403
    [(kind, name, actor)] = await run_sql(
        pool, "select distinct actor_kind, actor_name, actor_id from audit_log where action = 'user.deactivated' and org_id is null"
    )
    assert (kind, name, actor) == ("service_account", "Robot", manager.client_id)


async def test_an_account_never_touches_owners_and_service_accounts(platform: Platform, acme: Tenant) -> None:
    grants = ["platform_users.manage", "platform_organizations.manage"]
    robot = await add_robot(platform, granted_capabilities=grants)
    token, own, user = await robot.token(), f"{PATH}/{robot.client_id}", acme.id("member")
    answers = [
        await platform.api.get(PATH, token=token),
        await platform.api.post(PATH, {"name": "Child"}, token=token),
        await platform.api.patch(own, {"scopes": None}, token=token),
        await platform.api.post(f"{own}/credentials", {"kind": "secret", "name": "Spare"}, token=token),
        await platform.api.delete(f"{own}/credentials/{robot.credential_id}", token=token),
        await platform.api.delete(own, token=token),
        await platform.api.post("/api/platform/owners", {"user_id": user}, token=token),
        await platform.api.delete(f"/api/platform/owners/{platform.account.id}", token=token),
        await platform.api.post(f"/api/platform/impersonate/{user}", {"reason": "curious"}, token=token),
        await platform.api.delete(f"/api/platform/organizations/{acme.org}", token=token),
    ]
    assert [message(answer) for answer in answers] == [(403, NeedsPerson.__doc__)] * len(answers)


async def test_an_account_stops_when_its_owner_is_demoted(platform: Platform, pool: Pool) -> None:
    robot = await add_robot(platform)
    token = await robot.token()
    assert (await platform.api.get("/api/platform/users/search", token=token)).status == 200
    await run_sql(pool, "update users set is_platform_owner = false where id = %s", platform.account.id)
    assert (await platform.api.get("/api/platform/users/search", token=token)).status == 401
    assert (await robot.ask()).status == 401


async def test_neither_side_finds_the_accounts_of_the_other(platform: Platform, acme: Tenant) -> None:
    of_platform, of_acme = (await created(platform))["id"], (await create(acme)).rpartition("/")[2]
    assert (await platform.api.get(f"{PATH}/{of_acme}", token=platform.token)).status == 404
    assert (await platform.api.delete(f"{PATH}/{of_acme}", token=platform.token)).status == 404
    assert (await acme.api.get(f"{accounts(acme)}/{of_platform}", token=acme.token("owner"))).status == 404
    assert (await acme.api.get(PATH, token=acme.token("owner"))).status == 403
