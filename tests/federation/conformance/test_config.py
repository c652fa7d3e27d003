"""Config OP: the provider's metadata."""

import re
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.federation.conformance.client import CONFIGURATION, JWKS
from tests.support.builders import Api

ISSUER: Final = "https://gatehouse.test"  # the suite refuses an issuer without TLS
ARRAYS: Final = (
    *("scopes_supported", "response_types_supported", "response_modes_supported", "grant_types_supported", "acr_values_supported"),
    *("subject_types_supported", "id_token_signing_alg_values_supported", "token_endpoint_auth_methods_supported"),
    *("claim_types_supported", "claims_supported", "ui_locales_supported", "code_challenge_methods_supported"),
)
ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri")
BOOLEANS: Final = ("claims_parameter_supported", "request_parameter_supported", "request_uri_parameter_supported")
# RSA private exponents and primes (RFC 7518 section 6.3.2), and symmetric keys (section 6.4).
SECRET_PARTS: Final = {"d", "p", "q", "dp", "dq", "qi", "oth", "k"}


def check_endpoints(metadata: dict[str, Any]) -> None:
    """Check that every endpoint in the metadata is an https URL at the issuer."""
    addresses = {name: value for name, value in metadata.items() if name.endswith(("_endpoint", "_uri"))}
    assert {name for name, value in addresses.items() if not value.startswith(f"{ISSUER}/")} == set()


@pytest.mark.parametrize("edge", [{"base_url": ISSUER}], indirect=True)
async def test_oidcc_discovery_endpoint_verification(api: Api) -> None:
    """The metadata is JSON at the issuer's address, has https endpoints, correct types and values, and public keys."""
    answer = await api.get(CONFIGURATION)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    metadata = answer.json
    assert metadata["issuer"] == ISSUER
    assert (urlsplit(ISSUER).query, urlsplit(ISSUER).fragment) == ("", "")
    for name in ARRAYS:
        values = metadata[name]
        assert {type(value) for value in values} == {str}, name
        assert len(set(values)) == len(values), name
    check_endpoints(metadata)
    assert set(ENDPOINTS) <= metadata.keys()
    assert [name for name in BOOLEANS if not isinstance(metadata[name], bool)] == []
    assert metadata["response_types_supported"] == ["code"]
    assert set(metadata["subject_types_supported"]) <= {"public", "pairwise"}
    assert "RS256" in metadata["id_token_signing_alg_values_supported"]
    assert "none" not in metadata["id_token_signing_alg_values_supported"]
    assert "openid" in metadata["scopes_supported"]
    assert all(re.fullmatch(r"[\x21\x23-\x5B\x5D-\x7E]+", scope) for scope in metadata["scopes_supported"])  # RFC 6749 section 3.3
    assert all(re.fullmatch(r"[a-z]{2,3}(-[A-Z]{2})?", locale) for locale in metadata["ui_locales_supported"])
    assert {"sub", "iss", "auth_time", "name", "email"} <= set(metadata["claims_supported"])
    keys = (await api.get(JWKS)).json["keys"]
    assert metadata["jwks_uri"] == f"{ISSUER}{JWKS}"
    assert len({key["kid"] for key in keys}) == len(keys) > 0
    assert [key for key in keys if key.keys() & SECRET_PARTS] == []
    assert [key for key in keys if (key["kty"], key["use"], key["alg"]) != ("RSA", "sig", "RS256")] == []
