"""An admin sets up an application on its pages, in a real browser without scripts, and a client signs in with it (decision 264)."""

from collections.abc import Iterator
from typing import Final

import httpx
import pytest
from authlib.integrations.httpx_client import OAuth2Client
from joserfc import jwt
from joserfc.jwk import KeySet

from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import settings_of_owner
from tests.proof.e2e.process import Service
from tests.proof.e2e.test_oauth_clients import ADA, PASSWORD, Callback

pytestmark = pytest.mark.slow

SETTINGS: Final = settings_of_owner(ADA, PASSWORD)

CREATED: Final = {"slug": "shop", "name": "Shop", "service_type": "web", "redirect_uris": ["https://old.example.com/callback"]}


@pytest.fixture
def callback() -> Iterator[Callback]:
    waiting = Callback()
    yield waiting
    waiting.close()


@pytest.fixture
def scriptless(browser: Browser) -> Iterator[Browser]:
    """A browser that runs no scripts."""
    browser.let_scripts_run(False)
    yield browser
    browser.let_scripts_run(True)


def copied(browser: Browser, label: str) -> str:
    """Return the value to copy with this label."""
    labels, values = browser.find("dl.copy > dt"), browser.find("dl.copy > dd > code")
    return {name.text: value.text for name, value in zip(labels, values, strict=True)}[label]


def check_rules(browser: Browser, name: str) -> None:
    """Check the page by axe-core's rules, which need scripts, and that it fits a phone."""
    browser.let_scripts_run(True)
    assert browser.audit(name) == {"light": [], "dark": [], "phone": []}
    browser.let_scripts_run(False)


def test_an_admin_sets_up_a_client_that_signs_in(running: Service, scriptless: Browser, callback: Callback) -> None:
    browser = scriptless
    token = running.login(ADA, PASSWORD)["access_token"]
    assert running.post("/api/organizations", {"name": "Acme", "slug": "acme"}, token=token).status_code == 200
    old_secret = running.post("/api/organizations/acme/services", CREATED, token=token).json()["client_secret"]

    browser.open(f"{running.address}/app/account")
    browser.fill("Email address", ADA)
    browser.fill("Password", PASSWORD)
    browser.press("Sign in")
    browser.follow("Manage your organizations")
    browser.follow("Open Acme")
    browser.follow("Applications")
    browser.follow("Shop")
    assert browser.heading == "Shop"
    client_id, discovery = copied(browser, "Client ID"), copied(browser, "Discovery URL")

    browser.fill("Redirect URIs", "ftp://shop.example.com/")
    browser.press("Save sign-in settings")
    assert "Nothing was changed." in browser.text
    [complaint] = browser.complaints()
    assert "status of 400" in complaint
    assert browser.focused.get_attribute("id") == "redirect_uris"
    assert browser.focused.get_attribute("value") == "ftp://shop.example.com/"
    check_rules(browser, "application-refused")

    browser.fill("Redirect URIs", f"{callback.uri}\nhttps://shop.example.com/callback")
    browser.press("Save sign-in settings")
    assert "Sign-in settings saved." in browser.text
    assert browser.find_labelled("Redirect URIs").get_attribute("value") == f"{callback.uri}\nhttps://shop.example.com/callback"
    check_rules(browser, "application-saved")

    browser.follow("Replace secret")
    browser.find_labelled("The old secret stops working").send_keys("Immediately")
    key = browser.find("main input[name=form_key]")[0].get_attribute("value")
    browser.press("Replace secret")
    secret = copied(browser, "Client secret")
    check_rules(browser, "application-new-secret")
    browser.reload()  # `secret` still signs users in below
    assert (browser.heading, secret in browser.source) == ("Already sent", False)
    [complaint] = browser.complaints()
    assert "status of 400" in complaint
    check_rules(browser, "application-secret-already-sent")
    browser.back()  # this browser asks for a new form; all other browsers keep the form with its key
    [field] = browser.find("main input[name=form_key]")
    assert field.get_attribute("value") != key
    browser.let_scripts_run(True)
    browser.script(f"document.querySelector('main input[name=form_key]').value = '{key}'")
    browser.let_scripts_run(False)
    browser.press("Replace secret")
    assert browser.heading == "Already sent"
    assert len(browser.complaints()) == 1
    browser.follow("Open the application")
    assert browser.heading == "Shop"
    assert browser.complaints() == []

    metadata = httpx.get(discovery, trust_env=False).json()
    with OAuth2Client(
        client_id, secret, redirect_uri=callback.uri, scope="openid email", code_challenge_method="S256", trust_env=False
    ) as client:
        address, _ = client.create_authorization_url(metadata["authorization_endpoint"], code_verifier="v" * 43, nonce="n-0S6")
        browser.open(address)
        browser.press("Continue")
        tokens = client.fetch_token(metadata["token_endpoint"], authorization_response=browser.address, code_verifier="v" * 43)
    keys = KeySet.import_key_set(httpx.get(metadata["jwks_uri"], trust_env=False).json())
    claims = jwt.decode(tokens["id_token"], keys, algorithms=["RS256"]).claims
    assert (claims["iss"], claims["aud"], claims["nonce"], claims["email"]) == (running.address, client_id, "n-0S6", ADA)
    refused = running.post("/auth/introspect", {"token": "any", "client_id": client_id, "client_secret": old_secret})
    assert (refused.status_code, refused.json()["error"]) == (401, "invalid_client")
