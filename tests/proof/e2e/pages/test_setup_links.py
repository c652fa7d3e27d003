"""The set-up link for a customer's IT department, in a real browser: from its email to the first sign-in at the prepared connection.

A walk for every way to give the values: metadata pasted, metadata at an address, and OpenID Connect.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

import psycopg
import pytest

from tests.fakes.dns_server import DnsServer
from tests.fakes.openid_issuers import CLIENT_ID, SECRET, FakeIssuer, OpenIdIssuers
from tests.fakes.saml_provider import FakeSamlProvider
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import SharedService, settings_of_owner
from tests.proof.e2e.pages.audits import audit_kept
from tests.proof.e2e.process import Service

pytestmark = pytest.mark.slow

ADA, PASSWORD, READER = "ada@example.com", "nine lions at the river", "it@globex.example"
SETTINGS: Final = {
    **settings_of_owner(ADA, PASSWORD),
    "SSO_OUTBOUND_ALLOW": "127.0.0.1",
}
DOMAIN: Final = "globex.example"
VERIFIED: Final = """
    insert into domains (org_id, domain, challenge, verified_at, created_at)
    select id, %s, 'x', now(), now() from organizations"""
EVERYWHERE, ON_PHONE = "okta", "keycloak"  # the walk with axe-core on every page, and the walk on a phone
OF_PRODUCT: Final = frozenset({"values", "key", "prepared", "tested"})
NAMES: Final = (("email", ["grace@globex.example"]), ("firstName", ["Grace"]), ("lastName", ["Hopper"]), ("groups", ["staff"]))


@pytest.fixture(scope="module", autouse=True)
def dns() -> Iterator[DnsServer]:
    with DnsServer() as server:
        SETTINGS["SSO_DNS_SERVERS"] = "{}:{}".format(*server.address)
        yield server


@pytest.fixture(scope="module")
def saml() -> Iterator[FakeSamlProvider]:
    with FakeSamlProvider() as server:
        yield server


@pytest.fixture(scope="module")
def issuer() -> Iterator[FakeIssuer]:
    with OpenIdIssuers() as server:
        yield server.add("globex", email="grace@globex.example")


@dataclass
class Walk:
    """The browsers of an admin, of a set-up link's reader and of a user."""

    shared: SharedService
    browser: Browser
    dns: DnsServer
    saml: FakeSamlProvider
    issuer: FakeIssuer
    name: str

    def open(self, path: str) -> None:
        self.browser.open(f"{self.shared.service.address}{path}")

    def look(self, page: str) -> None:
        """Keep the page. The set-up pages are checked in one walk, and the product's pages in all walks."""
        if self.name == EVERYWHERE or page in OF_PRODUCT:
            self.browser.keep(f"setup-{self.name}-{page}")

    def sign_in_as_admin(self) -> None:
        self.browser.forget()
        self.open("/app/sign-in?next=/app/organizations/acme/setup-links")
        self.browser.fill("Email address", ADA)
        self.browser.fill("Password", PASSWORD)
        self.browser.press("Sign in")

    def create_link(self, *parts: str) -> None:
        self.sign_in_as_admin()
        self.browser.fill("Name", "Globex")
        for part in parts:
            self.browser.find_labelled(part).click()
        self.browser.fill("Email address of the reader", READER)
        self.look("links")
        self.browser.press("Create set-up link")
        assert self.browser.heading == "Set-up link created"
        self.browser.follow("Watch its progress")
        self.look("not-opened")

    def open_link(self) -> None:
        """Open the email's link in a browser without a session, with the second email's code."""
        self.browser.forget()
        self.browser.open(self.shared.sink.wait_for(READER).link)
        self.look("open")
        self.browser.press(f"Send a code to {READER}")
        self.look("code")
        [code] = re.findall(r"(?m)^\d{6}\b", self.shared.sink.wait_for(READER, 2).text)
        self.browser.fill("Code", code)
        self.browser.press("Continue")
        assert self.browser.heading == "Set up Acme"

    def choose_product(self, product: str, protocol: str) -> None:
        self.browser.choose("Identity provider", product)
        self.browser.choose("Protocol", protocol)
        self.look("products")
        self.browser.press("Continue")
        assert f"In {product}" in self.browser.text
        self.look("values")

    def test_connection(self, *expected: str) -> None:
        """Sign in at the identity provider, and see the values that arrive."""
        self.look("prepared")
        self.browser.follow("Test sign-in")
        self.browser.wait_until(lambda: self.browser.heading.startswith("Test sign-in at"))
        assert "The identity provider's answer is valid." in self.browser.text, self.browser.text
        for each in expected:
            assert each in self.browser.text, self.browser.text
        self.look("tested")
        self.browser.follow("Back to the connection")

    def verify_domain(self) -> None:
        self.browser.fill("Domain of your company", DOMAIN)
        self.browser.press("Use this domain")
        self.look("domain")
        [name, value] = [each for each in (code.text for code in self.browser.find("dl.copy code")) if "gatehouse-" in each]
        self.dns.texts[name] = [[value.encode()]]
        self.browser.press("Check now")
        assert "The record is there." in self.browser.text, self.browser.text

    def finish(self) -> None:
        self.look("ready")
        self.browser.press("I'm done")
        assert self.browser.heading == "Thank you"
        self.look("thanks")

    def apply(self, *parts: str) -> None:
        """Apply the parts as an admin, and activate the connection, which is a draft until then."""
        self.sign_in_as_admin()
        self.browser.follow("Globex")
        self.look("finished")
        for part in parts:
            self.browser.press(f"Apply {part}")
        self.look("applied")
        self.browser.follow("Test and activate it")
        self.browser.follow("Settings")
        self.look("draft")
        self.browser.fill("Name", "Single sign-on of Globex")
        assert "Save your changes below, then activate the connection." in self.browser.text
        assert "Activate connection" not in self.browser.text
        self.browser.press("Save connection")
        assert "Connection saved." in self.browser.text, self.browser.text[:600]
        self.browser.press("Activate connection")
        assert "Connection activated." in self.browser.text
        self.look("active")

    def sign_in_as_user(self) -> None:
        """Sign in through the connection, as a user without an account."""
        self.browser.forget()
        with psycopg.connect(self.shared.conninfo) as connection:
            if not connection.execute("select 1 from domains").fetchall():
                connection.execute(VERIFIED, [DOMAIN])
            [(id_,)] = connection.execute("select id from connections where org_id is not null").fetchall()
        self.open(f"/auth/connections/{id_}/start")
        self.browser.wait_until(lambda: self.browser.heading == "Your applications")


def okta_with_pasted_metadata(walk: Walk) -> None:
    """It also proves its users' domain."""
    walk.create_link("Single sign-on", "Domain")
    walk.open_link()
    walk.verify_domain()
    walk.choose_product("Okta", "SAML 2.0")
    walk.saml.attributes = [("id", ["00u1a2b3c4"]), *NAMES]
    walk.browser.paste("Metadata", walk.saml.metadata)
    walk.browser.press("Read metadata")
    walk.test_connection("00u1a2b3c4", "grace@globex.example", "staff")
    walk.finish()
    walk.apply("Domain", "Single sign-on")


def entra_id_with_openid_connect(walk: Walk) -> None:
    walk.create_link("Single sign-on")
    walk.open_link()
    walk.choose_product("Microsoft Entra ID", "OpenID Connect")
    walk.browser.fill("Issuer", walk.issuer.url)
    walk.browser.fill("Client ID", CLIENT_ID)
    walk.browser.fill("Client secret", SECRET)
    walk.browser.press("Save")
    walk.browser.press("Check connection")
    assert "The last check found no problem." in walk.browser.text
    walk.test_connection("4711", "grace@globex.example", "not verified")
    walk.finish()
    walk.apply("Single sign-on")


def keycloak_with_metadata_at_its_address(walk: Walk) -> None:
    walk.create_link("Single sign-on")
    walk.open_link()
    walk.choose_product("Keycloak", "SAML 2.0")
    walk.browser.press("Create our certificate")
    assert "BEGIN CERTIFICATE" in walk.browser.text
    walk.look("key")
    walk.saml.attributes = NAMES
    walk.browser.fill("Metadata URL", walk.saml.entity_id)
    walk.browser.press("Read metadata")
    walk.test_connection("7f3a", "grace@globex.example", "staff")
    walk.finish()
    walk.apply("Single sign-on")
    assert walk.browser.find_labelled("Metadata URL").get_property("value") == walk.saml.entity_id, "it is read once a day"


WALKS: Final[dict[str, Callable[[Walk], None]]] = {
    "okta": okta_with_pasted_metadata,
    "entra-id": entra_id_with_openid_connect,
    "keycloak": keycloak_with_metadata_at_its_address,
}


@pytest.mark.parametrize("name", WALKS)
def test_a_user_signs_in_through_a_connection_that_a_set_up_link_prepared(
    running: Service, shared: SharedService, browser: Browser, dns: DnsServer, saml: FakeSamlProvider, issuer: FakeIssuer, name: str
) -> None:
    token = running.login(ADA, PASSWORD)["access_token"]
    assert running.post("/api/organizations", {"name": "Acme", "slug": "acme"}, token=token).is_success
    walk = Walk(shared, browser, dns, saml, issuer, name)
    with browser.on_phone() if name == ON_PHONE else nullcontext():
        WALKS[name](walk)
        walk.sign_in_as_user()
    assert browser.complaints() == []
    assert audit_kept(browser) == {}
