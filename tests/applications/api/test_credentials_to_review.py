"""API keys and tokens remain when their creator loses the rights to create them. The overview and the lists say so (security J-12)."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import pytest
from quart_trio import QuartTrio

from core.applications.model.analytics import REVIEWS
from core.kernel.roles import ADMIN, GRANTABLE, ROLES, Capability, Permission, RoleName
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser, main_of
from tests.support.builders import PASSWORD, add_account, run_sql
from tests.support.programs import add_credential, add_service_account
from tests.support.services import add_service
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin

pytestmark = pytest.mark.slow

TASKS: Final = ("api_keys_to_review", "scim_tokens_to_review", "registration_tokens_to_review")
OF_ADMINS: Final = sorted(ROLES[ADMIN].rights - {Capability.ORGANIZATION_VIEW})
# The changes that take the creator's rights, and how many credentials need a review afterwards: keys and SCIM tokens
CHANGES: Final[Mapping[str, tuple[str, tuple[int, int, int]]]] = {
    "demoted": ("update memberships set role = 'member' where user_id = %s", (1, 1, 1)),
    "removed": ("delete from memberships where user_id = %s", (1, 1, 1)),
    "deactivated": ("update users set deactivated_at = now() where id = %s", (1, 1, 1)),
    "without the right behind the permission": (
        "update organization_roles r set capabilities = array_remove(capabilities, 'end_users.manage') where %s::uuid is not null",
        (1, 1, 0),
    ),
    "without a right of an admin": (
        "update organization_roles r set capabilities = array_remove(capabilities, 'billing.manage') where %s::uuid is not null",
        (0, 1, 0),
    ),
}
ROBOT_CHANGES: Final[Mapping[str, tuple[str, tuple[int, int, int]]]] = {
    "deleted": ("delete from service_accounts where id = %s", (1, 1, 1)),
    "with a lower role": ("update service_accounts set role = 'member' where id = %s", (1, 1, 1)),
    "without a grant": ("update service_accounts set granted = array_remove(granted, 'api_keys.manage') where id = %s", (1, 0, 0)),
    "without a grant of both": ("update service_accounts set granted = array_remove(granted, 'end_users.manage') where id = %s", (1, 1, 0)),
    "without its owner": (
        "update memberships set role = 'member' where user_id = (select owner_id from service_accounts where id = %s)",
        (1, 1, 1),
    ),
}


async def reviews(acme: Tenant, by: str = "owner") -> tuple[int, int, int]:
    answer = await acme.api.get(f"{acme.path}/overview", token=acme.token(by))
    tasks = {each["task"]: each["count"] for each in answer.json["pending_tasks"]}
    keys, tokens, registrations = TASKS
    return tasks.get(keys, 0), tasks.get(tokens, 0), tasks.get(registrations, 0)


async def create_all(acme: Tenant, token: str) -> str:
    """Create an API key, a SCIM token and a registration token, and return the key."""
    body = {"name": "Billing backend", "permissions": [Permission.READ_USERS, Permission.WRITE_USERS]}
    key = await acme.api.post(f"{acme.path}/services/shop/api-keys", body, token=token)
    scim = await acme.api.post(f"{acme.path}/scim-tokens", {"name": "Okta"}, token=token)
    registration = await acme.api.post(f"{acme.path}/registration-tokens", {"name": "Agents"}, token=token)
    assert (key.status, scim.status, registration.status) == (201, 200, 201), (key.text, scim.text, registration.text)
    secret: str = key.json["key"]
    return secret


async def add_keeper(acme: Tenant) -> None:
    """Add a member with a role that has an admin's rights."""
    await add_service(acme.pool, acme.org, "shop")
    body = {"slug": "keeper", "name": "Keeper", "capabilities": OF_ADMINS}
    assert (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status == 201
    await acme.join("keeper", await add_account(acme.ports, "keeper@acme.example"), RoleName("keeper"))


async def browser_of(app: QuartTrio, acme: Tenant, name: str) -> FakeBrowser:
    """Return a browser in which this member is signed in."""
    password_hash, member = await acme.ports.passwords.hash(PASSWORD), acme.people[name]
    await run_sql(acme.pool, "update users set password_hash = %s where id = %s", password_hash, member.id)
    browser = FakeBrowser(app)
    await browser.sign_in(member.email, PASSWORD)
    return browser


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_credentials_of_a_creator_without_the_rights_work_and_are_named(
    change: tuple[str, tuple[int, int, int]], acme: Tenant, app: QuartTrio
) -> None:
    await add_keeper(acme)
    key = await create_all(acme, acme.token("keeper"))
    assert await reviews(acme) == (0, 0, 0)
    sql, expected = change
    await run_sql(acme.pool, sql, acme.people["keeper"].id)
    assert await reviews(acme) == expected
    assert (await acme.api.get("/api/service/users", headers={"X-Api-Key": key})).status == 200
    browser = await browser_of(app, acme, "owner")
    overview = main_of(await browser.open("/app/organizations/acme"))
    for count, path, name in zip(
        expected,
        ("applications/shop/api-keys", "directory", "registration-tokens"),
        ("API key “Billing backend” of ", "SCIM token “Okta” ", "registration token “Agents” "),
        strict=True,
    ):
        page = main_of(await browser.open(f"/app/organizations/acme/{path}"))
        assert page.count("The creator has left, or may no longer create it.") == count
        assert (f"The {name}" in overview) == bool(count)
        assert (f'href="/app/organizations/acme/{path}"' in overview) == bool(count)
    creator = "a former user" if sql.startswith("delete") else "keeper@acme.example"
    assert overview.count(f"its creator ({creator}) has left") == 2 * sum(expected)  # every sentence is also the label on its link


@pytest.mark.parametrize("change", ROBOT_CHANGES.values(), ids=ROBOT_CHANGES)
async def test_credentials_of_a_service_account_are_to_review_when_it_could_not_create_them(
    change: tuple[str, tuple[int, int, int]], acme: Tenant
) -> None:
    await add_keeper(acme)
    robot = await add_service_account(acme.pool, acme.org, acme.people["keeper"].id, ADMIN, granted=[*map(str, GRANTABLE)])
    await create_all(acme, await (await add_credential(acme.pool, acme.api, robot, acme.org)).token())
    assert await reviews(acme) == (0, 0, 0)
    sql, expected = change
    await run_sql(acme.pool, sql, robot)
    assert await reviews(acme) == expected


async def test_rights_by_a_group_count_and_only_who_can_replace_a_credential_sees_it(acme: Tenant) -> None:
    await add_keeper(acme)
    await create_all(acme, acme.token("keeper"))
    await run_sql(acme.pool, "update memberships set role = 'member' where user_id = %s", acme.people["keeper"].id)
    assert (await reviews(acme), await reviews(acme, "admin"), await reviews(acme, "member")) == ((1, 1, 1), (1, 1, 1), (0, 0, 0))
    async with acme.ports.storage.reading() as read:
        for kind in REVIEWS:
            found = await read.created_secrets.to_review(acme.org, [kind], acme.ports.clock.now(), 1)
            assert [each.kind for each in found] == [kind], "the limit counts what the caller sees"
    groups = GroupAdmin(acme, "owner")
    group = await groups.create("Keepers")
    assert (await groups.add(group, acme.id("keeper"))).status == 204
    assert (await groups.call("PUT", f"/{group}/role", {"role": "keeper"})).status == 200
    assert await reviews(acme) == (0, 0, 0)
    await run_sql(acme.pool, "update groups set mapping_stopped_at = now()")
    assert await reviews(acme) == (1, 1, 1)
    await run_sql(acme.pool, "update api_keys set expires_at = created_at")
    await run_sql(acme.pool, "update scim_tokens set expires_at = created_at")
    await run_sql(acme.pool, "update registration_tokens set uses_left = 0")
    assert await reviews(acme) == (0, 0, 0)


async def test_beyond_five_credentials_the_overview_has_a_number(acme: Tenant, app: QuartTrio, clock: FakeClock) -> None:
    await add_keeper(acme)
    for _ in range(4):
        clock.advance(timedelta(seconds=2))
        await create_all(acme, acme.token("keeper"))
    await run_sql(acme.pool, "update scim_tokens set created_at = created_at + interval '1 second'")
    await run_sql(acme.pool, "delete from memberships where user_id = %s", acme.people["keeper"].id)
    browser = await browser_of(app, acme, "admin")
    page = main_of(await browser.open("/app/organizations/acme"))
    assert page.count("its creator (a former user)") == 2 * 5
    for number in ("2 API keys", "3 SCIM tokens", "2 registration tokens"):
        assert f"The creators of {number} have left" in page
