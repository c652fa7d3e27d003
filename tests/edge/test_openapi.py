"""The API description: complete, and correct about errors.

The command line prints it in `tests/proof/e2e/test_command_line.py`. Another project's validator and generated clients read it in
`tests/proof/e2e/test_generated_clients.py`. Reviewers see its changes in ops/docs/description.txt. Here are the properties that all
operations have, also the pages below `/app`, which the description leaves out.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from quart_schema import OpenAPIProvider
from quart_trio import QuartTrio

from core.kernel.api_scopes import ApiScope
from entrypoints.http.app import BLUEPRINTS
from entrypoints.http.edge.access.declaration import Credentials, access_of
from entrypoints.http.edge.error_body import SCIM_JSON
from entrypoints.http.edge.openapi import docs_of
from entrypoints.http.edge.openapi.description import interface_description
from entrypoints.http.pages.curl import operations_of
from entrypoints.version import VERSION
from tests.support.builders import Api, application
from tests.support.openapi import PREFIX, component, description, every_route, operations

JSON: Final = "application/json"


def test_it_names_the_product_and_the_version() -> None:
    info = description()["info"]
    assert (info["title"], info["version"]) == ("Gatehouse", VERSION)
    assert tuple(int(part) for part in VERSION.split(".")[:3]) >= (0, 8, 2)  # the interface version


async def test_the_service_serves_the_description(api: Api) -> None:
    answer = await api.get("/openapi.json")
    assert answer.headers["Content-Type"] == JSON
    assert answer.json == description()


def test_the_areas_have_the_order_of_the_blueprints() -> None:
    names = [tag["name"] for tag in description()["tags"]]
    used = {tag for _, _, operation in operations(description()["paths"]) for tag in operation["tags"]}
    assert names == [module.routes.name for module, _ in BLUEPRINTS if module.routes.name in used]


def test_it_has_all_routes_but_the_pages_below_app() -> None:
    """So what the tests below find in the routes' declarations holds for the description."""
    outside = {path: methods for path, methods in every_route()["paths"].items() if not f"{path}/".startswith("/app/")}
    assert description()["paths"] == outside
    for kind, shared in description()["components"].items():
        assert shared.items() <= every_route()["components"][kind].items()


def test_operation_ids_are_unique_identifiers() -> None:
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    assert [name for name in ids if not name.isidentifier()] == []


async def test_two_operations_with_one_id_are_refused(app: QuartTrio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entrypoints.http.edge.openapi.description.operation_id", lambda _: "same")
    monkeypatch.setattr(OpenAPIProvider, "generate_rules", lambda _: list(app.url_map.iter_rules())[:2])
    with pytest.raises(ValueError, match="same"):
        interface_description(app)


def test_every_operation_has_a_summary_an_area_and_a_text_for_each_response() -> None:
    findings = []
    for method, path, operation in operations():
        if not operation["summary"].endswith(".") or not operation["tags"]:
            findings.append(f"{method} {path}: {operation['summary']!r} {operation['tags']}")
        findings += [f"{method} {path} {status}" for status, answer in operation["responses"].items() if not answer["description"].strip()]
    assert findings == []


def test_every_operation_parameter_and_field_has_a_description() -> None:
    findings = []
    # The API operations that a page names describe it, too.
    pages = {re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route) for route, view in operations_of(application()) if docs_of(view).api}
    for method, path, operation in operations():
        if not operation.get("description", "").strip() and f"{method} {path}" not in pages:
            findings.append(f"{method} {path}")
        for parameter in operation["parameters"]:
            if not parameter.get("description", "").strip():
                findings.append(f"{method} {path} {parameter['name']}")
    assert findings + [path for path in fields_of(every_route()) if not path.endswith(".description")] == []


def fields_of(node: Any, path: str = "") -> Iterator[str]:
    """Return the path of every schema field, with `.description` if it has a description."""
    if isinstance(node, dict) and isinstance(node.get("properties"), dict):
        for name, field in node["properties"].items():
            yield f"{path}.{name}" + (".description" if field.get("description", "").strip() else "")
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, child in children:
        yield from fields_of(child, f"{path}.{name}")


def test_every_text_of_a_request_has_a_limit() -> None:
    """Texts without a limit in the description are compared with known values, or the body limit bounds them."""
    models = {name: model for name, model in every_route()["components"]["schemas"].items() if name.endswith("Request")}
    unlimited = {
        field
        for name, model in models.items()
        if not name.startswith(("Scim", "Billing"))
        for field, schema in model["properties"].items()
        for each in schema.get("anyOf", [schema.get("items", schema)])
        if each.get("type") == "string" and not each.keys() & {"maxLength", "enum", "const", "format", "pattern"}
    }
    assert unlimited == {"name_id_format", "slo_certificate", "zoneinfo"}


def test_numbers_that_are_clamped_have_no_bounds() -> None:
    """A number beyond a bound is answered, so a client must not take it for an error."""
    clamped = 0
    for method, path, operation in operations():
        for parameter in operation["parameters"]:
            if parameter["name"] in ("page", "limit", "offset", "startIndex", "count") and parameter["in"] == "query":
                clamped += 1
                assert "counts as" in parameter["description"], (method, path, parameter)
            assert not {"minimum", "maximum"} & parameter["schema"].keys(), (method, path, parameter)
    assert clamped > 50


def test_each_model_stands_once_under_components() -> None:
    """Client generators make a class from a model: two copies would be two classes."""
    findings = []
    for method, path, operation in operations(every_route()["paths"]):
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        schemas = [media_type["schema"] for body in bodies for media_type in body.get("content", {}).values()]
        findings += [f"{method} {path}: {schema['title']}" for schema in schemas if "title" in schema]
    assert findings == []


def test_every_supported_operation_has_one_success_and_a_schema_of_its_body() -> None:
    findings = []
    for method, path, operation in operations():
        successes = {status for status in operation["responses"] if status < "400"}
        if not successes and path.startswith("/scim/v2/"):
            continue  # a SCIM operation that is not supported (decision 123)
        successes = successes - {"302", "303", "304"} or {min(successes)}  # a page can redirect, or be in the browser's cache
        if (method, path) == ("PATCH", "/scim/v2/Groups/{group_id}"):
            successes -= {"204"}  # for a directory's group, in place of the whole group (RFC 7644 section 3.5.2)
        if len(successes) != 1:
            findings.append(f"{method} {path}: {successes}")
        for status in successes:
            for media_type, content in operation["responses"][status].get("content", {}).items():
                if media_type in (JSON, SCIM_JSON) and not _has_schema(content["schema"]) and path != "/openapi.json":
                    findings.append(f"{method} {path}: {content['schema']}")
    assert findings == []


def _has_schema(schema: dict[str, Any]) -> bool:
    """Return whether a response is described: an object with fields, an item list, or the empty object."""
    if schema["type"] not in ("object", "array"):
        return False
    return bool(schema.get("properties") or schema.get("items")) or schema.get("title") == "Empty"


def test_every_error_has_the_standard_body() -> None:
    findings = []
    for method, path, operation in operations(every_route()["paths"]):
        models = set()
        for status, answer in operation["responses"].items():
            for media_type, content in component(every_route(), answer).get("content", {}).items():
                if status >= "400" and media_type != "text/html" and (media_type, status) != (JSON, "503"):  # 503: the readiness report
                    models.add((media_type, content["schema"].get("$ref", "").removeprefix(PREFIX)))
        if models not in ({(JSON, "Error")}, {(JSON, "OAuthError")}, {(SCIM_JSON, "ScimError")}):
            findings.append(f"{method} {path}: {models}")
    assert findings == []


# Routes that themselves read OAuth client credentials and the token for claims about a user.
OF_CLIENTS: Final[list[dict[str, list[str]]]] = [{"client": []}, {}]
OF_EVALUATORS: Final[list[dict[str, list[str]]]] = [
    {"api_key": []},
    {"api_key_as_bearer": []},
    {"client": []},
    {"bearer": ["evaluate:access"]},
    {"dpop": ["evaluate:access"]},
]
AUTHENTICATES_ITSELF: Final[dict[str, list[dict[str, list[str]]]]] = {
    **dict.fromkeys(("/auth/token", "/auth/revoke", "/auth/introspect", "/auth/par"), OF_CLIENTS),
    "/auth/userinfo": [{"bearer": ["openid"]}, {"dpop": ["openid"]}],
    "/auth/register": [{"registration_token": []}, {}],
    "/access/v1/evaluation": OF_EVALUATORS,
    "/access/v1/evaluations": OF_EVALUATORS,
}

ALTERNATIVES: Final[dict[Credentials, list[dict[str, list[str]]]]] = {
    Credentials.ACCESS_TOKEN_OR_COOKIE: [{"cookie": []}],
    Credentials.OPTIONAL_ACCESS_TOKEN: [{}],
}


async def test_the_security_of_an_operation_is_that_of_its_decorators(app: QuartTrio) -> None:
    document = every_route()
    findings = []
    for rule in app.url_map.iter_rules():
        access = access_of(app.view_functions[rule.endpoint])
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
        optional = ALTERNATIVES.get(access.credentials, [])
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            scope = access.requirement(method).scope if access.is_of_api else None
            schemes = [access.credentials.scheme] if access.credentials.scheme else []
            schemes += ["dpop"] if access.is_of_api else []
            schemes += ["service_account"] if scope is not None and access.opens_to_service_accounts(method) else []
            schemes += ["personal_token"] if scope is not None and access.opens_to_personal_tokens(method) else []
            scopes = [scope.value] if scope else []
            expected = AUTHENTICATES_ITSELF.get(path) or ([*({scheme: scopes} for scheme in schemes), *optional] if schemes else [])
            security = document["paths"][path][method.lower()].get("security", [])
            if security != expected:
                findings.append(f"{method} {path}: {security}, not {expected}")
    assert findings == []
    schemes = document["components"]["securitySchemes"]
    of_programs = {scope.value: scope.description for scope in ApiScope if not scope.startswith("account:")}
    assert {name: {key: value for key, value in scheme.items() if key != "description"} for name, scheme in schemes.items()} == {
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "dpop": {"type": "http", "scheme": "DPoP"},
        "service_account": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "/auth/token", "scopes": of_programs}}},
        "personal_token": {"type": "http", "scheme": "bearer"},
        "client": {"type": "http", "scheme": "basic"},
        "registration_token": {"type": "http", "scheme": "bearer"},
        "scim_token": {"type": "http", "scheme": "bearer"},
        "api_key": {"type": "apiKey", "name": "X-Api-Key", "in": "header"},
        "api_key_as_bearer": {"type": "http", "scheme": "bearer"},
        "cookie": {"type": "apiKey", "name": "gatehouse-session", "in": "cookie"},
        "setup_cookie": {"type": "apiKey", "name": "gatehouse-setup", "in": "cookie"},
        "billing_signature": {"type": "apiKey", "name": "billing-signature", "in": "header"},
    }
    declared = [
        (name, scope) for _, _, each in operations() for alternative in each.get("security", []) for name, scope in alternative.items()
    ]
    assert {scope for name, scopes in declared if name == "service_account" for scope in scopes} == of_programs.keys()


# The errors that follow from an operation's kind.
BODY_ERRORS: Final = {"400", "413", "415"}
CALLER_ERRORS: Final = {"401", "403"}


def test_every_operation_describes_the_errors_of_its_kind() -> None:
    """The fixture `app` finds use-case errors that are not described."""
    findings = []
    for method, path, operation in operations():
        expected = {"431", "500"}
        if path.startswith(("/app/platform/", "/api/platform/")):
            expected.add("403")
        if "requestBody" in operation:
            expected |= BODY_ERRORS
        # Pages redirect to the sign-in page instead, and OAuth clients have their own errors.
        if operation.get("security", [{"cookie": []}]) not in ([{"cookie": []}], OF_CLIENTS):
            expected |= CALLER_ERRORS
        if missing := expected - operation["responses"].keys():
            findings.append(f"{method} {path}: {sorted(missing)}")
    assert findings == []


def test_413_and_415_are_described_exactly_where_they_can_occur() -> None:
    """The edge measures every body, even a body that no handler reads."""
    for method, path, operation in operations():
        can_have_body = method in ("POST", "PUT", "PATCH") or "requestBody" in operation
        assert ("413" in operation["responses"]) == can_have_body, (method, path)
        assert ("415" in operation["responses"]) == ("requestBody" in operation), (method, path)


def test_no_text_refers_to_our_documents() -> None:
    assert re.findall(r"\b(?:decision \d|security [A-Z]-\d|(?<!/)docs/)[^\"]*", json.dumps(every_route())) == []


def test_the_description_refers_to_no_other_host() -> None:
    """URLs occur only in texts and example values."""

    def strings(node: Any, key: str = "") -> list[str]:
        if isinstance(node, dict):
            return [text for name, child in node.items() for text in strings(child, name)]
        if isinstance(node, list):
            return [text for child in node for text in strings(child, key)]
        return [node] if isinstance(node, str) and key not in ("description", "examples") else []

    urls = [text for text in strings(every_route()) if "://" in text]
    assert urls == []
