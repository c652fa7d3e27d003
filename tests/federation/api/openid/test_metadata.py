"""The provider metadata: what clients look up before they try (OpenID Connect Discovery section 3, RFC 8414 section 2)."""

from typing import Any, Final

import pytest

from tests.support.builders import BASE_URL, Api

METADATA: Final = ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server")
ENDPOINTS: Final = {
    "authorization_endpoint": "/auth/authorize",
    "pushed_authorization_request_endpoint": "/auth/par",
    "token_endpoint": "/auth/token",
    "userinfo_endpoint": "/auth/userinfo",
    "introspection_endpoint": "/auth/introspect",
    "revocation_endpoint": "/auth/revoke",
    "end_session_endpoint": "/auth/end-session",
    "device_authorization_endpoint": "/auth/device/code",
    "jwks_uri": "/.well-known/jwks.json",
}
SECRETS_AND_KEYS: Final = ["client_secret_basic", "client_secret_post", "private_key_jwt"]
ALGORITHMS: Final = ["RS256", "PS256", "ES256", "EdDSA"]
# Every list and flag is explicit, because many have a default that would be wrong here.
VALUES: Final[dict[str, Any]] = {
    "token_endpoint_auth_methods_supported": [*SECRETS_AND_KEYS, "none"],
    "revocation_endpoint_auth_methods_supported": [*SECRETS_AND_KEYS, "none"],
    "introspection_endpoint_auth_methods_supported": SECRETS_AND_KEYS,
    **{f"{name}_endpoint_auth_signing_alg_values_supported": ALGORITHMS for name in ("token", "revocation", "introspection")},
    "scopes_supported": ["openid", "profile", "email", "offline_access", "org", "roles", "permissions", "groups"],
    "response_types_supported": ["code"],
    "response_modes_supported": ["query", "fragment", "form_post"],
    "grant_types_supported": [
        *("authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code", "client_credentials"),
    ],
    "code_challenge_methods_supported": ["S256"],
    "dpop_signing_alg_values_supported": ["ES256", "EdDSA", "PS256", "RS256"],
    "prompt_values_supported": ["none", "login", "consent", "select_account", "create"],
    "acr_values_supported": ["pwd", "mfa", "phr"],
    "subject_types_supported": ["public"],
    "id_token_signing_alg_values_supported": ["RS256"],
    "claim_types_supported": ["normal", "distributed"],
    "ui_locales_supported": ["en"],
    "claims_parameter_supported": True,
    "require_pushed_authorization_requests": False,
    "request_parameter_supported": False,
    "request_uri_parameter_supported": False,
    "require_request_uri_registration": False,
    "authorization_response_iss_parameter_supported": True,
    "client_id_metadata_document_supported": True,
    "backchannel_logout_supported": True,
    "backchannel_logout_session_supported": True,
    "service_documentation": f"{BASE_URL}/docs/",
}
CLAIMS: Final = {
    *("iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "acr", "amr", "azp", "at_hash", "sid", "session_expiry"),
    *("name", "given_name", "family_name", "middle_name", "nickname", "preferred_username", "profile", "picture", "website"),
    *("gender", "birthdate", "zoneinfo", "locale", "updated_at", "email", "email_verified"),
    *("org", "org_id", "org_name", "plan", "subscription_status", "features", "roles", "permissions", "groups"),
}


@pytest.mark.parametrize("path", METADATA)
async def test_the_metadata_has_exactly_these_values(api: Api, path: str) -> None:
    answer = await api.get(path)
    assert (answer.status, answer.headers["Content-Type"], answer.headers["Cache-Control"]) == (
        200,
        "application/json",
        "public, max-age=300",
    )
    metadata = answer.json
    assert set(metadata.pop("claims_supported")) == CLAIMS
    assert metadata == {"issuer": BASE_URL, **{name: f"{BASE_URL}{address}" for name, address in ENDPOINTS.items()}, **VALUES}


async def test_every_endpoint_of_the_metadata_exists(api: Api) -> None:
    described = (await api.get("/openapi.json")).json["paths"]
    assert set(ENDPOINTS.values()) - set(described) == set()
    assert (await api.get(ENDPOINTS["jwks_uri"])).json["keys"]
