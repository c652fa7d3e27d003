"""Which member answers for a group's role when the role or the member changes (security R-11)."""

import pytest

from core.tenancy import platform_owners
from core.tenancy.model.groups import RightsByGroupItself
from core.tenancy.model.roles import RoleHolderHasMore, RoleWidenedByProgram
from tests.support.builders import PASSWORD, Answer, add_platform_owner, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.programs import add_credential, add_service_account
from tests.support.tenants import Tenant
from tests.tenancy.api.groups.roles import KEEPER, Roles
from tests.tenancy.groups import GroupAdmin

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("by_command", [False, True])
async def test_a_new_platform_owner_gives_no_more_roles_by_groups(roles: Roles, acme: Tenant, *, by_command: bool) -> None:
    for name in ("ada", "reader"):
        await roles.join(name)
    keepers = await roles.group("keeper", "ada")
    group = await roles.group("auditor", "reader", by="ada")
    invited = await acme.api.post(acme.invitations, {"email": "new@example.com", "role": "auditor"}, token=acme.token("ada"))
    assert invited.status == 200, invited.text
    if by_command:
        await platform_owners.create_first_owner(acme.ports, acme.people["ada"].email, PASSWORD)
    else:
        await add_mfa(acme.ports, acme.people["ada"])
        owner = await sign_in(acme.ports, await add_platform_owner(acme.ports), second_factor=True)
        answer = await acme.api.post("/api/platform/owners", {"user_id": acme.id("ada")}, token=owner.access_token)
        assert answer.status == 200, answer.text
    assert [await roles.stopped(each) for each in (keepers, group)] == [False, True]
    assert not await roles.may_read_log("reader")
    assert [row[0] for row in await run_sql(acme.pool, "select status from invitations")] == ["cancelled"]


async def test_a_member_who_replaces_a_role_of_a_group_answers_for_the_replacement(roles: Roles, acme: Tenant) -> None:
    """A service account lets the group give no further rights: they would stay when the account is gone."""
    for slug, capabilities in (("wide", ["audit.view", "webhooks.manage"]), ("narrow", ["audit.view"])):
        await roles.define(slug, capabilities)
    account = await add_service_account(acme.pool, acme.org, acme.people["owner"].id, "owner", granted=["roles.manage"])
    token = await (await add_credential(acme.pool, acme.api, account, acme.org)).token()
    await roles.define("boss", KEEPER | {"webhooks.manage"})
    for name in ("keeper", "boss"):
        await roles.join(name, name)
    group = await roles.group("auditor", "member", by="keeper")

    async def replace(old: str, new: str, token: str) -> Answer:
        return await acme.api.delete(f"{acme.path}/roles/{old}?confirm=true&replacement={new}", token=token)

    async def state() -> tuple[str, str]:
        read = await GroupAdmin(acme, "owner").get(group)
        assert read["mapping_stopped_at"] is None
        return read["role"], read["mapped_by"]

    refusal = await replace("auditor", "wide", token)
    assert (refusal.status, refusal.json["error"]) == (403, RoleWidenedByProgram.__doc__)
    assert await state() == ("auditor", acme.id("keeper"))
    assert (await replace("auditor", "narrow", token)).status == 204
    assert await state() == ("narrow", acme.id("keeper"))
    assert (await replace("narrow", "wide", acme.token("boss"))).status == 204
    assert await state() == ("wide", acme.id("boss"))
    assert (await acme.remove("owner", "keeper")).status == 200
    assert await roles.may_read_log("member")
    await roles.join("ada")
    own = await roles.group("boss", "ada")
    await roles.define("other", ["roles.manage", "members.view"])
    circular = await replace("boss", "other", acme.token("ada"))
    assert (circular.status, circular.json["error"]) == (403, RightsByGroupItself.__doc__)
    assert not await roles.stopped(own)


async def test_a_group_does_not_stop_silently_to_give_a_wider_role(roles: Roles, acme: Tenant) -> None:
    """The member who gave the role to the group lacks the new right, so an admin with power over its members confirms that it stops."""
    await roles.join("keeper", "keeper")
    await roles.join("holder", "auditor")
    group = await roles.group("auditor", "member", by="keeper")
    path, token = f"{acme.path}/roles/auditor", acme.token("owner")
    founded = await acme.api.patch(path, {"capabilities": ["audit.view", "groups.manage"]}, token=token)
    assert founded.status == 200, "the keeper has this right"
    wider = {"capabilities": ["audit.view", "webhooks.manage", "groups.manage"]}
    refusal = await acme.api.patch(path, wider, token=token)
    assert (refusal.status, refusal.json["error_code"]) == (409, "ROLE_IN_USE")
    assert (refusal.json["holders"]["group"], refusal.json["first"][0]["id"], len(refusal.json["first"])) == (1, group, 2)
    assert not await roles.stopped(group)
    assert (await acme.api.get(path, token=token)).json["capabilities"] == ["groups.manage", "audit.view"]
    await roles.define("biller", {"billing.manage"})
    await roles.join("biller", "biller")
    assert (await GroupAdmin(acme, "owner").add(group, acme.id("biller"))).status == 204
    await roles.define("weak", {"roles.manage", *wider["capabilities"]})
    await roles.join("weak", "weak")
    weak = await acme.api.patch(f"{path}?confirm=true", wider, token=acme.token("weak"))
    assert (weak.status, weak.json["error"]) == (403, RoleHolderHasMore.__doc__)
    assert not await roles.stopped(group)
    assert (await acme.api.patch(f"{path}?confirm=true", wider, token=token)).status == 200
    assert await roles.stopped(group)
    assert not await roles.may_read_log("member")


async def test_a_refusal_names_only_holders_that_the_caller_may_see(roles: Roles, acme: Tenant) -> None:
    """The caller may change the role. The groups that would stop are no exception."""
    await roles.join("keeper", "keeper")
    await roles.define("bare", set())
    await roles.join("bare", "bare")
    await roles.group("auditor", "bare", by="keeper")
    await acme.invite("eve@example.com", "auditor")
    rights = {"roles.manage", "audit.view", "webhooks.manage"}
    for slug, further in (("blind", set()), ("viewer", {"members.view"})):
        await roles.define(slug, rights | further)
        await roles.join(slug, slug)
    for by, kinds in (("blind", []), ("viewer", ["group"]), ("owner", ["group", "invitation"])):
        for capabilities in (["audit.view", "webhooks.manage"], []):
            refusal = await acme.api.patch(f"{acme.path}/roles/auditor", {"capabilities": capabilities}, token=acme.token(by))
            assert (refusal.status, sorted(each["kind"] for each in refusal.json["first"])) == (409, kinds), by
            assert refusal.json["holders"] == {"member": 0, "invitation": 1, "service_account": 0, "group": 1}
