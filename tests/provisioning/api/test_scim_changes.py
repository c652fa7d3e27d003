"""Changing SCIM users over HTTP (security C-4, decisions 129, 130)."""

from datetime import timedelta
from typing import Any, LiteralString
from uuid import UUID, uuid4

import pytest

from core.accounts.model.email_queue import OneTimeToken, TokenPurpose
from core.kernel.causes import SYSTEM
from core.kernel.errors import OrganizationNotActive, Refusal
from core.kernel.values import Email, digest
from core.provisioning import groups as scim_groups
from core.provisioning import tokens as scim_tokens
from core.provisioning import users as scim_users
from core.provisioning.model.directories import ScimTokenInvalid
from core.provisioning.model.groups import GroupChanges, MemberChanges
from core.provisioning.model.patches import PatchOp, PatchOperation, UserPatch
from core.provisioning.model.profiles import ScimProfile
from core.provisioning.model.schemas import ENTERPRISE_URN, USER_URN
from core.provisioning.model.users import ScimUserData, parse_replacement
from tests.fakes.outside import FakeClock
from tests.provisioning.api.users import FULL, account_of, add_own_account, load_accounts, set_password
from tests.support.builders import add_member, run_sql, sign_in
from tests.support.scim import GRACE, PATCH_URN, Directory, directory_of, problem
from tests.support.tenants import Tenant


async def test_put_replaces_the_attributes_of_a_user(acme: Tenant, directory: Directory, clock: FakeClock) -> None:
    user = await directory.create_user(**FULL)
    clock.advance(timedelta(seconds=1))
    answer = await directory.put(user["id"], userName=GRACE, externalId="00u2", name={"givenName": "G"}, id="x", meta={"created": "x"})
    assert answer.status == 200
    user_after = answer.json
    assert (user_after["id"], user_after["externalId"], user_after["active"], user_after["displayName"]) == (user["id"], "00u2", True, None)
    assert user_after["name"] == {"formatted": "G", "familyName": None, "givenName": "G"}
    assert user_after["meta"]["lastModified"] > user["meta"]["lastModified"]
    assert user_after["meta"]["created"] == user["meta"]["created"]
    fields = ["externalId", "name.formatted", "name.givenName", "name.familyName", "displayName"]
    assert (await acme.entry("user.updated"))["details"] == {"changed": fields}
    clock.advance(timedelta(seconds=1))
    assert (await directory.put(user["id"], userName=GRACE, externalId="00u2", name={"givenName": "G"})).json == user_after
    assert "userName" in bad_request_detail(await directory.put(user["id"]))


async def test_a_replacement_by_the_response_changes_nothing(acme: Tenant, directory: Directory) -> None:
    """Even for the owner, which no directory can change, and for names that are not stored."""
    await directory.create_user(**FULL)
    await directory.create_user("ada", emails=[{"value": "ada@acme.example", "primary": True}], **{ENTERPRISE_URN: {"department": "x"}})
    before, entries = await directory.list_users(), len(await acme.log())
    assert before["totalResults"] == 5
    for user in before["Resources"]:
        answer = await directory.put(user["id"], **user)
        assert (answer.status, answer.json) == (200, user)
    assert (await directory.list_users(), len(await acme.log())) == (before, entries)


def bad_request_detail(answer: Any) -> str:
    assert problem(answer)[0] == 400
    return str(answer.json["detail"])


PATCHES: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([{"op": "replace", "path": "displayName", "value": "G"}], {"displayName": "G"}),
    ([{"op": "Replace", "value": {"displayName": "G", "name": {"givenName": "Gr"}}}], {"displayName": "G", "name.givenName": "Gr"}),
    ([{"op": "Add", "path": "name.familyName", "value": "H"}], {"name.familyName": "H"}),
    ([{"op": "replace", "value": {"name.familyName": "H", "unknown": 5}}], {"name.familyName": "H"}),
    ([{"op": "remove", "path": "name.familyName"}], {"name.familyName": None}),
    ([{"op": "remove", "path": "name"}], {"name.familyName": None, "name.givenName": None, "name.formatted": None}),
    ([{"op": "Replace", "path": "active", "value": "False"}], {"active": False}),
    ([{"op": "replace", "value": {"active": False}}], {"active": False}),
    ([{"op": "add", "path": "externalId", "value": "x"}], {"externalId": "x"}),
    ([{"op": "replace", "path": "userName", "value": "G@new.example"}], {"userName": "g@new.example"}),
    ([{"op": "replace", "path": 'emails[type eq "work"].value', "value": "g@new.example"}], {"userName": GRACE, "email": "g@new.example"}),
    (
        [{"op": "replace", "path": "emails", "value": [{"value": "g@new.example", "primary": True}]}],
        {"userName": GRACE, "email": "g@new.example"},
    ),
    ([{"op": "replace", "path": "emails.value", "value": "g@new.example"}], {"userName": GRACE, "email": "g@new.example"}),
    (
        [{"op": "replace", "value": {"emails": [{"value": "h@x.example"}], "userName": "G@new.example"}}],
        {"userName": "G@new.example", "email": "h@x.example"},
    ),
    (
        [{"op": "replace", "path": "userName", "value": "grace"}, {"op": "replace", "path": "emails.value", "value": "h@x.example"}],
        {"userName": "grace", "email": "h@x.example"},
    ),
    (
        [{"op": "replace", "value": {"emails": [{"value": "h@x.example", "primary": "False"}], "userName": "g@new.example"}}],
        {"userName": "g@new.example", "email": "g@new.example"},
    ),
    ([{"op": "add", "path": "emails", "value": [{"value": "h@x.example", "type": "home"}]}], {"userName": GRACE, "email": GRACE}),
    ([{"op": "replace", "path": "emails", "value": [{"value": "h@x.example", "type": "home"}]}], {"userName": GRACE, "email": GRACE}),
    ([{"op": "replace", "path": "emails", "value": [{"value": "g@new.example", "primary": False}]}], {"userName": GRACE, "email": GRACE}),
    ([{"op": "replace", "path": 'emails[type eq "work"].primary', "value": False}], {"userName": GRACE, "email": GRACE}),
    (
        [
            {
                "op": "replace",
                "path": "emails",
                "value": [{"value": "h@x.example", "type": "home"}, {"value": "g@new.example", "type": "Work"}],
            }
        ],
        {"userName": GRACE, "email": "g@new.example"},
    ),
    ([{"op": "remove", "path": "emails"}], {"userName": GRACE, "email": GRACE}),
    ([{"op": "replace", "path": "displayName", "value": [{"$ref": None, "value": "G"}]}], {"displayName": "G"}),
    ([{"op": "replace", "path": "displayName", "value": ""}], {"displayName": None}),
    ([{"op": "replace", "path": "displayName", "value": None}], {"displayName": None}),
    ([{"op": "add", "path": "displayName", "value": None}], {"displayName": None}),
    ([{"op": "replace", "value": {"displayName": None, "externalId": None}}], {"displayName": None, "externalId": None}),
    ([{"op": "replace", "path": "name", "value": None}], {"name.familyName": None, "name.givenName": None, "name.formatted": None}),
    ([{"op": "add", "value": {"name": None}}], {"name.familyName": None, "name.givenName": None, "name.formatted": None}),
    ([{"op": "replace", "path": "name.givenName", "value": None}], {"name.givenName": None, "name.familyName": "Hopper"}),
    (
        [{"op": "replace", "path": "active", "value": None}, {"op": "replace", "value": {"emails": None}}],
        {"active": True, "userName": GRACE},
    ),
    ([{"op": "replace", "path": "urn:ietf:params:scim:schemas:core:2.0:User:displayName", "value": "G"}], {"displayName": "G"}),
    (
        [{"op": "replace", "value": {USER_URN: {"displayName": "G", "active": False}, "externalId": "1"}}],
        {"displayName": "G", "active": False, "externalId": "1"},
    ),
    ([{"op": "replace", "path": USER_URN.lower(), "value": {"displayName": "G", "active": False}}], {"displayName": "G", "active": False}),
    ([{"op": "add", "path": "displayName", "value": "A"}, {"op": "remove", "path": "DISPLAYNAME"}], {"displayName": None}),
    ([{"op": "replace", "path": "title", "value": "Rear admiral"}], {"title": "Rear admiral"}),
    (
        [{"op": "add", "path": 'phoneNumbers[type eq "mobile"].value', "value": "+1 555 0100"}],
        {"phoneNumbers": [{"value": "+1 555 0100", "type": "mobile"}]},
    ),
    (
        [
            {"op": "add", "path": "phoneNumbers", "value": [{"value": "1", "type": "fax"}, {"value": "2", "primary": True}]},
            {"op": "remove", "path": 'phoneNumbers[type eq "fax"].value'},
        ],
        {"phoneNumbers": [{"value": "2", "primary": True}]},
    ),
    ([{"op": "Add", "path": f"{ENTERPRISE_URN}:department", "value": "Navy"}], {"department": "Navy"}),
    ([{"op": "Add", "path": f"{ENTERPRISE_URN}:manager", "value": "26118915"}], {"manager": {"value": "26118915"}}),
    ([{"op": "add", "path": f"{ENTERPRISE_URN}:manager", "value": [{"$ref": "../26", "value": "26"}]}], {"manager": {"value": "26"}}),
    ([{"op": "add", "path": f"{ENTERPRISE_URN.lower()}:Manager.DisplayName", "value": "B"}], {"manager": {"displayName": "B"}}),
    (
        [{"op": "add", "value": {ENTERPRISE_URN: {"department": "Navy", "costCenter": "x"}, f"{ENTERPRISE_URN}:manager.value": "26"}}],
        {"department": "Navy", "manager": {"value": "26"}},
    ),
    ([{"op": "replace", "path": ENTERPRISE_URN, "value": {"employeeNumber": "7"}}], {"employeeNumber": "7", "department": None}),
    (
        [{"op": "add", "path": ENTERPRISE_URN, "value": {"employeeNumber": "7"}}, {"op": "remove", "path": ENTERPRISE_URN}],
        {"employeeNumber": None},
    ),
    # RFC 7643 attributes that are not kept are ignored.
    *(
        ([{"op": op, "path": path, "value": "x"}, {"op": "add", "path": "title", "value": "T"}], {"title": "T"})
        for op in ("add", "replace", "remove")
        for path in (
            *("nickName", "PROFILEURL", "password", "roles", "addresses", 'addresses[type eq "work"].country', "addresses.locality"),
            *("name.middleName", 'emails[type eq "work"].display', f"{ENTERPRISE_URN}:costCenter", f"{ENTERPRISE_URN}:manager.$ref"),
            *(f"{USER_URN}:nickName", f"{USER_URN}:name.honorificPrefix", 'roles[primary eq "True"].value', "groups"),
        )
    ),
]


async def test_patches_change_users(directory: Directory) -> None:
    for number, (operations, expected) in enumerate(PATCHES):
        email = f"p{number}@acme.example"
        user = await directory.create_user(email, **FULL)
        answer = await directory.patch(user["id"], *operations)
        assert answer.status == 200, answer.text
        parts = answer.json["name"] or dict.fromkeys(("formatted", "familyName", "givenName"))
        enterprise = answer.json.get(ENTERPRISE_URN, {"employeeNumber": None, "department": None})
        flat = {**answer.json, **{f"name.{part}": value for part, value in parts.items()}, **enterprise}
        [flat["email"]] = [address["value"] for address in answer.json["emails"]]
        expected_values = {name: email if value == GRACE else value for name, value in expected.items()}
        assert {name: flat[name] for name in expected_values} == expected_values, operations
        assert answer.json == await directory.get(f"/Users/{user['id']}")
        await directory.delete(user["id"])


async def test_a_patch_with_a_mistake_changes_nothing(directory: Directory) -> None:
    user = await directory.create_user(**FULL)
    first = {"op": "replace", "path": "displayName", "value": "changed"}
    for operation, kind in [
        ({"op": "move", "path": "displayName", "value": "x"}, "invalidSyntax"),
        ({"path": "displayName", "value": "x"}, "invalidSyntax"),
        ({"op": "replace", "path": 5, "value": "x"}, "invalidSyntax"),
        ("x", "invalidSyntax"),
        ({"op": "replace", "path": "nothing", "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": "department", "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": "name.nothing", "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": 'addresses[type eq "work"].planet', "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": f"{ENTERPRISE_URN}:nothing", "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": "urn:example:extension:2.0:User:department", "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": 'name[givenName eq "x"]', "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": "a b", "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": "title", "value": "x" * 257}, "invalidValue"),
        ({"op": "replace", "path": f"{ENTERPRISE_URN}:department", "value": "a\x1bb"}, "invalidValue"),
        ({"op": "replace", "path": "userName", "value": "a\x1bb"}, "invalidValue"),
        ({"op": "replace", "path": 'emails[type eq "work"', "value": "x"}, "invalidFilter"),
        ({"op": "replace", "path": 'emails[kind eq "work"]', "value": "x"}, "invalidFilter"),
        ({"op": "replace", "path": 'emails[type eq "home"].value', "value": "x@y.example"}, "noTarget"),
        ({"op": "remove"}, "noTarget"),
        ({"op": "replace", "path": "id", "value": str(uuid4())}, "mutability"),
        ({"op": "replace", "path": "meta.created", "value": "x"}, "mutability"),
        ({"op": "remove", "path": "userName"}, "mutability"),
        ({"op": "replace", "path": "displayName"}, "invalidValue"),
        ({"op": "replace", "path": "userName", "value": None}, "invalidValue"),
        ({"op": "replace", "path": "userName", "value": ""}, "invalidValue"),
        ({"op": "replace", "value": {"userName": None}}, "invalidValue"),
        ({"op": "replace", "value": {"username": GRACE, "userName": GRACE}}, "invalidValue"),
        ({"op": "replace", "value": {"displayName": "x", f"{USER_URN}:displayname": "y"}}, "invalidValue"),
        ({"op": "replace", "path": "name", "value": {"givenName": "x", "givenname": "y"}}, "invalidValue"),
        ({"op": "add", "path": "emails", "value": [{"value": GRACE, "Value": GRACE}]}, "invalidValue"),
        ({"op": "add", "path": "emails", "value": [{"value": GRACE, "type": "x" * 257}]}, "invalidValue"),
        ({"op": "replace", "OP": "add", "path": "displayName", "value": "x"}, "invalidSyntax"),
        ({"op": "replace", "path": "active", "value": "maybe"}, "invalidValue"),
        ({"op": "replace", "path": "userName", "value": "x"}, "invalidValue"),
        ({"op": "replace", "value": "x"}, "invalidValue"),
        ({"op": "replace", "path": "userName", "value": "owner@acme.example"}, "uniqueness"),
    ]:  # fmt: skip
        answer = await directory.call(
            "PATCH",
            f"/Users/{user['id']}",
            {"schemas": [PATCH_URN], "Operations": [first, operation]},
        )
        assert problem(answer) == (409 if kind == "uniqueness" else 400, kind), operation
    bodies: list[Any] = [{"schemas": ["x"], "Operations": [first]}, {"schemas": [PATCH_URN]}, {"schemas": [], "Operations": []}]
    for body in bodies:
        assert problem(await directory.call("PATCH", f"/Users/{user['id']}", body)) == (400, "invalidSyntax")
    assert await directory.get(f"/Users/{user['id']}") == user


async def test_a_change_with_an_invalid_query_changes_nothing(directory: Directory) -> None:
    user = await directory.create_user(**FULL)
    group = await directory.get(directory.group_path)
    rename = {"schemas": [PATCH_URN], "Operations": [{"op": "replace", "path": "displayName", "value": "x"}]}
    remove = {"schemas": [PATCH_URN], "Operations": [{"op": "remove", "path": f'members[value eq "{user["id"]}"]'}]}
    for method, path, body in (
        ("POST", "/Users", {"schemas": [USER_URN], "userName": "other@acme.example"}),
        ("PUT", f"/Users/{user['id']}", {"schemas": [USER_URN], "userName": GRACE}),
        ("PATCH", f"/Users/{user['id']}", rename),
        ("PUT", directory.group_path, {"members": []}),
        ("PATCH", directory.group_path, remove),
    ):
        for query in ("attributes=user%00Name", "excludedAttributes=%00"):
            assert problem(await directory.call(method, f"{path}?{query}", body))[0] == 400, (method, path)
    assert (await directory.get("/Users"))["totalResults"] == len(group["members"])
    assert await directory.get(f"/Users/{user['id']}") == user
    assert await directory.get(directory.group_path) == group


async def test_the_directory_changes_the_address_of_an_account_it_manages(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    session = await sign_in(acme.ports, await account_of(acme, user["id"]))
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        now = acme.ports.clock.now()
        for purpose in TokenPurpose:
            await tx.one_time_tokens.add(
                OneTimeToken(digest(purpose), purpose, UUID(user["id"]), Email(GRACE), created_at=now, expires_at=now + timedelta(hours=1))
            )
    answer = await directory.patch(user["id"], {"op": "replace", "path": "userName", "value": "hopper@acme.example"})
    assert (answer.status, answer.json["userName"], answer.json["emails"][0]["value"]) == (
        200,
        "hopper@acme.example",
        "hopper@acme.example",
    )
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401
    assert await run_sql(acme.pool, "select count(*) from one_time_tokens where used_at is null") == [(0,)]
    assert await run_sql(acme.pool, "select kind, address from mails where kind = 'email_changed'") == [("email_changed", GRACE)]
    [(_, _, _, verified, *_)] = await load_accounts(acme, "hopper@acme.example")
    assert verified
    assert (await acme.entry("user.email_changed"))["target_id"] == user["id"]


async def test_a_user_who_can_sign_in_must_verify_an_address_outside_the_verified_domain(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    await set_password(acme, user["id"])
    await run_sql(
        acme.pool,
        "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, 'acme.example', 'x', now(), now())",
        acme.org,
    )
    await directory.patch(user["id"], {"op": "replace", "path": "userName", "value": "hopper@acme.example"})
    assert (await load_accounts(acme, "hopper@acme.example"))[0][3]
    await directory.patch(user["id"], {"op": "replace", "path": "userName", "value": "victim@elsewhere.example"})
    assert not (await load_accounts(acme, "victim@elsewhere.example"))[0][3]
    assert await run_sql(acme.pool, "select address from mails where kind = 'verify_email'") == [("victim@elsewhere.example",)]


async def test_names_are_visible_in_their_organization_only(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    shared = await add_own_account(acme)
    await add_member(other_tenant.pool, other_tenant.org, UUID(shared))
    emails = [{"value": "ada@example.com", "primary": True}]
    await directory.put(shared, userName="Ada", emails=emails, title="Countess", **{ENTERPRISE_URN: {"department": "Engines"}}, **FULL)
    other = await directory_of(other_tenant)
    seen_elsewhere = await other.get(f"/Users/{shared}")
    assert (seen_elsewhere["userName"], seen_elsewhere["displayName"], seen_elsewhere["title"]) == ("ada@example.com", "ada", None)
    assert ENTERPRISE_URN not in seen_elsewhere
    for filter_ in ('externalId eq "00u1"', 'userName eq "ada"', 'title eq "countess"', f"{ENTERPRISE_URN}:department pr"):
        assert await other.find_user_names(filter_) == []
        assert await directory.find_user_names(filter_) == ["Ada"]


async def test_owners_cannot_be_changed(acme: Tenant, directory: Directory) -> None:
    promoted = (await directory.create_user())["id"]
    await run_sql(acme.pool, "update users set is_platform_owner = true where id = %s", UUID(promoted))
    for user_id in (acme.id("owner"), promoted):
        before = await directory.get(f"/Users/{user_id}")
        for answer in (
            await directory.deactivate(user_id),
            await directory.delete(user_id),
            await directory.put(user_id, userName=before["userName"], displayName="x"),
            await directory.patch(user_id, {"op": "replace", "path": "userName", "value": "x@acme.example"}),
        ):
            assert problem(answer) == (403, None)
        assert await directory.get(f"/Users/{user_id}") == before
        assert (await directory.put(user_id, userName=before["userName"])).status == 200  # changes nothing


async def test_a_patch_is_applied_again_if_the_user_changed_since_it_was_read(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    caller = scim_tokens.authenticate(SYSTEM, await scim_tokens.load_record(acme.ports, directory.token))
    before = await scim_users.find(acme.ports, caller, UUID(user["id"]))
    await directory.patch(user["id"], {"op": "add", "path": "displayName", "value": "Grace"})
    patch = UserPatch([PatchOperation(PatchOp.ADD, "externalId", "g1")])
    patched, _ = await scim_users.patch(acme.ports, caller, before, patch)
    assert (patched.profile.display_name, patched.profile.external_id) == ("Grace", "g1")


async def test_a_replacement_keeps_the_present_values_of_refused_ones_if_the_user_changed_since_it_was_read(
    acme: Tenant, directory: Directory
) -> None:
    user = await directory.create_user(**FULL)
    caller = scim_tokens.authenticate(SYSTEM, await scim_tokens.load_record(acme.ports, directory.token))
    before = await scim_users.find(acme.ports, caller, UUID(user["id"]))
    await directory.put(user["id"], userName="grace", emails=[{"value": "new@acme.example", "primary": True}], displayName="New")
    replacement = parse_replacement({"userName": 5, "displayName": 5, "title": "Admiral", "active": False})
    replaced, skipped = await scim_users.replace(acme.ports, caller, before, replacement)
    assert (replaced.user_name, replaced.email, replaced.profile.display_name) == ("grace", "new@acme.example", "New")
    assert (replaced.profile.attributes, replaced.active) == ({"title": "Admiral"}, False)
    assert [*skipped.refused] == ["userName", "displayName"]


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ("update organizations set status = 'suspended'", OrganizationNotActive),
        ("delete from scim_tokens", ScimTokenInvalid),
        ("delete from organizations", ScimTokenInvalid),
    ],
)
async def test_token_and_organization_are_checked_again_inside_the_transaction(
    acme: Tenant, directory: Directory, change: LiteralString, refusal: type[Refusal]
) -> None:
    caller = scim_tokens.authenticate(SYSTEM, await scim_tokens.load_record(acme.ports, directory.token))
    user = await scim_users.find(acme.ports, caller, acme.people["member"].id)
    await run_sql(acme.pool, change)
    data = ScimUserData(Email.parse(GRACE), ScimProfile(), active=None)
    with pytest.raises(refusal):
        await scim_users.create(acme.ports, caller, data)
    with pytest.raises(refusal):
        await scim_users.replace(acme.ports, caller, user, parse_replacement({"userName": GRACE}))
    with pytest.raises(refusal):
        await scim_users.delete(acme.ports, caller, acme.people["member"].id)
    removal = MemberChanges(removed=frozenset({acme.people["member"].id}))
    with pytest.raises(refusal):
        await scim_groups.change(acme.ports, caller, acme.org, GroupChanges(removal, removal))
    assert await run_sql(acme.pool, "select 1 from users where email = %s", GRACE) == []


async def test_attributes_that_are_not_stored_may_contain_line_breaks(directory: Directory) -> None:
    """An example is the postal address in RFC 7643 section 8.2."""
    user = await directory.create_user(addresses=[{"formatted": "100 Universal City Plaza\nHollywood, CA 91608 USA"}])
    assert user["userName"] == GRACE
    assert problem(await directory.try_create_user("ada@acme.example", displayName="A\nB")) == (400, "invalidValue")


async def test_a_filter_finds_names_with_unusual_case_rules(directory: Directory) -> None:
    for number, name in enumerate(("\u0130PEK", "\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3", "\u00c9MILE")):
        email = f"n{number}@acme.example"
        await directory.create_user(email, name={"givenName": name})
        assert await directory.find_user_names(f'name.givenName eq "{name}"') == [email]


async def test_a_patch_without_schemas_is_taken(directory: Directory) -> None:
    answer = await directory.call("POST", "/Users", {"userName": GRACE})
    assert (answer.status, answer.json["schemas"]) == (201, [USER_URN])
    path = f"/Users/{answer.json['id']}"
    assert (await directory.call("PUT", path, {"userName": GRACE, "title": "Rear admiral"})).json["title"] == "Rear admiral"
    answer = await directory.call("PATCH", path, {"Operations": [{"op": "add", "path": "title", "value": "Admiral"}]})
    assert answer.json["title"] == "Admiral"
