"""The roles that groups give to their members (security R-11)."""

from collections.abc import Awaitable, Callable

import pytest

from adapters.postgres.authentication.openid import further_sql
from adapters.postgres.engine.pool import Pool
from adapters.postgres.kernel.roles import member_rights_array
from core.tenancy.model.groups import GroupGivesMore, GroupWithoutRole, RightsByGroupItself
from core.tenancy.model.members import MemberHasMoreRights
from tests.support.builders import Answer, add_account, add_member, add_provisioned, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.programs import add_credential, add_service_account
from tests.support.refusals import refused
from tests.support.scim import GroupDirectory, directory_of
from tests.support.services import add_service
from tests.support.tenants import Tenant
from tests.tenancy.api.groups.roles import KEEPER, Roles
from tests.tenancy.api.policy.policies import save
from tests.tenancy.groups import GroupAdmin

pytestmark = pytest.mark.slow


async def test_a_group_gives_a_role_until_the_member_leaves_it(roles: Roles, acme: Tenant) -> None:
    admin = GroupAdmin(acme, "owner")
    group = await admin.create()
    assert not await roles.may_read_log("member")
    mapped = await roles.map(group, "auditor")
    assert (mapped["role"], mapped["mapped_by"], mapped["mapping_stopped_at"]) == ("auditor", acme.id("owner"), None)
    assert await admin.get(group) == mapped
    assert not await roles.may_read_log("member"), "the member is not in the group"
    await admin.add(group, acme.id("member"))
    assert await roles.may_read_log("member")
    await admin.remove(group, acme.id("member"))
    assert not await roles.may_read_log("member")
    await admin.add(group, acme.id("member"))
    assert (await roles.unmap(group)).status == 204
    assert not await roles.may_read_log("member")
    again = await roles.unmap(group)
    assert (again.status, again.json["error"]) == (404, GroupWithoutRole.__doc__)
    assert await acme.actions() == {
        "role.created": 2,
        "group.created": 1,
        "group.role_mapped": 1,
        "group.role_unmapped": 1,
        "group.member_added": 2,
        "group.member_removed": 1,
    }
    assert await run_sql(acme.pool, "select maps_groups from organizations where slug = 'acme'") == [(False,)]


async def test_a_group_gives_the_built_in_admin_and_another_role_replaces_it(roles: Roles, acme: Tenant) -> None:
    group = await roles.group("admin", "member")
    assert await roles.may_read_log("member")
    invited = await acme.api.post(acme.invitations, {"email": "new@example.com", "role": "member"}, token=acme.token("member"))
    assert invited.status == 200, invited.text
    await roles.map(group, "member")
    assert not await roles.may_read_log("member")
    assert [row[0] for row in await run_sql(acme.pool, "select status from invitations")] == ["cancelled"]
    for role, status in (("owner", 400), ("unknown", 400)):
        assert (await roles.try_map(group, role)).status == status
    deleted = await GroupAdmin(acme, "owner").call("DELETE", f"/{group}")
    assert deleted.status == 204
    assert await run_sql(acme.pool, "select maps_groups from organizations where slug = 'acme'") == [(False,)]


async def test_only_a_member_who_manages_roles_and_has_all_rights_of_the_role_maps_it(roles: Roles, acme: Tenant) -> None:
    await roles.join("keeper", "keeper")
    group, above = await GroupAdmin(acme).create(), await roles.define("hooks", ["webhooks.manage"])
    assert (await roles.try_map(group, "auditor", by="admin")).status == 403, "admins do not manage roles"
    answer = await roles.try_map(group, above, by="keeper")
    assert (answer.status, answer.json["error"]) == (403, GroupGivesMore.__doc__)
    await roles.map(group, above)
    for answer in (await roles.try_map(group, "auditor", by="keeper"), await roles.unmap(group, by="keeper")):
        assert (answer.status, answer.json["error"]) == (403, GroupGivesMore.__doc__)
    account = await add_service_account(acme.pool, acme.org, acme.people["owner"].id, "owner", granted=["roles.manage", "groups.manage"])
    token = await (await add_credential(acme.pool, acme.api, account, acme.org)).token()
    put = await acme.api.call("PUT", f"{acme.path}/groups/{group}/role", {"role": "auditor"}, token=token)
    assert put.status == 403, "a service account gives no role that stays when it is gone"
    added = await acme.api.call("PUT", f"{acme.path}/groups/{group}/members/{acme.id('member')}", token=token)
    assert added.status == 403


async def test_a_manager_of_groups_does_not_change_the_members_of_a_group_with_a_role(roles: Roles, acme: Tenant) -> None:
    """To add a member is to give the role: it needs the same rights."""
    await roles.define("grouper", ["groups.manage", "members.view", "end_users.view"])
    await roles.join("grouper", "grouper")
    group = await roles.group("auditor", "member")
    mine = GroupAdmin(acme, "grouper")
    for answer in (
        await mine.add(group, acme.id("grouper")),
        await mine.call("POST", f"/{group}/members", {"email": "grouper@acme.example"}),
        await mine.remove(group, acme.id("member")),
        await mine.call("DELETE", f"/{group}"),
        await roles.try_map(group, "grouper", by="grouper"),
        await roles.unmap(group, by="grouper"),
    ):
        assert answer.status == 403, answer.text
    assert not await roles.may_read_log("grouper")
    assert (await mine.call("PATCH", f"/{group}", {"name": "Readers of the log"})).status == 200, "a name gives nothing"
    other = await mine.create("Other")
    answer = await mine.add(other, acme.id("member"))
    assert (answer.status, answer.json["error"]) == (403, MemberHasMoreRights.__doc__), "the group gave the member more rights"


async def test_a_directory_gives_a_role_to_members_only(roles: Roles, acme: Tenant, other_tenant: Tenant, pool: Pool) -> None:
    """It puts a platform owner, an unconfirmed member, a former member and another organization's user into the group."""
    directory = await directory_of(acme, groups=True)
    groups = GroupDirectory(directory)
    created = (await directory.create_user("ada@acme.example"))["id"]
    await roles.join("chief")
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", acme.people["chief"].id)
    newcomer = await add_account(acme.ports, "newcomer@acme.example", None)
    await add_member(pool, acme.org, newcomer.id)
    group = await groups.create("Auditors", created, acme.id("member"), acme.id("chief"))
    await groups.add(group, newcomer.id)
    await groups.add(group, other_tenant.id("member"))
    await run_sql(  # as if they had been added by an error
        pool,
        "insert into group_members select %s, %s, u.id, now() from users u where u.id = any(%s) on conflict do nothing",
        *(acme.org, group, [newcomer.id, other_tenant.people["member"].id]),
    )
    await roles.map(group, "auditor")
    holders = """
        select u.email from memberships m join users u on u.id = m.user_id, organizations o
        where o.id = m.org_id and 'audit.view' = any({})"""
    held = {row[0] for row in await run_sql(pool, holders.format(member_rights_array("m")))}
    assert held & {"ada@acme.example", "member@acme.example"} == {"ada@acme.example", "member@acme.example"}
    assert not held & {"chief@acme.example", "newcomer@acme.example", other_tenant.people["member"].email}
    assert await roles.may_read_log("member")
    assert not await roles.may_read_log("chief")
    assert (await other_tenant.api.get(f"{acme.path}/audit-log", token=other_tenant.token("member"))).status == 403
    assert (await other_tenant.api.get(f"{other_tenant.path}/audit-log", token=other_tenant.token("member"))).status == 403
    await groups.remove(group, acme.id("member"))
    assert not await roles.may_read_log("member")
    assert (await directory.call("DELETE", f"/Groups/{group}")).status == 204


Loss = Callable[[Roles], Awaitable[Answer | None]]


async def own_role(roles: Roles) -> Answer:
    return await roles.tenant.set_role("owner", "keeper", "auditor")


async def removal(roles: Roles) -> Answer:
    return await roles.tenant.remove("owner", "keeper")


async def narrowed_role(roles: Roles) -> Answer:
    path = f"{roles.tenant.path}/roles/keeper?confirm=true"
    body = {"capabilities": sorted(KEEPER - {"audit.view"})}
    return await roles.tenant.api.patch(path, body, token=roles.tenant.token("owner"))


async def replaced_role(roles: Roles) -> Answer:
    path = f"{roles.tenant.path}/roles/keeper?confirm=true&replacement=member"
    return await roles.tenant.api.delete(path, token=roles.tenant.token("owner"))


async def leaving(roles: Roles) -> Answer:
    return await roles.tenant.api.post(f"{roles.tenant.path}/leave", token=roles.tenant.token("keeper"))


async def deactivation(roles: Roles) -> Answer:
    """The account was created by the directory, which deactivates it."""
    tenant = roles.tenant
    directory = await directory_of(tenant)
    await run_sql(tenant.pool, "update users set origin = 'scim', origin_org_id = %s where id = %s", tenant.org, tenant.people["keeper"].id)
    await add_provisioned(tenant.pool, tenant.org, tenant.people["keeper"].id)
    return await directory.deactivate(tenant.id("keeper"))


@pytest.mark.parametrize("loss", [own_role, removal, narrowed_role, replaced_role, leaving, deactivation])
async def test_a_mapping_stops_when_its_giver_loses_the_rights(loss: Loss, roles: Roles, acme: Tenant) -> None:
    await roles.join("keeper", "keeper")
    await roles.join("reader")
    group = await roles.group("auditor", "reader", by="keeper")
    assert await roles.may_read_log("reader")
    answer = await loss(roles)
    assert answer is not None
    assert answer.status in (200, 204), answer.text
    assert not await roles.may_read_log("reader")
    assert await roles.stopped(group)
    entry = await acme.entry("group.mapping_stopped")
    assert (entry["target_id"], entry["details"]["role"]) == (group, "auditor")
    mapped = await roles.map(group, "auditor")
    assert (mapped["mapped_by"], mapped["mapping_stopped_at"]) == (acme.id("owner"), None)
    assert await roles.may_read_log("reader")


async def test_a_mapping_stops_with_the_groups_that_gave_its_giver_the_rights(roles: Roles, acme: Tenant) -> None:
    """Rights by a group found a mapping as long as the group gives them. Mappings in a circle do not keep each other alive."""
    for name in ("ada", "tim", "reader"):
        await roles.join(name)
    first = await roles.group("keeper", "ada")
    second = await roles.group("keeper", "tim", by="ada")
    third = await roles.group("auditor", "reader", by="tim")
    assert (await GroupAdmin(acme, "tim").add(second, acme.id("ada"))).status == 204
    for group, role, by in ((second, "keeper", "tim"), (second, "auditor", "tim"), (first, "keeper", "tim")):
        answer = await roles.try_map(group, role, by)
        assert (answer.status, answer.json["error"]) == (403, RightsByGroupItself.__doc__), "a group cannot found itself"
    assert await roles.may_read_log("reader")
    assert (await GroupAdmin(acme, "owner").remove(first, acme.id("ada"))).status == 204
    for name in ("ada", "tim", "reader"):
        assert not await roles.may_read_log(name), name
    assert [await roles.stopped(group) for group in (first, second, third)] == [False, True, True]


async def test_a_policy_for_admins_counts_rights_by_a_group_at_once(roles: Roles, acme: Tenant) -> None:
    """A session's pass ends when its user's roles change."""
    group = await roles.group("auditor")
    await add_mfa(acme.ports, acme.people["owner"])
    acme.sessions["owner"] = await sign_in(acme.ports, acme.people["owner"], acme.org, second_factor=True)
    assert (await save(acme, {"second_factor": ["admins"]})).status == 200
    owner, path = GroupAdmin(acme, "owner"), f"{acme.path}/members"
    assert (await acme.api.get(path, token=acme.token("member"))).status == 200
    await owner.add(group, acme.id("member"))
    answer = await acme.api.get(path, token=acme.token("member"))
    assert (answer.status, answer.json["error_code"]) == (403, "ENROLMENT_REQUIRED")
    await owner.remove(group, acme.id("member"))
    assert (await acme.api.get(path, token=acme.token("member"))).status == 200


async def test_members_and_tokens_name_the_roles_of_groups_after_the_own_one(roles: Roles, acme: Tenant) -> None:
    await roles.group("auditor", "member")
    await roles.group("admin", "member")
    listed = (await acme.api.get(f"{acme.path}/members", token=acme.token("owner"))).json["members"]
    assert {each["user"]["email"]: each["membership"]["roles"] for each in listed} == {
        "owner@acme.example": ["owner"],
        "admin@acme.example": ["admin"],
        "member@acme.example": ["member", "admin", "auditor"],
    }
    counted = (await acme.api.get(f"{acme.path}/roles", token=acme.token("owner"))).json["roles"]
    numbers = {each["slug"]: (each["members"], each["members_by_groups"]) for each in counted}
    assert numbers == {"owner": (1, 0), "admin": (1, 1), "member": (1, 0), "auditor": (0, 1), "keeper": (0, 0)}
    [own] = (await acme.api.get("/api/organizations", token=acme.token("member"))).json
    assert (own["membership"]["role"], own["membership"]["roles"]) == ("member", ["member", "admin", "auditor"])
    await add_service(acme.pool, acme.org, "store")
    sql = f"select {further_sql('false')} from users u, services v, organizations vo, memberships m where u.email = %s and m.user_id = u.id"  # noqa: S608
    [(facts,)] = await run_sql(acme.pool, f"{sql} and m.org_id = vo.id and v.org_id = vo.id", "member@acme.example")
    assert facts["further_roles"] == ["admin", "auditor"]


async def test_a_role_that_a_group_gives_is_in_use(roles: Roles, acme: Tenant) -> None:
    group = await roles.group("auditor", "member")
    path = f"{acme.path}/roles/auditor"
    named = await acme.api.delete(path, token=acme.token("owner"))
    assert (named.status, named.json["error_code"]) == (409, "ROLE_IN_USE")
    assert (named.json["holders"]["group"], named.json["first"][0]["id"]) == (1, group)
    await roles.define("other", ["audit.view", "webhooks.manage"])
    assert (await acme.api.delete(f"{path}?confirm=true&replacement=other", token=acme.token("owner"))).status == 204
    assert (await GroupAdmin(acme).get(group))["role"] == "other"
    assert await roles.may_read_log("member")
    entry = (await acme.log())[-1]
    assert entry["action"] == "role.deleted"
    changed = [each["details"].get("old_role") for each in await acme.log() if each["action"] == "group.role_mapped"]
    assert changed == [None, "auditor"]


async def test_a_member_who_loses_rights_of_a_group_loses_the_grants_by_them(roles: Roles, acme: Tenant) -> None:
    await roles.join("ada")
    group = await roles.group("keeper", "ada")
    invited = await acme.api.post(acme.invitations, {"email": "new@example.com", "role": "auditor"}, token=acme.token("ada"))
    assert invited.status == 200, invited.text
    account = await add_service_account(acme.pool, acme.org, acme.people["ada"].id, "auditor", scopes=["audit:read"])
    program = await add_credential(acme.pool, acme.api, account, acme.org)
    token = await program.token()
    assert (await acme.api.get(f"{acme.path}/audit-log", token=token)).status == 200
    assert (await GroupAdmin(acme, "owner").remove(group, acme.id("ada"))).status == 204
    assert [row[0] for row in await run_sql(acme.pool, "select status from invitations")] == ["cancelled"]
    assert refused(await acme.api.get(f"{acme.path}/audit-log", token=token))[0] == 401
