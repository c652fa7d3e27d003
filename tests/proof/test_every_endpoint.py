"""Every endpoint that the documents name, as far as it exists, obeys its row of the inventory; every other route is one we chose to add.

The inventory lies beside the checkout (`../shared/spec/endpoints.json`); `how to read it` is the head of `decisions.md` there.
"""

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from entrypoints.http.api.provisioning.discovery import METHODS
from entrypoints.http.app import describe
from ports import Ports
from tests.support.builders import Answer, Api, run_sql
from tests.support.paths import API_KEY, add_ruler, filled, pre_auth_token
from tests.support.scim import SCIM_JSON

INVENTORY = Path(__file__).with_name("endpoints.json")

# What the documents do not name, and why it is there all the same.
ADDITIVE = {
    "POST /api/auth/logout": "decisions, point 45",
    "GET /.well-known/jwks.json": "decisions, point 34",
    "GET /openapi.json": "decisions, point 31: the interface description",
    "GET /docs": "security.md G-1: the interface description's page",
    "GET /assets/{}": "security.md G-1: what the pages load",
    "GET /": "decisions, point 176: hosted pages",
    "GET /auth/reset-password": "decisions, point 176: the page that a reset mail leads to",
    "POST /auth/reset-password": "decisions, point 176: its form",
    "POST /api/organizations": "decisions, point 204",
    "GET /api/organizations": "decisions, point 205",
    "GET /api/organizations/{}": "decisions, point 205",
    "PATCH /api/organizations/{}": "decisions, point 206",
    "DELETE /api/organizations/{}": "decisions, point 206",
    "GET /api/organizations/{}/branding": "decisions, point 209",
    "PATCH /api/organizations/{}/branding": "decisions, point 209",
    "POST /api/organizations/{}/smtp": "decisions, point 208",
    "GET /api/organizations/{}/smtp": "decisions, point 208",
    "DELETE /api/organizations/{}/smtp": "decisions, point 208",
    "POST /api/organizations/{}/smtp/test": "security.md W-7: whether the mail server can be used",
    "POST /api/organizations/{}/services/{}/rotate-secret": "decisions, point 92",
    "POST /api/organizations/{}/webhooks/{}/rotate-secret": "decisions, point 215",
    "POST /api/organizations/{}/webhooks/{}/test": "as of mail servers: whether it works, without waiting for something to happen",
    "POST /api/organizations/{}/webhooks/{}/deliveries/{}/replay": "for receivers that have lost what they were told",
    "POST /api/organizations/{}/domain": "decisions, point 210",
    "GET /api/organizations/{}/domain": "decisions, point 210",
    "DELETE /api/organizations/{}/domain": "decisions, point 210",
    "POST /api/organizations/{}/domain/verify": "decisions, point 210",
    "GET /api/organizations/{}/hrd": "decisions, point 212",
    "PUT /api/organizations/{}/hrd": "decisions, point 212",
    "PUT /api/organizations/{}/services/{}/oauth-credentials/{}": "decisions, point 211",
    "GET /api/organizations/{}/services/{}/oauth-credentials/{}": "decisions, point 211",
    "DELETE /api/organizations/{}/services/{}/oauth-credentials/{}": "decisions, point 211",
    "GET /scim/v2/ServiceProviderConfig": "decisions, point 123",
    "GET /scim/v2/ResourceTypes": "decisions, point 123",
    "GET /scim/v2/ResourceTypes/{}": "decisions, point 123",
    "GET /scim/v2/Schemas": "decisions, point 123",
    "GET /scim/v2/Schemas/{}": "decisions, point 123",
    **{f"{method} /scim/v2/{name}": "decisions, point 123" for method in METHODS for name in ("Me", "Bulk")},
    "GET /auth/authorize": "decisions, point 88: signing people in for applications",
    "POST /auth/authorize": "decisions, point 176: the form of its page",
    "POST /auth/revoke": "decisions, point 35: RFC 7009",
    "GET /.well-known/oauth-authorization-server": "decisions, point 34: RFC 8414",
    "POST /auth/device/verify": "decisions, point 97: approve or deny a device, beside the page to do that on",
    "GET /app/invitations/accept": "decisions, point 196: the page that shows an invitation where there is no frontend",
    "POST /app/invitations/accept": "decisions, point 176: its form",
    "POST /app/invitations/decline": "decisions, point 176: its other form",
    "GET /app/sign-in": "decisions, point 176: the sign-in page",
    "POST /app/sign-in": "decisions, point 176: its form",
    "GET /app/sign-in/code": "decisions, point 176: the page that asks for the second factor",
    "POST /app/sign-in/code": "decisions, point 176: its form",
    "POST /app/sign-out": "decisions, point 176",
    "GET /app/forgot-password": "decisions, point 176: the page of a forgotten password",
    "POST /app/forgot-password": "decisions, point 176: its form",
    "GET /app/account": "decisions, point 53: the account page",
    "POST /app/account/export": "decisions, point 53: the own data, from the account page",
    "GET /app/account/email": "decisions, point 53: the page of the address",
    "POST /app/account/email": "decisions, point 176: its form",
    "POST /app/account/email/verification": "decisions, point 176: its other form",
    "GET /app/account/password": "decisions, point 53: the page of the password",
    "POST /app/account/password": "decisions, point 176: its form",
    "GET /app/account/two-factor": "decisions, point 53: the page of the second factor",
    "POST /app/account/two-factor/setup": "decisions, point 176: its forms",
    "POST /app/account/two-factor/confirm": "decisions, point 176: its forms",
    "POST /app/account/two-factor/backup-codes": "decisions, point 176: its forms",
    "POST /app/account/two-factor/disable": "decisions, point 176: its forms",
    "GET /auth/{}/callback": "decisions, point 87",
    "GET /app/account/identities": "decisions, point 53: the page of the linked accounts",
    "POST /app/account/identities/{}/link": "decisions, point 176: its forms",
    "POST /app/account/identities/{}/unlink": "decisions, point 176: its forms",
    "GET /app/account/devices": "decisions, point 53: the page of the devices",
    "GET /app/account/devices/{}": "decisions, point 53: the page of a device",
    "POST /app/account/devices/{}/name": "decisions, point 176: its forms",
    "POST /app/account/devices/{}/revoke": "decisions, point 176: its forms",
    "GET /app/account/sessions": "decisions, point 53: the page of the sessions",
    "POST /app/account/sessions/{}/end": "decisions, point 176: its forms",
    "POST /app/account/sessions/end-others": "decisions, point 176: its forms",
}

# What answers have besides the fields that the documents name, and why: by the id of the row.
ADDED_FIELDS = {
    "auth-login": {"mfa_required": "identity.md section 4.1: with MFA", "redirect_url": "decisions, point 175"},
    "organization-select": {"expires_in": "decisions, point 51"},
    "service-create": {"client_secret": "decisions, point 92"},
    "webhook-create": {"secret": "decisions, point 215"},
    "service-get": {"pkce_without_secret": "decisions, point 92"},
    "service-update": {"client_secret": "decisions, point 158", "pkce_without_secret": "decisions, point 92"},
}
# Which of them are there only when there is something to say.
SOMETIMES = {
    "service-get": {"pkce_without_secret"},
    "service-update": {"client_secret", "pkce_without_secret"},
    "auth-login": {"mfa_required", "redirect_url"},
}

Row = dict[str, Any]
_numbers = itertools.count()


def plain(path: str) -> str:
    """A path with its variables unnamed, so that the documents' names for them need not be ours."""
    return re.sub(r"<[^>]+>|\{[^}]+\}|:[a-z_]+", "{}", path)


def inventory() -> list[Row]:
    if not INVENTORY.exists():
        return []
    rows: list[Row] = json.loads(INVENTORY.read_text("utf-8"))
    return rows


def described(interface: Row) -> dict[str, tuple[str, str, Row]]:
    """Method and unnamed path of every operation of ours -> its method, its path, its description."""
    return {
        f"{method.upper()} {plain(path)}": (method.upper(), path, operation)
        for path, operations in interface["paths"].items()
        for method, operation in operations.items()
    }


ROWS = inventory()
INTERFACE = describe()
OURS = described(INTERFACE)
SCHEMAS: dict[str, Row] = INTERFACE["components"]["schemas"]


def ours(row: Row) -> tuple[str, str, Row] | None:
    """The operation that a row describes, if it exists. Four rows do not say their method: any will do."""
    if row["method"] is not None:
        return OURS.get(f"{row['method']} {plain(row['path'])}")
    return next((found for name, found in OURS.items() if name.endswith(f" {plain(row['path'])}")), None)


EXISTING = [(row, found) for row in ROWS if (found := ours(row)) is not None]


def each(wanted: Callable[[Row, Row], bool] = lambda row, operation: True) -> pytest.MarkDecorator:
    """Run the test for every documented endpoint that exists, or for those that are wanted."""
    cases = [pytest.param(row, found, id=row["id"]) for row, found in EXISTING if wanted(row, found[2])]
    return pytest.mark.parametrize(("row", "found"), cases)


def has_body(row: Row, operation: Row) -> bool:
    if row["auth"] == "scim_token":  # whose names have no case and whose errors are others: tests/provisioning/api/test_scim_tokens.py
        return False
    return "application/json" in operation.get("requestBody", {}).get("content", {})


def needs_person(row: Row, _: Row) -> bool:
    return row["auth"] in ("jwt", "platform_owner_jwt")


needs_inventory = pytest.mark.skipif(
    not ROWS, reason="the inventory of endpoints, ../shared/spec/endpoints.json, is not beside this checkout"
)


def sample(operation: Row) -> dict[str, Any]:
    """A body that is well formed, with an address that nobody has."""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    values = {"email": f"somebody-{next(_numbers)}@example.com", "uuid": str(uuid4()), "integer": 5}

    def value(field: Row) -> Any:
        if "$ref" in field and "enum" in SCHEMAS[field["$ref"].rpartition("/")[2]]:
            return SCHEMAS[field["$ref"].rpartition("/")[2]]["enum"][0]
        return values.get(str(field.get("format", field.get("type"))), "a good long text")

    return {name: value(schema["properties"][name]) for name in schema.get("required", ())}


def item_of(schema: Row) -> Row:
    """What an array holds."""
    item: Row = schema["items"]
    return SCHEMAS[item["$ref"].rpartition("/")[2]] if "$ref" in item else item


@dataclass(frozen=True, slots=True)
class Keys:
    """Of somebody who may do everything, so that requests come further than the door."""

    person: str
    pre_auth: str

    def to(self, row: Row) -> dict[str, str]:
        """What opens the door of this endpoint."""
        if row["auth"] in ("jwt", "platform_owner_jwt"):
            return {"Authorization": f"Bearer {self.person}"}
        if row["auth"] == "preauth_jwt":
            return {"Authorization": f"Bearer {self.pre_auth}"}
        return {"X-Api-Key": API_KEY} if str(row["auth"]).startswith("api_key") else {}


@pytest.fixture
async def keys(ports: Ports, pool: Pool) -> Keys:
    account, token = await add_ruler(ports, pool)
    return Keys(token, pre_auth_token(ports, account))


@needs_inventory
def test_how_many_of_the_documented_endpoints_exist(record_property: Callable[[str, object], None]) -> None:
    assert len(ROWS) == 141
    record_property("summary", f"{len(EXISTING)} of the {len(ROWS)} documented endpoints exist.")
    assert EXISTING


@needs_inventory
def test_every_route_is_documented_or_on_the_list_of_additions() -> None:
    documented = {name for name, operation in OURS.items() if any(found == operation for _, found in EXISTING)}
    assert OURS.keys() - documented == ADDITIVE.keys()


@pytest.mark.slow
async def test_every_route_of_the_application_is_described(app: QuartTrio) -> None:
    served = {
        f"{method} {plain(rule.rule)}" for rule in app.url_map.iter_rules() for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert served == OURS.keys()


@needs_inventory
@each(lambda row, _: row["success"]["status"] is not None)
def test_its_success_has_the_documented_shape(row: Row, found: tuple[str, str, Row]) -> None:
    status, shape = row["success"]["status"], row["success"]["shape"]
    answer = found[2]["responses"].get(str(status))
    assert answer is not None, f"{status} is not described"
    content = answer.get("content", {})
    match shape:
        case None:
            return
        case "none":
            assert not content
        case "html":
            assert list(content) == ["text/html"]
        case "text":
            assert list(content) == ["text/plain"]
        case "xml":
            assert all(kind.endswith("xml") for kind in content)
        case [*names] if all(str(name).startswith("[].") for name in names) and names:
            schema = content["application/json"]["schema"]
            assert schema["type"] == "array"
            assert {str(name).removeprefix("[].") for name in names} <= item_of(schema)["properties"].keys()
        case [*names]:
            schema = content[SCIM_JSON if row["auth"] == "scim_token" else "application/json"]["schema"]
            assert {*names, *ADDED_FIELDS.get(row["id"], ())} == schema["properties"].keys()
            assert set(schema["properties"]) - SOMETIMES.get(row["id"], set()) == set(schema.get("required", ())), "always all its fields"


@needs_inventory
@each()
def test_its_documented_errors_are_described(row: Row, found: tuple[str, str, Row]) -> None:
    missing = {str(error["status"]) for error in row["errors"] if error["status"] is not None} - found[2]["responses"].keys()
    assert not missing


@pytest.mark.slow
@needs_inventory
@each(needs_person)
async def test_it_wants_a_token(api: Api, row: Row, found: tuple[str, str, Row]) -> None:
    method, path, operation = found
    bodies = [None, b"{", b"[]", json.dumps(sample(operation)).encode()] if has_body(row, operation) else [None, b"{"]
    for body in bodies:
        for headers in ({}, {"Authorization": "Basic eDp5"}, {"X-Api-Key": "sk_x"}, {"Content-Type": "text/plain"}):
            answer = await api.call(method, filled(path), raw=body, headers=headers)
            assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
    refused = await api.call(method, filled(path), token="not.a.token")
    assert (refused.status, refused.code) == (401, "JWT_ERROR")


@needs_inventory
@each(lambda row, _: str(row["auth"]).startswith("api_key"))
async def test_it_wants_an_api_key(api: Api, keys: Keys, row: Row, found: tuple[str, str, Row]) -> None:
    method, path, operation = found
    bodies = [None, b"{", b"[]", json.dumps(sample(operation)).encode()] if has_body(row, operation) else [None, b"{"]
    person = {"Authorization": f"Bearer {keys.person}"}
    for body in bodies:
        for headers in (
            {},
            person,
            {"Authorization": f"Bearer {API_KEY}"},
            {"X-Api-Key": ""},
            {"X-Api-Key": "sk_x"},
            {"X-Api-Key": keys.person},
        ):
            answer = await api.call(method, f"{filled(path)}?api_key={API_KEY}", raw=body, headers=headers)
            assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
            assert answer.headers["WWW-Authenticate"] == 'ApiKey realm="gatehouse", header="X-Api-Key"'


@needs_inventory
@each(lambda row, _: row["auth"] == "none")
async def test_it_is_public(api: Api, row: Row, found: tuple[str, str, Row]) -> None:
    method, path, operation = found
    answer = await api.call(method, filled(path), {} if has_body(row, operation) else None)
    assert answer.status not in (401, 403)


JUNK = [b"{", b"not json", b"[]", b"null", b"5", b'"x"', b"\xff", b'{"a": 1, "a": 2}', b"[" * 1000]


@pytest.mark.slow
@needs_inventory
@each(has_body)
async def test_it_refuses_junk(api: Api, keys: Keys, row: Row, found: tuple[str, str, Row]) -> None:
    method, path, _ = found
    for body in JUNK:
        answer = await api.call(method, filled(path), raw=body, headers=keys.to(row))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), body


@pytest.mark.slow
@needs_inventory
@each(has_body)
async def test_it_refuses_wrong_types(api: Api, keys: Keys, row: Row, found: tuple[str, str, Row]) -> None:
    method, path, operation = found
    properties = operation["requestBody"]["content"]["application/json"]["schema"]["properties"]
    # A field that the documents describe is one that we read.
    assert (row["request"] or {}).keys() <= properties.keys()
    for name, schema in properties.items():
        kinds = {schema.get("type"), *(option.get("type") for option in schema.get("anyOf", ()))}
        for kind, value in (("boolean", True), ("integer", 5), ("array", [["x"]]), ("object", {"a": {}}), ("string", "x\x00")):
            if kind not in kinds or (kind == "string" and schema.get("format") != "password"):
                answer = await api.call(method, filled(path), {**sample(operation), name: value}, headers=keys.to(row))
                assert (answer.status, answer.code) == (400, "BAD_REQUEST"), (name, value)


@pytest.mark.slow
@needs_inventory
@each(has_body)
async def test_it_wants_its_required_fields(api: Api, keys: Keys, row: Row, found: tuple[str, str, Row]) -> None:
    method, path, operation = found
    required = set(operation["requestBody"]["content"]["application/json"]["schema"].get("required", ()))
    for name, field in (row["request"] or {}).items():
        if field["required"] is not None:  # null: only the field's name is given
            assert field["required"] == (name in required)
    for name in required:
        body = sample(operation)
        del body[name]
        answer = await api.call(method, filled(path), body, headers=keys.to(row))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST")
        assert name in answer.json["error"]


@pytest.mark.slow
@needs_inventory
@each(has_body)
async def test_it_wants_json(api: Api, keys: Keys, row: Row, found: tuple[str, str, Row]) -> None:
    method, path, operation = found
    body = json.dumps(sample(operation)).encode()
    kinds = {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", ""}
    for kind in sorted(kinds - operation["requestBody"]["content"].keys()):
        answer = await api.call(method, filled(path), raw=body, headers={"Content-Type": kind, **keys.to(row)})
        assert (answer.status, answer.code) == (415, "UNSUPPORTED_MEDIA_TYPE"), kind


@pytest.mark.slow
@needs_inventory
@each(has_body)
async def test_it_ignores_unknown_fields(api: Api, pool: Pool, keys: Keys, row: Row, found: tuple[str, str, Row]) -> None:
    method, path, operation = found

    async def send(extra: dict[str, Any]) -> Answer:
        return await api.call(method, filled(path), {**sample(operation), **extra}, headers=keys.to(row))

    usual = await send({})
    await run_sql(pool, "update organizations set status = 'active'")  # as it was: one that is suspended is not suspended twice
    strange = await send({"unknown": {"a": [1]}, "id": 5, "is_platform_owner": True, "_": None, "email_verified": True})
    assert (strange.status, set(strange.json)) == (usual.status, set(usual.json))


def buckets(row: Row) -> list[str]:
    return [limit for limit in row["rate_limit"] if limit != "not rate limited"]


@needs_inventory
@each(lambda row, _: bool(buckets(row)))
def test_its_limits_are_described(row: Row, found: tuple[str, str, Row]) -> None:
    assert "429" in found[2]["responses"]


@needs_inventory
@each(lambda row, _: row["rate_limit"] == ["not rate limited"])
def test_operations_are_without_limits(row: Row, found: tuple[str, str, Row]) -> None:
    assert "429" not in found[2]["responses"]
