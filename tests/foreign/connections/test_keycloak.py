"""Keycloak is an organization's identity provider, by OpenID Connect and by SAML. Only `./run test foreign --all` runs it."""

import json
import os
import shlex
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from tests.foreign.connections.conftest import SECRET, House
from tests.foreign.programs import Program
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.docs.walk import is_open
from tests.proof.e2e.process import Port
from tests.support.waiting import PATIENCE, until

FOLDER: Final = os.environ.get("GATEHOUSE_KEYCLOAK")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(FOLDER is None, reason="only `./run test foreign --all` starts Keycloak")]

PASSWORD: Final = "the password at Keycloak"
OPTIONS: Final = "--optimized --http-enabled=true --http-host=127.0.0.1"
GROUPS: Final = {
    "name": "groups",
    "protocol": "openid-connect",
    "protocolMapper": "oidc-group-membership-mapper",
    "config": {"claim.name": "groups", "full.path": "false", "id.token.claim": "true"},
}
ATTRIBUTES: Final = {"email": "email", "given_name": "firstName", "family_name": "lastName", "name": None}  # by our names


class Keycloak:
    """A running Keycloak with the realm acme."""

    def __init__(self, house: House, port: int) -> None:
        self.house = house
        self.address = f"http://127.0.0.1:{port}"
        self.realm = f"{self.address}/realms/acme"
        variables = {"KC_BOOTSTRAP_ADMIN_USERNAME": "admin", "KC_BOOTSTRAP_ADMIN_PASSWORD": PASSWORD, "JAVA_OPTS_KC_HEAP": "-Xmx512m"}
        command = f"exec {shlex.quote(str(FOLDER))}/bin/kc.sh start {OPTIONS} --http-port={port} --hostname={self.address}"
        self.program = Program(command, port, house.folder, variables)

    def prepare(self, port: int) -> None:
        until(lambda: is_open(port), f"Keycloak listens:\n{self.program.output}", 10 * PATIENCE)
        self.call("POST", "", {"realm": "acme", "enabled": True, "groups": [{"name": "staff"}]})

    def call(self, method: str, path: str, body: Any = None, document: bytes | None = None) -> Any:
        """Call Keycloak's administration. Its tokens live for a minute."""
        grant = {"grant_type": "password", "client_id": "admin-cli", "username": "admin", "password": PASSWORD}
        endpoint = f"{self.address}/realms/master/protocol/openid-connect/token"
        token = httpx.post(endpoint, data=grant, timeout=PATIENCE).json()["access_token"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json" if document is None else "application/xml"}
        content = json.dumps(body).encode() if document is None else document
        answer = httpx.request(method, f"{self.address}/admin/realms{path}", headers=headers, content=content, timeout=PATIENCE)
        assert answer.is_success, (path, answer.text)
        return answer.json() if answer.content else None

    def add_user(self, name: str) -> None:
        credentials = [{"type": "password", "value": PASSWORD}]
        names = {"username": name, "email": f"{name}@acme.example", "firstName": name.title(), "lastName": "Keys"}
        user = {**names, "enabled": True, "emailVerified": True, "groups": ["staff"], "credentials": credentials}
        self.call("POST", "/acme/users", user)

    def add_openid_connection(self, slug: str, authentication: str) -> None:
        ends = self.house.add(slug, self.realm, authentication)
        if authentication == "private_key_jwt":
            credentials = {"clientAuthenticatorType": "client-jwt"}
            keys = {"use.jwks.url": "true", "jwks.url": ends["jwks_uri"]}
        else:
            credentials, keys = {"secret": SECRET}, {}
        logout = {"backchannel.logout.url": ends["backchannel_logout_uri"], "post.logout.redirect.uris": ends["post_logout_redirect_uri"]}
        client = {"clientId": f"gatehouse-{slug}", "redirectUris": [ends["redirect_uri"]], "protocolMappers": [GROUPS], **credentials}
        self.call("POST", "/acme/clients", {**client, "attributes": {**logout, **keys, "backchannel.logout.session.required": "true"}})

    def add_saml_connection(self, slug: str, *, encrypts: bool) -> None:
        """Gatehouse and Keycloak read each other's metadata."""
        metadata = self.house.add_saml(slug, **ATTRIBUTES)
        self.house.read_metadata(slug, f"{self.realm}/protocol/saml/descriptor")
        client = self.call("POST", "/acme/client-description-converter", document=metadata)
        client["protocolMappers"] = [
            {
                "name": name,
                "protocol": "saml",
                "protocolMapper": "saml-user-property-mapper",
                "config": {"user.attribute": name, "attribute.name": name, "attribute.nameformat": "Basic"},
            }
            for name in ATTRIBUTES.values()
            if name is not None
        ]
        client["attributes"] |= {"saml.encrypt": str(encrypts).lower(), "saml_force_name_id_format": "true"}
        self.call("POST", "/acme/clients", client)

    def browser(self) -> FormBrowser:
        return FormBrowser(self.house.service.address, self.address)

    def sign_in(self, browser: FormBrowser, slug: str, name: str) -> None:
        """Sign in at Keycloak, which asks for the password."""
        self.house.begin(browser, slug)
        matching = [form for form in browser.forms if "password" in form.fields]
        assert matching, (slug, browser.address, browser.text)
        browser.submit(matching[0], username=name, password=PASSWORD)
        self.house.submit_messages(browser)
        assert self.house.is_signed_in(browser), (slug, browser.address, browser.text, self.house.sign_ins(slug))

    def sign_out(self, browser: FormBrowser) -> None:
        """Sign out at Keycloak."""
        browser.open(f"{self.realm}/protocol/openid-connect/logout")
        browser.submit(browser.forms[0])
        self.house.submit_messages(browser)


@pytest.fixture(scope="module")
def keycloak(house: House) -> Iterator[Keycloak]:
    with Port() as port:
        keycloak = Keycloak(house, port.number)
        with keycloak.program:
            keycloak.prepare(port.number)
            yield keycloak


@pytest.mark.parametrize("authentication", ["client_secret_basic", "private_key_jwt"])
def test_people_sign_in_and_out_by_openid_connect(house: House, keycloak: Keycloak, authentication: str) -> None:
    """A sign-out at Keycloak ends this browser's session alone. A sign-out here ends the session at Keycloak."""
    slug, name = authentication.replace("_", "-"), authentication.rpartition("_")[2]
    keycloak.add_user(name)
    keycloak.add_openid_connection(slug, authentication)
    assert house.errors(slug) == []
    with house.active(slug), keycloak.browser() as browser, keycloak.browser() as other:
        keycloak.sign_in(browser, slug, name)
        keycloak.sign_in(other, slug, name)
        keycloak.sign_out(browser)
        until(lambda: not house.is_signed_in(browser), "Keycloak's logout token has ended the session")
        assert house.is_signed_in(other)
        house.sign_out(other)
        keycloak.sign_in(other, slug, name)
    [(email, fault, received), *_] = house.sign_ins(slug)
    assert (email, fault, received >= {"email", "groups"}) == (f"{name}@acme.example", None, True)


@pytest.mark.parametrize("encrypts", [False, True], ids=["signed", "encrypted"])
def test_people_sign_in_and_out_by_saml(house: House, keycloak: Keycloak, *, encrypts: bool) -> None:
    """Keycloak signs the response and the assertion, and can encrypt the assertion.

    A sign-out at Gatehouse or at the provider ends the two sessions.
    """
    slug, name = ("encrypted", "kim") if encrypts else ("signed", "lee")
    keycloak.add_user(name)
    keycloak.add_saml_connection(slug, encrypts=encrypts)
    with house.active(slug), keycloak.browser() as browser:
        keycloak.sign_in(browser, slug, name)
        keycloak.sign_out(browser)
        assert not house.is_signed_in(browser)
        keycloak.sign_in(browser, slug, name)
        house.sign_out(browser)
        keycloak.sign_in(browser, slug, name)
    [(email, fault, received), *_] = house.sign_ins(slug)
    assert (email, fault, received >= {"email", "firstName"}) == (f"{name}@acme.example", None, True)
