"""The group requests of five directories, replayed with full bodies against a token with *directory groups*.

`{first}`, `{second}` and `{third}` stand for ids of users, `{nested}` for another group, and `{group}` for the group that the directory
created. Every directory names the public source for the shapes.
"""

import json
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pytest

from adapters.postgres.engine.pool import Pool
from core.provisioning.model.schemas import GROUP_URN
from tests.support.scim import PATCH_URN, GroupDirectory, directory_of
from tests.support.tenants import Tenant
from tests.tenancy.groups import check_counts


class Step(NamedTuple):
    """A request, its status, and afterwards the group's name, external id and members."""

    method: str
    path: str
    body: dict[str, Any] | None
    status: int
    name: str | None = None  # None: the group is as before
    external_id: str | None = None
    members: tuple[str, ...] = ()
    total: int | None = None  # in a list


def patch(*operations: dict[str, Any], after: tuple[str, str | None, tuple[str, ...]], query: str = "") -> Step:
    status = 200 if query else 204
    return Step("PATCH", f"/Groups/{{group}}{query}", {"schemas": [PATCH_URN], "Operations": list(operations)}, status, *after)


def find(filter_: str, total: int, further: str = "") -> Step:
    return Step("GET", f"/Groups?{further}filter={filter_}", None, 200, total=total)


# Entra ID: learn.microsoft.com/entra/identity/app-provisioning/use-scim-to-provision-users-and-groups, "Group operations". A nested
# group is named as a member by its id: github.com/Azure/AzureAD-BYOA-Provisioning-Samples/issues/26.
OBJECT: Final = "8aa1a0c0-c4c3-4bc0-b4a5-2ef676900159"
ENTRA: Final = [
    find('displayName eq "displayName"', 0, "excludedAttributes=members&"),
    Step(
        "POST",
        "/Groups",
        {
            "schemas": [GROUP_URN, "http://schemas.microsoft.com/2006/11/ResourceManagement/ADSCIM/2.0/Group"],
            "externalId": OBJECT,
            "displayName": "displayName",
            "meta": {"resourceType": "Group"},
        },
        *(201, "displayName", OBJECT, ()),
    ),
    Step("GET", "/Groups/{group}?excludedAttributes=members", None, 200),
    find(f'externalId eq "{OBJECT}"', 1, "excludedAttributes=members&"),
    # Members one by one
    patch(
        {"op": "Add", "path": "members", "value": [{"$ref": None, "value": "{first}"}]},
        after=("displayName", OBJECT, ("{first}",)),
    ),
    find('id eq "{group}" and members eq "{first}"', 1, "attributes=id&"),
    find('id eq "{group}" and members eq "{second}"', 0, "attributes=id&"),
    # In batches, the nested group among them
    patch(
        {"op": "Add", "path": "members", "value": [{"value": "{second}"}, {"value": "{third}"}, {"value": "{nested}"}]},
        after=("displayName", OBJECT, ("{first}", "{second}", "{third}")),
    ),
    patch(
        {"op": "Add", "path": "members", "value": [{"value": "{second}"}]},
        after=("displayName", OBJECT, ("{first}", "{second}", "{third}")),
    ),
    patch(
        {"op": "Remove", "path": "members", "value": [{"$ref": None, "value": "{first}"}, {"$ref": None, "value": "{second}"}]},
        after=("displayName", OBJECT, ("{third}",)),
    ),
    # With the flag aadOptscim062020
    patch({"op": "remove", "path": 'members[value eq "{third}"]'}, after=("displayName", OBJECT, ())),
    patch(
        {"op": "Replace", "path": "displayName", "value": "1879db59-3bdf-4490-ad68-ab880a269474updatedDisplayName"},
        after=("1879db59-3bdf-4490-ad68-ab880a269474updatedDisplayName", OBJECT, ()),
    ),
    patch(
        {"op": "Replace", "path": "externalId", "value": "other"},
        after=("1879db59-3bdf-4490-ad68-ab880a269474updatedDisplayName", "other", ()),
        query="?excludedAttributes=members",
    ),
    Step("DELETE", "/Groups/{group}", None, 204),
]
# Okta: developer.okta.com/docs/api/openapi/okta-scim/guides/scim-20, "SCIM Group operations"; members without a type:
# github.com/Captain-P-Goldfish/SCIM-SDK/issues/419. Applications that do not patch get the whole group by PUT.
OKTA: Final = [
    find('displayName eq "Test SCIMv2"', 0, "startIndex=1&count=100&"),
    Step(
        "POST",
        "/Groups",
        {"schemas": [GROUP_URN], "displayName": "Test SCIMv2", "members": [{"value": "{first}", "display": "first@example.com"}]},
        *(201, "Test SCIMv2", None, ("{first}",)),
    ),
    Step("GET", "/Groups?startIndex=1&count=100", None, 200, total=3),
    patch({"op": "replace", "value": {"id": "{group}", "displayName": "Test SCIMv20"}}, after=("Test SCIMv20", None, ("{first}",))),
    patch(
        {"op": "remove", "path": 'members[value eq "{first}"]'},
        {"op": "add", "path": "members", "value": [{"value": "{second}", "display": "second@example.com"}]},
        after=("Test SCIMv20", None, ("{second}",)),
    ),
    patch(
        {"op": "replace", "path": "members", "value": [{"value": "{first}", "display": "a"}, {"value": "{third}", "display": "b"}]},
        after=("Test SCIMv20", None, ("{first}", "{third}")),
    ),
    Step(
        "PUT",
        "/Groups/{group}",
        {
            "schemas": [GROUP_URN],
            "id": "{group}",
            "displayName": "Test SCIMv2",
            "members": [{"value": "{second}", "display": "second@example.com"}, {"value": "{third}", "display": "third@example.com"}],
        },
        *(200, "Test SCIMv2", None, ("{second}", "{third}")),
    ),
    Step("PUT", "/Groups/{group}", {"schemas": [GROUP_URN], "id": "{group}", "displayName": "Test", "members": []}, 200, "Test"),
    Step("DELETE", "/Groups/{group}", None, 204),
]
# OneLogin: developers.onelogin.com/scim/implement-scim-api lists Get Groups, Create Group and Patch Group. Its requests still name a
# draft's schema: github.com/goauthentik/authentik/issues/11249.
ONELOGIN: Final = [
    Step("GET", "/Groups", None, 200, total=2),
    Step("POST", "/Groups", {"schemas": ["urn:scim:schemas:core:2.0"], "displayName": "Sales"}, 201, "Sales"),
    patch({"op": "add", "path": "members", "value": [{"value": "{first}"}]}, after=("Sales", None, ("{first}",))),
    patch({"op": "add", "path": "members", "value": [{"value": "{second}"}]}, after=("Sales", None, ("{first}", "{second}"))),
    patch({"op": "remove", "path": 'members[value eq "{first}"]'}, after=("Sales", None, ("{second}",))),
]
# JumpCloud: its test creates a group and deletes it (jumpcloud.com/support, "Identity Management using a Custom SCIM Integration"),
# members are removed by their value (app.uni-moni.com/en/kb/sso-setup-jumpcloud), and requests repeat
# (github.com/Infisical/infisical/pull/2138).
JUMPCLOUD: Final = [
    Step("POST", "/Groups", {"schemas": [GROUP_URN], "displayName": "JumpCloud test group"}, 201, "JumpCloud test group"),
    patch({"op": "replace", "value": {"displayName": "JumpCloud group"}}, after=("JumpCloud group", None, ())),
    patch({"op": "add", "path": "members", "value": [{"value": "{first}"}]}, after=("JumpCloud group", None, ("{first}",))),
    patch({"op": "add", "path": "members", "value": [{"value": "{first}"}]}, after=("JumpCloud group", None, ("{first}",))),
    patch({"op": "remove", "path": "members", "value": [{"value": "{first}"}]}, after=("JumpCloud group", None, ())),
    patch({"op": "remove", "path": "members", "value": [{"value": "{first}"}]}, after=("JumpCloud group", None, ())),
    Step("DELETE", "/Groups/{group}", None, 204),
]
# Google Workspace documents no requests for groups. These have the shapes in RFC 7644 sections 3.3 and 3.5.2, with the types and URLs that
# a strict client sends.
REF: Final = "http://gatehouse.test/scim/v2/Users/"
GOOGLE: Final = [
    Step(
        "POST",
        "/Groups",
        {
            "schemas": [GROUP_URN],
            "externalId": "03znysh7",
            "displayName": "eng@example.com",
            "members": [{"value": "{first}", "$ref": REF + "{first}", "type": "User"}],
        },
        *(201, "eng@example.com", "03znysh7", ("{first}",)),
    ),
    patch(
        {"op": "add", "value": {"members": [{"value": "{second}", "$ref": REF + "{second}", "type": "User"}]}},
        after=("eng@example.com", "03znysh7", ("{first}", "{second}")),
    ),
    patch(
        {"op": "add", "path": "members", "value": [{"value": "{nested}", "type": "Group"}]},
        after=("eng@example.com", "03znysh7", ("{first}", "{second}")),
    ),
    patch({"op": "remove", "path": 'members[value eq "{first}" or value eq "{second}"]'}, after=("eng@example.com", "03znysh7", ())),
    Step("DELETE", "/Groups/{group}", None, 204),
]
DIRECTORIES: Final = {"Entra ID": ENTRA, "Okta": OKTA, "OneLogin": ONELOGIN, "JumpCloud": JUMPCLOUD, "Google": GOOGLE}


@pytest.mark.parametrize("name", DIRECTORIES)
async def test_the_group_requests_of_directories(acme: Tenant, pool: Pool, name: str) -> None:
    groups = GroupDirectory(await directory_of(acme, groups=True))
    directory = groups.directory
    ids = {f"{{{each}}}": (await directory.create_user(f"{each}@example.com"))["id"] for each in ("first", "second", "third")}
    ids["{nested}"] = await groups.create("Nested")

    def with_ids(value: Any) -> Any:
        text = json.dumps(value)
        for placeholder, id_ in ids.items():
            text = text.replace(placeholder, id_)
        return json.loads(text)

    for number, step in enumerate(DIRECTORIES[name]):
        answer = await directory.call(step.method, quote(with_ids(step.path), safe="/?&="), with_ids(step.body))
        assert answer.status == step.status, (number, answer.text)
        if step.status == 201:
            ids["{group}"] = answer.json["id"]
        if step.total is not None:
            assert answer.json["totalResults"] == step.total, (number, answer.text)
        if step.name is not None:
            group = await directory.get(f"/Groups/{ids['{group}']}")
            found = (group["displayName"], group["externalId"], sorted(member["value"] for member in group["members"]))
            assert found == (step.name, step.external_id, sorted(with_ids(list(step.members)))), number
    await check_counts(pool)
