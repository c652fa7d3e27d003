"""SCIM tokens, authentication, errors and discovery.

Security C-1, C-8, J-7, N-3 and T-5, and decision 123 have the requirements.
"""

import json
from datetime import timedelta
from typing import Any, NoReturn
from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from core.kernel.errors import StorageDown
from core.programs.model.organization_tokens import MAX_TOKENS
from core.provisioning import users as scim_users
from core.provisioning.model.schemas import ENTERPRISE_URN, GROUP, GROUP_URN, USER, USER_URN
from entrypoints.http.api.provisioning.discovery import METHODS
from entrypoints.http.app import Edge
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, impersonate, make_edge, run_sql
from tests.support.direct import ask
from tests.support.impersonator import Support
from tests.support.refusals import BAD, MISSING
from tests.support.scim import ERROR_URN, GRACE, LIST_URN, SCIM_JSON, Directory, directory_of, problem
from tests.support.tenants import Tenant


async def call(acme: Tenant, method: str, path: str = "", body: Any = None, by: str = "owner") -> Answer:
    return await acme.api.call(method, f"{acme.path}/scim-tokens{path}", body, token=acme.token(by))


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_owners_and_admins_create_tokens_and_see_the_secret_once(
    acme: Tenant, other_tenant: Tenant, clock: FakeClock, by: str
) -> None:
    until = "2027-01-02T03:04:05Z"
    answer = await call(acme, "POST", "", {"name": "Okta", "expires_at": until}, by)
    assert answer.status == 200, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    token = answer.json
    assert list(token) == ["id", "name", "prefix", "created_at", "created_by", "expires_at", "directory_groups", "token"]
    assert (token["name"], token["expires_at"], token["prefix"]) == ("Okta", until, token["token"][:16])
    assert token["created_by"] == acme.id(by)
    assert (token["token"].startswith("scim_live_"), len(token["token"])) == (True, 60)
    token_without_secret = {name: value for name, value in token.items() if name != "token"}
    assert (await call(acme, "GET", by=by)).json == {"tokens": [token_without_secret], "total": 1}
    assert (await call(other_tenant, "GET")).json == {"tokens": [], "total": 0}
    entry = await acme.entry("scim_token.created")
    assert (entry["target_type"], entry["target_id"], entry["actor_id"]) == ("organization", str(acme.org), acme.people[by].id)
    assert entry["details"] == {
        "scim_token_id": token["id"],
        "name": "Okta",
        "prefix": token["prefix"],
        "expires_at": until,
        "directory_groups": False,
    }
    records = json.dumps(
        [*await acme.log(), *await acme.webhook_events(), *await run_sql(acme.pool, "select scim_tokens::text from scim_tokens")],
        default=str,
    )
    assert token["token"] not in records


async def test_values_that_are_not_valid_are_refused(acme: Tenant) -> None:
    for body in (
        *({"name": name} for name in ("", " ", None, 5, "x" * 101, "a\nb")),
        *({"name": "x", "expires_at": time} for time in ("2001-01-01T00:00:00Z", "tomorrow", 5, "2027-01-02")),
        {},
    ):
        answer = await call(acme, "POST", "", body)
        assert (answer.status, answer.code) == BAD, body
    assert (await call(acme, "GET")).json["total"] == 0


async def test_an_organization_has_a_maximum_number_of_tokens(acme: Tenant) -> None:
    await run_sql(
        acme.pool,
        """insert into scim_tokens (id, org_id, name, prefix, token_hash, created_by, created_at)
           select gen_random_uuid(), %s, 'x', 'x', sha256(n::text::bytea), gen_random_uuid(), now() from generate_series(1, %s) n""",
        acme.org,
        MAX_TOKENS,
    )
    answer = await call(acme, "POST", "", {"name": "x"})
    assert (answer.status, answer.code) == BAD


async def test_members_and_impersonators_cannot_manage_tokens(acme: Tenant, other_tenant: Tenant, support: Support) -> None:
    for method, path in (("POST", ""), ("GET", ""), ("DELETE", f"/{uuid4()}")):
        body = {"name": "x"} if method == "POST" else None
        assert (await call(acme, method, path, body, by="member")).status == 403
        assert (await acme.api.call(method, f"{acme.path}/scim-tokens{path}", body, token=other_tenant.token("owner"))).status == 403
    token = await impersonate(acme.ports, support.account, acme.people["owner"], acme.org)
    assert (await acme.api.post(f"{acme.path}/scim-tokens", {"name": "x"}, token=token)).status == 403


async def test_a_revoked_token_stops_working_with_the_next_request(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    [token] = (await call(acme, "GET")).json["tokens"]
    for tenant, token_id in ((other_tenant, token["id"]), (acme, str(uuid4())), (acme, "x")):
        answer = await call(tenant, "DELETE", f"/{token_id}")
        assert (answer.status, answer.code) == MISSING
    await directory.get("/Users")
    assert (await call(acme, "DELETE", f"/{token['id']}")).status == 204
    assert problem(await directory.call("GET", "/Users")) == (401, None)
    assert (await acme.entry("scim_token.revoked"))["details"]["scim_token_id"] == token["id"]


async def test_an_expired_token_stops_working(acme: Tenant, clock: FakeClock) -> None:
    soon = (clock.now() + timedelta(minutes=1)).isoformat()
    token = (await call(acme, "POST", "", {"name": "x", "expires_at": soon})).json["token"]
    directory = Directory(acme, token)
    await directory.get("/Users")
    clock.advance(timedelta(minutes=1))
    assert problem(await directory.call("GET", "/Users")) == (401, None)
    assert (await call(acme, "GET")).json["total"] == 1


async def test_scim_tokens_and_other_credentials_are_not_interchangeable(acme: Tenant, directory: Directory) -> None:
    for token in (acme.token("owner"), "x", "scim_live_x", f"{directory.token}x", "scim_live_" + "x" * 300, directory.token.upper()):
        answer = await directory.call("GET", "/Users", token=token)
        assert problem(answer) == (401, None)
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    for path in ("/api/user", acme.path, "/api/service/users"):
        assert (await acme.api.get(path, token=directory.token)).status == 401
    for path in (f"/scim/v2/Users?access_token={directory.token}", "/scim/v2/Users"):
        answer = await acme.api.get(path, headers={"Cookie": f"gatehouse-session={directory.token}", "X-Api-Key": directory.token})
        assert problem(answer) == (401, None)


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_the_directory_of_an_organization_that_is_not_active_is_refused(acme: Tenant, directory: Directory, status: str) -> None:
    user = await directory.create_user()
    await acme.set_status(status)
    for method, path in (("GET", "/Users"), ("DELETE", f"/Users/{user['id']}"), ("GET", "/Schemas"), ("POST", "/Groups")):
        assert problem(await directory.call(method, path)) == (403, None)
    await acme.set_status("active")
    assert (await directory.list_users())["totalResults"] == 4


# Errors


async def test_every_error_has_the_scim_format(directory: Directory) -> None:
    for method, path, status in (
        ("GET", "/x", 404),
        ("GET", "/Users/x/y", 404),
        ("GET", "//Users", 404),
        ("TRACE", "/Users", 405),
        ("PUT", "/Users", 405),
        ("DELETE", "/Schemas", 405),
        *((method, path, 501) for method in METHODS for path in ("/Me", "/Bulk")),
        ("GET", "/Schemas/x", 404),
        ("GET", "/ResourceTypes/x", 404),
        ("GET", "/Schemas?filter=id+pr", 403),
        ("GET", "/ResourceTypes?filter=id+pr", 403),
        ("GET", "/ServiceProviderConfig?filter=id+pr", 403),
        ("GET", "/Users?" + "&".join(f"a{n}=1" for n in range(501)), 400),
        ("GET", "/Users?filter=%ff", 400),
        ("GET", "/Users?filter=%00", 400),
        ("GET", "/Users?filter=userName%20eq%20%22%00%22", 400),
        ("GET", "/Users?attributes=user%00Name", 400),
        ("GET", "/Groups?excludedAttributes=%00", 400),
        ("GET", "/Users/%00", 404),
    ):
        assert problem(await directory.call(method, path))[0] == status, path
    for content_type in ("text/plain", "application/x-www-form-urlencoded"):
        assert problem(await directory.call("POST", "/Users", {}, content_type=content_type)) == (415, None)
    answer = await directory.tenant.api.call("POST", "/scim/v2/Users", raw=b"{", token=directory.token)
    assert problem(answer) == (400, "invalidSyntax")
    answer = await directory.tenant.api.get("/scim/v2/Users", headers={"Accept": "text/html"})
    assert problem(answer) == (401, None)
    answer = await directory.tenant.api.get("/scim")
    assert problem(answer) == (404, None)


async def test_head_has_the_same_length_header_as_get(app: QuartTrio, directory: Directory) -> None:
    for path in ("/Users", "/Schemas", "/Groups", directory.group_path):
        get, head = [await ask(app, method, f"/scim/v2{path}", token=directory.token) for method in ("GET", "HEAD")]
        assert (head.status, head.headers["Content-Type"]) == (200, SCIM_JSON)
        assert head.headers.get("Content-Length") == get.headers.get("Content-Length"), path


@pytest.mark.parametrize("error", [StorageDown(), ZeroDivisionError()])
async def test_internal_errors_have_the_scim_format(directory: Directory, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def fail(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(scim_users, "list_users", fail)
    assert problem(await directory.call("GET", "/Users")) == (500, None)


async def test_an_unknown_id_is_not_found_for_any_body(directory: Directory) -> None:
    for path in (f"/Users/{uuid4()}", "/Users/x", f"/Groups/{uuid4()}"):
        for method in ("PUT", "PATCH"):
            assert problem(await directory.call(method, path, {})) == (404, None)
            assert problem(await directory.call(method, path, {}, content_type="text/plain")) == (404, None)
            answer = await directory.tenant.api.call(method, f"/scim/v2{path}", raw=b"{", token=directory.token)
            assert problem(answer) == (404, None)


async def test_scim_bodies_have_their_own_size_limits(directory: Directory) -> None:
    large = {"schemas": [USER_URN], "userName": GRACE, "x": "y" * (300 * 1024)}
    assert (await directory.call("POST", "/Users", large)).status == 201
    assert problem(await directory.call("POST", "/Users", {**large, "x": "y" * 1024 * 1024})) == (413, None)
    members = [{"value": directory.tenant.id("member"), "display": "y" * 100} for _ in range(12_000)]
    answer = await directory.call("PUT", directory.group_path, {"schemas": [GROUP_URN], "members": members})
    assert answer.status == 200


@pytest.fixture
def edge(request: pytest.FixtureRequest) -> Edge:
    return make_edge(scim_string_status=getattr(request, "param", False))


@pytest.mark.parametrize("edge", [True], indirect=True)
async def test_a_setting_makes_the_status_of_errors_a_string(app: QuartTrio, directory: Directory) -> None:
    for answer in (
        await directory.call("GET", "/Users/x"),
        await directory.call("POST", "/Users", {"x": "y" * 1024 * 1024}),
    ):
        assert answer.json["status"] == str(answer.status)
        assert answer.json["schemas"] == [ERROR_URN]


# Discovery (decision 123)


async def test_the_configuration_lists_the_supported_features(directory: Directory) -> None:
    config = await directory.get("/ServiceProviderConfig")
    assert {name: config[name]["supported"] for name in ("patch", "bulk", "filter", "changePassword", "sort", "etag")} == {
        "patch": True, "bulk": False, "filter": True, "changePassword": False, "sort": False, "etag": False,
    }  # fmt: skip
    assert config["filter"]["maxResults"] == 1000
    assert config["authenticationSchemes"][0]["type"] == "oauthbearertoken"


async def test_the_schemas_have_the_attributes_of_resources(directory: Directory) -> None:
    enterprise: dict[str, Any] = {"employeeNumber": "7", "department": "Navy", "manager": {"value": "x", "displayName": "y"}}
    further: dict[str, Any] = {
        "phoneNumbers": [{"value": "+1 555 0100", "type": "work", "primary": True}],
        "photos": [{"value": "https://images.example.com/grace.png", "type": "photo", "primary": True}],
        ENTERPRISE_URN: enterprise,
    }
    user = await directory.create_user(name={"givenName": "Grace"}, **further)
    assert (user["schemas"], user.pop(ENTERPRISE_URN)) == ([USER_URN, ENTERPRISE_URN], enterprise)
    group = await directory.get(directory.group_path)
    listing = await directory.get("/Schemas")
    assert (listing["schemas"], listing["totalResults"], listing["itemsPerPage"]) == ([LIST_URN], 3, 3)
    for schema, resource in zip(listing["Resources"], (user, enterprise, group), strict=True):
        # Only users in the directory's groups have `groups`.
        attributes = {attribute["name"]: attribute for attribute in schema["attributes"] if attribute["name"] != "groups"}
        assert set(resource) - {"schemas", "id", "meta", "externalId"} == set(attributes)
        for name, attribute in attributes.items():
            value = resource[name][0] if attribute["multiValued"] else resource[name]
            if attribute["type"] == "complex":
                assert set(value) == {sub["name"] for sub in attribute["subAttributes"]}
        assert await directory.get(f"/Schemas/{schema['id']}") == schema
    assert [schema["id"] for schema in listing["Resources"]] == [USER_URN, ENTERPRISE_URN, GROUP_URN]


async def test_the_resource_types_are_user_and_group(directory: Directory) -> None:
    listing = await directory.get("/ResourceTypes")
    resource_types = [(kind["name"], kind["endpoint"], kind["schema"]) for kind in listing["Resources"]]
    assert resource_types == [(kind.name, kind.endpoint, kind.id) for kind in (USER, GROUP)]
    extensions = [kind["schemaExtensions"] for kind in listing["Resources"]]
    assert extensions == [[{"schema": ENTERPRISE_URN, "required": False}], []]
    for kind in listing["Resources"]:
        assert await directory.get(f"/ResourceTypes/{kind['id']}") == kind


async def test_a_trailing_slash_is_ignored(directory: Directory) -> None:
    assert (await directory.get("/Users/"))["totalResults"] == 3
    assert SCIM_JSON in (await directory.call("GET", "/Users/")).headers["Content-Type"]


async def test_all_tokens_of_an_organization_see_the_same_users(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    assert await (await directory_of(acme, "admin")).get(f"/Users/{user['id']}") == user
