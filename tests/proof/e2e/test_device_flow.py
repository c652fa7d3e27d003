"""The device flow with third-party clients against the running service, approved in a real browser.

The requirements are decisions 92, 93 and RFC 8628.
"""

from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from authlib.integrations.base_client.errors import OAuthError
from authlib.integrations.httpx_client import OAuth2Client
from oauthlib.oauth2 import DeviceClient
from oauthlib.oauth2.rfc6749.errors import AccessDeniedError, CustomOAuth2Error, InvalidGrantError
from requests_oauthlib import OAuth2Session

from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import SharedService, settings_of_owner
from tests.proof.e2e.process import Service
from tests.proof.wire.loopback import address_of_localhost

pytestmark = pytest.mark.slow

ADA, PASSWORD = "ada@example.com", "nine lions at the river"
SETTINGS: Final = settings_of_owner(ADA, PASSWORD)
GRANT = "urn:ietf:params:oauth:grant-type:device_code"


@pytest.fixture
def metadata(running: Service) -> dict[str, Any]:
    """The metadata that a client discovers."""
    document: dict[str, Any] = running.get("/.well-known/oauth-authorization-server").json()
    assert GRANT in document["grant_types_supported"]
    return document


@pytest.fixture
def client_id(running: Service) -> str:
    """An application's client id. Its client secret is not used here."""
    token = running.login(ADA, PASSWORD)["access_token"]
    assert running.post("/api/organizations", {"name": "Acme", "slug": "acme"}, token=token).status_code == 200
    answer = running.post("/api/organizations/acme/services", {"slug": "shop", "name": "Shop", "service_type": "web"}, token=token)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["service"]["client_id"])


def request_codes(metadata: dict[str, Any], client_id: str) -> dict[str, Any]:
    """Request codes as a program does."""
    answer = httpx.post(
        metadata["device_authorization_endpoint"], data={"client_id": client_id}, headers={"User-Agent": "acme-cli/2.1"}, trust_env=False
    )
    assert answer.status_code == 200, answer.text
    codes: dict[str, Any] = answer.json()
    return codes


def end_polling_interval(shared: SharedService) -> None:
    with psycopg.connect(shared.conninfo, autocommit=True) as connection:
        connection.execute("update device_codes set polled_at = null")


def sign_in(browser: Browser) -> None:
    assert browser.heading == "Sign in"
    browser.fill("Email address", ADA)
    browser.fill("Password", PASSWORD)
    browser.press("Sign in")


def check(running: Service, tokens: dict[str, Any]) -> None:
    profile = running.get("/api/user", token=tokens["access_token"]).json()
    assert (profile["email"], profile["org"], profile["service"]) == (ADA, "acme", "shop")


def test_authlib_signs_in_through_a_browser(
    running: Service, metadata: dict[str, Any], client_id: str, browser: Browser, shared: SharedService
) -> None:
    codes = request_codes(metadata, client_id)
    endpoint, grant = metadata["token_endpoint"], {"grant_type": GRANT, "device_code": codes["device_code"]}
    with OAuth2Client(client_id, token_endpoint_auth_method="none", trust_env=False) as client:
        with pytest.raises(OAuthError, match="authorization_pending"):
            client.fetch_token(endpoint, **grant)
        with pytest.raises(OAuthError, match="slow_down"):
            client.fetch_token(endpoint, **grant)

        browser.open(codes["verification_uri_complete"])
        sign_in(browser)
        assert browser.heading == "Connect a device"
        assert browser.find_labelled("Code").get_attribute("value") == codes["user_code"]
        assert f"You're signed in as {ADA}." in browser.text
        browser.photograph("device")
        browser.press("Continue")
        assert browser.heading == "Sign in this device?"
        for text in (f"A device wants to sign in to Shop by Acme as {ADA}.", codes["user_code"], address_of_localhost(), "acme-cli/2.1"):
            assert text in browser.text
        browser.photograph("device-confirm")
        browser.press("Approve")
        assert browser.heading == "Your device is signed in"
        browser.photograph("device-approved")
        assert browser.find("script") == []
        assert browser.complaints() == []

        end_polling_interval(shared)
        tokens = client.fetch_token(endpoint, **grant)
        check(running, tokens)
        # Refreshing a device's tokens needs no client secret (decision 92).
        check(running, client.refresh_token(endpoint))
        end_polling_interval(shared)
        with pytest.raises(OAuthError, match="invalid_grant"):
            client.fetch_token(endpoint, **grant)
    browser.open(f"{running.address}/app/account/devices")
    assert "on unknown" in browser.text.lower()


def test_requests_oauthlib_signs_in_with_a_typed_code(
    running: Service,
    metadata: dict[str, Any],
    client_id: str,
    browser: Browser,
    shared: SharedService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")  # otherwise it requires https
    codes, endpoint = request_codes(metadata, client_id), metadata["token_endpoint"]
    with OAuth2Session(client=DeviceClient(client_id)) as client:
        client.trust_env = False
        with pytest.raises(CustomOAuth2Error, match="authorization_pending"):
            client.fetch_token(endpoint, device_code=codes["device_code"], include_client_id=True)
        browser.open(codes["verification_uri"])
        sign_in(browser)
        assert urlsplit(browser.address).path == "/auth/device/verify"
        browser.fill("Code", "BCDF-GHJK")
        browser.press("Continue")
        assert "No device is waiting for this code." in browser.text
        assert browser.title.startswith("Error: ")
        browser.photograph("device-wrong-code")
        browser.fill("Code", codes["user_code"].lower().replace("-", " "))
        browser.press("Continue")
        browser.press("Approve")
        end_polling_interval(shared)
        check(running, client.fetch_token(endpoint, device_code=codes["device_code"], include_client_id=True))
        check(running, client.refresh_token(endpoint, client_id=client_id))
        with pytest.raises((InvalidGrantError, CustomOAuth2Error)):
            client.fetch_token(endpoint, device_code=codes["device_code"], include_client_id=True)


def test_a_denied_program_gets_access_denied(
    metadata: dict[str, Any], client_id: str, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")  # otherwise it requires https
    codes = request_codes(metadata, client_id)
    browser.open(codes["verification_uri_complete"])
    sign_in(browser)
    browser.press("Continue")
    browser.press("Deny")
    assert browser.heading == "Device denied"
    browser.photograph("device-denied")
    with OAuth2Session(client=DeviceClient(client_id)) as client:
        client.trust_env = False
        with pytest.raises(AccessDeniedError):
            client.fetch_token(metadata["token_endpoint"], device_code=codes["device_code"], include_client_id=True)
