"""Attributes that the organization declared and its directory writes: an extension to the user schema."""

import json
from typing import Any, Final

from core.provisioning.model.schemas import ATTRIBUTES_URN
from tests.support.builders import run_sql
from tests.support.refusals import FORBIDDEN, refused
from tests.support.scim import GRACE, PATCH_URN, Directory, directory_of, problem
from tests.support.tenants import Tenant

CORE: Final = "urn:ietf:params:scim:schemas:core:2.0:User"
ENTERPRISE: Final = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
KINDS: Final = {"cost_center": "text", "level": "number", "is_contractor": "boolean", "start_date": "date", "tools": "list"}
VALUES: Final[dict[str, Any]] = {
    "cost_center": "4711",
    "level": 7,
    "is_contractor": False,
    "start_date": "2026-12-31",
    "tools": ["git", "ssh"],
}
INVALID_VALUE: Final = (400, "invalidValue")
MUTABILITY: Final = (400, "mutability")


async def declare(acme: Tenant, name: str, kind: str = "text", *writers: str) -> None:
    body = {"name": name, "label": name.title(), "kind": kind, "writers": list(writers or ("directory",))}
    answer = await acme.api.post(f"{acme.path}/attributes", body, token=acme.token("owner"))
    assert answer.status == 201, answer.text


async def declare_all(acme: Tenant) -> None:
    for name, kind in KINDS.items():
        await declare(acme, name, kind)
    await declare(acme, "nick", "text", "user", "admin")


async def values(acme: Tenant, user: str) -> dict[str, Any]:
    answer = await acme.api.get(f"{acme.path}/members/{user}/attributes", token=acme.token("admin"))
    assert answer.status == 200, answer.text
    return {name: value for name, value in answer.json["values"].items() if value is not None}


def path(name: str) -> str:
    return f"{ATTRIBUTES_URN}:{name}"


async def test_a_directory_writes_the_attributes_in_whole_users(acme: Tenant, directory: Directory) -> None:
    await declare_all(acme)
    created = await directory.create_user(GRACE, **{"schemas": [CORE, ATTRIBUTES_URN], ATTRIBUTES_URN: VALUES})
    user = created["id"]
    assert (created["schemas"], created[ATTRIBUTES_URN]) == ([CORE, ATTRIBUTES_URN], VALUES)
    assert await directory.get(f"/Users/{user}") == created
    assert (await directory.list_users(filter=f'userName eq "{GRACE}"'))["Resources"] == [created]
    assert await values(acme, user) == VALUES
    for query, shown in (
        (f"attributes={path('level')}", {"level": 7}),
        (f"attributes={ATTRIBUTES_URN.upper()}", VALUES),
        (f"excludedAttributes={path('tools')}", {name: VALUES[name] for name in KINDS if name != "tools"}),
        (f"excludedAttributes={ATTRIBUTES_URN}", None),
    ):
        assert (await directory.get(f"/Users/{user}?{query}")).get(ATTRIBUTES_URN) == shown, query
    changed = (await directory.put(user, userName=GRACE, **{ATTRIBUTES_URN: {"LEVEL": "8.5", "tools": "git", "cost_center": " "}})).json
    assert changed[ATTRIBUTES_URN] == {"level": 8.5, "tools": ["git"]}, "a missing attribute is removed"
    assert ATTRIBUTES_URN not in (await directory.put(user, userName=GRACE)).json
    assert await values(acme, user) == {}
    details = await run_sql(acme.pool, "select details from audit_log where action = 'user.attributes_updated'")
    assert ({"attributes": sorted(VALUES), "writer": "directory"},) in details, "without the values"
    assert len(details) == 3


async def test_a_directory_changes_the_attributes_by_patches(acme: Tenant, directory: Directory) -> None:
    await declare_all(acme)
    user = (await directory.create_user())["id"]
    patches: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
        ({"op": "add", "path": path("cost_center"), "value": "1"}, {"cost_center": "1"}),
        ({"op": "replace", "path": path("COST_CENTER").upper(), "value": [{"value": "2"}]}, {"cost_center": "2"}),
        ({"op": "add", "value": {path("level"): "3", ATTRIBUTES_URN: {"is_contractor": "True"}}}, {"level": 3, "is_contractor": True}),
        ({"op": "add", "path": path("tools"), "value": ["a", "b"]}, {"tools": ["a", "b"]}),
        ({"op": "add", "path": path("tools"), "value": [{"value": "b"}, {"value": "c"}]}, {"tools": ["a", "b", "c"]}),
        ({"op": "remove", "path": path("tools"), "value": ["a"]}, {"tools": ["b", "c"]}),
        ({"op": "replace", "path": path("start_date"), "value": "2026-12-31T00:00:00Z"}, {"start_date": "2026-12-31"}),
        ({"op": "replace", "path": ATTRIBUTES_URN, "value": {"level": 4, "unknown": "x"}}, {"level": 4}),
        ({"op": "remove", "path": path("level")}, {"level": None}),
        ({"op": "replace", "path": path("cost_center"), "value": None}, {"cost_center": None}),
    )
    shown = dict[str, Any]()
    for operation, change in patches:
        answer = await directory.patch(user, operation)
        assert answer.status == 200, answer.text
        shown = {name: value for name, value in {**shown, **change}.items() if value is not None}
        assert answer.json[ATTRIBUTES_URN] == shown, operation
    assert ATTRIBUTES_URN not in (await directory.patch(user, {"op": "remove", "path": ATTRIBUTES_URN})).json


async def test_values_of_another_kind_are_refused(acme: Tenant, directory: Directory) -> None:
    await declare_all(acme)
    user = (await directory.create_user())["id"]
    wrong: tuple[tuple[str, Any], ...] = (
        ("cost_center", 5),
        ("cost_center", "x" * 501),
        ("cost_center", "a\x00"),
        ("cost_center", ["a", "b"]),
        ("level", "many"),
        ("level", True),
        ("level", "1_0"),
        ("level", 2**60),
        ("is_contractor", "perhaps"),
        ("start_date", "2026-02-30"),
        ("start_date", "Thursday"),
        ("tools", [1]),
        ("tools", ["x" * 101]),
        ("tools", [f"a{number}" for number in range(51)]),
        ("tools", {"a": 1}),
    )
    for name, value in wrong:
        for answer in (
            await directory.try_create_user("new@acme.example", **{ATTRIBUTES_URN: {name: value}}),
            await directory.put(user, userName=GRACE, **{ATTRIBUTES_URN: {name: value}}),
            await directory.patch(user, {"op": "add", "path": path(name), "value": value}),
        ):
            assert problem(answer) == INVALID_VALUE, (name, value)
            assert name in answer.json["detail"]
    many = {"op": "add", "path": path("tools"), "value": [f"a{number}" for number in range(40)]}
    assert (await directory.patch(user, many)).status == 200
    answer = await directory.patch(user, {**many, "value": [f"b{number}" for number in range(11)]})
    assert problem(answer) == INVALID_VALUE
    assert len((await values(acme, user))["tools"]) == 40


async def test_a_deactivation_is_applied_without_a_value_that_is_refused(acme: Tenant, directory: Directory) -> None:
    await declare(acme, "cost_center")
    for number in range(4):
        await declare(acme, f"list{number}", "list")
    user = (await directory.create_user(GRACE, **{ATTRIBUTES_URN: {"cost_center": "1"}}))["id"]
    deactivated = await directory.put(user, userName=GRACE, active=False, **{ATTRIBUTES_URN: {"cost_center": 5}})
    assert (deactivated.status, deactivated.json["active"], deactivated.json[ATTRIBUTES_URN]) == (200, False, {"cost_center": "1"})
    await directory.activate(user)
    # Together they are too large, which the transaction finds.
    large = {f"list{number}": [f"{each:02}{'x' * 98}" for each in range(50)] for number in range(4)}
    assert problem(await directory.put(user, userName=GRACE, **{ATTRIBUTES_URN: large})) == (400, "invalidValue")
    answer = await directory.put(user, userName=GRACE, active=False, **{ATTRIBUTES_URN: large})
    assert (answer.status, answer.json["active"], answer.json[ATTRIBUTES_URN]) == (200, False, {"cost_center": "1"})
    changed = await directory.patch(user, {"op": "replace", "path": path("cost_center"), "value": "2"})
    assert changed.json[ATTRIBUTES_URN] == {"cost_center": "2"}, "also of a deactivated user"
    await directory.activate(user)
    assert await values(acme, user) == {"cost_center": "2"}


async def test_each_writer_changes_its_own_attributes_only(acme: Tenant, directory: Directory) -> None:
    await declare(acme, "cost_center")
    await declare(acme, "nick", "text", "user", "admin")
    await declare(acme, "site", "text", "admin", "directory")
    user = (await directory.create_user(GRACE, **{ATTRIBUTES_URN: {"cost_center": "1", "nick": "x", "site": "Delft"}}))["id"]
    assert await values(acme, user) == {"cost_center": "1", "site": "Delft"}, "readOnly attributes of a body are ignored"
    of_admin = f"{acme.path}/members/{user}/attributes"
    for name in ("cost_center", "nick", "site"):
        answer = await acme.api.call("PATCH", of_admin, {"values": {name: "a"}}, token=acme.token("admin"))
        assert (answer.status == 200) is (name != "cost_center"), answer.text
        assert answer.status == 200 or refused(answer) == FORBIDDEN
    own = {"organization": "acme", "values": {"cost_center": "mine"}}
    assert refused(await acme.api.call("PATCH", "/api/user/attributes", own, token=acme.token("member"))) == FORBIDDEN
    assert (await directory.get(f"/Users/{user}"))[ATTRIBUTES_URN] == {"cost_center": "1", "site": "a"}
    for op in ("add", "replace", "remove"):
        answer = await directory.patch(user, {"op": op, "path": path("nick"), "value": "x"})
        assert problem(answer) == MUTABILITY
        assert problem(await directory.patch(user, {"op": op, "path": path("unknown"), "value": "x"})) == (400, "invalidPath")
    await directory.put(user, userName=GRACE, **{ATTRIBUTES_URN: {"nick": "x", "cost_center": "2"}})
    assert await values(acme, user) == {"cost_center": "2", "nick": "a"}
    await acme.api.call("PATCH", f"{acme.path}/attributes/cost_center", {"writers": ["admin"]}, token=acme.token("owner"))
    assert ATTRIBUTES_URN not in (await directory.get(f"/Users/{user}"))
    await directory.put(user, userName=GRACE)
    assert (await values(acme, user))["cost_center"] == "2"


async def test_the_owner_keeps_the_attributes(acme: Tenant, directory: Directory) -> None:
    await declare(acme, "cost_center")
    answer = await directory.patch(acme.id("owner"), {"op": "add", "path": path("cost_center"), "value": "1"})
    assert problem(answer) == (403, None)


async def test_schemas_have_the_attributes_of_the_organization(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    await declare_all(acme)
    types = (await directory.get("/ResourceTypes"))["Resources"]
    assert types[0]["schemaExtensions"] == [{"schema": urn, "required": False} for urn in (ENTERPRISE, ATTRIBUTES_URN)]
    listing = await directory.get("/Schemas")
    assert (listing["totalResults"], len(listing["Resources"])) == (4, 4)
    schema = await directory.get(f"/Schemas/{ATTRIBUTES_URN}")
    assert schema in listing["Resources"]
    found = {each["name"]: (each["type"], each["multiValued"], each["mutability"]) for each in schema["attributes"]}
    assert found == {
        "cost_center": ("string", False, "readWrite"),
        "level": ("decimal", False, "readWrite"),
        "is_contractor": ("boolean", False, "readWrite"),
        "start_date": ("string", False, "readWrite"),
        "tools": ("string", True, "readWrite"),
    }
    theirs = await directory_of(other_tenant)
    assert (await theirs.get("/Schemas"))["totalResults"] == 3
    assert (await theirs.call("GET", f"/Schemas/{ATTRIBUTES_URN}")).status == 404


# Directory requests, with full bodies


async def test_entra_id_provisions_a_custom_attribute(acme: Tenant, directory: Directory) -> None:
    """The mapping has the target attributes `urn:…:gatehouse:2.0:User:cost_center` and `…:is_contractor`, which are strings there."""
    await declare_all(acme)
    body = {
        "schemas": [CORE, ENTERPRISE, ATTRIBUTES_URN],
        "externalId": "AdeleV",
        "userName": "AdeleV@contoso.onmicrosoft.example",
        "active": True,
        "displayName": "Adele Vance",
        "emails": [{"primary": True, "type": "work", "value": "adele.vance@contoso.example"}],
        "meta": {"resourceType": "User"},
        "name": {"formatted": "Adele Vance", "familyName": "Vance", "givenName": "Adele"},
        "roles": [],
        ENTERPRISE: {"employeeNumber": "701984", "department": "Retail"},
        ATTRIBUTES_URN: {"cost_center": "4711", "is_contractor": "False", "level": "7"},
    }
    created = await directory.call("POST", "/Users", body)
    assert created.status == 201, created.text
    assert created.json[ATTRIBUTES_URN] == {"cost_center": "4711", "is_contractor": False, "level": 7}
    assert created.json["schemas"] == [CORE, ENTERPRISE, ATTRIBUTES_URN]
    patch = {
        "schemas": [PATCH_URN],
        "Operations": [
            {"op": "Replace", "path": "title", "value": "Manager"},
            {"op": "Replace", "path": f"{ENTERPRISE}:department", "value": "Sales"},
            {"op": "Replace", "path": path("cost_center"), "value": "4712"},
            {"op": "Add", "path": path("is_contractor"), "value": "True"},
            {"op": "Remove", "path": path("level")},
        ],
    }
    changed = await directory.call("PATCH", f"/Users/{created.json['id']}", patch)
    assert changed.status == 200, changed.text
    assert changed.json[ATTRIBUTES_URN] == {"cost_center": "4712", "is_contractor": True}
    assert changed.json[ENTERPRISE]["department"] == "Sales"


async def test_okta_provisions_a_custom_attribute(acme: Tenant, directory: Directory) -> None:
    """The attributes' external namespace is the extension's URN, and every update is a PUT with the whole user."""
    await declare_all(acme)
    body: dict[str, Any] = {
        "schemas": [CORE, ATTRIBUTES_URN],
        "userName": "isaac.brock@acme.example",
        "name": {"givenName": "Isaac", "familyName": "Brock"},
        "emails": [{"primary": True, "value": "isaac.brock@acme.example", "type": "work"}],
        "displayName": "Isaac Brock",
        "locale": "en-US",
        "externalId": "00ujl29u0le5T6Aj10h7",
        "groups": [],
        "password": "1mz050nq",
        "active": True,
        ATTRIBUTES_URN: {"cost_center": "4711", "level": 7, "is_contractor": True, "tools": ["git", "ssh"]},
    }
    created = await directory.call("POST", "/Users", body)
    assert created.status == 201, created.text
    assert created.json[ATTRIBUTES_URN] == body[ATTRIBUTES_URN]
    full = {**created.json, ATTRIBUTES_URN: {"cost_center": "4712", "level": 8, "tools": ["git"]}, "title": "Singer"}
    changed = await directory.call("PUT", f"/Users/{created.json['id']}", json.loads(json.dumps(full)))
    assert changed.status == 200, changed.text
    assert changed.json[ATTRIBUTES_URN] == full[ATTRIBUTES_URN]
    assert await directory.get(f"/Users/{created.json['id']}") == changed.json
