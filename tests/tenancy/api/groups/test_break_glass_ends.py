"""The break glass list ends with the admin role, on every path that takes the role, the membership or the account away."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import ADMIN
from core.tenancy import platform_owners
from tests.programs.service_accounts import add_robot
from tests.support.builders import PASSWORD, Answer, add_platform_owner, run_sql, sign_in
from tests.support.scim import directory_of
from tests.support.tenants import Tenant
from tests.tenancy.api.groups.roles import Roles
from tests.tenancy.api.policy.policies import save
from tests.tenancy.groups import GroupAdmin

pytestmark = pytest.mark.slow

POLICY_VERSION: Final = "select sign_in_policy_version from organizations where id = %s"


async def become_admin(roles: Roles) -> str:
    await roles.join("ada", ADMIN)
    return ""


async def become_keeper(roles: Roles) -> str:
    await roles.join("ada", "keeper")
    return ""


async def enter_group(roles: Roles) -> str:
    """A group makes Ada an admin, and another keeper gave it the role."""
    await roles.join("ada")
    await roles.join("giver", "keeper")
    return await roles.group("keeper", "ada", by="giver")


async def be_promoted(roles: Roles) -> str:
    """A service account makes Ada an admin."""
    await roles.join("ada")
    robot = await add_robot(roles.tenant, role="owner", granted_capabilities=["roles.manage"])
    called(await robot.set_role("ada", ADMIN))
    return robot.path


def called(answer: Answer) -> None:
    assert answer.status < 300, answer.text


async def change_role(roles: Roles, _: str) -> None:
    called(await roles.tenant.set_role("owner", "ada", "member"))


async def remove(roles: Roles, _: str) -> None:
    called(await roles.tenant.remove("owner", "ada"))


async def leave(roles: Roles, _: str) -> None:
    called(await roles.tenant.api.post(f"{roles.tenant.path}/leave", token=roles.tenant.token("ada")))


async def deactivate(roles: Roles, _: str) -> None:
    called(await (await directory_of(roles.tenant)).deactivate(roles.tenant.id("ada")))


async def delete_by_directory(roles: Roles, _: str) -> None:
    called(await (await directory_of(roles.tenant)).call("DELETE", f"/Users/{roles.tenant.id('ada')}"))


async def remove_by_directory(roles: Roles, _: str) -> None:
    called(await (await directory_of(roles.tenant)).remove_member(roles.tenant.id("ada")))


async def narrow_role(roles: Roles, _: str) -> None:
    path = f"{roles.tenant.path}/roles/keeper?confirm=true"
    called(await roles.tenant.api.patch(path, {"capabilities": ["members.view"]}, token=roles.tenant.token("owner")))


async def delete_role(roles: Roles, _: str) -> None:
    path = f"{roles.tenant.path}/roles/keeper?confirm=true&replacement=member"
    called(await roles.tenant.api.delete(path, token=roles.tenant.token("owner")))


async def unmap(roles: Roles, group: str) -> None:
    called(await roles.unmap(group))


async def map_less(roles: Roles, group: str) -> None:
    await roles.map(group, "member")


async def leave_group(roles: Roles, group: str) -> None:
    called(await GroupAdmin(roles.tenant, "owner").remove(group, roles.tenant.id("ada")))


async def delete_group(roles: Roles, group: str) -> None:
    called(await GroupAdmin(roles.tenant, "owner").call("DELETE", f"/{group}"))


async def demote_giver(roles: Roles, _: str) -> None:
    called(await roles.tenant.set_role("owner", "giver", "member"))


async def become_platform_owner(roles: Roles, _: str) -> None:
    """Groups give no roles to platform owners."""
    await platform_owners.create_first_owner(roles.tenant.ports, roles.tenant.people["ada"].email, PASSWORD)


async def delete_program(roles: Roles, path: str) -> None:
    called(await roles.tenant.api.delete(path, token=roles.tenant.token("owner")))


async def of_platform(roles: Roles, method: str, path: str, body: Any = None) -> Answer:
    owner = await sign_in(roles.tenant.ports, await add_platform_owner(roles.tenant.ports), second_factor=True)
    return await roles.tenant.api.call(method, path.format(roles.tenant.id("ada")), body, token=owner.access_token)


async def deactivate_by_platform(roles: Roles, _: str) -> None:
    called(await of_platform(roles, "POST", "/api/platform/users/{}/deactivate", {"reason": "A stolen phone."}))


async def anonymize(roles: Roles, _: str) -> None:
    called(await of_platform(roles, "DELETE", "/api/privacy/forget/{}"))


async def delete_account(roles: Roles, _: str) -> None:
    called(await roles.tenant.api.call("DELETE", "/api/user", {"password": PASSWORD}, token=roles.tenant.token("ada")))


Step = Callable[[Roles], Awaitable[str]]
WAYS: Final[Mapping[str, tuple[Step, Callable[[Roles, str], Awaitable[None]]]]] = {
    "another role": (become_admin, change_role),
    "a removal": (become_admin, remove),
    "the member leaves": (become_admin, leave),
    "a directory deactivates the user": (become_admin, deactivate),
    "a directory deletes the user": (become_admin, delete_by_directory),
    "a directory removes the member": (become_admin, remove_by_directory),
    "the platform deactivates the account": (become_admin, deactivate_by_platform),
    "the platform deactivates the account of a keeper": (become_keeper, deactivate_by_platform),
    "the account is anonymized": (become_admin, anonymize),
    "the user deletes the account": (become_admin, delete_account),
    "the role has fewer rights": (become_keeper, narrow_role),
    "the role is deleted": (become_keeper, delete_role),
    "a service account that gave the role is deleted": (be_promoted, delete_program),
    "the group gives no role": (enter_group, unmap),
    "the group gives another role": (enter_group, map_less),
    "the role of the group has fewer rights": (enter_group, narrow_role),
    "the role of the group is deleted": (enter_group, delete_role),
    "the member leaves the group": (enter_group, leave_group),
    "the group is deleted": (enter_group, delete_group),
    "the giver of the group's role has fewer rights": (enter_group, demote_giver),
    "the user becomes a platform owner": (enter_group, become_platform_owner),
}


async def listed(acme: Tenant) -> list[str]:
    rows = await run_sql(acme.pool, "select user_id from break_glass_users where org_id = %s", acme.org)
    return sorted(str(user_id) for (user_id,) in rows)


async def changes(acme: Tenant) -> list[Any]:
    entries = [entry for entry in await acme.log() if entry["action"] == "organization.sign_in_policy.updated"]
    return [entry["details"]["changes"] for entry in entries]


async def put_list(acme: Tenant, *names: str) -> None:
    body = {"user_ids": [acme.id(name) for name in names]}
    called(await acme.api.call("PUT", f"{acme.path}/sign-in-policy/break-glass", body, token=acme.token("owner")))


@pytest.mark.parametrize("way", WAYS)
async def test_the_list_ends_with_the_role(roles: Roles, acme: Tenant, pool: Pool, way: str) -> None:
    begin, end = WAYS[way]
    assert (await save(acme, {"session_idle_minutes": 60})).status == 200
    about = await begin(roles)
    await put_list(acme, "owner", "ada")
    both, left = sorted([acme.id("owner"), acme.id("ada")]), [acme.id("owner")]
    before = await changes(acme)
    [version] = await run_sql(pool, POLICY_VERSION, acme.org)
    await end(roles, about)
    assert await listed(acme) == left
    assert await changes(acme) == [*before, {"break_glass_users": {"old": both, "new": left}}]
    assert await run_sql(pool, POLICY_VERSION, acme.org) > [version], "each session is asked again"


async def test_an_admin_stays_listed_with_another_role_that_counts(roles: Roles, acme: Tenant) -> None:
    """Transferring the ownership makes the owner an admin. An organization's own role can count as an admin role, too."""
    await become_admin(roles)
    await put_list(acme, "owner", "ada")
    both = await listed(acme)
    called(await acme.set_role("owner", "ada", "keeper"))
    called(await acme.api.post(f"{acme.path}/transfer-ownership", {"new_owner_user_id": acme.id("ada")}, token=acme.token("owner")))
    assert await listed(acme) == both
    assert len(await changes(acme)) == 1


async def test_a_deactivated_admin_is_not_listed_again(roles: Roles, acme: Tenant) -> None:
    await become_admin(roles)
    await deactivate_by_platform(roles, "")
    path, token = f"{acme.path}/sign-in-policy/break-glass", acme.token("owner")
    refused = await acme.api.call("PUT", path, {"user_ids": [acme.id("ada")]}, token=token)
    assert (refused.status, await listed(acme)) == (400, []), refused.text
