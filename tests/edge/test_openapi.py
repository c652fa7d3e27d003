"""The interface description: valid, complete, the same wherever it is asked for, and true about errors."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from openapi_spec_validator import OpenAPIV31SpecValidator
from quart_trio import QuartTrio

from entrypoints.cli import main
from entrypoints.http.api.provisioning.discovery import METHODS
from entrypoints.http.app import Edge, describe
from entrypoints.http.edge.access import access_of
from entrypoints.http.edge.error_body import SCIM_JSON
from entrypoints.http.edge.openapi import interface_description
from entrypoints.version import VERSION
from tests.support.builders import Api, make_edge

Operation = dict[str, Any]


def operations() -> Iterator[tuple[str, str, Operation]]:
    for path, methods in describe()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


ALL = [pytest.param(operation, id=f"{method} {path}") for method, path, operation in operations()]


def test_it_is_valid_openapi() -> None:
    document = describe()
    assert document["openapi"].startswith("3.1.")
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


def test_it_says_what_this_is() -> None:
    info = describe()["info"]
    assert (info["title"], info["version"]) == ("Gatehouse", VERSION)
    assert tuple(int(part) for part in VERSION.split(".")[:3]) >= (0, 8, 2)  # decisions, point 31


@pytest.fixture
def edge(request: pytest.FixtureRequest) -> Edge:
    return make_edge(rate_limit_factor=getattr(request, "param", 1.0))


# Not even where the limits of addresses are off: those of accounts and of the hashing queue still are not (security.md N-2).
@pytest.mark.slow
@pytest.mark.parametrize("edge", [1.0, None, 10.0], indirect=True)
async def test_the_service_and_the_command_give_the_same_document(api: Api) -> None:
    answer = await api.get("/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    printed = CliRunner().invoke(main, ["openapi"])
    assert printed.exit_code == 0
    assert json.loads(printed.output) == answer.json == describe()


def test_areas_are_listed_in_order_and_operations_last() -> None:
    listed = [tag["name"] for tag in describe()["tags"]]
    assert listed[0] == "accounts"
    assert listed[-1] == "operations"
    assert {tag for _, _, operation in operations() for tag in operation["tags"]} == set(listed)


def test_operation_ids_are_unique_and_stable_words() -> None:
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    assert all(name.isidentifier() for name in ids)


async def test_two_operations_of_one_id_are_refused(app: QuartTrio, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = app.extensions["QUART_SCHEMA"].openapi_provider
    monkeypatch.setattr(provider, "operation_id", lambda *_: "same")
    with pytest.raises(ValueError, match="same"):
        interface_description(app)


@pytest.mark.parametrize("operation", ALL)
def test_an_operation_is_described_for_people(operation: Operation) -> None:
    assert operation["summary"].endswith(".")
    assert operation["tags"]
    for answer in operation["responses"].values():
        assert answer["description"].strip()


# What SCIM has and we have not, and says so (decisions, point 123; identity.md section 4.6).
NEVER_DONE = {f"scim_discovery_{name}_{method.lower()}" for method in METHODS for name in ("me", "bulk")}
NEVER_DONE |= {"scim_groups_create", "scim_groups_delete"}


@pytest.mark.parametrize("operation", ALL)
def test_an_operation_has_one_success_with_a_body_that_is_described(operation: Operation) -> None:
    statuses = {status for status in operation["responses"] if status < "400"}
    if operation["operationId"] in NEVER_DONE:
        assert not statuses
        return
    # A page that is there may send the browser to another one first.
    [status] = statuses - {"302", "303"} or statuses
    content = operation["responses"][status].get("content", {})
    for kind, described in content.items():
        schema = described["schema"]
        if kind in ("application/json", SCIM_JSON) and operation["operationId"] != "operations_openapi":
            assert schema["type"] in ("object", "array")
            # Where all there is to say is that it was done, the body is an empty object.
            assert schema.get("properties") or schema.get("items") or schema["title"] == "Nothing", schema


@pytest.mark.parametrize("operation", ALL)
def test_every_error_has_the_standard_body(operation: Operation) -> None:
    for status, answer in operation["responses"].items():
        for kind, described in answer.get("content", {}).items():
            if status >= "400" and status != "503" and kind == "application/json":
                name = "OAuthError" if operation["operationId"] in FOR_OAUTH else "Error"
                assert described["schema"] == {"$ref": f"#/components/schemas/{name}"}
            if status >= "400" and kind == SCIM_JSON:
                assert described["schema"] == {"$ref": "#/components/schemas/ScimError"}


@pytest.mark.slow
async def test_the_security_of_an_operation_is_its_decorators(app: QuartTrio) -> None:
    document = interface_description(app)
    for rule in app.url_map.iter_rules():
        access = access_of(app.view_functions[rule.endpoint])
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            operation = document["paths"][path][method.lower()]
            optional: list[dict[str, list[str]]] = [{"cookie": []}] if access.or_cookie else [{}] if access.optional else []
            assert operation.get("security", []) == ([{access.security: []}, *optional] if access.security else [])
    assert document["components"]["securitySchemes"] == {
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "scim_token": {"type": "http", "scheme": "bearer"},
        "api_key": {"type": "apiKey", "name": "X-Api-Key", "in": "header"},
        "cookie": {"type": "apiKey", "name": "gatehouse-session", "in": "cookie"},
        "billing_signature": {"type": "apiKey", "name": "billing-signature", "in": "header"},
    }


# Which errors an operation can give: what follows from its kind, and what the use case behind it refuses.

# Clients of OAuth are told what went wrong in its own words (decisions, point 94).
FOR_OAUTH = {"device_flow_request_codes", "oauth_token", "oauth_revoke"}
BODY_ERRORS = {"400", "413", "415"}
PERSON_ERRORS = {"401", "403"}
OWN_ERRORS = {
    "accounts_register": {"400", "409", "429"},
    "accounts_verify_email": {"400", "429"},
    "accounts_forgot_password": {"400", "429"},
    "accounts_reset_password": {"400", "429"},
    "accounts_reset_password_form": {"400", "429"},
    "accounts_reset_password_by_form": {"400", "403", "413", "415", "429"},
    "accounts_resend_verification": {"400", "429"},
    "sessions_login": {"400", "401", "429"},
    "sessions_refresh": {"400", "401", "403", "429"},
    "sessions_logout": {"401", "429"},
    "accounts_profile": {"401", "403"},
    "accounts_change_profile": {"400", "401", "403", "404"},
    "accounts_set_password": {"400", "401", "403", "404", "429"},  # 429: the hashing queue is full (security.md A-2)
    "accounts_change_password": {"400", "401", "403", "404", "429"},
    "device_flow_request_codes": {"400", "401", "403", "404", "429"},
    "device_flow_verify_page": {"400", "429"},
    "device_flow_verify": {"400", "401", "403", "429"},
    "members_list_members": {"400", "404"},
    "members_change_role": {"400", "404"},
    "members_remove": {"400", "404"},
    "members_transfer_ownership": {"400", "404"},
    "invitations_invite": {"429"},
    "invitations_list_invitations": {"400"},
    "invitations_accept_on_behalf": {"400"},
    "invitations_invitation_page": {"400"},
    "invitations_follow_link": {"400"},
    "invitations_accept_by_form": {"400", "403", "413", "415"},
    "invitations_decline_by_form": {"400", "403", "413", "415"},
    "organizations_create": {"400", "401", "403"},
    "organizations_list_own_organizations": {"401", "403"},
    "organizations_get_organization": {"401", "403", "404"},
    "organizations_update": {"400", "401", "403", "404"},
    "organizations_delete": {"401", "403", "404"},
    "services_listed": {"400", "404"},
    "services_service": {"404"},
    "services_rotate_secret": {"400", "404"},
    "services_delete": {"404"},
    "plans_create": {"404"},
    "plans_listed": {"404"},
    "plans_update": {"404"},
    "plans_delete": {"400", "404"},
    "api_keys_create": {"404"},
    "api_keys_page": {"400", "404"},
    "api_keys_api_key": {"404"},
    "api_keys_delete": {"404"},
    "service_users_page": {"400"},
    "service_users_service_user": {"404"},
    "service_users_change": {"404"},
    "service_users_delete": {"404"},
    "organizations_select": {"401", "403", "404", "429"},
    "governance_approve": {"400", "404"},
    "governance_reject": {"400", "404"},
    "governance_suspend": {"400", "404"},
    "governance_activate": {"400", "404"},
    "governance_change_tier": {"400", "404"},
    "governance_delete": {"404"},
    "platform_users_search": {"400"},
    "mfa_status": {"404"},
    "mfa_setup": {"400", "404", "429"},
    "mfa_verify": {"400", "404", "429"},
    "mfa_disable": {"404", "429"},
    "mfa_regenerate": {"400", "404", "429"},
    "platform_users_user_mfa_status": {"404"},
    "platform_users_remove_mfa": {"400", "404"},
    "platform_users_promote": {"400", "404"},
    "platform_users_demote": {"400", "404"},
    "domains_claim": {"400", "404"},
    "domains_get_domain": {"404"},
    "domains_verify": {"400", "404", "409"},
    "domains_remove": {"404"},
    "home_realm_list_routes": {"404"},
    "home_realm_replace_routes": {"400", "404"},
    "home_realm_look_up": {"400", "429"},
    "oauth_credentials_put": {"400", "404"},
    "oauth_credentials_current": {"404"},
    "oauth_credentials_remove": {"404"},
    "operations_ready": {"503"},
    "operations_metrics": {"401"},
    "operations_assets": {"404"},
}


@pytest.mark.parametrize("operation", ALL)
def test_an_operation_describes_the_errors_it_can_give(operation: Operation) -> None:
    expected = {"500"} | OWN_ERRORS.get(operation["operationId"], set())
    if "requestBody" in operation:
        expected |= BODY_ERRORS
    if operation.get("security", [{"cookie": []}]) != [{"cookie": []}]:  # whoever is not signed in to a page is sent to sign in
        expected |= PERSON_ERRORS
    assert expected - operation["responses"].keys() == set()


def test_a_body_may_be_too_large_wherever_one_may_be_sent() -> None:
    """It is measured on its way in, also where nothing reads it."""
    for method, path, operation in operations():
        may_have_one = method in ("POST", "PUT", "PATCH") or "requestBody" in operation
        assert ("413" in operation["responses"]) == may_have_one, (method, path)
        reads_one = "requestBody" in operation or path == "/webhooks/billing"  # whose signature is of the bytes, before anything is read
        assert ("415" in operation["responses"]) == reads_one, (method, path)


@pytest.mark.parametrize("operation", ALL)
def test_a_body_is_required_exactly_where_a_field_of_it_is(operation: Operation) -> None:
    if "requestBody" not in operation:
        return
    for content in operation["requestBody"]["content"].values():
        assert operation["requestBody"].get("required", False) == bool(content["schema"].get("required"))


def test_nothing_of_the_description_comes_from_elsewhere() -> None:
    text = json.dumps(describe())
    assert "://" not in text.replace("http://json-schema.org", "")
