"""Libraries of other projects verify our tokens with the published keys only."""

import secrets
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.errors import BadSignatureError
from joserfc.jwk import KeySet

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
