"""What a user may do, and why: rights in the organization, access to applications, roles and permissions."""

from itertools import product
from typing import Any
from uuid import uuid4

import pytest

from core.accounts.model.accounts import Account
from core.applications.model.users import AccessPolicy
from core.kernel.api_scopes import ApiScope
from core.kernel.roles import ADMIN
from tests.accounts.api.account_pages.paths import page_text
from tests.applications.api.authorization.store import DOCUMENT, Store
from tests.applications.api.authorization.test_pages import sign_in_as
from tests.support.browser import FakeBrowser
from tests.support.builders import add_account, add_member, run_sql
from tests.support.personal_tokens import add_personal_token
from tests.support.services import add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin, add_group


async def access_of(acme: Tenant, user: object, by: str = "member") -> dict[str, Any]:
    answer = await acme.api.get(f"{acme.path}/users/{user}/access", token=acme.token(by))
    assert answer.status == 200, answer.text
    body: dict[str, Any] = answer.json
    return body


@pytest.fixture
async def shop(acme: Tenant) -> Store:
    store = Store(acme, await add_service(acme.pool, acme.org), "")
    assert (await store.put(DOCUMENT)).status == 200
    return store


async def test_rights_roles_and_groups_are_explained(shop: Store, acme: Tenant) -> None:
    groups, admin = GroupAdmin(acme), acme.id("admin")
    group = await groups.create("Writers")
    await groups.add(group, admin)
    await groups.assign("shop", group)
    await shop.give_group("editor", group)
    await shop.give("viewer", admin)
    await run_sql(acme.pool, "update services set access_policy = 'assigned'")
    found = await access_of(acme, admin)
    writers = {"id": group, "name": "Writers"}
    assert (found["email"], found["groups"]) == (acme.people["admin"].email, [writers])
    rights = {right["capability"]: right["sources"] for right in found["organization"]["rights"]}
    assert rights["members.manage"] == [{"role": "admin", "group": None}]
    assert "organization.own" not in rights
    assert "audit.view" in rights
    assert found["applications"] == [
        {
            "service_slug": "shop",
            "service_name": "Shop",
            "policy": "assigned",
            "may_use": True,
            "reason": "group",
            "groups": [writers],
            "roles": [
                {"slug": "editor", "name": "Editor", "permissions": ["documents:read", "documents:write"], "direct": False,
                 "groups": [writers]},
                {"slug": "viewer", "name": "Viewer", "permissions": ["documents:read"], "direct": True, "groups": []},
            ],
            "permissions": ["documents:read", "documents:write"],
        }
    ]  # fmt: skip
    await groups.unassign("shop", group)
    [closed] = (await access_of(acme, admin))["applications"]
    assert (closed["may_use"], closed["reason"], closed["permissions"]) == (False, "not_assigned", [])
    assert [role["slug"] for role in closed["roles"]] == ["editor", "viewer"], "they count again with access"


async def test_a_right_names_the_groups_that_give_it(shop: Store, acme: Tenant) -> None:
    groups, member = GroupAdmin(acme, "owner"), acme.id("member")
    ids = [await groups.create(name) for name in ("Auditors", "Stopped")]
    for group in ids:
        assert (await groups.call("PUT", f"/{group}/role", {"role": "admin"})).status == 200
        assert (await groups.add(group, member)).status == 204
    await run_sql(acme.pool, "update groups set mapping_stopped_at = now() where name = 'Stopped'")
    found = await access_of(acme, member)
    rights = {right["capability"]: right["sources"] for right in found["organization"]["rights"]}
    auditors = {"role": "admin", "group": {"id": ids[0], "name": "Auditors"}}
    assert rights["audit.view"] == [auditors]
    assert rights["members.view"] == [{"role": "member", "group": None}, auditors]


async def test_members_see_end_users_by_the_setting_of_the_organization(shop: Store, acme: Tenant) -> None:
    def rights(found: dict[str, Any]) -> set[str]:
        return {right["capability"] for right in found["organization"]["rights"]}

    assert "end_users.view" in rights(await access_of(acme, acme.id("member")))
    await run_sql(acme.pool, "update organizations set members_see_end_users = false")
    assert "end_users.view" not in rights(await access_of(acme, acme.id("member"), "admin"))


async def test_a_token_without_the_scope_for_members_sees_no_rights_and_groups_of_members(shop: Store, acme: Tenant) -> None:
    await add_group(acme.pool, acme.org, acme.people["member"].id)
    await add_service_user(acme.ports, shop.service, acme.people["member"].id)
    seen = []
    for scopes in ((ApiScope.END_USERS_READ,), (ApiScope.END_USERS_READ, ApiScope.MEMBERS_READ)):
        token = await add_personal_token(acme.ports, acme.people["admin"], acme.org, scopes)
        found = (await acme.api.get(f"{acme.path}/users/{acme.id('member')}/access", token=token.text)).json
        seen.append((found["organization"] is not None, bool(found["groups"])))
    assert seen == [(False, False), (True, True)]


async def test_unconfirmed_members_have_no_rights_and_end_users_no_organization(shop: Store, acme: Tenant, user: Account) -> None:
    await add_member(acme.pool, acme.org, user.id, "admin", confirmed=False)
    group = await add_group(acme.pool, acme.org, user.id)
    await shop.give_group("editor", group)
    await run_sql(acme.pool, "update users set deactivated_at = now() where id = %s", user.id)
    found = await access_of(acme, user.id)
    assert found["organization"] == {"confirmed": False, "rights": []}
    [application] = found["applications"]
    assert (application["reason"], application["roles"]) == ("anyone", []), "the state of a foreign account is not shown"
    visitor = await add_account(acme.ports, "visitor@example.com")
    await add_service_user(acme.ports, shop.service, visitor.id)
    assert (await access_of(acme, visitor.id))["organization"] is None


async def test_strangers_are_not_found(shop: Store, acme: Tenant, other_tenant: Tenant, user: Account) -> None:
    """A user outside the organization looks like a user who does not exist."""
    service = await add_service(other_tenant.pool, other_tenant.org)
    await add_service_user(other_tenant.ports, service, user.id)
    ids = (user.id, other_tenant.id("member"), uuid4())
    refusals = [await acme.api.get(f"{acme.path}/users/{id_}/access", token=acme.token("owner")) for id_ in ids]
    assert [(answer.status, answer.json["error"]) for answer in refusals] == [(404, refusals[0].json["error"])] * 3


@pytest.mark.slow
async def test_the_reasons_agree_with_the_rule_of_access(shop: Store, acme: Tenant, user: Account) -> None:
    """For all combinations of facts, the explanation admits the user if the sign-in rule does."""
    pool, ends, wrong = acme.pool, {"membership", "group", "assigned", "directory", "admin"}, []
    group = await add_group(pool, acme.org, user.id)
    await add_service_user(acme.ports, shop.service, user.id)
    change = {
        "membership": (
            "insert into memberships (id, org_id, user_id, role, created_at) values (gen_random_uuid(), %s, %s, 'member', now())",
            "delete from memberships where org_id = %s and user_id = %s",
        ),
        "directory": (
            "insert into directory_blocks values (%s, %s, now())",
            "delete from directory_blocks where org_id = %s and user_id = %s",
        ),
        "admin": (
            "insert into end_user_blocks (org_id, user_id, since, email) values (%s, %s, now(), 'x@example.com')",
            "delete from end_user_blocks where org_id = %s and user_id = %s",
        ),
        "assigned": (
            "update service_users set enrolled_by = 'admin' where org_id = %s and user_id = %s",
            "update service_users set enrolled_by = 'self' where org_id = %s and user_id = %s",
        ),
    }
    for policy in AccessPolicy:
        await run_sql(pool, "update services set access_policy = %s", policy.value)
        for facts in product((False, True), repeat=len(ends)):
            chosen = {name for name, is_true in zip(sorted(ends), facts, strict=True) if is_true}
            for name in chosen - {"group"}:
                await run_sql(pool, change[name][0], acme.org, user.id)
            if "group" in chosen:
                await run_sql(pool, "insert into service_groups_assigned values (%s, %s, %s, now())", acme.org, shop.service, group)
            [application] = (await access_of(acme, user.id))["applications"]
            async with acme.ports.storage.reading() as read:
                admits = await read.end_users.may_use(acme.org, shop.service, user.id, acme.ports.clock.now())
            if application["may_use"] is not admits:
                wrong.append((policy, chosen, application["reason"]))
            for name in chosen - {"group"}:
                await run_sql(pool, change[name][1], acme.org, user.id)
            await run_sql(pool, "delete from service_groups_assigned")
    assert not wrong


async def test_the_page_of_a_user_leads_to_the_explanation(shop: Store, acme: Tenant, browser: FakeBrowser) -> None:
    await sign_in_as(acme, browser, ADMIN)
    group = await add_group(acme.pool, acme.org, acme.people["member"].id, name="Writers")
    await shop.give_group("editor", group)
    path = f"/app/organizations/acme/users/{acme.id('member')}/access"
    member = await browser.open(f"/app/organizations/acme/members/{acme.id('member')}")
    assert path in member.text
    assert "Groups Writers" in page_text(member)
    text = page_text(await browser.open(path))
    assert "Shop Yes Open to everyone with an account Editor by Writers documents:read documents:write" in text
    assert "See the applications and their settings. Member" in text
