"""Third-party OAuth clients against the running service, with a user in a real browser.

The requirements are decisions 88, 92, 93.
"""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from authlib.integrations.base_client.errors import OAuthError
from authlib.integrations.httpx_client import OAuth2Client
from joserfc import jwt
from joserfc.jwk import KeySet
from oauthlib.oauth2 import AccessDeniedError
from requests_oauthlib import OAuth2Session

from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import settings_of_owner
from tests.proof.e2e.process import Service

pytestmark = pytest.mark.slow

ADA, PASSWORD = "ada@example.com", "nine lions at the river"
SETTINGS: Final = settings_of_owner(ADA, PASSWORD)


class Callback:
    """An application's redirect URI."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(b"<!doctype html><link rel=icon href='data:,'><h1>Welcome to the shop</h1>")

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self._server.server_port}/callback"
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def callback() -> Iterator[Callback]:
    waiting = Callback()
    yield waiting
    waiting.close()


@pytest.fixture
def metadata(running: Service) -> dict[str, Any]:
    """The metadata that a client discovers."""
    document: dict[str, Any] = running.get("/.well-known/oauth-authorization-server").json()
    assert document["issuer"] == running.address
    return document


@pytest.fixture
def shop(running: Service, callback: Callback) -> tuple[str, str]:
    """An application's client id and client secret."""
    token = running.login(ADA, PASSWORD)["access_token"]
    answer = running.post("/api/organizations", {"name": "Acme", "slug": "acme"}, token=token)
    assert answer.status_code == 200, answer.text
    branding = {"primary_color": "#b0306a", "product_name": "Acme Shops"}
    assert running.call("PATCH", "/api/organizations/acme/branding", branding, token=token).status_code == 200
    service = {"slug": "shop", "name": "Shop", "service_type": "web", "redirect_uris": [callback.uri]}
    answer = running.post("/api/organizations/acme/services", service, token=token)
    assert answer.status_code == 200, answer.text
    return answer.json()["service"]["client_id"], answer.json()["client_secret"]


def walk(browser: Browser, address: str, uri: str) -> str:
    """Sign in and continue in the browser. Return the redirect to the application."""
    browser.open(address)
    assert browser.heading == "Sign in to Shop"
    browser.photograph("oauth-sign-in")
    browser.fill("Email address", ADA)
    browser.fill("Password", PASSWORD)
    browser.press("Sign in")
    assert browser.heading == "Continue to Shop?"
    assert f"Shop by Acme wants to sign you in as {ADA}." in browser.text
    browser.photograph("oauth-continue")
    browser.press("Continue")
    assert browser.heading == "Welcome to the shop"
    assert browser.address.startswith(f"{uri}?code=")
    assert browser.complaints() == []
    return browser.address


def check(running: Service, metadata: dict[str, Any], client_id: str, token: str) -> None:
    """Check the access token with the published keys only."""
    published = httpx.get(metadata["jwks_uri"], trust_env=False).json()
    decoded = jwt.decode(token, KeySet.import_key_set(published), algorithms=["RS256"])
    registry = jwt.JWTClaimsRegistry(iss={"essential": True, "value": metadata["issuer"]}, aud={"essential": True, "value": client_id})
    registry.validate(decoded.claims)
    assert (decoded.claims["org"], decoded.claims["service"], decoded.claims["email"]) == ("acme", "shop", ADA)


def test_authlib_signs_a_user_in(
    running: Service, metadata: dict[str, Any], shop: tuple[str, str], callback: Callback, browser: Browser
) -> None:
    client_id, client_secret = shop
    with OAuth2Client(client_id, client_secret, redirect_uri=callback.uri, code_challenge_method="S256", trust_env=False) as client:
        verifier = "v" * 48
        address, state = client.create_authorization_url(metadata["authorization_endpoint"], code_verifier=verifier)
        back = walk(browser, address, callback.uri)
        assert parse_qs(urlsplit(back).query)["iss"] == [metadata["issuer"]]
        tokens = client.fetch_token(metadata["token_endpoint"], authorization_response=back, state=state, code_verifier=verifier)
        check(running, metadata, client_id, tokens["access_token"])
        assert running.get("/api/user", token=tokens["access_token"]).json()["service"] == "shop"
        renewed = client.refresh_token(metadata["token_endpoint"])
        check(running, metadata, client_id, renewed["access_token"])
        assert client.revoke_token(metadata["revocation_endpoint"], token=renewed["refresh_token"]).status_code == 200
        assert running.get("/api/user", token=renewed["access_token"]).status_code == 401
        with pytest.raises(OAuthError, match="invalid_grant"):
            client.fetch_token(metadata["token_endpoint"], authorization_response=back, state=state, code_verifier=verifier)


def test_requests_oauthlib_signs_a_user_in(
    running: Service,
    metadata: dict[str, Any],
    shop: tuple[str, str],
    callback: Callback,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")  # otherwise it requires https
    client_id, client_secret = shop
    with OAuth2Session(client_id, redirect_uri=callback.uri, pkce="S256") as client:
        client.trust_env = False
        address, _ = client.authorization_url(metadata["authorization_endpoint"])
        back = walk(browser, address, callback.uri)
        tokens = client.fetch_token(metadata["token_endpoint"], authorization_response=back, client_secret=client_secret)
        check(running, metadata, client_id, tokens["access_token"])
        renewed = client.refresh_token(metadata["token_endpoint"], auth=(client_id, client_secret))
        check(running, metadata, client_id, renewed["access_token"])


def test_a_user_who_cancels_returns_without_a_code(
    metadata: dict[str, Any], shop: tuple[str, str], callback: Callback, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")  # otherwise it requires https
    client_id, client_secret = shop
    with OAuth2Session(client_id, redirect_uri=callback.uri) as client:
        address, _ = client.authorization_url(metadata["authorization_endpoint"])
        browser.open(address)
        browser.fill("Email address", ADA)
        browser.fill("Password", PASSWORD)
        browser.press("Sign in")
        browser.press("Cancel")
        assert browser.heading == "Welcome to the shop"
        with pytest.raises(AccessDeniedError):
            client.fetch_token(metadata["token_endpoint"], authorization_response=browser.address, client_secret=client_secret)
