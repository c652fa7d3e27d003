"""Third-party libraries verify our tokens with the published keys only."""

import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.errors import BadSignatureError
from joserfc.jwk import ECKey, KeySet

from tests.foreign.gatehouse import EMAIL, NAME, Gatehouse
from tests.proof.e2e.docs.forms import FormBrowser

pytestmark = pytest.mark.slow

CALLBACK: Final = "https://shop.example.com/callback"


def test_joserfc_verifies_id_tokens(gatehouse: Gatehouse, forms: Callable[[str], FormBrowser]) -> None:
    client = gatehouse.register("joserfc", CALLBACK)
    metadata = gatehouse.service.get("/.well-known/openid-configuration").json()
    nonce = secrets.token_urlsafe()
    request = {"client_id": client.client_id, "redirect_uri": CALLBACK, "response_type": "code", "nonce": nonce}
    browser = forms(gatehouse.address)
    browser.open(f"{metadata['authorization_endpoint']}?{urlencode({**request, 'scope': 'openid profile email'})}")
    gatehouse.sign_in(browser)
    [code] = parse_qs(urlsplit(browser.address).query)["code"]
    body = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
    answer = httpx.post(metadata["token_endpoint"], data=body, auth=(client.client_id, client.client_secret), trust_env=False)
    assert answer.status_code == 200, answer.text

    id_token = answer.json()["id_token"]
    keys = KeySet.import_key_set(httpx.get(metadata["jwks_uri"], trust_env=False).json())
    token = jwt.decode(id_token, keys, algorithms=["RS256"])
    registry = jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": metadata["issuer"]},
        aud={"essential": True, "value": client.client_id},
        nonce={"essential": True, "value": nonce},
    )
    registry.validate(token.claims)
    assert (token.claims["sub"], token.claims["email"], token.claims["name"]) == (gatehouse.user_id, EMAIL, NAME)
    header, payload, signature = id_token.split(".")
    with pytest.raises(BadSignatureError):
        jwt.decode(f"{header}.{payload}.{signature[::-1]}", keys, algorithms=["RS256"])


def test_joserfc_makes_proofs_of_a_key(gatehouse: Gatehouse, forms: Callable[[str], FormBrowser]) -> None:
    """As an application with joserfc and httpx does: PAR, DPoP and a nonce (RFC 9126, RFC 9449)."""
    client = gatehouse.register("joserfc-bound", CALLBACK, require_pushed_authorization_requests=True, dpop_bound_access_tokens=True)
    metadata = gatehouse.service.get("/.well-known/oauth-authorization-server").json()
    key, nonces = ECKey.generate_key("P-256"), [""]

    def send(method: str, url: str, token: str | None = None, **options: Any) -> httpx.Response:
        for _ in range(2):
            claims = {"jti": secrets.token_urlsafe(), "htm": method, "htu": url, "iat": int(time.time()), "nonce": nonces[-1]}
            claims |= {} if token is None else {"ath": urlsafe_b64encode(sha256(token.encode()).digest()).rstrip(b"=").decode()}
            header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": key.as_dict(private=False)}
            headers = {"DPoP": jwt.encode(header, claims, key, algorithms=["ES256"])}
            headers |= {} if token is None else {"Authorization": f"DPoP {token}"}
            answer = httpx.request(method, url, headers=headers, trust_env=False, **options)
            nonces.append(answer.headers.get("DPoP-Nonce", nonces[-1]))
            if "use_dpop_nonce" not in answer.text + answer.headers.get("WWW-Authenticate", ""):
                break
        return answer

    secret, request = (client.client_id, client.client_secret), {"redirect_uri": CALLBACK, "response_type": "code", "scope": "openid email"}
    pushed = send("POST", metadata["pushed_authorization_request_endpoint"], data=request, auth=secret)
    assert pushed.status_code == 201, pushed.text
    browser = forms(gatehouse.address)
    reference = {"client_id": client.client_id, "request_uri": pushed.json()["request_uri"]}
    browser.open(f"{metadata['authorization_endpoint']}?{urlencode(reference)}")
    gatehouse.sign_in(browser)
    [code] = parse_qs(urlsplit(browser.address).query)["code"]
    body = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
    tokens = send("POST", metadata["token_endpoint"], data=body, auth=secret)
    assert (tokens.status_code, tokens.json()["token_type"]) == (200, "DPoP"), tokens.text
    claims = send("GET", metadata["userinfo_endpoint"], tokens.json()["access_token"])
    assert (claims.status_code, claims.json()["email"]) == (200, EMAIL), claims.text
