"""The roles that organizations define themselves (security R-10)."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

import pytest

from core.kernel.roles import ADMIN, CUSTOMIZABLE, MEMBER, OWNER, ROLES, Capability, RoleName
from core.tenancy.model.members import MemberHasMoreRights
from core.tenancy.model.roles import MAX_ROLES, SENTENCES, RoleAboveOwn, RolesManageMissing
from tests.support.builders import Answer, Api, add_account, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.programs import add_credential, add_service_account
from tests.support.tenants import Tenant
from tests.tenancy.api.policy.policies import save

pytestmark = pytest.mark.slow

OF_MEMBERS = ROLES[MEMBER].rights - {Capability.ORGANIZATION_VIEW}


async def add_role(acme: Tenant, slug: str, capabilities: Collection[str], by: str = "owner", **changes: Any) -> Answer:
    body = {"slug": slug, "name": slug.title(), "capabilities": sorted(capabilities), **changes}
    return await acme.api.post(f"{acme.path}/roles", body, token=acme.token(by))


async def change(acme: Tenant, slug: str, by: str = "owner", query: str = "", **changes: Any) -> Answer:
    return await acme.api.patch(f"{acme.path}/roles/{slug}{query}", changes, token=acme.token(by))


async def delete(acme: Tenant, slug: str, by: str = "owner", query: str = "") -> Answer:
    return await acme.api.delete(f"{acme.path}/roles/{slug}{query}", token=acme.token(by))


async def join_with(acme: Tenant, name: str, slug: str, capabilities: Collection[str]) -> None:
    """Add a member with a new role that has these capabilities."""
    answer = await add_role(acme, slug, capabilities)
    assert answer.status == 201, answer.text
    await acme.join(name, await add_account(acme.ports, f"{name}@acme.example", None), RoleName(slug))


async def token_of(acme: Tenant, account: UUID, made_by: str = "owner") -> str:
    """Return a service account's token, by a credential that this member made."""
    program = await add_credential(acme.pool, acme.api, account, acme.org)
    await run_sql(acme.pool, "update credentials set created_by = %s where id = %s", acme.people[made_by].id, program.credential_id)
    return await program.token()


async def require_second_factor_of_admins(acme: Tenant) -> None:
    await add_mfa(acme.ports, acme.people["owner"])
    acme.sessions["owner"] = await sign_in(acme.ports, acme.people["owner"], acme.org, second_factor=True)
    answer = await save(acme, {"second_factor": ["admins"]})
    assert answer.status == 200, answer.text


def test_every_capability_that_a_role_can_have_has_a_sentence() -> None:
    assert SENTENCES.keys() == CUSTOMIZABLE


async def test_the_catalog_has_the_capabilities_with_their_sentences(api: Api) -> None:
    answer = await api.get("/api/capabilities")
    assert {each["name"]: each["description"] for each in answer.json["capabilities"]} == SENTENCES


async def test_a_role_is_created_listed_changed_and_deleted(acme: Tenant) -> None:
    answer = await add_role(acme, "auditor", ["audit.view", "sign_ins.view"], description="Reads the logs.")
    assert answer.status == 201
    created = answer.json
    assert (created["slug"], created["name"], created["members"], created["version"]) == ("auditor", "Auditor", 0, 1)
    assert (created["description"], created["built_in"]) == ("Reads the logs.", False)
    assert created["capabilities"] == ["audit.view", "sign_ins.view"]
    listed = (await acme.api.get(f"{acme.path}/roles", token=acme.token("member"))).json["roles"]
    assert [(role["slug"], role["built_in"], role["members"]) for role in listed] == [
        *((name, True, 1) for name in (OWNER, ADMIN, MEMBER)),
        ("auditor", False, 0),
    ]
    assert listed[3] == created == (await acme.api.get(f"{acme.path}/roles/auditor", token=acme.token("member"))).json
    changed = await change(acme, "auditor", name="Reader", capabilities=["audit.view"])
    assert (changed.status, changed.json["name"], changed.json["capabilities"], changed.json["version"]) == (
        200,
        "Reader",
        ["audit.view"],
        2,
    )
    assert (await delete(acme, "auditor")).status == 204
    assert (await acme.api.get(f"{acme.path}/roles/auditor", token=acme.token("owner"))).status == 404
    entries = [(entry["action"], entry["details"]) for entry in await acme.log()]
    fields = {"name": "Auditor", "description": "Reads the logs.", "capabilities": ["audit.view", "sign_ins.view"]}
    changes = {"name": {"old": "Auditor", "new": "Reader"}, "capabilities": {"old": ["audit.view", "sign_ins.view"], "new": ["audit.view"]}}
    assert entries == [
        ("role.created", {"slug": "auditor", **fields}),
        ("role.updated", {"slug": "auditor", "name": "Reader", "changes": changes}),
        ("role.deleted", {"slug": "auditor", **fields, "name": "Reader", "capabilities": ["audit.view"]}),
    ]
    assert await acme.actions() == {"role.created": 1, "role.updated": 1, "role.deleted": 1}


async def test_a_role_without_a_slug_gets_one_that_resembles_its_name(acme: Tenant) -> None:
    for name, expected in (("Billing manager", "billing-manager"), ("Billing & manager", "billing-manager-2")):
        answer = await add_role(acme, "", [], name=name)
        assert (answer.status, answer.json["slug"]) == (201, expected)
    assert (await add_role(acme, "", [], name="24 hours")).json["slug"] == "role-24-hours"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"slug": "Auditor"}, 400),
        ({"slug": "1st"}, 400),
        ({"slug": "a" * 51}, 400),
        ({"slug": "a b"}, 400),
        ({"slug": "owner"}, 409),
        ({"slug": "member"}, 409),
        ({"slug": "taken"}, 409),
        ({"slug": "other", "name": "TAKEN"}, 409),
        ({"slug": "other", "name": "admin"}, 409),
        ({"name": " "}, 400),
        ({"capabilities": ["organization.own"]}, 400),
        ({"capabilities": ["organization.view"]}, 400),
        ({"capabilities": ["platform.own"]}, 400),
        ({"capabilities": ["everything"]}, 400),
        ({"description": "x" * 201}, 400),
    ],
)
async def test_a_role_that_is_not_valid_is_refused(acme: Tenant, changes: dict[str, Any], status: int) -> None:
    assert (await add_role(acme, "taken", [])).status == 201
    answer = await acme.api.post(
        f"{acme.path}/roles", {"slug": "new", "name": "New", "capabilities": [], **changes}, token=acme.token("owner")
    )
    assert answer.status == status, answer.text


async def test_built_in_roles_are_never_changed_or_deleted(acme: Tenant) -> None:
    for role in ROLES:
        for answer in (await change(acme, role, name="Boss"), await delete(acme, role, query="?confirm=true&replacement=member")):
            assert (answer.status, "built in" in answer.json["error"]) == (400, True)


async def test_an_organization_has_a_limited_number_of_roles(acme: Tenant) -> None:
    for number in range(MAX_ROLES):
        assert (await add_role(acme, f"role-{number}", [])).status == 201
    assert (await add_role(acme, "one-more", [])).status == 400


async def test_a_role_counts_in_the_next_request_wherever_a_role_stands(acme: Tenant) -> None:
    """Invitations, members, filters, tokens and service accounts."""
    assert (await add_role(acme, "auditor", {*OF_MEMBERS, "audit.view"})).status == 201
    log = f"{acme.path}/audit-log"
    assert (await acme.api.get(log, token=acme.token("member"))).status == 403
    changed = await acme.set_role("owner", "member", "auditor")
    assert (changed.status, changed.json["membership"]["role"]) == (200, "auditor")
    assert (await acme.api.get(log, token=acme.token("member"))).status == 200
    assert (await acme.invite("eve@example.com", "auditor"))["invitation"]["role"] == "auditor"
    listed = await acme.api.get(f"{acme.path}/members?role=auditor", token=acme.token("owner"))
    assert [each["user"]["email"] for each in listed.json["members"]] == ["member@acme.example"]
    invited = await acme.list_invitations("?role=auditor")
    assert [each["invitation"]["email"] for each in invited.json] == ["eve@example.com"]
    body = {"name": "Exporter", "role": "auditor"}
    created = await acme.api.post(f"{acme.path}/service-accounts", body, token=acme.token("owner"))
    assert (created.status, created.json["role"]) == (201, "auditor")
    token = await token_of(acme, UUID(created.json["id"]))
    assert (await acme.api.get(log, token=token)).status == 200
    assert (await acme.api.get(f"{acme.path}/webhooks", token=token)).status == 403
    assert (await change(acme, "auditor", capabilities=[*OF_MEMBERS], query="?confirm=true")).status == 200
    for each in (acme.token("member"), token):
        assert (await acme.api.get(log, token=each)).status == 403


async def test_a_member_does_not_give_change_or_delete_a_role_with_a_right_that_they_lack(acme: Tenant) -> None:
    """Not even the rights to manage roles and members give another right."""
    await join_with(acme, "manager", "manager", {*OF_MEMBERS, "roles.manage", "members.manage"})
    assert (await add_role(acme, "auditor", ["audit.view"])).status == 201
    assert (await add_role(acme, "viewer", ["members.view"])).status == 201
    for refused in (
        await add_role(acme, "spy", ["audit.view"], by="manager"),
        await change(acme, "auditor", by="manager", name="Mine"),
        await change(acme, "auditor", by="manager", capabilities=[]),
        await change(acme, "viewer", by="manager", capabilities=["audit.view"]),
        await delete(acme, "auditor", by="manager"),
        await acme.set_role("manager", "member", "auditor"),
        await acme.set_role("manager", "member", "admin"),
        await acme.try_invite("eve@example.com", "auditor", by="manager"),
        await acme.try_invite("eve@example.com", "admin", by="manager"),
    ):
        assert (refused.status, refused.code, refused.json["error"]) == (403, "FORBIDDEN", RoleAboveOwn.__doc__), refused.text
    assert (await acme.set_role("manager", "member", "viewer")).status == 200
    assert (await acme.invite("eve@example.com", "viewer", by="manager"))["invitation"]["role"] == "viewer"
    assert (await change(acme, "viewer", by="manager", name="Mine")).status == 200
    # An admin has the role's rights, but without `roles.manage` gives only `member`.
    refused = await acme.try_invite("ada@example.com", "viewer", by="admin")
    assert (refused.status, refused.json["error"]) == (403, RolesManageMissing.__doc__)
    # Taking away a role asks for its rights, too.
    assert (await acme.set_role("owner", "member", "auditor")).status == 200
    refused = await acme.set_role("manager", "member", "viewer")
    assert (refused.status, refused.json["error"]) == (403, MemberHasMoreRights.__doc__)
    # The role member has rights, too.
    await join_with(acme, "inviter", "inviter", ["members.manage"])
    refused = await acme.try_invite("ada@example.com", "member", by="inviter")
    assert (refused.status, refused.json["error"]) == (403, RoleAboveOwn.__doc__)


async def test_holders_are_named_before_a_role_is_narrowed_or_deleted(acme: Tenant) -> None:
    await join_with(acme, "ann", "auditor", {*OF_MEMBERS, "audit.view"})
    invitation = await acme.invite("eve@example.com", "auditor")
    account = await add_service_account(acme.pool, acme.org, acme.people["owner"].id, RoleName("auditor"), name="Exporter")
    names = {
        "holders": {"member": 1, "invitation": 1, "service_account": 1, "group": 0},
        "first": [
            {"kind": "member", "id": acme.id("ann"), "name": "ann@acme.example"},
            {"kind": "invitation", "id": invitation["invitation"]["id"], "name": "eve@example.com"},
            {"kind": "service_account", "id": str(account), "name": "Exporter"},
        ],
    }
    for refused in (
        await change(acme, "auditor", capabilities=[]),
        await delete(acme, "auditor"),
        await delete(acme, "auditor", query="?replacement=member"),
    ):
        assert (refused.status, refused.json["error_code"]) == (409, "ROLE_IN_USE")
        assert {name: refused.json[name] for name in names} == names
    assert (await delete(acme, "auditor", query="?confirm=true")).status == 400, "a replacement is missing"
    assert (await delete(acme, "auditor", query="?confirm=true&replacement=owner")).status == 400
    assert (await delete(acme, "auditor", query="?confirm=true&replacement=auditor")).status == 400
    assert (await delete(acme, "auditor", query="?confirm=true&replacement=boss")).status == 400
    assert (await change(acme, "auditor", capabilities=[*OF_MEMBERS, "audit.view", "webhooks.manage"])).status == 200, "nothing is lost"
    assert (await delete(acme, "auditor", query="?confirm=true&replacement=member")).status == 204
    assert (await acme.roles())["ann"] == "member"
    rows = await run_sql(acme.pool, "select role, role_id from invitations union all select role, role_id from service_accounts")
    assert rows == [("member", None)] * 2
    entry = await acme.entry("role.deleted")
    assert (entry["details"]["replacement"], entry["details"]["holders"]) == ("member", names["holders"])
    assert (await acme.entry("user.role_updated"))["details"] == {"old_role": "auditor", "new_role": "member"}


async def test_a_member_does_not_delete_their_own_role(acme: Tenant) -> None:
    await join_with(acme, "ann", "manager", {*OF_MEMBERS, "roles.manage"})
    answer = await delete(acme, "manager", by="ann", query="?confirm=true&replacement=member")
    assert (answer.status, "own role" in answer.json["error"]) == (400, True)


async def test_a_change_of_a_version_that_is_out_of_date_is_refused(acme: Tenant) -> None:
    await add_role(acme, "auditor", ["audit.view"])
    assert (await change(acme, "auditor", name="One", version=1)).status == 200
    assert (await change(acme, "auditor", name="Two", version=1)).status == 409
    assert (await change(acme, "auditor", name="owner")).json["error"].startswith("The organization has a role with this name already.")
    assert (await change(acme, "auditor", name="One", version=2)).json["version"] == 2, "nothing changed"


async def test_holders_lose_what_they_gave_with_a_right_that_is_taken_away(acme: Tenant) -> None:
    """Invitations, service account credentials, and the roles that these gave end."""
    rights = {*OF_MEMBERS, "members.manage", "roles.manage", "service_accounts.manage"}
    await join_with(acme, "ann", "manager", rights)
    invitation = await acme.invite("eve@example.com", "manager", by="ann")
    account = await add_service_account(
        acme.pool, acme.org, acme.people["ann"].id, RoleName("manager"), granted=["members.manage", "roles.manage"], name="Robot"
    )
    token = await token_of(acme, account, made_by="ann")
    promoted = await acme.api.patch(f"{acme.path}/members/{acme.id('member')}", {"role": "manager"}, token=token)
    assert promoted.status == 200, promoted.text
    kept = await acme.invite("kept@example.com", "member", by="ann")
    assert (await change(acme, "manager", capabilities=[*(rights - {"roles.manage"})], query="?confirm=true")).status == 200
    assert await acme.statuses() == {"eve@example.com": "cancelled", "kept@example.com": "pending"}, (invitation, kept)
    assert (await acme.roles())["member"] == "member"
    assert await run_sql(acme.pool, "select granted from service_accounts") == [(["members.manage"],)]
    assert (await change(acme, "manager", capabilities=[*OF_MEMBERS], query="?confirm=true")).status == 200
    assert await acme.statuses() == {"eve@example.com": "cancelled", "kept@example.com": "cancelled"}
    assert await run_sql(acme.pool, "select count(*) from credentials") == [(0,)]
    assert (await acme.api.get(f"{acme.path}/members", token=token)).status == 401


async def test_an_invitation_to_a_role_ends_when_its_sender_cannot_give_the_wider_role(acme: Tenant) -> None:
    await join_with(acme, "ann", "manager", {*OF_MEMBERS, "members.manage", "roles.manage"})
    await add_role(acme, "viewer", ["members.view"])
    await acme.invite("eve@example.com", "viewer", by="ann")
    await acme.invite("ada@example.com", "viewer")
    assert (await change(acme, "viewer", capabilities=["members.view", "audit.view"])).status == 200
    assert await acme.statuses() == {"eve@example.com": "cancelled", "ada@example.com": "pending"}


async def test_a_service_account_adds_no_rights_to_a_role_that_has_holders(acme: Tenant) -> None:
    """They would stay when the account is gone."""
    account = await add_service_account(acme.pool, acme.org, acme.people["owner"].id, OWNER, granted=["roles.manage"], name="Robot")
    token = await token_of(acme, account)
    body = {"slug": "auditor", "name": "Auditor", "capabilities": ["audit.view"]}
    assert (await acme.api.post(f"{acme.path}/roles", body, token=token)).status == 201
    path, wider = f"{acme.path}/roles/auditor", {"capabilities": ["audit.view", "sign_ins.view"]}
    assert (await acme.api.patch(path, wider, token=token)).status == 200
    assert (await acme.set_role("owner", "member", "auditor")).status == 200
    widened = await acme.api.patch(path, {"capabilities": [*wider["capabilities"], "webhooks.manage"]}, token=token)
    assert (widened.status, widened.code) == (403, "FORBIDDEN")
    assert (await acme.api.patch(f"{path}?confirm=true", {"capabilities": []}, token=token)).status == 200


async def test_a_role_with_a_right_beyond_member_counts_as_admin_for_the_sign_in_policy(acme: Tenant) -> None:
    """A role change asks every session again."""
    await join_with(acme, "ann", "viewer", OF_MEMBERS)
    await require_second_factor_of_admins(acme)
    path = f"{acme.path}/members"
    assert (await acme.api.get(path, token=acme.token("ann"))).status == 200
    assert (await change(acme, "viewer", capabilities=[*OF_MEMBERS, "audit.view"])).status == 200
    refused = await acme.api.get(path, token=acme.token("ann"))
    assert (refused.status, refused.json["error_code"]) == (403, "ENROLMENT_REQUIRED")
    assert (await acme.api.get(path, token=acme.token("member"))).status == 200


async def test_roles_of_other_organizations_do_not_exist(acme: Tenant, other_tenant: Tenant) -> None:
    await add_role(acme, "auditor", ["audit.view"])
    assert (await other_tenant.set_role("owner", "member", "auditor")).status == 400
    assert (await change(other_tenant, "auditor", name="Mine")).status == 404
    assert (await delete(other_tenant, "auditor")).status == 404
    assert (await add_role(other_tenant, "auditor", [])).status == 201
