"""Groups get application roles, and users have these roles as long as they are in the group."""

from typing import Any
from uuid import uuid4

import pytest

from core.kernel.roles import ADMIN, Permission
from tests.accounts.api.account_pages.paths import page_text
from tests.applications.api.authorization.store import DOCUMENT, Store
from tests.applications.api.authorization.test_pages import SHOP, sign_in_as
from tests.support.browser import FakeBrowser
from tests.support.builders import add_account, add_member, run_sql
from tests.support.services import add_api_key, add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin


@pytest.fixture
def groups(acme: Tenant) -> GroupAdmin:
    return GroupAdmin(acme)


async def roles_of(acme: Tenant, user: object) -> list[tuple[str, bool, list[str]]]:
    """Return the user's roles: the slug, whether the user has the role alone, and the groups that give it."""
    answer = await acme.api.get(f"{acme.path}/users/{user}/roles", token=acme.token("member"))
    assert answer.status == 200, answer.text
    return [(role["slug"], role["assigned_at"] is not None, [group["name"] for group in role["groups"]]) for role in answer.json["roles"]]


async def listed(declared: Store, role: str = "editor") -> list[tuple[str, int]]:
    answer = await declared.call("GET", f"/roles/{role}/groups", by="member")
    assert answer.json["total"] == len(answer.json["groups"])
    return [(each["name"], each["member_count"]) for each in answer.json["groups"]]


@pytest.mark.parametrize("by", ["admin", "key"])
async def test_users_of_a_group_have_its_role_until_either_ends(declared: Store, groups: GroupAdmin, acme: Tenant, by: str) -> None:
    group, member = await groups.create(), acme.id("member")
    await groups.assign("shop", group)
    await groups.add(group, member)
    for _ in range(2):
        assert (await declared.give_group("editor", group, by)).status == 204
    assert await listed(declared) == [("Engineering", 1)]
    assert await roles_of(acme, member) == [("editor", False, ["Engineering"])]
    await groups.remove(group, member)
    assert await roles_of(acme, member) == []
    await groups.add(group, member)
    for status in (204, 404):
        assert (await declared.take_from_group("editor", group, by)).status == status
    assert (await listed(declared), await roles_of(acme, member)) == ([], [])
    details = {"service_slug": "shop", "service_name": "Shop", "role": "editor", "role_name": "Editor", "group_name": "Engineering"}
    entries = [(entry["action"], entry["target_id"], entry["details"]) for entry in await acme.log()]
    for action in ("service.role.group_assigned", "service.role.group_unassigned"):
        assert [entry for entry in entries if entry[0] == action] == [(action, group, details)]


async def test_a_user_keeps_a_role_from_another_source(declared: Store, groups: GroupAdmin, acme: Tenant) -> None:
    member = acme.id("member")
    both = [await groups.create(name) for name in ("Writers", "Editors")]
    for group in both:
        await groups.add(group, member)
        await declared.give_group("editor", group)
    await declared.call("PUT", f"/roles/editor/users/{member}")
    await declared.give_group("viewer", both[0])
    assert await roles_of(acme, member) == [("editor", True, ["Editors", "Writers"]), ("viewer", False, ["Writers"])]
    await declared.take_from_group("editor", both[1])
    await declared.call("DELETE", f"/roles/editor/users/{member}")
    assert await roles_of(acme, member) == [("editor", False, ["Writers"]), ("viewer", False, ["Writers"])]
    of_group = (await groups.call("GET", f"/{both[0]}/service-roles")).json["roles"]
    assert [(role["service_slug"], role["slug"]) for role in of_group] == [("shop", "editor"), ("shop", "viewer")]
    assert of_group[0]["permissions"] == ["documents:read", "documents:write"]
    assert (await groups.call("DELETE", f"/{both[0]}")).status == 204
    assert await roles_of(acme, member) == []
    assert await run_sql(acme.pool, "select count(*) from service_role_groups") == [(0,)]


async def test_a_key_gives_roles_only_to_groups_of_its_service(
    declared: Store, groups: GroupAdmin, acme: Tenant, other_tenant: Tenant
) -> None:
    """A key learns nothing about other groups in the organization (security K-3)."""
    group = await groups.create()
    theirs = await GroupAdmin(other_tenant).create()
    answers = [await declared.give_group("editor", id_, "key") for id_ in (group, theirs, uuid4(), "nonsense")]
    assert [answer.status for answer in answers] == [404] * 4
    assert len({answer.json["error"] for answer in answers[:3]}) == 1
    assert (await declared.give_group("editor", theirs)).status == 404
    assert (await declared.give_group("owner", group)).status == 404
    assert (await declared.take_from_group("editor", theirs)).status == 404
    assert (await declared.give_group("editor", group)).status == 204
    assert (await declared.take_from_group("editor", group, "key")).status == 404
    declared.key = await add_api_key(acme.pool, declared.service, set(Permission) - {Permission.WRITE_ROLES})
    await groups.assign("shop", group)
    assert (await declared.give_group("viewer", group, "key")).status == 403


async def test_only_users_of_the_organization_have_roles_of_groups(declared: Store, groups: GroupAdmin, acme: Tenant) -> None:
    """A directory can put an unconfirmed member, or a user that it only knows, into a group."""
    group = await groups.create()
    await declared.give_group("editor", group)
    unconfirmed, stranger, visitor = [await add_account(acme.ports, f"{name}@example.com") for name in ("un", "stranger", "visitor")]
    await add_member(acme.pool, acme.org, unconfirmed.id, confirmed=False)
    await add_service_user(acme.ports, declared.service, visitor.id)
    for user in (unconfirmed, stranger, visitor):
        await run_sql(acme.pool, "insert into group_members values (%s, %s, %s, now())", acme.org, group, user.id)
    async with acme.ports.storage.reading() as read:
        having = {user.email: bool(await read.role_assignments.of_user(acme.org, user.id)) for user in (unconfirmed, stranger, visitor)}
    assert having == {"un@example.com": False, "stranger@example.com": False, "visitor@example.com": True}
    await run_sql(acme.pool, "update memberships set confirmed_at = now() where user_id = %s", unconfirmed.id)
    assert await roles_of(acme, unconfirmed.id) == [("editor", False, ["Engineering"])]


async def test_deleting_a_role_names_its_groups_first(declared: Store, groups: GroupAdmin, acme: Tenant) -> None:
    for name in ("Writers", "Editors"):
        await declared.give_group("editor", await groups.create(name))
    await declared.call("PUT", f"/roles/editor/users/{acme.id('member')}")
    refused = await declared.call("DELETE", "/roles/editor")
    assert (refused.status, refused.code) == (409, "ROLE_IN_USE")
    assert "editor (1 user and 2 groups). Users: " in refused.json["error"]
    assert "Groups: Editors, Writers." in refused.json["error"]
    by_key = await declared.put({**DOCUMENT, "roles": DOCUMENT["roles"][1:]}, by="key")
    assert (by_key.status, "Writers" in by_key.json["error"]) == (409, False), "a key sees no groups"
    role = (await declared.call("GET", "/roles/editor")).json
    assert (role["user_count"], role["group_count"]) == (1, 2)
    await declared.call("DELETE", f"/roles/editor/users/{acme.id('member')}")
    assert (await declared.call("DELETE", "/roles/editor")).status == 409, "groups alone need a confirmation, too"
    assert (await declared.call("DELETE", "/roles/editor?confirm=true")).status == 204
    [details] = [entry["details"] for entry in await acme.log() if entry["action"] == "service.role.deleted"]
    assert (details["user_count"], details["group_count"]) == (0, 2)


async def test_a_key_reads_the_roles_that_groups_give(declared: Store, groups: GroupAdmin, acme: Tenant) -> None:
    group = await groups.create()
    await groups.add(group, acme.id("member"))
    await declared.give_group("editor", group)
    await add_service_user(acme.ports, declared.service, acme.people["member"].id)
    forum = await add_service(acme.pool, acme.org, "forum")
    await acme.api.call("PUT", f"{acme.path}/services/forum/authorization", DOCUMENT, token=acme.token("admin"))
    await Store(acme, forum, "").give("viewer", acme.id("member"))
    answer: dict[str, Any] = (await declared.call("GET", f"/users/{acme.id('member')}/roles", by="key")).json
    assert answer["permissions"] == ["documents:read", "documents:write"]
    assert [(role["slug"], role["assigned_at"], role["groups"]) for role in answer["roles"]] == [
        ("editor", None, [{"id": group, "name": "Engineering"}])
    ]


async def test_an_admin_gives_a_role_to_a_group_on_its_page(
    declared: Store, groups: GroupAdmin, acme: Tenant, browser: FakeBrowser
) -> None:
    await sign_in_as(acme, browser, ADMIN)
    group = await groups.create()
    page = f"{SHOP}/roles/editor/users"
    await browser.submit(f"{SHOP}/roles/editor/groups", page, group=group)
    assert await listed(declared) == [("Engineering", 0)]
    answer = await browser.open(page)
    assert f"/app/organizations/acme/groups/{group}" in answer.text
    assert "Editor" in page_text(await browser.open(f"/app/organizations/acme/groups/{group}/applications"))
    assert "taken from 1 group" in page_text(await browser.open(f"{SHOP}/roles/editor/delete"))
    await browser.submit(f"{SHOP}/roles/editor/groups/{group}/remove", page)
    assert await listed(declared) == []
