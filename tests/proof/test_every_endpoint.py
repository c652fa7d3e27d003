"""Every endpoint in the inventory keeps its documented interface. Further routes and fields stand in ops/docs/description.txt.

The inventory is `endpoints.json`, an endpoint per line:

- `method` is null where the documentation names none; any method matches then.
- `auth` is the credential: `jwt`, `platform_owner_jwt`, `preauth_jwt`, `api_key:PERMISSION`, `scim_token`, `billing_signature`, `none`,
  or null where the documentation does not say.
- `roles` are the roles that may call it, or empty for all; `org_must_be_active` is null where no organization is involved.
- `required` has the fields of the JSON request, and whether each is required; null where the documentation does not say.
- `success.shape` is the fields that the JSON response always has, or its kind.
- `errors` are the documented error statuses, and `rate_limited` is null where the documentation does not say.

`tests/proof/test_garbage.py` sends bodies other than JSON objects, fields with wrong types and wrong content types.
"""

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from entrypoints.http.app import Application, configure
from ports import Ports
from tests.support.builders import Answer, Api, make_edge
from tests.support.openapi import Operation, operations
from tests.support.paths import API_KEY, add_ruler, filled, pre_auth_token, restore
from tests.support.scim import SCIM_JSON

Row = dict[str, Any]

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A row in the inventory, and the operation that implements it."""

    row: Row
    method: str
    path: str
    operation: Operation

    @property
    def auth(self) -> str:
        return str(self.row["auth"])

    @property
    def body_schema(self) -> dict[str, Any] | None:
        """The JSON body's schema, or None.

        SCIM is left out: its names ignore case, and its errors differ
        (tests/provisioning/api/test_scim_tokens.py).
        """
        content = self.operation.get("requestBody", {}).get("content", {})
        if self.auth == "scim_token" or "application/json" not in content:
            return None
        schema: dict[str, Any] = content["application/json"]["schema"]
        return schema

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def unnamed(path: str) -> str:
    """Return a path without the names for its variables, which can differ from ours."""
    return re.sub(r"<[^>]+>|\{[^}]+\}|:[a-z_]+", "{}", path)


INVENTORY: Final[list[Row]] = json.loads(Path(__file__).with_name("endpoints.json").read_text("utf-8"))
OPERATIONS: Final = {f"{method} {unnamed(path)}": (method, path, operation) for method, path, operation in operations()}


def endpoints() -> Iterator[Endpoint]:
    """Yield the rows in the inventory that are implemented."""
    for row in INVENTORY:
        path = unnamed(row["path"])
        names = [f"{row['method']} {path}"] if row["method"] else [name for name in OPERATIONS if name.endswith(f" {path}")]
        for name in names[:1]:
            if name in OPERATIONS:
                yield Endpoint(row, *OPERATIONS[name])


ENDPOINTS: Final = list(endpoints())
# The payment provider's signature is checked before the body. tests/billing/api/provider_events sends signed bodies.
WITH_BODY: Final = [
    (endpoint, endpoint.body_schema) for endpoint in ENDPOINTS if endpoint.body_schema is not None and endpoint.auth != "billing_signature"
]


def valid_body(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a valid body with the required fields. Its email address belongs to no account."""
    values = {"email": f"user-{next(_numbers)}@example.com", "uuid": str(uuid4()), "integer": 5}

    def value(field: dict[str, Any]) -> Any:
        return field["enum"][0] if "enum" in field else values.get(str(field.get("format", field.get("type"))), "a good long text")

    return {name: value(schema["properties"][name]) for name in schema.get("required", ())}


class Requests:
    """Requests that pass all access checks, to an organization in which the caller may do everything."""

    def __init__(self, api: Api, pool: Pool, ruler: Account, token: str, pre_auth: str) -> None:
        self._api = api
        self._pool = pool
        self._ruler = ruler
        self._pre_auth = pre_auth
        self.token = token

    async def send(
        self,
        endpoint: Endpoint,
        body: dict[str, Any] | None = None,
        *,
        raw: bytes | None = None,
        content_type: str | None = None,
        query: str = "",
    ) -> Answer:
        await restore(self._pool, self._ruler)  # requests that succeed change the organization, or delete it
        headers = {} if content_type is None else {"Content-Type": content_type}
        path = filled(endpoint.path) + query
        return await self._api.call(endpoint.method, path, body, raw=raw, headers={**headers, **self._credentials(endpoint)})

    def _credentials(self, endpoint: Endpoint) -> dict[str, str]:
        match endpoint.auth:
            case "jwt" | "platform_owner_jwt":
                return {"Authorization": f"Bearer {self.token}"}
            case "preauth_jwt":
                return {"Authorization": f"Bearer {self._pre_auth}"}
            case auth:
                return {"X-Api-Key": API_KEY} if auth.startswith("api_key") else {}


@pytest.fixture
async def requests(api: Api, ports: Ports, pool: Pool) -> Requests:
    account, token = await add_ruler(ports, pool)
    return Requests(api, pool, account, token, pre_auth_token(ports, account))


def unexpected(request: str, answer: Answer, status: int, code: str) -> list[str]:
    """Return a finding if the answer is not this refusal."""
    return [] if (answer.status, answer.code) == (status, code) else [f"{request}: {answer.status} {answer.text[:160]}"]


def assert_none(findings: list[str]) -> None:
    assert not findings, "\n".join(findings)


def test_every_documented_endpoint_exists() -> None:
    assert len(INVENTORY) == 141
    assert [row["id"] for row in INVENTORY if row["id"] not in {endpoint.row["id"] for endpoint in ENDPOINTS}] == []


@pytest.mark.slow
async def test_every_route_of_the_application_is_described(app: QuartTrio) -> None:
    served = {
        f"{method} {unnamed(rule.rule)}" for rule in app.url_map.iter_rules() for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert served == OPERATIONS.keys()


def test_every_success_has_the_documented_shape() -> None:
    findings: list[str] = []
    for endpoint in ENDPOINTS:
        status = endpoint.row["success"]["status"]
        if status is None:
            continue
        answer = endpoint.operation["responses"].get(str(status))
        if answer is None:
            findings.append(f"{endpoint}: {status} is not described")
        elif difference := difference_in_shape(endpoint.row, answer.get("content", {})):
            findings.append(f"{endpoint}: {difference}")
    assert_none(findings)


def difference_in_shape(row: Row, content: dict[str, Any]) -> str | None:
    """Return how the described response differs from the documented response, or None."""
    match row["success"]["shape"]:
        case None:
            return None
        case "none":
            return f"has {list(content)}" if content else None
        case "html" | "text" as kind:
            expected = {"html": "text/html", "text": "text/plain"}[kind]
            known = ([expected], [expected, "application/json"])  # the second for clients that prefer it
            return None if list(content) in known else f"has {list(content)}"
        case "xml":
            return None if all(kind.endswith("xml") for kind in content) else f"has {list(content)}"
        case [first, *_] as names if first.startswith("[]."):
            schema = content["application/json"]["schema"]
            missing = {name.removeprefix("[].") for name in names} - schema["items"]["properties"].keys()
            return None if schema["type"] == "array" and not missing else f"items lack {missing}"
        case names:
            schema = content[SCIM_JSON if row["auth"] == "scim_token" else "application/json"]["schema"]
            # Directories choose the attributes in responses (RFC 7644 section 3.9).
            always = schema["properties"] if row["auth"] == "scim_token" else schema.get("required", ())
            missing = {*names} - {*always}
            return f"can lack {missing}" if missing else None


def test_every_documented_error_is_described() -> None:
    findings: list[str] = []
    for endpoint in ENDPOINTS:
        if missing := set(map(str, endpoint.row["errors"])) - endpoint.operation["responses"].keys():
            findings.append(f"{endpoint}: {sorted(missing)}")
    assert_none(findings)


def test_rate_limits_are_described_where_they_are_documented() -> None:
    findings: list[str] = []
    for endpoint in ENDPOINTS:
        if endpoint.row["rate_limited"] not in (None, "429" in endpoint.operation["responses"]):
            findings.append(str(endpoint))
    assert_none(findings)


def bodies(endpoint: Endpoint) -> list[bytes | None]:
    """Return a valid and several invalid bodies. Access is checked before the body, so all have the same answer."""
    valid = [] if endpoint.body_schema is None else [b"[]", json.dumps(valid_body(endpoint.body_schema)).encode()]
    return [None, b"{", *valid]


@pytest.mark.slow
async def test_endpoints_for_users_require_an_access_token(api: Api) -> None:
    findings: list[str] = []
    for endpoint in ENDPOINTS:
        if endpoint.auth not in ("jwt", "platform_owner_jwt"):
            continue
        path = filled(endpoint.path)
        for body in bodies(endpoint):
            for headers in ({}, {"Authorization": "Basic eDp5"}, {"X-Api-Key": "sk_x"}, {"Content-Type": "text/plain"}):
                answer = await api.call(endpoint.method, path, raw=body, headers=headers)
                findings += unexpected(f"{endpoint} {headers} {body!r}", answer, 401, "UNAUTHORIZED")
                challenge = answer.headers.get("WWW-Authenticate", "")
                if not challenge.startswith("Bearer ") or "error=" in challenge or "resource_metadata=" not in challenge:
                    findings.append(f"{endpoint} {headers}: {challenge}")
        findings += unexpected(f"{endpoint} with a bad token", await api.call(endpoint.method, path, token="not.a.token"), 401, "JWT_ERROR")
    assert_none(findings)


async def test_the_service_api_requires_an_api_key(api: Api, requests: Requests) -> None:
    findings: list[str] = []
    wrong: list[dict[str, str]] = [
        {},
        {"Authorization": f"Bearer {requests.token}"},
        {"Authorization": f"Bearer {API_KEY}"},
        {"X-Api-Key": ""},
        {"X-Api-Key": "sk_x"},
        {"X-Api-Key": requests.token},
    ]
    for endpoint in ENDPOINTS:
        if not endpoint.auth.startswith("api_key"):
            continue
        for body in bodies(endpoint):
            for headers in wrong:
                answer = await api.call(endpoint.method, f"{filled(endpoint.path)}?api_key={API_KEY}", raw=body, headers=headers)
                findings += unexpected(f"{endpoint} {headers} {body!r}", answer, 401, "UNAUTHORIZED")
                if answer.headers.get("WWW-Authenticate") != 'ApiKey realm="gatehouse", header="X-Api-Key"':
                    findings.append(f"{endpoint} {headers}: {answer.headers.get('WWW-Authenticate')}")
    assert_none(findings)


async def test_public_endpoints_need_no_credentials(api: Api, requests: Requests) -> None:
    findings: list[str] = []
    for endpoint in ENDPOINTS:
        if endpoint.auth == "none":
            answer = await api.call(endpoint.method, filled(endpoint.path), {} if endpoint.body_schema is not None else None)
            if answer.status in (401, 403):
                findings.append(f"{endpoint}: {answer.status}")
    assert_none(findings)


# A session cookie and a signature, which these requests lack. SCIM is in
# tests/provisioning/api/test_scim_users.py.
CHECKED_AFTER_OTHER_CREDENTIALS: Final = {"/auth/device/verify", "/webhooks/billing"}


@pytest.mark.slow
async def test_a_repeated_parameter_is_refused(app: Application, ports: Ports, requests: Requests) -> None:
    # Not observed, because most routes do not declare that they refuse a malformed query.
    configure(app, ports, make_edge(), observe=lambda _: None, exposition=lambda: b"", exposition_type="text/plain")
    findings: list[str] = []
    for endpoint in ENDPOINTS:
        if endpoint.auth != "scim_token" and endpoint.path not in CHECKED_AFTER_OTHER_CREDENTIALS:
            answer = await requests.send(endpoint, query="?unknown=1&unknown=2")
            if answer.status != 400 or "unknown" not in answer.text or "twice" not in answer.text:
                findings.append(f"{endpoint}: {answer.status} {answer.text[:160]}")
    assert_none(findings)


def test_every_documented_required_field_is_read() -> None:
    findings = [
        f"{each} does not read {unread}" for each, schema in WITH_BODY if (unread := each.row["required"].keys() - schema["properties"])
    ]
    assert_none(findings)


@pytest.mark.slow
async def test_required_fields_are_required(requests: Requests) -> None:
    findings: list[str] = []
    for endpoint, schema in WITH_BODY:
        required = set(schema.get("required", ()))
        for name, is_required in endpoint.row["required"].items():
            if is_required not in (None, name in required):
                findings.append(f"{endpoint}: {name} is documented otherwise")
        for name in required:
            body = valid_body(schema)
            del body[name]
            answer = await requests.send(endpoint, body)
            findings += unexpected(f"{endpoint} without {name}", answer, 400, "BAD_REQUEST")
            if name not in answer.json["error"]:
                findings.append(f"{endpoint} without {name}: {answer.json['error']}")
    assert_none(findings)


@pytest.mark.slow
async def test_unknown_fields_are_ignored(requests: Requests) -> None:
    findings: list[str] = []
    unknown = {"unknown": {"a": [1]}, "id": 5, "is_platform_owner": True, "_": None, "email_verified": True}
    for endpoint, schema in WITH_BODY:
        usual = await requests.send(endpoint, valid_body(schema))
        extended = await requests.send(endpoint, {**valid_body(schema), **unknown})
        if (extended.status, set(extended.json)) != (usual.status, set(usual.json)):
            findings.append(f"{endpoint}: {usual.status} {usual.text[:80]}, with unknown fields {extended.status} {extended.text[:80]}")
    assert_none(findings)
