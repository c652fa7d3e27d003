"""Third-party OAuth clients get tokens for service accounts, and call the API with them (RFC 6749 section 4.4, RFC 7523)."""

import json
import os
import subprocess
import time
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
from authlib.integrations.httpx_client import OAuth2Client
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey
from oauthlib.oauth2 import BackendApplicationClient
from requests_oauthlib import OAuth2Session

from core.federation.oauth.model.clients import ASSERTION_TYPE
from tests.foreign.gatehouse import EMAIL, Client, Gatehouse
from tests.foreign.programs import NODE, require

pytestmark = pytest.mark.slow

MEMBERS: Final = "/api/organizations/acme/members"
KEYS: Final = ("secret", "key")


def new_key() -> ECKey:
    return ECKey.generate_key("P-256", {"kid": str(uuid4())})


def add_program(gatehouse: Gatehouse, name: str, key: ECKey | RSAKey | None) -> Client:
    credential = {} if key is None else {"kind": "key", "public_key": key.as_dict(private=False)}
    return gatehouse.add_service_account(name, **credential)


def sign_assertion(program: Client, key: ECKey) -> str:
    now = int(time.time())
    claims = {"iss": program.client_id, "sub": program.client_id, "aud": program.issuer, "iat": now, "exp": now + 60, "jti": str(uuid4())}
    return jwt.encode({"alg": "ES256", "kid": key.as_dict()["kid"]}, claims, key)


def check_members(answer: Any) -> None:
    assert answer.status_code == 200, answer.text
    assert [member["user"]["email"] for member in answer.json()["members"]] == [EMAIL]


@pytest.mark.parametrize("kind", KEYS)
def test_authlib(gatehouse: Gatehouse, kind: str) -> None:
    """As the guide shows it for a secret, and with the documented private_key_jwt."""
    key = RSAKey.generate_key(2048, {"kid": str(uuid4())}) if kind == "key" else None
    program = add_program(gatehouse, f"authlib-{kind}", key)
    endpoint = f"{program.issuer}/auth/token"
    secret = program.client_secret if key is None else key.as_pem(private=True).decode()
    with OAuth2Client(program.client_id, secret, token_endpoint=endpoint, grant_type="client_credentials", trust_env=False) as client:
        if key is not None:
            client.client_auth_methods = None
            client.token_endpoint_auth_method = "private_key_jwt"
            # Its own default is an hour, and the endpoint's URL as the audience.
            claims, headers = {"aud": program.issuer, "exp": int(time.time()) + 300}, {"kid": key.as_dict()["kid"]}
            client.register_client_auth_method(PrivateKeyJWT(endpoint, claims=claims, headers=headers))
        token = client.fetch_token()
        assert (token["token_type"], token["scope"], "refresh_token" in token) == ("Bearer", "members:read", False)
        check_members(client.get(f"{program.issuer}{MEMBERS}"))


@pytest.mark.parametrize("kind", KEYS)
def test_requests_oauthlib(gatehouse: Gatehouse, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no private_key_jwt, so joserfc signs the assertion."""
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")  # the tests have no TLS
    key = new_key() if kind == "key" else None
    program = add_program(gatehouse, f"requests-oauthlib-{kind}", key)
    session = OAuth2Session(client=BackendApplicationClient(program.client_id, scope=["members:read"]))
    session.trust_env = False
    fields: dict[str, Any] = {"client_id": program.client_id, "client_secret": program.client_secret}
    if key is not None:
        assertion = {"client_assertion": sign_assertion(program, key), "client_assertion_type": ASSERTION_TYPE}
        fields = {"include_client_id": True, **assertion}
    token = session.fetch_token(f"{program.issuer}/auth/token", **fields)
    assert token["scope"] == ["members:read"]
    check_members(session.get(f"{program.issuer}{MEMBERS}"))


def test_joserfc_signs_assertions_and_verifies_tokens(gatehouse: Gatehouse) -> None:
    key = new_key()
    program = add_program(gatehouse, "joserfc-program", key)
    metadata = gatehouse.service.get("/.well-known/oauth-authorization-server").json()
    assert "client_credentials" in metadata["grant_types_supported"]
    form = {"grant_type": "client_credentials", "client_assertion_type": ASSERTION_TYPE}
    assertion = sign_assertion(program, key)
    answers = [httpx.post(metadata["token_endpoint"], data={**form, "client_assertion": assertion}, trust_env=False) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 401], "an assertion works once"
    access_token = answers[0].json()["access_token"]
    keys = KeySet.import_key_set(httpx.get(metadata["jwks_uri"], trust_env=False).json())
    token = jwt.decode(access_token, keys, algorithms=["RS256"])
    jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": metadata["issuer"]},
        aud={"essential": True, "value": f"{program.issuer}/api"},
        sub={"essential": True, "value": program.client_id},
        client_id={"essential": True, "value": program.client_id},
        scope={"essential": True, "value": "members:read"},
    ).validate(token.claims)
    assert (token.header["typ"], "sid" in token.claims) == ("at+jwt", False)
    check_members(httpx.get(f"{program.issuer}{MEMBERS}", headers={"Authorization": f"Bearer {access_token}"}, trust_env=False))


@pytest.mark.parametrize("kind", KEYS)
def test_openid_client(gatehouse: Gatehouse, kind: str) -> None:
    require("node", NODE / "node_modules" / "openid-client")
    key = new_key() if kind == "key" else None
    program = add_program(gatehouse, f"openid-client-{kind}", key)
    own = {"SCOPE": "members:read", "PATH_OF_API": MEMBERS} | (
        {} if key is None else {"PRIVATE_KEY": json.dumps(key.as_dict(private=True))}
    )
    run = subprocess.run(
        ["node", "openid_client_program.mjs"],
        cwd=NODE,
        env={**os.environ, **program.variables, **own},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    assert (answer["tokens"]["token_type"], answer["tokens"]["scope"], answer["status"]) == ("bearer", "members:read", 200)
    assert [member["user"]["email"] for member in answer["body"]["members"]] == [EMAIL]
