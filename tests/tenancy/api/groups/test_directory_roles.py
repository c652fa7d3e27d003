"""A directory gives no right that the people who know its token do not have (security R-11, C-3)."""

from collections.abc import Collection
from typing import Any

import pytest

from core.kernel.roles import ADMIN, CUSTOMIZABLE, GRANTABLE, OWNER, ROLES, Capability, RoleName
from tests.support.builders import Answer, add_account, run_sql
from tests.support.programs import add_credential, add_service_account
from tests.support.scim import GroupDirectory, directory_of
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

KEEPER, GIVEN = RoleName("keeper"), RoleName("given")
TOKEN = {"name": "Okta", "directory_groups": True}


async def define(acme: Tenant, slug: str, capabilities: Collection[Capability]) -> None:
    body = {"slug": slug, "name": slug.title(), "capabilities": sorted(capabilities)}
    assert (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status == 201


async def set_rights(acme: Tenant, slug: str, capabilities: Collection[Capability]) -> None:
    await run_sql(acme.pool, "update organization_roles set capabilities = %s where slug = %s", sorted(capabilities), slug)


async def let_give(acme: Tenant, group: str, role: str) -> Answer:
    return await acme.api.call("PUT", f"{acme.path}/groups/{group}/role", {"role": role}, token=acme.token("owner"))


async def create_token(acme: Tenant, token: str, **fields: Any) -> Answer:
    return await acme.api.post(f"{acme.path}/scim-tokens", {**TOKEN, **fields}, token=token)


def names(answer: Answer, status: int, *words: str) -> bool:
    return answer.status == status and all(word in answer.json["error"] for word in words)


async def test_a_group_of_a_directory_gives_no_right_that_the_creator_of_a_token_lacks(acme: Tenant) -> None:
    await define(acme, KEEPER, CUSTOMIZABLE)
    await define(acme, GIVEN, {Capability.MEMBERS_VIEW})
    await acme.join("keeper", await add_account(acme.ports, "keeper@acme.example"), KEEPER)
    group = await GroupDirectory(await directory_of(acme, groups=True)).create("Sales")
    assert (await create_token(acme, acme.token("keeper"))).status == 200
    role = f"{acme.path}/roles/{GIVEN}?confirm=true"
    for missing in sorted(CUSTOMIZABLE):
        await set_rights(acme, KEEPER, CUSTOMIZABLE - {missing})
        await set_rights(acme, GIVEN, {missing})
        assert names(await let_give(acme, group, GIVEN), 409, missing, "Okta"), missing
        await set_rights(acme, GIVEN, set())
        assert (await let_give(acme, group, GIVEN)).status == 200
        widened = await acme.api.patch(role, {"capabilities": [missing]}, token=acme.token("owner"))
        assert names(widened, 409, missing, "Okta"), missing
        await run_sql(acme.pool, "update groups set role = null, mapped_by = null, mapped_at = null")
    await set_rights(acme, GIVEN, set())
    assert (await let_give(acme, group, GIVEN)).status == 200
    replaced = await acme.api.delete(f"{role}&replacement={KEEPER}", token=acme.token("owner"))
    assert replaced.status == 204, "the creator has every right of the role keeper"
    await set_rights(acme, KEEPER, ROLES[ADMIN].rights - {Capability.ORGANIZATION_VIEW})
    await define(acme, GIVEN, CUSTOMIZABLE)
    assert names(await let_give(acme, group, GIVEN), 409, Capability.ROLES_MANAGE, "Okta")
    deleted = await acme.api.delete(f"{acme.path}/roles/{KEEPER}?confirm=true&replacement={GIVEN}", token=acme.token("owner"))
    assert deleted.status == 204, "the creator has the new role, too"


async def test_tokens_of_creators_who_have_left_and_expired_ones(acme: Tenant) -> None:
    await acme.join("other", await add_account(acme.ports, "other@acme.example"), ADMIN)
    group = await GroupDirectory(await directory_of(acme, groups=True)).create("Sales")
    assert (await create_token(acme, acme.token("other"))).status == 200
    assert (await let_give(acme, group, ADMIN)).status == 200
    await run_sql(acme.pool, "update groups set role = null, mapped_by = null, mapped_at = null")
    await run_sql(acme.pool, "update memberships set role = 'member' where user_id = %s", acme.people["other"].id)
    assert (await let_give(acme, group, "member")).status == 200
    assert names(await let_give(acme, group, ADMIN), 409, "Okta")
    await run_sql(acme.pool, "delete from memberships where user_id = %s", acme.people["other"].id)
    assert names(await let_give(acme, group, ADMIN), 409, "Okta")
    await run_sql(acme.pool, "update scim_tokens set expires_at = created_at where name = 'Okta'")
    assert (await let_give(acme, group, ADMIN)).status == 200


async def test_a_token_that_fills_groups_takes_the_rights_that_groups_of_directories_give(acme: Tenant) -> None:
    await define(acme, GIVEN, {Capability.ROLES_MANAGE})
    owner, admin = acme.token("owner"), acme.token("admin")
    group = await GroupDirectory(await directory_of(acme, groups=True)).create("Sales")
    created = await create_token(acme, admin, name="Small", directory_groups=False)
    small = f"{acme.path}/scim-tokens/{created.json['id']}"
    assert (await let_give(acme, group, GIVEN)).status == 200
    assert names(await create_token(acme, admin), 403, Capability.ROLES_MANAGE)
    assert names(await acme.api.patch(small, {"directory_groups": True}, token=admin), 403, Capability.ROLES_MANAGE)
    switched = await acme.api.patch(small, {"directory_groups": True}, token=owner)
    assert names(switched, 409, Capability.ROLES_MANAGE, "Small"), "the admin may have a copy of the token"
    assert await run_sql(acme.pool, "select name from scim_tokens where directory_groups") == [("Directory",)]
    assert (await create_token(acme, owner)).status == 200
    for granted, status in ((GRANTABLE.keys() - {Capability.ROLES_MANAGE}, 403), (GRANTABLE.keys(), 200)):
        owned = acme.people["owner"].id
        robot = await add_service_account(acme.pool, acme.org, owned, OWNER, granted=[*map(str, granted)], name=f"Robot {status}")
        program = await (await add_credential(acme.pool, acme.api, robot, acme.org)).token()
        assert (await create_token(acme, program)).status == status
    await run_sql(acme.pool, "update groups set mapping_stopped_at = now()")
    assert (await create_token(acme, admin)).status == 200, "a role that has stopped gives nothing"
    assert names(await let_give(acme, group, GIVEN), 409, Capability.ROLES_MANAGE, "Okta")
