"""Every endpoint of the inventory keeps its documented interface, and every other route is a deliberate addition.

The inventory is `endpoints.json`, one endpoint in each line:

- `method` is null where the documentation names none; any method matches then.
- `auth` is the credential: `jwt`, `platform_owner_jwt`, `preauth_jwt`, `api_key:PERMISSION`, `scim_token`, `billing_signature`, `none`,
  or null where the documentation does not say.
- `roles` are the roles that may call it, or empty for all; `org_must_be_active` is null where no organization is involved.
- `required` has the fields of the JSON request, and whether each is required; null where the documentation does not say.
- `success.shape` is the fields of the JSON response, or its kind.
- `errors` are the documented error statuses, and `rate_limited` is null where the documentation does not say.

The module is longer than 400 lines, because the shape of each response stands in it.
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
from core.accounts.model.profiles import DETAILS
from core.provisioning.model.schemas import ENTERPRISE_URN
from entrypoints.http.api.provisioning.discovery import METHODS
from ports import Ports
from tests.support.builders import Answer, Api
from tests.support.openapi import Operation, operations
from tests.support.paths import API_KEY, add_ruler, filled, pre_auth_token, restore
from tests.support.scim import SCIM_JSON

Row = dict[str, Any]

# The routes that the inventory does not have, and the reason for each. Pages of the console are not listed (decision 271).
ADDITIONS: Final = {
    "POST /api/auth/logout": "sign out",
    "GET /api/organizations/{}/service-accounts/{}/created-secrets": "security J-12",
    "DELETE /api/organizations/{}/service-accounts/{}/created-secrets": "security J-12",
    "GET /.well-known/jwks.json": "the public keys of tokens",
    "GET /openapi.json": "the description of the API",
    "GET /docs": "security G-1: the page of the API description",
    "GET /assets/{}": "security G-1: the files that pages load",
    "GET /": "the first page",
    "GET /auth/reset-password": "the page that the link in a reset email opens",
    "POST /auth/reset-password": "the form of that page",
    "GET /api/auth/reauthenticate": "security A-12: how the user can confirm that it's them",
    "POST /api/auth/reauthenticate": "security A-12: confirm it with the factors of the account",
    "POST /api/auth/reauthenticate/email": "security A-12: a code in an email",
    "POST /api/auth/reauthenticate/{}": "security A-12: a linked identity provider",
    "POST /api/auth/email-sign-in": "request a code to sign in",
    "POST /api/auth/email-sign-in/verify": "sign in with the code",
    "GET /auth/email-sign-in": "the page that the link in the email opens",
    "POST /auth/email-sign-in": "the form of that page",
    "GET /auth/undo-email-change": "links of emails that an earlier release sent",
    "GET /auth/undo": "security A-9: the page that the link in the notice to the old address opens",
    "POST /auth/undo": "security A-9: the form of that page",
    "GET /auth/recover-owner": "security I-7: the page that the link of `gatehouse owner recover` opens",
    "POST /auth/recover-owner": "security I-7: the form of that page",
    "POST /api/organizations": "organizations of the user",
    "GET /api/organizations": "organizations of the user",
    "GET /api/organizations/{}": "organizations of the user",
    "PATCH /api/organizations/{}": "organizations of the user",
    "DELETE /api/organizations/{}": "organizations of the user",
    "GET /api/organizations/{}/branding": "the branding of an organization",
    "PATCH /api/organizations/{}/branding": "the branding of an organization",
    "POST /api/organizations/{}/smtp": "the mail server of an organization",
    "GET /api/organizations/{}/smtp": "the mail server of an organization",
    "DELETE /api/organizations/{}/smtp": "the mail server of an organization",
    "POST /api/organizations/{}/smtp/test": "security W-7: send a test email",
    "POST /api/organizations/{}/services/{}/rotate-secret": "decision 92",
    "POST /api/organizations/{}/webhooks/{}/rotate-secret": "a new secret of a webhook",
    "POST /api/organizations/{}/webhooks/{}/test": "send a test delivery, as for mail servers",
    "GET /api/organizations/{}/webhooks/{}/deliveries/{}": "the attempts of a delivery, which the console shows",
    "POST /api/organizations/{}/webhooks/{}/deliveries/{}/replay": "for receivers that lost deliveries",
    "POST /api/organizations/{}/domain": "the domain of an organization",
    "GET /api/organizations/{}/domain": "the domain of an organization",
    "DELETE /api/organizations/{}/domain": "the domain of an organization",
    "POST /api/organizations/{}/domain/verify": "the domain of an organization",
    "GET /api/organizations/{}/domain/accounts": "security T-6",
    "GET /api/organizations/{}/domain/invitations": "security T-6",
    "GET /api/organizations/{}/hrd": "home realm discovery",
    "PUT /api/organizations/{}/hrd": "home realm discovery",
    "PUT /api/organizations/{}/services/{}/oauth-credentials/{}": "credentials of an application at identity providers",
    "GET /api/organizations/{}/services/{}/oauth-credentials/{}": "credentials of an application at identity providers",
    "DELETE /api/organizations/{}/services/{}/oauth-credentials/{}": "credentials of an application at identity providers",
    "GET /api/organizations/{}/services/{}/subscriptions": "the console of members, who have no API key",
    "POST /api/organizations/{}/services/{}/saml/metadata": "fill the SAML settings from the metadata of an application",
    "GET /api/organizations/{}/services/{}/saml/check": "find what is wrong with the SAML settings",
    "POST /api/organizations/{}/services/{}/saml/certificate/next": "decision 382",
    "GET /api/organizations/{}/services/{}/saml/certificate/next": "decision 382",
    "DELETE /api/organizations/{}/services/{}/saml/certificate/next": "decision 382",
    "POST /api/organizations/{}/services/{}/saml/certificate/activate": "decision 382",
    "POST /api/organizations/{}/services/{}/saml/certificate/undo": "decision 382",
    "GET /api/organizations/{}/scim-requests": "the console shows what a directory sends",
    "GET /scim/v2/ServiceProviderConfig": "decision 123",
    "GET /scim/v2/ResourceTypes": "decision 123",
    "GET /scim/v2/ResourceTypes/{}": "decision 123",
    "GET /scim/v2/Schemas": "decision 123",
    "GET /scim/v2/Schemas/{}": "decision 123",
    **{f"{method} /scim/v2/{name}": "decision 123" for method in METHODS for name in ("Me", "Bulk")},
    "GET /auth/authorize": "decision 88",
    "POST /auth/authorize": "the form of that page, or an authorization request of an application",
    "GET /auth/end-session": "RP-Initiated Logout",
    "POST /auth/end-session": "RP-Initiated Logout",
    "POST /auth/revoke": "the endpoint of RFC 7009",
    "POST /auth/introspect": "the endpoint of RFC 7662",
    "POST /auth/par": "RFC 9126: applications push their authorization requests",
    "GET /auth/userinfo": "the userinfo endpoint of OpenID Connect Core",
    "POST /auth/userinfo": "the same, with the token in a form",
    "GET /.well-known/openid-configuration": "the metadata of OpenID Connect Discovery",
    "GET /.well-known/oauth-protected-resource/api": "RFC 9728: where clients of the API find its issuer and scopes",
    "GET /.well-known/oauth-authorization-server": "the endpoint of RFC 8414",
    "POST /auth/device/verify": "approve or deny a device without the page",
    "DELETE /api/user": "users delete their own account",
    "GET /auth/{}/callback": "decision 87",
    "POST /api/organizations/{}/leave": "security R-6",
    "GET /api/organizations/{}/members/{}": "security R-9: the member's page of the console",
    "DELETE /api/organizations/{}/members/{}/sessions": "security R-9: admins end the sessions of a member",
    "POST /api/organizations/{}/invitations/bulk": "the console invites pasted addresses",
    "POST /api/organizations/{}/invitations/{}/resend": "decision 273",
    "POST /api/organizations/{}/members/{}/password-reset": "security R-8: admins help members who cannot sign in",
    "GET /api/organizations/{}/directory-blocks": "users that the directory blocks",
    "DELETE /api/organizations/{}/directory-blocks/{}": "users that the directory blocks",
    "GET /api/organizations/{}/services/{}/access": "who may use a service",
    "PUT /api/organizations/{}/services/{}/access": "who may use a service",
    "GET /api/organizations/{}/services/{}/sign-in-preview": "test the sign-in to a service",
    "GET /api/organizations/{}/services/{}/assignments": "the assigned users",
    "POST /api/organizations/{}/services/{}/assignments": "assign a user by email address",
    "PUT /api/organizations/{}/services/{}/assignments/{}": "the assigned users",
    "DELETE /api/organizations/{}/services/{}/assignments/{}": "the assigned users",
    "POST /api/user/personal-tokens": "personal access tokens",
    "GET /api/user/personal-tokens": "personal access tokens",
    "DELETE /api/user/personal-tokens/{}": "personal access tokens",
    "GET /api/organizations/{}/personal-tokens": "admins see the tokens that act in their organization",
    "DELETE /api/organizations/{}/personal-tokens/{}": "admins end the tokens that act in their organization",
    "GET /api/organizations/{}/api-resources": "API resources of an organization",
    "POST /api/organizations/{}/api-resources": "API resources of an organization",
    "GET /api/organizations/{}/api-resources/{}": "API resources of an organization",
    "PATCH /api/organizations/{}/api-resources/{}": "API resources of an organization",
    "DELETE /api/organizations/{}/api-resources/{}": "API resources of an organization",
    "GET /api/organizations/{}/api-resources/{}/access": "API resources of an organization",
    "PUT /api/organizations/{}/api-resources/{}/access": "API resources of an organization",
    "GET /api/organizations/{}/api-resources/{}/assignments": "API resources of an organization",
    "POST /api/organizations/{}/api-resources/{}/assignments": "API resources of an organization",
    "PUT /api/organizations/{}/api-resources/{}/assignments/{}": "API resources of an organization",
    "DELETE /api/organizations/{}/api-resources/{}/assignments/{}": "API resources of an organization",
    "GET /api/organizations/{}/api-resources/{}/clients": "API resources of an organization",
    "PUT /api/organizations/{}/api-resources/{}/clients/{}": "API resources of an organization",
    "DELETE /api/organizations/{}/api-resources/{}/clients/{}": "API resources of an organization",
    "GET /api/organizations/{}/api-resources/{}/credentials": "credentials of API resources",
    "POST /api/organizations/{}/api-resources/{}/credentials": "credentials of API resources",
    "DELETE /api/organizations/{}/api-resources/{}/credentials/{}": "credentials of API resources",
    "GET /api/organizations/{}/service-accounts": "service accounts of an organization",
    "POST /api/organizations/{}/service-accounts": "service accounts of an organization",
    "GET /api/organizations/{}/service-accounts/{}": "service accounts of an organization",
    "PATCH /api/organizations/{}/service-accounts/{}": "service accounts of an organization",
    "DELETE /api/organizations/{}/service-accounts/{}": "service accounts of an organization",
    "GET /api/organizations/{}/service-accounts/{}/credentials": "service accounts of an organization",
    "POST /api/organizations/{}/service-accounts/{}/credentials": "service accounts of an organization",
    "DELETE /api/organizations/{}/service-accounts/{}/credentials/{}": "service accounts of an organization",
    "GET /api/platform/service-accounts": "service accounts of the platform",
    "POST /api/platform/service-accounts": "service accounts of the platform",
    "GET /api/platform/service-accounts/{}": "service accounts of the platform",
    "PATCH /api/platform/service-accounts/{}": "service accounts of the platform",
    "DELETE /api/platform/service-accounts/{}": "service accounts of the platform",
    "GET /api/platform/service-accounts/{}/credentials": "service accounts of the platform",
    "POST /api/platform/service-accounts/{}/credentials": "service accounts of the platform",
    "DELETE /api/platform/service-accounts/{}/credentials/{}": "service accounts of the platform",
    "GET /api/organizations/{}/service-accounts/{}/api-resources": "scopes of API resources for service accounts",
    "PUT /api/organizations/{}/service-accounts/{}/api-resources/{}": "scopes of API resources for service accounts",
    "DELETE /api/organizations/{}/service-accounts/{}/api-resources/{}": "scopes of API resources for service accounts",
    "GET /api/user/applications": "the applications of the user, with links that open them",
    "GET /api/user/mfa/events": "security M-6: the log of the user's second factor",
    "GET /api/user/privacy-log": "who exported the user's data",
    "GET /api/platform/users/{}/mfa/events": "security M-6",
    "GET /api/platform/users/{}/privacy-log": "decision 143",
    "POST /api/platform/users/{}/deactivate": "security I-8",
    "POST /api/platform/users/{}/reactivate": "security I-8",
    "GET /api/organizations/{}/overview": "issue 29: the first page of an organization in the console",
    "GET /api/organizations/{}/audit-log/export": "issue 29: the organization's log as a file",
    "GET /api/organizations/{}/audit-log/{}": "issue 29: the detail of an entry in the console",
    "GET /api/platform/users/{}": "the page of a user in the console",
    "POST /api/platform/users/{}/end-sessions": "the same page",
    "POST /api/platform/users/{}/password-reset": "the same page",
    "GET /api/platform/owners": "the page of the platform owners in the console",
    "GET /api/platform/organizations/{}": "issue 29: the page of an organization in the console",
    "GET /api/platform/health": "issue 29: the health of the installation",
    "GET /api/platform/health/checks": "issue 29: the findings of the doctor",
    "GET /api/platform/settings": "issue 29: the settings in force",
    "GET /api/platform/audit-log": "the platform's log",
    "GET /api/platform/audit-log/export": "the platform's log as a file",
    "GET /api/platform/audit-log/{}": "the entry of `audit_log_id`",
    "GET /api/user/consents": "OpenID Connect Core section 3.1.2.4: the consents of the user",
    "DELETE /api/user/consents/{}": "the same: the user withdraws a consent",
}

PROFILE_FIELDS: Final = ("name", "picture", "locale", "zoneinfo", *DETAILS)
# Fields of responses that the inventory does not have, by the id of the row, and the reason for each.
SERVICE_FIELDS: Final = {
    **dict.fromkeys(("pkce_without_secret", "former_secret_expires_at"), "decision 92"),
    "email_sign_in": "sign-in by email",
    **dict.fromkeys(("is_trusted", "id_token_claims", "post_logout_redirect_uris", "backchannel_logout_uri"), "OpenID Connect"),
    **dict.fromkeys(("jwks", "jwks_uri", "accepts_token_endpoint_audience"), "client assertions"),
    **dict.fromkeys(("access_token_seconds", "refresh_token_seconds", "enterprise", "required_acr"), "settings of OpenID Connect"),
    "require_pushed_authorization_requests": "RFC 9126 section 6",
    "dpop_bound_access_tokens": "RFC 9449 section 5.2",
    "always_ask_consent": "consent in each sign-in",
}
ADDED_FIELDS: Final = {
    **{
        operation: {**dict.fromkeys(PROFILE_FIELDS, "decision 247"), added: reason}
        for operation, added, reason in (
            ("user-get", "pending_email", "the requested address"),
            ("user-update", "pending_email", "the requested address"),
        )
    },
    "privacy-export": {
        **dict.fromkeys(PROFILE_FIELDS, "decision 247"),
        **dict.fromkeys(("email_changes", "security_notices", "consents", "service_accounts", "personal_tokens"), "security Y-1"),
    },
    "auth-login": {"mfa_required": "the second factor", "redirect_url": "decision 175"},
    "organization-select": {"expires_in": "decision 51"},
    "platform-user-search": {"next": "decision 241"},
    "service-create": {"client_secret": "decision 92"},
    "webhook-create": {"secret": "returned once"},
    "saml-config-get": {"slo_certificate": "for LogoutRequests", "identity_provider": "the values to copy into the application"},
    "service-get": SERVICE_FIELDS,
    "service-update": {"client_secret": "decision 158", **SERVICE_FIELDS},
    **{
        f"scim-users-{operation}": dict.fromkeys(
            ("title", "preferredLanguage", "locale", "timezone", "phoneNumbers", "photos", ENTERPRISE_URN), "decision 128"
        )
        for operation in ("get", "create", "replace", "patch")
    },
    **{f"scim-groups-{operation}": {"externalId": "decision 137"} for operation in ("get", "replace", "patch")},
}
# Fields that some responses lack.
OPTIONAL_FIELDS: Final = {
    "service-get": set(SERVICE_FIELDS),
    "service-update": {"client_secret", *SERVICE_FIELDS},
    "auth-login": {"mfa_required", "redirect_url"},
    **{operation: {*DETAILS} for operation in ("user-get", "user-update", "privacy-export")},
}

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A row of the inventory, and the operation that implements it."""

    row: Row
    method: str
    path: str
    operation: Operation

    @property
    def auth(self) -> str:
        return str(self.row["auth"])

    @property
    def body_schema(self) -> dict[str, Any] | None:
        """The schema of the JSON body, or None.

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
    """Return a path without the names of its variables, which can differ from ours."""
    return re.sub(r"<[^>]+>|\{[^}]+\}|:[a-z_]+", "{}", path)


INVENTORY: Final[list[Row]] = json.loads(Path(__file__).with_name("endpoints.json").read_text("utf-8"))
OPERATIONS: Final = {f"{method} {unnamed(path)}": (method, path, operation) for method, path, operation in operations()}


def endpoints() -> Iterator[Endpoint]:
    """Yield the rows of the inventory that are implemented."""
    for row in INVENTORY:
        path = unnamed(row["path"])
        names = [f"{row['method']} {path}"] if row["method"] else [name for name in OPERATIONS if name.endswith(f" {path}")]
        for name in names[:1]:
            if name in OPERATIONS:
                yield Endpoint(row, *OPERATIONS[name])


ENDPOINTS: Final = list(endpoints())
# The signature of the payment provider is checked before the body. tests/billing/api/provider_events sends signed bodies.
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


def test_every_route_is_documented_or_a_known_addition() -> None:
    documented = {f"{endpoint.method} {unnamed(endpoint.path)}" for endpoint in ENDPOINTS}
    additions = {operation for operation in OPERATIONS.keys() - documented if " /app" not in operation}
    assert additions - ADDITIONS.keys() == set(), "a route is neither in endpoints.json nor in ADDITIONS"
    assert ADDITIONS.keys() - additions == set(), "ADDITIONS has a route that does not exist or is documented"


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
    """Return how the described response differs from the documented one, or None."""
    match row["success"]["shape"]:
        case None:
            return None
        case "none":
            return f"has {list(content)}" if content else None
        case "html" | "text" as kind:
            expected = {"html": "text/html", "text": "text/plain"}[kind]
            return None if list(content) == [expected] else f"has {list(content)}"
        case "xml":
            return None if all(kind.endswith("xml") for kind in content) else f"has {list(content)}"
        case [first, *_] as names if first.startswith("[]."):
            schema = content["application/json"]["schema"]
            missing = {name.removeprefix("[].") for name in names} - schema["items"]["properties"].keys()
            return None if schema["type"] == "array" and not missing else f"items lack {missing}"
        case names:
            schema = content[SCIM_JSON if row["auth"] == "scim_token" else "application/json"]["schema"]
            fields = schema["properties"].keys()
            if fields != {*names, *ADDED_FIELDS.get(row["id"], ())}:
                return f"has the fields {sorted(fields)}"
            if row["auth"] == "scim_token":  # directories choose the attributes of responses (RFC 7644 section 3.9)
                return None
            optional = fields - set(schema.get("required", ())) - OPTIONAL_FIELDS.get(row["id"], set())
            return f"{optional} can be absent" if optional else None


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
                if not answer.headers.get("WWW-Authenticate", "").startswith("Bearer ") or "error=" in answer.headers["WWW-Authenticate"]:
                    findings.append(f"{endpoint} {headers}: {answer.headers.get('WWW-Authenticate')}")
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
async def test_a_repeated_parameter_is_refused(requests: Requests) -> None:
    findings: list[str] = []
    for endpoint in ENDPOINTS:
        if endpoint.auth != "scim_token" and endpoint.path not in CHECKED_AFTER_OTHER_CREDENTIALS:
            answer = await requests.send(endpoint, query="?unknown=1&unknown=2")
            if answer.status != 400 or "unknown" not in answer.text or "twice" not in answer.text:
                findings.append(f"{endpoint}: {answer.status} {answer.text[:160]}")
    assert_none(findings)


INVALID_BODIES: Final = [b"{", b"not json", b"[]", b"null", b"5", b'"x"', b"\xff", b'{"a": 1, "a": 2}', b"[" * 1000]


@pytest.mark.slow
async def test_bodies_other_than_json_objects_are_refused(requests: Requests) -> None:
    findings: list[str] = []
    for endpoint, _ in WITH_BODY:
        for body in INVALID_BODIES:
            answer = await requests.send(endpoint, raw=body)
            findings += unexpected(f"{endpoint} {body[:20]!r}", answer, 400, "BAD_REQUEST")
    assert_none(findings)


WRONG_VALUES: Final[tuple[tuple[str, Any], ...]] = (
    ("boolean", True),
    ("integer", 5),
    ("array", [["x"]]),
    ("object", {"a": {}}),
    ("string", "x\x00"),
)


@pytest.mark.slow
async def test_fields_of_wrong_types_are_refused(requests: Requests) -> None:
    findings: list[str] = []
    for endpoint, schema in WITH_BODY:
        properties = schema["properties"]
        if unread := endpoint.row["required"].keys() - properties.keys():
            findings.append(f"{endpoint} does not read {unread}")
        for name, field in properties.items():
            types = {field.get("type"), *(option.get("type") for option in field.get("anyOf", ()))}
            for type_, value in WRONG_VALUES:
                if type_ in types and not (type_ == "string" and field.get("format") != "password"):
                    continue
                answer = await requests.send(endpoint, {**valid_body(schema), name: value})
                findings += unexpected(f"{endpoint} {name}={value!r}", answer, 400, "BAD_REQUEST")
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
async def test_other_content_types_are_refused(requests: Requests) -> None:
    findings: list[str] = []
    types = {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", ""}
    for endpoint, schema in WITH_BODY:
        body = json.dumps(valid_body(schema)).encode()
        for content_type in sorted(types - endpoint.operation["requestBody"]["content"].keys()):
            answer = await requests.send(endpoint, raw=body, content_type=content_type)
            findings += unexpected(f"{endpoint} {content_type!r}", answer, 415, "UNSUPPORTED_MEDIA_TYPE")
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
