"""A running Gatehouse. Its organization acme has connections to third-party identity providers."""

import base64
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import httpx
import psycopg
import pytest

from tests.foreign.conftest import SETTINGS
from tests.foreign.gatehouse import EMAIL, PASSWORD
from tests.foreign.programs import Program
from tests.proof.e2e.conftest import service_home, settings_of_own_database
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Service
from tests.support.waiting import PATIENCE

CONNECTIONS: Final = "/api/organizations/acme/connections"
SECRET: Final = "a secret + with: signs at the provider"
DOMAIN: Final = """
    insert into domains (org_id, domain, challenge, verified_at, created_at)
    select id, 'acme.example', 'x', now(), now() from organizations"""


class SamlProgram(Protocol):
    """A third-party SAML identity provider, and its user."""

    address: str
    program: Program

    def sign_in(self, browser: FormBrowser, slug: str) -> None: ...
    def sign_out(self, browser: FormBrowser) -> None: ...


@dataclass(frozen=True, slots=True)
class House:
    """A running Gatehouse. The organization acme has proved the domain acme.example."""

    service: Service
    folder: Path  # the test's own files
    email: str = EMAIL  # the owner's address

    def call(self, method: str, path: str, body: Any = None) -> Any:
        token = self.service.login(self.email, PASSWORD)["access_token"]
        answer = self.service.call(method, path, body, token=token)
        while answer.status_code == 429:  # all tests share the organization's limits
            time.sleep(int(answer.headers["Retry-After"]))
            answer = self.service.call(method, path, body, token=token)
        assert answer.is_success, (path, answer.text)
        return answer.json() if answer.content else None

    def add(self, slug: str, issuer: str, authentication: str = "client_secret_basic") -> dict[str, Any]:
        """Add a connection with OpenID Connect, with its credentials. Return the addresses that its provider needs."""
        oidc = {"issuer": issuer, "client_id": f"gatehouse-{slug}", "client_authentication": authentication}
        mapping = {"groups": "groups"}
        created = self.call("POST", CONNECTIONS, {"slug": slug, "name": slug.title(), "oidc": oidc, "mapping": mapping})
        if authentication == "private_key_jwt":
            self.call("POST", f"{CONNECTIONS}/{slug}/keys")
        else:
            self.call("PUT", f"{CONNECTIONS}/{slug}/client-secret", {"client_secret": SECRET})
        endpoints: dict[str, Any] = created["endpoints"]
        return endpoints

    def errors(self, slug: str) -> list[str]:
        """Return the problems that a connection's check finds, without its warnings."""
        return [problem["code"] for problem in self.call("POST", f"{CONNECTIONS}/{slug}/check")["problems"] if problem["is_error"]]

    @contextmanager
    def active(self, slug: str) -> Iterator[None]:
        """Let people sign in through a connection. An organization can have few active connections."""
        self.call("POST", f"{CONNECTIONS}/{slug}/activate")
        try:
            yield
        finally:
            self.call("POST", f"{CONNECTIONS}/{slug}/deactivate")

    def begin(self, browser: FormBrowser, slug: str) -> None:
        """Open a connection's identity provider, as the sign-in page does."""
        id_ = self.call("GET", f"{CONNECTIONS}/{slug}")["id"]
        browser.open(f"{self.service.address}/auth/connections/{id_}/start?next=/app")

    def add_saml(self, slug: str, **mapping: str | None) -> bytes:
        """Add a connection with SAML and a key. Return the metadata that its provider needs."""
        connection = {"slug": slug, "name": slug.title(), "saml": {"trusts_email": True}, "mapping": {"name": None, **mapping}}
        endpoints = self.call("POST", CONNECTIONS, connection)["endpoints"]
        self.call("POST", f"{CONNECTIONS}/{slug}/keys")
        return httpx.get(endpoints["metadata_url"], timeout=PATIENCE).content

    def read_metadata(self, slug: str, url: str) -> None:
        """Let Gatehouse fetch the provider's metadata."""
        self.call("POST", f"{CONNECTIONS}/{slug}/metadata", {"url": url})

    def submit_messages(self, browser: FormBrowser) -> bytes:
        """Submit the forms with SAML messages, as their scripts do. Return all messages, one by one."""
        messages = b""
        while sent := [form.fields[name] for form in browser.forms for name in ("SAMLResponse", "SAMLRequest") if name in form.fields]:
            messages += base64.b64decode(sent[0])
            browser.submit_saml()
        return messages

    def sign_out(self, browser: FormBrowser) -> None:
        """Sign out at Gatehouse, which leads through the identity provider and back."""
        browser.open(f"{self.service.address}/app")
        [form] = [form for form in browser.forms if form.action == "/app/sign-out"]
        browser.submit(form)
        self.submit_messages(browser)
        assert browser.address.startswith(f"{self.service.address}/auth/connections/"), (browser.address, browser.text)

    def walk_by_saml(self, slug: str, provider: SamlProgram, metadata_url: str) -> None:
        """Sign in at a SAML provider three times, and sign out in between: there, which ends the session here, and here."""
        with provider.program.wait_until_it_listens():
            self.read_metadata(slug, metadata_url)
            with self.active(slug), FormBrowser(self.service.address, provider.address) as browser:
                provider.sign_in(browser, slug)
                provider.sign_out(browser)
                assert not self.is_signed_in(browser)
                provider.sign_in(browser, slug)
                self.sign_out(browser)
                provider.sign_in(browser, slug)

    def is_signed_in(self, browser: FormBrowser) -> bool:
        browser.open(f"{self.service.address}/app")
        return browser.response.status_code == 200 and "/app/sign-in" not in browser.address

    def sign_ins(self, slug: str) -> list[tuple[str | None, str | None, set[str]]]:
        """Return the sign-ins through a connection: the user's address, the fault, and the names of the claims that came."""
        listed = self.call("GET", f"/api/organizations/acme/sign-ins?connection={slug}")["sign_ins"]
        return [(each["user_email"], each["fault"], set(each["received"])) for each in listed]


def create_key(folder: Path, name: str = "idp") -> tuple[Path, Path]:
    """Create an RSA key and a certificate for it."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=idp", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(new, check=True, capture_output=True)
    return key, certificate


@pytest.fixture(scope="package")
def house() -> Iterator[House]:
    with ExitStack() as stack:
        database, home = stack.enter_context(settings_of_own_database()), stack.enter_context(service_home())
        service = Service(home, **database, **SETTINGS, SSO_OUTBOUND_ALLOW="127.0.0.1")
        stack.callback(service.clean_up)
        house = House(service.start(), home)
        house.call("POST", "/api/organizations", {"slug": "acme", "name": "Acme"})
        with psycopg.connect(database["SSO_DATABASE_URL"], autocommit=True) as connection:
            connection.execute(DOMAIN)
        yield house
