"""The default attribute mappings of Entra ID and Okta, replayed with full bodies.

Entra ID: the mapping of "Develop and plan provisioning for a SCIM endpoint", with a user principal name that differs
from the email address. Okta: all attributes in the default profile for its SCIM 2.0 applications. `{user}`, `{other}`
and `{group}` stand for ids from earlier responses.
"""

import json
from typing import Any, Final, NamedTuple

from tests.support.builders import run_sql
from tests.support.scim import Directory
from tests.support.tenants import Tenant

CORE: Final = "urn:ietf:params:scim:schemas:core:2.0:User"
ENTERPRISE: Final = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
GROUP: Final = "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH: Final = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


class Step(NamedTuple):
    """A request, and the members in its response that have a known value."""

    method: str
    path: str
    body: dict[str, Any]
    expected: dict[str, Any]


def patch_user(*operations: dict[str, Any], **expected: Any) -> Step:
    return Step("PATCH", "/Users/{user}", {"schemas": [PATCH], "Operations": list(operations)}, expected)


def work(value: str) -> list[dict[str, Any]]:
    """The only address in a response."""
    return [{"value": value, "type": "work", "primary": True}]


def email_path(*, of_type: str = "work") -> str:
    return f'emails[type eq "{of_type}"].value'


# Entra ID

ADELE: Final[dict[str, Any]] = {
    "schemas": [CORE, ENTERPRISE],
    "externalId": "AdeleV",
    "userName": "AdeleV@contoso.onmicrosoft.example",
    "active": True,
    "displayName": "Adele Vance",
    "title": "Retail Manager",
    "preferredLanguage": "en-US",
    "emails": [{"primary": True, "type": "work", "value": "Adele.Vance@contoso.example"}],
    "meta": {"resourceType": "User"},
    "name": {"formatted": "Adele Vance", "familyName": "Vance", "givenName": "Adele"},
    "addresses": [
        {
            "primary": False,
            "type": "work",
            "country": "United States",
            "formatted": "18/2111",
            "locality": "Bellevue",
            "postalCode": "98004",
            "region": "WA",
            "streetAddress": "9256 Towne Center Suite 400",
        }
    ],
    "phoneNumbers": [
        {"primary": False, "type": "work", "value": "+1 425 555 0109"},
        {"primary": False, "type": "fax", "value": "+1 425 555 0110"},
    ],
    "roles": [],
    ENTERPRISE: {"employeeNumber": "701984", "department": "Retail"},
}
ADELE_AFTER: Final[dict[str, Any]] = {
    "userName": "AdeleV@contoso.onmicrosoft.example",
    "emails": work("adele.vance@contoso.example"),
    **{name: ADELE[name] for name in ("schemas", "externalId", "active", "displayName", "title", "preferredLanguage", "name")},
    "phoneNumbers": ADELE["phoneNumbers"],
    ENTERPRISE: {"employeeNumber": "701984", "department": "Retail", "manager": None},
}
ENTRA: Final = [
    Step("POST", "/Users", ADELE, ADELE_AFTER),
    Step("GET", '/Users?filter=userName eq "adelev@contoso.onmicrosoft.example"', {}, {"totalResults": 1}),
    Step("GET", '/Users?filter=externalId eq "AdeleV"', {}, {"totalResults": 1}),
    # An update of the mapped attributes: in the extension, addresses, and a manager.
    patch_user(
        {"op": "Replace", "path": "title", "value": "Regional Manager"},
        {"op": "Replace", "path": 'addresses[type eq "work"].streetAddress', "value": "1 Microsoft Way"},
        {"op": "Replace", "path": 'addresses[type eq "work"].formatted', "value": "20/1101"},
        {"op": "Add", "path": 'addresses[type eq "other"].formatted', "value": "18/2111"},
        {"op": "Replace", "path": 'phoneNumbers[type eq "work"].value', "value": "+1 425 555 0111"},
        {"op": "Add", "path": 'phoneNumbers[type eq "mobile"].value', "value": "+1 425 555 0112"},
        {"op": "Remove", "path": 'phoneNumbers[type eq "fax"].value'},
        {"op": "Replace", "path": f"{ENTERPRISE}:department", "value": "Sales"},
        {"op": "Add", "path": f"{ENTERPRISE}:manager", "value": "{other}"},
        {"op": "Remove", "path": "preferredLanguage"},
        title="Regional Manager",
        preferredLanguage=None,
        phoneNumbers=[
            {"primary": False, "type": "work", "value": "+1 425 555 0111"},
            {"type": "mobile", "value": "+1 425 555 0112"},
        ],
        **{ENTERPRISE: {"employeeNumber": "701984", "department": "Sales", "manager": {"value": "{other}"}}},
    ),
    # The same in the mode with the flag aadOptscim062020, and attributes without paths.
    patch_user(
        {"op": "replace", "path": "displayName", "value": "Adele V."},
        {"op": "add", "value": {"name.givenName": "Adele M.", "nickName": "Dell", f"{ENTERPRISE}:employeeNumber": "701985"}},
        {"op": "remove", "path": f"{ENTERPRISE}:manager"},
        displayName="Adele V.",
        name={"formatted": "Adele Vance", "familyName": "Vance", "givenName": "Adele M."},
        **{ENTERPRISE: {"employeeNumber": "701985", "department": "Sales", "manager": None}},
    ),
    # The user principal name changes, and later the address.
    patch_user(
        {"op": "Replace", "path": "userName", "value": "AdeleSmith@contoso.onmicrosoft.example"},
        {"op": "Replace", "path": "name.familyName", "value": "Smith"},
        userName="AdeleSmith@contoso.onmicrosoft.example",
        emails=work("adele.vance@contoso.example"),
    ),
    patch_user(
        {"op": "Replace", "path": email_path(), "value": "Adele.Smith@contoso.example"},
        {"op": "Add", "path": email_path(of_type="other"), "value": "adele@home.example"},
        userName="AdeleSmith@contoso.onmicrosoft.example",
        emails=work("adele.smith@contoso.example"),
    ),
    # The user leaves: with more attributes in the request, among them an invalid attribute, in the
    # two modes.
    patch_user(
        {"op": "Replace", "path": "active", "value": "False"},
        {"op": "Replace", "path": "title", "value": "Left"},
        {"op": "Add", "path": "extensionAttribute1", "value": "x"},
        active=False,
        title="Left",
    ),
    patch_user({"op": "Replace", "path": "active", "value": "True"}, active=True, userName="AdeleSmith@contoso.onmicrosoft.example"),
    patch_user({"op": "replace", "path": "active", "value": False}, active=False),
    patch_user({"op": "replace", "path": "active", "value": True}, active=True, title="Left"),
    # The group.
    Step("GET", '/Groups?excludedAttributes=members&filter=displayName eq "Acme"', {}, {"totalResults": 1}),
    Step(
        "PATCH",
        "/Groups/{group}?excludedAttributes=members",
        {"schemas": [PATCH], "Operations": [{"op": "Add", "path": "externalId", "value": "8aa1a0c0-c4c3-4bc0-b4a5-2ef676900159"}]},
        {"externalId": "8aa1a0c0-c4c3-4bc0-b4a5-2ef676900159", "displayName": "Acme"},
    ),
    Step(
        "PATCH",
        "/Groups/{group}",
        {"schemas": [PATCH], "Operations": [{"op": "Remove", "path": "members", "value": [{"$ref": None, "value": "{user}"}]}]},
        {},
    ),
    Step("GET", '/Groups?attributes=id&filter=id eq "{group}" and members eq "{user}"', {}, {"totalResults": 0}),
    Step(
        "PATCH",
        "/Groups/{group}",
        {"schemas": [PATCH], "Operations": [{"op": "Add", "path": "members", "value": [{"$ref": None, "value": "{user}"}]}]},
        {},
    ),
    Step("GET", '/Groups?attributes=id&filter=id eq "{group}" and members eq "{user}"', {}, {"totalResults": 1}),
    Step("DELETE", "/Users/{user}", {}, {}),
]

# Okta

ISAAC: Final[dict[str, Any]] = {
    "schemas": [CORE, ENTERPRISE],
    "userName": "isaac.brock@example.com",
    "name": {
        "givenName": "Isaac",
        "familyName": "Brock",
        "middleName": "K",
        "honorificPrefix": "Mr.",
        "honorificSuffix": "III",
    },
    "emails": [
        {"primary": True, "value": "Isaac.Brock@example.com", "type": "work"},
        {"primary": False, "value": "isaac@home.example", "type": "secondary"},
    ],
    "displayName": "Isaac Brock",
    "nickName": "Ike",
    "profileUrl": "https://example.com/isaac",
    "title": "Singer",
    "userType": "Employee",
    "preferredLanguage": "en",
    "locale": "en-US",
    "timezone": "America/Los_Angeles",
    "phoneNumbers": [{"primary": True, "value": "555-0100", "type": "work"}],
    "addresses": [
        {
            "primary": True,
            "streetAddress": "1 Main St",
            "locality": "Issaquah",
            "region": "WA",
            "postalCode": "98027",
            "country": "US",
            "type": "work",
            "formatted": "1 Main St\nIssaquah",
        }
    ],
    "externalId": "00ujl29u0le5T6Aj10h7",
    "groups": [],
    "password": "1mz050nq",
    "active": True,
    ENTERPRISE: {
        "employeeNumber": "17",
        "costCenter": "4130",
        "organization": "Records",
        "division": "Rock",
        "department": "Vocals",
        "manager": {"value": "00u1", "$ref": "../Users/00u1", "displayName": "Nina"},
    },
}
KEPT: Final = (
    "schemas",
    "externalId",
    "userName",
    "displayName",
    "title",
    "preferredLanguage",
    "locale",
    "timezone",
    "phoneNumbers",
    "active",
)
ISAAC_AFTER: Final[dict[str, Any]] = {
    **{name: ISAAC[name] for name in KEPT},
    "name": {"formatted": "Isaac Brock", "familyName": "Brock", "givenName": "Isaac"},
    "emails": work("isaac.brock@example.com"),
    ENTERPRISE: {"employeeNumber": "17", "department": "Vocals", "manager": {"value": "00u1", "displayName": "Nina"}},
}


def put_user(**changes: Any) -> Step:
    body = {**ISAAC, "id": "{user}", "meta": {"resourceType": "User"}, **changes}
    del body["password"]
    expected = {name: changes.get(name, ISAAC_AFTER[name]) for name in ("userName", "title", "active", "externalId", ENTERPRISE)}
    return Step("PUT", "/Users/{user}", body, expected)


OKTA: Final = [
    Step("GET", '/Users?filter=userName eq "isaac.brock@example.com"&startIndex=1&count=100', {}, {"totalResults": 0}),
    Step("POST", "/Users", ISAAC, ISAAC_AFTER),
    Step("GET", "/Users/{user}", {}, ISAAC_AFTER),
    put_user(title="Guitarist", **{ENTERPRISE: {"employeeNumber": "17", "department": "Strings", "manager": {"value": "00u2"}}}),
    put_user(userName="IBrock"),  # the login in Okta changes, and the email address does not
    Step("GET", '/Users?filter=userName eq "ibrock"', {}, {"totalResults": 1}),
    # The two ways to deactivate and to reactivate: PATCH, and PUT for older applications in the catalog.
    patch_user({"op": "replace", "value": {"active": False}}, active=False, userName="IBrock", emails=work("isaac.brock@example.com")),
    patch_user({"op": "replace", "value": {"active": True}}, active=True),
    put_user(active=False),
    put_user(active=True),
    # Group push.
    Step("GET", '/Groups?filter=displayName eq "Acme"&startIndex=1&count=100', {}, {"totalResults": 1}),
    Step(
        "PATCH",
        "/Groups/{group}",
        {"schemas": [PATCH], "Operations": [{"op": "replace", "value": {"id": "{group}", "displayName": "Singers"}}]},
        {"displayName": "Acme"},
    ),
    Step(
        "PATCH",
        "/Groups/{group}",
        {
            "schemas": [PATCH],
            "Operations": [
                {"op": "remove", "path": 'members[value eq "{other}"]'},
                {"op": "add", "path": "members", "value": [{"value": "{user}", "display": "IBrock"}]},
            ],
        },
        {},
    ),
    Step("GET", '/Groups?filter=members eq "{other}"', {}, {"totalResults": 0}),
    Step(
        "PUT",
        "/Groups/{group}",
        {
            "schemas": [GROUP],
            "id": "{group}",
            "externalId": "00g1",
            "displayName": "Singers",
            "members": [{"value": "{user}", "display": "IBrock"}, {"value": "{other}", "display": "Tim"}],
        },
        {"externalId": "00g1", "displayName": "Acme"},
    ),
    Step("GET", '/Groups?filter=externalId eq "00g1" and members eq "{other}"', {}, {"totalResults": 1}),
]


async def replay(directory: Directory, steps: list[Step]) -> None:
    other = await directory.create_user("tim@example.com")
    ids = {"{user}": "", "{other}": other["id"], "{group}": str(directory.tenant.org)}

    def with_ids(value: Any) -> Any:
        text = json.dumps(value)
        for name, id_ in ids.items():
            text = text.replace(name, id_)
        return json.loads(text)

    for number, step in enumerate(steps):
        path = with_ids(step.path).replace(" ", "%20").replace('"', "%22")
        answer = await directory.call(step.method, path, with_ids(step.body) or None)
        assert answer.status == {"POST": 201, "DELETE": 204}.get(step.method, 200), (number, answer.text)
        if step.method == "POST":
            ids["{user}"] = answer.json["id"]
        assert {name: answer.json[name] for name in step.expected} == with_ids(step.expected), number


async def test_the_default_mapping_of_entra_id(acme: Tenant, directory: Directory) -> None:
    await replay(directory, ENTRA)
    assert await run_sql(acme.pool, "select 1 from users where email = 'adele.smith@contoso.example'") == []


async def test_the_default_mapping_of_okta(acme: Tenant, directory: Directory) -> None:
    await replay(directory, OKTA)
    assert await run_sql(acme.pool, "select password_hash from users where email = 'isaac.brock@example.com'") == [(None,)]
