"""The SCIM requests by Okta and Entra ID, in the sequences of their published test cases.

Okta: "SCIM 2.0 spec test" with its user and group operations. Entra: the requests in "Develop and plan provisioning for
a SCIM endpoint", with the patches of its default mode and its stricter mode. The exceptions are listed in the
documentation.
"""

import json
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from tests.support.builders import Answer, run_sql
from tests.support.scim import ERROR_URN, LIST_URN, PATCH_URN, SCIM_JSON, Directory, directory_of, problem
from tests.support.tenants import Tenant

ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
ACME = 'displayName eq "Acme"'


def name_filter(user_name: str) -> str:
    """Return the URL-quoted filter for a user name."""
    return quote(f'userName eq "{user_name}"')


async def patch(directory: Directory, path: str, *operations: dict[str, Any]) -> Any:
    answer = await directory.call("PATCH", path, {"schemas": [PATCH_URN], "Operations": list(operations)})
    assert answer.status == 200, answer.text
    return answer.json


# Okta


async def test_oktas_spec_test(acme: Tenant, directory: Directory) -> None:
    """The Runscope suite: list users, search for a user, create a user, create the same user again, with Okta's headers."""

    async def ask(method: str, path: str, body: Any = None, authorization: str = f"Bearer {directory.token}") -> Answer:
        headers = {
            "Accept": SCIM_JSON,
            "Accept-Charset": "utf-8",
            "Authorization": authorization,
            "Content-Type": f"{SCIM_JSON}; charset=utf-8",
            "User-Agent": "OKTA SCIM Integration",
        }
        answer = await acme.api.call(method, f"/scim/v2{path}", headers=headers, raw=None if body is None else json.dumps(body).encode())
        assert answer.headers["Content-Type"] == SCIM_JSON
        return answer

    listing = (await ask("GET", "/Users?count=1&startIndex=1")).json
    assert (listing["schemas"], listing["itemsPerPage"], listing["startIndex"], listing["totalResults"]) == ([LIST_URN], 1, 1, 3)
    first = listing["Resources"][0]
    # It expects the first user's givenName and familyName. Here that is the owner, not provisioned
    # by a directory.
    assert (first["id"], first["userName"], first["active"]) == (acme.id("owner"), "owner@acme.example", True)
    assert (first["name"]["givenName"], first["name"]["familyName"]) == ("owner", "owner")
    assert first["emails"][0]["value"] == "owner@acme.example"
    user = (await ask("GET", f"/Users/{first['id']}")).json
    assert user == first
    missing = await ask("GET", f"/Users?filter={name_filter(f'{uuid4()}@example.com')}")
    assert (missing.status, missing.json["schemas"], missing.json["totalResults"]) == (200, [LIST_URN], 0)
    answer = await ask("GET", f"/Users/{uuid4().hex}")
    assert (answer.status, answer.json["schemas"], bool(answer.json["detail"])) == (404, [ERROR_URN], True)
    email = "Runscope300Abcdef151@example.com"
    new = {
        "schemas": [USER],
        "userName": email,
        "name": {"givenName": "Runscope300", "familyName": "Abcdef151"},
        "emails": [{"primary": True, "value": email, "type": "work"}],
        "displayName": "Runscope300 Abcdef151",
        "active": True,
    }
    created = await ask("POST", "/Users", new)
    assert created.status == 201
    assert (created.json["active"], created.json["userName"], created.json["schemas"]) == (True, email, [USER])
    assert (created.json["name"]["givenName"], created.json["name"]["familyName"]) == ("Runscope300", "Abcdef151")
    assert (await ask("GET", f"/Users/{created.json['id']}")).json == created.json
    assert (await ask("POST", "/Users", new)).status == 409
    for name in (email, email.upper()):  # checks the case of user names
        answer = await ask("GET", f"/Users?filter={name_filter(name)}")
        assert (answer.status, answer.json["totalResults"]) == (200, 1)
    groups = await ask("GET", "/Groups")
    assert (groups.status, groups.json["schemas"]) == (200, [LIST_URN])
    assert (await ask("GET", "/Users", authorization="non-token")).status == 401


async def test_okta_manages_a_user_from_creation_to_deactivation(acme: Tenant, directory: Directory) -> None:
    query = quote('userName eq "isaac.brock@example.com"')
    assert (await directory.get(f"/Users?filter={query}&startIndex=1&count=100"))["totalResults"] == 0
    # Create, with a generated password, a locale and empty groups.
    answer = await directory.call(
        "POST",
        "/Users",
        {
            "schemas": [USER],
            "userName": "isaac.brock@example.com",
            "name": {"givenName": "Isaac", "familyName": "Brock"},
            "emails": [{"primary": True, "value": "isaac.brock@example.com", "type": "work"}],
            "displayName": "Isaac Brock",
            "locale": "en-US",
            "externalId": "00ujl29u0le5T6Aj10h7",
            "groups": [],
            "password": "1mz050nq",
            "active": True,
        },
    )
    assert answer.status == 201
    isaac = answer.json
    assert isaac["externalId"] == "00ujl29u0le5T6Aj10h7"
    assert await run_sql(acme.pool, "select password_hash from users where email = 'isaac.brock@example.com'") == [(None,)]
    path = f"/Users/{isaac['id']}"
    # Update: it reads the user and replaces it.
    whole = await directory.get(path)
    answer = await directory.call("PUT", path, {**whole, "name": {"givenName": "Isaac", "familyName": "Brooke"}, "locale": "en-US"})
    assert (answer.status, answer.json["name"]["familyName"]) == (200, "Brooke")
    # Deactivate and reactivate.
    assert (await patch(directory, path, {"op": "replace", "value": {"active": False}}))["active"] is False
    assert (await directory.get(path))["active"] is False
    assert (await directory.get(f"/Users?filter={query}"))["totalResults"] == 1  # it looks for these, too, before it creates a user
    assert (await patch(directory, path, {"op": "replace", "value": {"active": True}}))["active"] is True
    # Older apps in its catalog replace the user with active false.
    assert (await directory.call("PUT", path, {**whole, "active": False})).json["active"] is False
    assert (await directory.call("PUT", path, {**whole, "active": True})).json["active"] is True


async def test_okta_pushes_a_group(acme: Tenant, directory: Directory) -> None:
    isaac, tim = [(await directory.create_user(f"{name}@example.com"))["id"] for name in ("isaac", "tim")]
    # It links an existing group by name, because it cannot create a group.
    listing = await directory.get(f"/Groups?filter={quote(ACME)}&startIndex=1&count=100")
    [group] = listing["Resources"]
    path = f"/Groups/{group['id']}"
    answer = await directory.call("POST", "/Groups", {"schemas": [group["schemas"][0]], "displayName": "Another", "members": []})
    assert problem(answer) == (501, None)
    # The name, and the members.
    renamed = await patch(directory, path, {"op": "replace", "value": {"id": group["id"], "displayName": "Renamed"}})
    assert renamed["displayName"] == "Acme"
    await patch(directory, path, {"op": "remove", "path": f'members[value eq "{isaac}"]'})
    changed = await patch(
        directory,
        path,
        {"op": "remove", "path": f'members[value eq "{tim}"]'},
        {"op": "add", "path": "members", "value": [{"value": isaac, "display": "isaac@example.com"}]},
    )
    assert {isaac, tim} & {member["value"] for member in changed["members"]} == {isaac}
    members = [{"value": each, "display": "x"} for each in (isaac, tim, acme.id("admin"))]
    changed = await patch(directory, path, {"op": "replace", "path": "members", "value": members})
    assert {member["value"] for member in changed["members"]} == {isaac, tim, acme.id("admin"), acme.id("owner")}
    answer = await directory.call("PUT", path, {"schemas": group["schemas"], "displayName": "Acme", "members": members[:1]})
    assert {member["value"] for member in answer.json["members"]} == {isaac, acme.id("owner")}
    assert problem(await directory.call("DELETE", path)) == (403, None)


# Entra ID


async def test_entra_provisions_a_user(acme: Tenant, directory: Directory) -> None:
    # Its connection test: an unknown user, which must be an empty list and no error.
    page = await directory.get(f"/Users?filter={name_filter(str(uuid4()))}")
    assert (page["totalResults"], page["Resources"]) == (0, [])
    answer = await directory.call(
        "POST",
        "/Users",
        {
            "schemas": [USER, ENTERPRISE],
            "externalId": "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef",
            "userName": "Test_User_ab6490ee@testuser.example",
            "active": True,
            "addresses": [{"primary": False, "type": "work", "country": "US", "formatted": "x"}],
            "emails": [{"primary": True, "type": "work", "value": "Test_User_ab6490ee@testuser.example"}],
            "meta": {"resourceType": "User"},
            "name": {"formatted": "givenName familyName", "familyName": "familyName", "givenName": "givenName"},
            "roles": [],
            f"{ENTERPRISE}": {"department": "x", "manager": {"value": "y"}},
        },
    )
    assert answer.status == 201
    user = answer.json
    path = f"/Users/{user['id']}"
    assert (user["userName"], user["externalId"]) == ("Test_User_ab6490ee@testuser.example", "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef")
    # By its matching attribute, by its own id, by email address, and an unknown user.
    for text in (
        'userName eq "Test_User_ab6490ee@testuser.example"',
        'externalId eq "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef"',
        'emails[type eq "work"].value eq "Test_User_ab6490ee@testuser.example"',
        'emails.value eq "test_user_ab6490ee@testuser.example"',
    ):
        assert [each["id"] for each in (await directory.get(f"/Users?filter={quote(text)}"))["Resources"]] == [user["id"]], text
    assert problem(await directory.call("GET", "/Users/5171a35d82074e068ce2")) == (404, None)
    # Several values at once.
    changed = await patch(
        directory,
        path,
        {"op": "Replace", "path": 'emails[type eq "work"].value', "value": "updatedEmail@testuser.example"},
        {"op": "Replace", "path": "name.familyName", "value": "updatedFamilyName"},
    )
    assert (changed["emails"][0]["value"], changed["name"]["familyName"]) == ("updatedemail@testuser.example", "updatedFamilyName")
    changed = await patch(directory, path, {"op": "Replace", "path": "userName", "value": "5b50642d-79fc-4410-9e90@testuser.example"})
    assert changed["userName"] == "5b50642d-79fc-4410-9e90@testuser.example"
    # Without paths, as it sends additions.
    changed = await patch(
        directory, path, {"op": "Add", "value": {"displayName": "lolcat", "name.givenName": "Lol", f"{ENTERPRISE}:department": "x"}}
    )
    assert (changed["displayName"], changed["name"]["givenName"]) == ("lolcat", "Lol")
    changed = await patch(directory, path, {"op": "Remove", "path": "displayName"}, {"op": "Add", "path": "externalId", "value": "other"})
    assert (changed["displayName"], changed["externalId"]) == (None, "other")
    # Disabled in its default mode, enabled, disabled in its stricter mode, and deleted.
    assert (await patch(directory, path, {"op": "Replace", "path": "active", "value": "False"}))["active"] is False
    assert (await patch(directory, path, {"op": "Replace", "path": "active", "value": "True"}))["active"] is True
    assert (await patch(directory, path, {"op": "replace", "path": "active", "value": False}))["active"] is False
    assert (await directory.call("DELETE", path)).status == 204
    assert problem(await directory.call("GET", path)) == (404, None)
    assert problem(await directory.call("DELETE", path)) == (404, None)


async def test_entra_keeps_a_group(acme: Tenant, directory: Directory) -> None:
    first, second = [(await directory.create_user(f"{name}@testuser.example"))["id"] for name in ("first", "second")]
    text = quote('displayName eq "Acme"')
    listing = await directory.get(f"/Groups?excludedAttributes=members&filter={text}")
    [group] = listing["Resources"]
    assert "members" not in group
    path = f"/Groups/{group['id']}"
    assert "members" not in await directory.get(f"{path}?excludedAttributes=members")
    await patch(
        directory, path, {"op": "Remove", "path": "members", "value": [{"$ref": None, "value": first}, {"$ref": None, "value": second}]}
    )
    assert not {first, second} & await directory.group_member_ids()
    await patch(directory, path, {"op": "Add", "path": "members", "value": [{"$ref": None, "value": first}]})
    # Whether a user is a member, without reading all members.
    for user_id, count in ((first, 1), (second, 0)):
        question = quote(f'id eq "{group["id"]}" and members eq "{user_id}"')
        assert (await directory.get(f"/Groups?attributes=id&filter={question}"))["totalResults"] == count
    await patch(directory, path, {"op": "Replace", "path": "displayName", "value": "1879db59-3bdf-4490-ad68-ab880a269474updated"})
    assert (await directory.get(path))["displayName"] == "Acme"
    await patch(directory, path, {"op": "remove", "path": f'members[value eq "{first}"]'})
    assert first not in await directory.group_member_ids()


async def test_a_directory_cannot_reach_users_of_other_organizations(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    """As an organization's admin might try with the organization's own directory."""
    other = await directory_of(other_tenant)
    isaac = await directory.create_user("isaac@example.com")
    assert await other.find_user_names('userName eq "isaac@example.com"') == []
    assert problem(await other.try_create_user("isaac@example.com", externalId=isaac["id"], id=isaac["id"])) == (409, "uniqueness")
    assert problem(await other.add_members(isaac["id"])) == (400, "invalidValue")
    assert problem(await other.deactivate(isaac["id"])) == (404, None)
