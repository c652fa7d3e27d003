"""A SAML application and a user in a real browser, who signs in with two factors and signs out.

The requirements are decisions 174, 175, 177, 179.
"""

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest

from core.federation.saml.model.configuration import SamlConfiguration
from tests.proof.clients.service_providers import AcceptedUser, Python3Saml
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import settings_of_owner
from tests.proof.e2e.process import Service
from tests.proof.e2e.test_account import ADA, PASSWORD, code_of, enrol
from tests.support.browser import is_step
from tests.support.saml import SamlApplication

pytestmark = pytest.mark.slow

NOBODY = UUID(int=0)
SETTINGS: Final = settings_of_owner(ADA, PASSWORD)


class Shop(ThreadingHTTPServer):
    """An application on a free port that checks messages with python3-saml."""

    provider: Python3Saml

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.origin = f"http://127.0.0.1:{self.server_address[1]}"
        self.arrived: list[tuple[AcceptedUser, str]] = []
        self.logout_paths: list[str] = []


class Page(BaseHTTPRequestHandler):
    server: Shop

    def do_GET(self) -> None:
        if self.path == "/":
            self._go(self.server.provider.ask("/basket"))
        elif self.path.startswith("/slo"):
            self.server.logout_paths.append(self.path)
            self._go(self.server.provider.say_signed_out(self.server.origin + self.path))
        else:
            self._show("Nothing here")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self.server.arrived.append((self.server.provider.take(base64.b64decode(form["SAMLResponse"])), form["RelayState"]))
        self._show("Your basket")

    def _go(self, address: str) -> None:
        self.send_response(302)
        self.send_header("Location", address)
        self.end_headers()

    def _show(self, heading: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(f"<!doctype html><title>Shop</title><h1>{heading}</h1>".encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def shop(running: Service) -> Iterator[Shop]:
    token = running.login(ADA, PASSWORD)["access_token"]
    assert running.post("/api/organizations", {"name": "Acme", "slug": "acme"}, token=token).status_code == 200
    services = "/api/organizations/acme/services"
    assert running.post(services, {"slug": "shop", "name": "Shop", "service_type": "web"}, token=token).status_code == 200
    with Shop() as started:
        urls = {"entity_id": f"{started.origin}/metadata", "acs_url": f"{started.origin}/acs", "slo_url": f"{started.origin}/slo"}
        answer = running.post(f"{services}/shop/saml", {"enabled": True, **urls}, token=token)
        assert answer.status_code == 200, answer.text
        assert running.post(f"{services}/shop/saml/certificate", token=token).status_code == 200
        application = SamlApplication(
            NOBODY,
            "acme",
            NOBODY,
            "shop",
            SamlConfiguration(entity_id=urls["entity_id"], acs_url=urls["acs_url"], slo_url=urls["slo_url"]),
            None,
            running.address,
        )
        started.provider = Python3Saml(application, running.get("/saml/acme/shop/metadata").text)
        thread = threading.Thread(target=started.serve_forever)
        thread.start()
        yield started
        started.shutdown()
        thread.join()


def sign_in(browser: Browser, heading: str = "Sign in") -> None:
    assert browser.heading == heading
    browser.fill("Email address", ADA)
    browser.fill("Password", PASSWORD)
    browser.press("Sign in")


@pytest.mark.parametrize("scripts", [True, False])
def test_a_user_signs_in_to_an_application_and_out(running: Service, shop: Shop, browser: Browser, scripts: bool) -> None:
    browser.open(f"{running.address}/app/sign-in")
    sign_in(browser)
    secret, _ = enrol(browser, running)
    browser.forget()
    browser.let_scripts_run(scripts)
    try:
        browser.open(f"{shop.origin}/")
        assert is_step(urlsplit(browser.address).path, "sign-in")
        if scripts:
            browser.photograph("saml-sign-in")
        sign_in(browser, "Sign in to Shop")
        browser.fill("Code", code_of(secret, later=30))
        browser.press("Continue")
        if not scripts:
            assert browser.heading == "You're signed in"
            browser.press("Continue")
        browser.wait_until(lambda: browser.address.startswith(shop.origin))
        assert browser.heading == "Your basket"
        [(arrived, relay_state)] = shop.arrived
        assert (arrived.name_id, relay_state) == (ADA, "/basket")
        browser.open(f"{running.address}/app/account")
        browser.press("Sign out")
        browser.wait_until(lambda: browser.heading == "You're signed out")
        if scripts:
            browser.photograph("saml-signed-out")
        assert len(shop.logout_paths) == 1
        assert "Some applications didn't confirm" not in browser.text
        assert [line for line in browser.complaints() if "favicon" not in line] == []
    finally:
        browser.let_scripts_run(True)
