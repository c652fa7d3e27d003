"""The API description: complete, the same from the service and the command line, and correct about errors.

A validator of another project and generated clients read it in `tests/proof/e2e/test_generated_clients.py`. The module is
longer than 400 lines, because each route has one row.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from click.testing import CliRunner
from quart_trio import QuartTrio

from core.kernel.api_scopes import DESCRIPTIONS
from entrypoints.cli import main
from entrypoints.http.api.provisioning.discovery import METHODS
from entrypoints.http.app import BLUEPRINTS
from entrypoints.http.edge import openapi
from entrypoints.http.edge.access import access_of
from entrypoints.http.edge.error_body import SCIM_JSON
from entrypoints.http.edge.openapi import interface_description
from entrypoints.version import VERSION
from tests.support.builders import Api
from tests.support.openapi import PREFIX, description, operations

JSON: Final = "application/json"


def test_it_names_the_product_and_the_version() -> None:
    info = description()["info"]
    assert (info["title"], info["version"]) == ("Gatehouse", VERSION)
    assert tuple(int(part) for part in VERSION.split(".")[:3]) >= (0, 8, 2)  # the version of the interface


async def test_the_service_serves_the_description(api: Api) -> None:
    answer = await api.get("/openapi.json")
    assert answer.headers["Content-Type"] == JSON
    assert answer.json == description()


@pytest.mark.slow
def test_the_command_line_gives_the_same_description() -> None:
    printed = CliRunner().invoke(main, ["openapi"])
    assert printed.exit_code == 0
    assert json.loads(printed.output) == description()


def test_the_areas_have_the_order_of_the_blueprints() -> None:
    names = [tag["name"] for tag in description()["tags"]]
    assert names == [module.routes.name for module, _ in BLUEPRINTS]
    assert {tag for _, _, operation in operations() for tag in operation["tags"]} == set(names)


def test_operation_ids_are_unique_identifiers() -> None:
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    assert [name for name in ids if not name.isidentifier()] == []


async def test_two_operations_with_one_id_are_refused(app: QuartTrio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openapi, "operation_id", lambda _: "same")
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
    for method, path, operation in operations():
        if not operation.get("description", "").strip():
            findings.append(f"{method} {path}")
        for parameter in operation["parameters"]:
            if not parameter.get("description", "").strip():
                findings.append(f"{method} {path} {parameter['name']}")
    assert findings + [path for path in fields_of(description()) if not path.endswith(".description")] == []


def fields_of(node: Any, path: str = "") -> Iterator[str]:
    """Return the path of each field of each schema, with `.description` if it has one."""
    if isinstance(node, dict) and isinstance(node.get("properties"), dict):
        for name, field in node["properties"].items():
            yield f"{path}.{name}" + (".description" if field.get("description", "").strip() else "")
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, child in children:
        yield from fields_of(child, f"{path}.{name}")


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
    """Client generators make a class of each model: two copies would be two classes."""
    findings = []
    for method, path, operation in operations(description()["paths"]):
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        schemas = [media_type["schema"] for body in bodies for media_type in body.get("content", {}).values()]
        findings += [f"{method} {path}: {schema['title']}" for schema in schemas if "title" in schema]
    assert findings == []


# Operations of SCIM that are not supported, and answer 501 (decision 123).
UNSUPPORTED: Final = {f"scim_discovery_{name}_{method.lower()}" for method in METHODS for name in ("me", "bulk")} | {
    "scim_groups_create",
    "scim_groups_delete",
}


def test_every_operation_has_one_success_and_a_schema_of_its_body() -> None:
    findings = []
    for method, path, operation in operations():
        successes = {status for status in operation["responses"] if status < "400"}
        if operation["operationId"] in UNSUPPORTED:
            if successes:
                findings.append(f"{method} {path}: {successes}, but it is not supported")
            continue
        successes = successes - {"302", "303"} or {min(successes)}  # a page can redirect instead, in two ways
        if len(successes) != 1:
            findings.append(f"{method} {path}: {successes}")
        for status in successes:
            for media_type, content in operation["responses"][status].get("content", {}).items():
                if media_type in (JSON, SCIM_JSON) and not _has_schema(content["schema"]) and path != "/openapi.json":
                    findings.append(f"{method} {path}: {content['schema']}")
    assert findings == []


def _has_schema(schema: dict[str, Any]) -> bool:
    """Return whether a response is described: an object with fields, a list of items, or the empty object."""
    if schema["type"] not in ("object", "array"):
        return False
    return bool(schema.get("properties") or schema.get("items")) or schema.get("title") == "Empty"


# Errors in the format of OAuth.
OAUTH_OPERATIONS: Final = {
    "device_flow_request_codes",
    "oauth_exchange",
    "oauth_revoke",
    "oauth_introspect",
    "pushed_requests_push",
    "userinfo_get_userinfo",
    "userinfo_post_userinfo",
}


def test_every_error_has_the_standard_body() -> None:
    findings = []
    for method, path, operation in operations(description()["paths"]):
        model = "OAuthError" if operation["operationId"] in OAUTH_OPERATIONS else "Error"
        for status, answer in operation["responses"].items():
            for media_type, content in answer.get("content", {}).items():
                if status < "400" or (media_type == JSON and status == "503"):  # 503: the report of the readiness check
                    continue
                expected = {JSON: model, SCIM_JSON: "ScimError"}.get(media_type)
                if expected is not None and content["schema"] != {"$ref": f"{PREFIX}{expected}"}:
                    findings.append(f"{method} {path} {status}: {content['schema']}")
    assert findings == []


# Routes that read the credentials of OAuth clients and the token for the claims about a user themselves.
OF_CLIENTS: Final[list[dict[str, list[str]]]] = [{"client": []}, {}]
AUTHENTICATES_ITSELF: Final[dict[str, list[dict[str, list[str]]]]] = {
    **dict.fromkeys(("/auth/token", "/auth/revoke", "/auth/introspect", "/auth/par"), OF_CLIENTS),
    "/auth/userinfo": [{"bearer": ["openid"]}, {"dpop": ["openid"]}],
}


@pytest.mark.slow
async def test_the_security_of_an_operation_is_that_of_its_decorators(app: QuartTrio) -> None:
    document = interface_description(app)
    findings = []
    for rule in app.url_map.iter_rules():
        access = access_of(app.view_functions[rule.endpoint])
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
        optional: list[dict[str, list[str]]] = [{"cookie": []}] if access.or_cookie else [{}] if access.optional else []
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            scope = access.requirement(method).scope if access.is_of_api else None
            schemes = [access.security] if access.security else []
            schemes += ["dpop"] if access.is_of_api else []
            schemes += ["service_account"] if scope is not None and access.opens_to_service_accounts else []
            schemes += ["personal_token"] if scope is not None and access.opens_to_personal_tokens else []
            scopes = [scope.value] if scope else []
            expected = AUTHENTICATES_ITSELF.get(path) or ([*({scheme: scopes} for scheme in schemes), *optional] if schemes else [])
            security = document["paths"][path][method.lower()].get("security", [])
            if security != expected:
                findings.append(f"{method} {path}: {security}, not {expected}")
    assert findings == []
    schemes = document["components"]["securitySchemes"]
    of_programs = {name: text for name, text in DESCRIPTIONS.items() if not name.startswith("account:")}
    assert {name: {key: value for key, value in scheme.items() if key != "description"} for name, scheme in schemes.items()} == {
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "dpop": {"type": "http", "scheme": "DPoP"},
        "service_account": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "/auth/token", "scopes": of_programs}}},
        "personal_token": {"type": "http", "scheme": "bearer"},
        "client": {"type": "http", "scheme": "basic"},
        "scim_token": {"type": "http", "scheme": "bearer"},
        "api_key": {"type": "apiKey", "name": "X-Api-Key", "in": "header"},
        "cookie": {"type": "apiKey", "name": "gatehouse-session", "in": "cookie"},
        "billing_signature": {"type": "apiKey", "name": "billing-signature", "in": "header"},
    }
    declared = [
        (name, scope) for _, _, each in operations() for alternative in each.get("security", []) for name, scope in alternative.items()
    ]
    assert {scope for name, scopes in declared if name == "service_account" for scope in scopes} == of_programs.keys()


# The errors of an operation: those that follow from its kind, and those of its use case.
BODY_ERRORS: Final = {"400", "413", "415"}
CALLER_ERRORS: Final = {"401", "403"}
# 429 on the routes of passwords: the hashing queue is full (security A-2). This limit and those per
# account apply even if those per address are off (security N-2), so 429 is always documented.
ERRORS: Final = """
POST   /api/auth/register                                         400 409 429
GET    /auth/verify-email                                         400 429
POST   /api/auth/forgot-password                                  400 429
POST   /api/auth/reset-password                                   400 429
GET    /auth/reset-password                                       400 429
POST   /auth/reset-password                                       400 403 413 415 429
GET    /auth/undo                                                 400 429
GET    /auth/undo-email-change                                    429
POST   /auth/par                                                  400 401 403 404 413 415 429
POST   /auth/undo                                                 400 403 413 415 429
GET    /auth/recover-owner                                        400 429
POST   /auth/recover-owner                                        400 403 413 415 429
POST   /api/auth/resend-verification                              400 429
POST   /api/auth/login                                            400 401 429
POST   /api/auth/email-sign-in                                    400 403 404 429
POST   /api/auth/email-sign-in/verify                             400 401 403 404 429
GET    /auth/email-sign-in                                        400 429
POST   /auth/email-sign-in                                        400 403 404 413 415 429
POST   /api/auth/refresh                                          400 401 403 429
POST   /api/auth/logout                                           401 429
GET    /api/user                                                  401 403
PATCH  /api/user                                                  400 401 403 404 429
DELETE /api/user                                                  401 403 429
POST   /api/user/set-password                                     400 401 403 404 429
POST   /api/user/change-password                                  400 401 403 404 429
GET    /auth/userinfo                                                 401 403 429
POST   /auth/userinfo                                                 400 401 403 429
POST   /auth/device/code                                          400 401 403 404 429
GET    /auth/device/verify                                        400 429
POST   /auth/device/verify                                        400 401 403 429
GET    {org}/members                                              400 404
GET    {org}/members/{user_id}                                    404
DELETE {org}/members/{user_id}/sessions                           404
PATCH  {org}/members/{user_id}                                    400 404
POST   {org}/members/{user_id}                                    400 404
POST   {org}/members/{user_id}/password-reset                     400 404
POST   {org}/leave                                                400 401 403 404
GET    {org}/directory-blocks                                     400 404
DELETE {org}/directory-blocks/{user_id}                           404
POST   {org}/transfer-ownership                                   400 404
POST   {org}/invitations                                          429
POST   {org}/invitations/bulk                                     429
GET    {org}/invitations                                          400
POST   {org}/invitations/{invitation_id}/accept                   400
POST   {org}/invitations/{invitation_id}/resend                   400 429
GET    /app/invitations/accept                                    400 403
GET    /invitations/accept                                        400
POST   /app/invitations/accept                                    400 403 413 415
POST   /app/invitations/decline                                   400 403 413 415
POST   /api/organizations                                         400 401 403
GET    /api/organizations                                         401 403
GET    {org}                                                      401 403 404
PATCH  {org}                                                      400 401 403 404
DELETE {org}                                                      401 403 404
GET    /api/user/applications                                     401 403
GET    /api/user/consents                                         401 403
DELETE /api/user/consents/{service_id}                            401 403 404
POST   /api/user/personal-tokens                                  400 401 403
GET    /api/user/personal-tokens                                  401 403
DELETE /api/user/personal-tokens/{personal_token_id}              401 403 404
GET    {org}/personal-tokens                                      400 404
DELETE {org}/personal-tokens/{personal_token_id}                  404
GET    {org}/services                                             400 404
GET    {service}                                                  404
GET    {service}/access                                           404
GET    {service}/sign-in-preview                                  400 404
PUT    {service}/access                                           400 404
GET    {service}/assignments                                      400 404
POST   {service}/assignments                                      404
PUT    {service}/assignments/{user_id}                            404
DELETE {service}/assignments/{user_id}                            404
GET    {org}/api-resources                                        404
POST   {org}/api-resources                                        400 404 409
GET    {resource}                                                 404
PATCH  {resource}                                                 400 404
DELETE {resource}                                                 404
GET    {resource}/access                                          404
PUT    {resource}/access                                          404
GET    {resource}/assignments                                     400 404
POST   {resource}/assignments                                     404
PUT    {resource}/assignments/{user_id}                           404
DELETE {resource}/assignments/{user_id}                           404
GET    {resource}/clients                                         400 404
PUT    {resource}/clients/{client_id}                             400 404
DELETE {resource}/clients/{client_id}                             404
GET    {resource}/credentials                                     404
POST   {resource}/credentials                                     400 404
DELETE {resource}/credentials/{credential_id}                     404
GET    {org}/service-accounts                                     400 404
POST   {org}/service-accounts                                     400 403 404
GET    {account}                                                  404
PATCH  {account}                                                  400 403 404
DELETE {account}                                                  403 404
GET    {account}/api-resources                                    404
PUT    {account}/api-resources/{resource_id}                      400 403 404
DELETE {account}/api-resources/{resource_id}                      403 404
GET    {account}/credentials                                      404
POST   {account}/credentials                                      400 403 404
DELETE {account}/credentials/{credential_id}                      403 404
GET    /api/platform/service-accounts                             400
POST   /api/platform/service-accounts                             400
GET    {of_platform}                                              404
PATCH  {of_platform}                                              400 404
DELETE {of_platform}                                              404
GET    {of_platform}/credentials                                  404
POST   {of_platform}/credentials                                  400 404
DELETE {of_platform}/credentials/{credential_id}                  404
POST   {service}/rotate-secret                                    400 404
DELETE {service}                                                  404
POST   {service}/plans                                            404
GET    {service}/plans                                            404
PATCH  {service}/plans/{plan_id}                                  404
DELETE {service}/plans/{plan_id}                                  400 404
GET    {service}/subscriptions                                    400 404
POST   {service}/api-keys                                         404
GET    {service}/api-keys                                         400 404
GET    {service}/api-keys/{api_key_id}                            404
DELETE {service}/api-keys/{api_key_id}                            404
GET    /api/service/users                                         400
GET    /api/service/users/{user_id}                               404
PATCH  /api/service/users/{user_id}                               404
DELETE /api/service/users/{user_id}                               404
POST   {org}/select                                               401 403 404 429
GET    /api/platform/organizations/{org_id}                       404
POST   /api/platform/organizations/{org_id}/approve               400 404
POST   /api/platform/organizations/{org_id}/reject                400 404
POST   /api/platform/organizations/{org_id}/suspend               400 404
POST   /api/platform/organizations/{org_id}/activate              400 404
PATCH  /api/platform/organizations/{org_id}/tier                  400 404
DELETE /api/platform/organizations/{org_id}                       404
GET    /api/platform/users/{user_id}                              404
POST   /api/platform/users/{user_id}/end-sessions                 400 404
POST   /api/platform/users/{user_id}/password-reset               400 404
GET    /api/platform/users/search                                 400
GET    /api/user/mfa/status                                       404
POST   /api/user/mfa/setup                                        400 404 429
POST   /api/user/mfa/verify                                       400 404 429
DELETE /api/user/mfa                                              404 429
POST   /api/user/mfa/backup-codes/regenerate                      400 404 429
GET    /api/platform/users/{user_id}/mfa/status                   404
GET    /api/user/mfa/events                                       400 404
GET    /api/user/privacy-log                                      400 404
GET    /api/platform/users/{user_id}/mfa/events                   400 404
GET    /api/platform/users/{user_id}/privacy-log                  400 404
GET    {org}/audit-log/export                                     400
GET    {org}/audit-log/{entry_id}                                 404
GET    /api/platform/audit-log                                    400
GET    /api/platform/audit-log/export                             400
GET    /api/platform/audit-log/{entry_id}                         404
DELETE /api/platform/users/{user_id}/mfa                          400 404
POST   /api/platform/users/{user_id}/deactivate                   400 404
POST   /api/platform/users/{user_id}/reactivate                   400 404
POST   /api/platform/owners                                       400 404
DELETE /api/platform/owners/{user_id}                             400 404
POST   {org}/domain                                               400 404
GET    {org}/domain                                               404
GET    {org}/domain/accounts                                      400 404
GET    {org}/domain/invitations                                   400 404
POST   {org}/domain/verify                                        400 404 409
DELETE {org}/domain                                               404
GET    {org}/hrd                                                  404
PUT    {org}/hrd                                                  400 404
POST   /api/auth/lookup-email                                     400 429
PUT    {service}/oauth-credentials/{provider}                     400 404
GET    {service}/oauth-credentials/{provider}                     404
DELETE {service}/oauth-credentials/{provider}                     404
POST   {service}/saml/certificate/next                            400 404 409
GET    {service}/saml/certificate/next                            404
DELETE {service}/saml/certificate/next                            404
POST   {service}/saml/certificate/activate                        404
POST   {service}/saml/certificate/undo                            404 409
POST   {service}/saml/metadata                                    400 404
GET    {service}/saml/check                                       404
GET    /health/ready                                              503
GET    /metrics                                                   401
GET    /assets/{name}                                             404
"""
SHORT: Final = {
    "{service}": "{org}/services/{service_slug}",
    "{resource}": "{org}/api-resources/{resource_id}",
    "{of_platform}": "/api/platform/service-accounts/{account_id}",
    "{account}": "{org}/service-accounts/{account_id}",
    "{org}": "/api/organizations/{org_slug}",
}


def errors_of_use_cases() -> dict[str, set[str]]:
    """Return the table above, by method and path."""
    table = ERRORS
    for short, path in SHORT.items():
        table = table.replace(short, path)
    rows = [line.split() for line in table.strip().splitlines()]
    return {f"{method} {path}": set(statuses) for method, path, *statuses in rows}


def test_every_operation_describes_the_errors_that_it_can_give() -> None:
    own = errors_of_use_cases()
    findings = []
    for method, path, operation in operations():
        expected = {"431", "500"} | own.pop(f"{method} {path}", set())
        if path.startswith(("/app/platform/", "/api/platform/")):
            expected.add("403")
        if "requestBody" in operation:
            expected |= BODY_ERRORS
        # Pages redirect to the sign-in page instead, and clients of OAuth have errors of their own.
        if operation.get("security", [{"cookie": []}]) not in ([{"cookie": []}], OF_CLIENTS):
            expected |= CALLER_ERRORS
        if missing := expected - operation["responses"].keys():
            findings.append(f"{method} {path}: {sorted(missing)}")
    assert findings == []
    assert own == {}, "rows without an operation"


def test_413_and_415_are_described_exactly_where_they_can_occur() -> None:
    """The edge measures every body, even one that no handler reads."""
    for method, path, operation in operations():
        can_have_body = method in ("POST", "PUT", "PATCH") or "requestBody" in operation
        assert ("413" in operation["responses"]) == can_have_body, (method, path)
        assert ("415" in operation["responses"]) == ("requestBody" in operation), (method, path)


# Requests that also work without a body.
OPTIONAL_BODIES: Final = {
    "POST /api/organizations/{org_slug}/services/{service_slug}/rotate-secret",
    "POST /api/platform/organizations/{org_id}/approve",
    "POST /api/platform/organizations/{org_id}/suspend",
    "PATCH /api/service/users/{user_id}",
    "PATCH /api/user",
    "POST /api/auth/reauthenticate",
}


def test_a_body_is_required_except_where_an_empty_one_is_accepted() -> None:
    bodies = {f"{method} {path}": operation["requestBody"] for method, path, operation in operations() if "requestBody" in operation}
    assert {name for name, body in bodies.items() if not body.get("required", False)} == OPTIONAL_BODIES


def test_no_text_refers_to_our_documents() -> None:
    assert re.findall(r"[^\"]*\b(?:decision \d|security [A-Z]-\d|docs/)[^\"]*", json.dumps(description())) == []


def test_the_description_refers_to_no_other_host() -> None:
    """URLs occur only in texts and examples of values."""

    def strings(node: Any, key: str = "") -> list[str]:
        if isinstance(node, dict):
            return [text for name, child in node.items() for text in strings(child, name)]
        if isinstance(node, list):
            return [text for child in node for text in strings(child, key)]
        return [node] if isinstance(node, str) and key not in ("description", "examples") else []

    urls = [text for text in strings(description()) if "://" in text]
    assert urls == []
