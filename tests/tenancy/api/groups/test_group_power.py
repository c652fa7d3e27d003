"""The power over members that changing their groups and attributes takes (security R-10)."""

from collections.abc import Sequence

import pytest

from core.kernel.api_scopes import ApiScope
from core.kernel.roles import MEMBER, ROLES, Capability, RoleName
from core.tenancy.model.groups import GroupAboveOwn
from core.tenancy.model.members import MemberHasMoreRights
from tests.programs.service_accounts import add_robot
from tests.support.builders import Answer, add_account, run_sql
from tests.support.personal_tokens import add_personal_token
from tests.support.services import add_api_resource, add_service, add_service_role, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin

pytestmark = pytest.mark.slow

OF_MANAGERS = {*ROLES[MEMBER].rights - {Capability.ORGANIZATION_VIEW}, "groups.manage", "members.manage", "end_users.manage"}


@pytest.fixture
async def manager(acme: Tenant) -> GroupAdmin:
    """Return the groups for a member who manages groups, members and end users, and has no other right beyond `member`."""
    for slug, rights in (("manager", OF_MANAGERS), ("auditor", ["audit.view"])):
        body = {"slug": slug, "name": slug.title(), "capabilities": sorted(rights)}
        assert (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status == 201
    for name, role in (("manager", "manager"), ("auditor", "auditor"), ("reader", "member")):
        await acme.join(name, await add_account(acme.ports, f"{name}@acme.example", None), RoleName(role))
    # The reader has a right beyond `member` by a group alone.
    owner = GroupAdmin(acme, "owner")
    readers = await owner.create("Readers")
    assert (await owner.add(readers, acme.id("reader"))).status == 204
    assert (await owner.call("PUT", f"/{readers}/role", {"role": "auditor"})).status == 200
    for kind in ("team", "shift"):
        body = {"name": kind, "label": kind.title(), "kind": "text"}
        assert (await acme.api.post(f"{acme.path}/attributes", body, token=acme.token("owner"))).status == 201
    return GroupAdmin(acme, "manager")


STRONGER: Sequence[str] = ("owner", "admin", "auditor", "reader")


@pytest.mark.parametrize("target", [*STRONGER, "member"])
async def test_a_group_is_deleted_and_gets_values_only_with_power_over_each_member(manager: GroupAdmin, acme: Tenant, target: str) -> None:
    group = await manager.create()
    end_user = await add_account(acme.ports, "end-user@acme.example", None)
    await add_service_user(acme.ports, await add_service(acme.pool, acme.org), end_user.id)
    for user in (acme.id("manager"), acme.id("member"), str(end_user.id)):
        assert (await manager.add(group, user)).status == 204
    assert (await GroupAdmin(acme, "owner").add(group, acme.id(target))).status == 204
    changes = [("PATCH", f"/{group}/attributes", {"values": {"team": "Core"}}), ("DELETE", f"/{group}", None)]
    answers = [await manager.call(*change) for change in changes]
    if target == "member":
        assert [answer.status for answer in answers] == [200, 204]
        return
    assert [(answer.status, answer.json["error"]) for answer in answers] == [(403, GroupAboveOwn.__doc__)] * 2
    assert (await manager.call("PATCH", f"/{group}", {"name": "Renamed"})).status == 200
    assert (await GroupAdmin(acme, "owner").remove(group, acme.id(target))).status == 204
    assert [(await manager.call(*change)).status for change in changes] == [200, 204]


async def test_users_of_a_group_change_with_the_rights_grants_and_scopes_for_all_that_it_gives(acme: Tenant) -> None:
    """A service account needs an owner's grant, and a token the scopes. The routes that give these to a single user ask for the same."""
    service, owner, member = await add_service(acme.pool, acme.org), GroupAdmin(acme, "owner"), acme.id("member")
    role, resource = await add_service_role(acme.pool, service), await add_api_resource(acme.pool, acme.org)
    groups = plain, giving, opening, reaching = [await owner.create(name) for name in ("Plain", "Giving", "Opening", "Reaching")]
    await run_sql(acme.pool, "insert into service_role_groups values (%s, %s, %s, %s, now())", acme.org, service, role, giving)
    assert (await owner.assign("shop", opening)).status in (200, 201, 204)
    await run_sql(acme.pool, "insert into api_resource_groups_assigned values (%s, %s, %s, now())", acme.org, resource, reaching)
    needed = {plain: "groups.manage", giving: "service_roles.assign", opening: "end_users.manage", reaching: "resources.manage"}
    robots = {each: await add_robot(acme, role="admin", granted_capabilities=[*{"groups.manage", each}]) for each in needed.values()}
    scopes = (ApiScope.MEMBERS_READ, ApiScope.MEMBERS_WRITE)
    some, all_ = [(await add_personal_token(acme.ports, acme.people["owner"], acme.org, each)).text for each in (scopes, None)]

    async def opened(token: str, method: str, of: str = f"/members/{member}") -> list[str]:
        """Return the groups that the token may change in this way. Members are in all groups before and after."""
        statuses = []
        for group in groups:
            assert (await owner.add(group, member)).status == 204
            statuses.append((await acme.api.call(method, f"{acme.path}/groups/{group}{of}", token=token)).status)
        assert set(statuses) <= {204, 403}
        return [group for group, status in zip(groups, statuses, strict=True) if status == 204]

    for method in ("PUT", "DELETE"):
        for grant, robot in robots.items():
            assert await opened(robot.token, method) == [group for group in groups if needed[group] in ("groups.manage", grant)]
        assert (await opened(some, method), await opened(all_, method)) == ([plain], groups)
    for token, deleted in ((some, [plain]), (robots["resources.manage"].token, [reaching]), (all_, [giving, opening])):
        assert await opened(token, "DELETE", "") == deleted
        groups = [group for group in groups if group not in deleted]


async def test_only_callers_with_power_over_a_member_change_their_attributes(manager: GroupAdmin, acme: Tenant) -> None:
    service = await add_service(acme.pool, acme.org)

    async def change(kind: str, target: str, value: str) -> Answer:
        path = f"{acme.path}/{kind}/{acme.id(target)}/attributes"
        return await acme.api.patch(path, {"values": {"team": value}}, token=acme.token("manager"))

    for name in (*STRONGER, "member"):
        await add_service_user(acme.ports, service, acme.people[name].id)
    for kind in ("members", "users"):
        for target in STRONGER:
            answer = await change(kind, target, "Taken")
            assert (answer.status, answer.json["error"]) == (403, MemberHasMoreRights.__doc__), (kind, target)
        assert (await change(kind, "member", kind)).status == 200
    assert await run_sql(acme.pool, "select user_id, attributes ->> 'team' from attribute_values") == [(acme.people["member"].id, "users")]
