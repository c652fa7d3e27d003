"""saml-idp and samlify are an organization's identity providers."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.foreign.connections.conftest import CONNECTIONS, House, create_key
from tests.foreign.programs import NODE, Program, require
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Port

pytestmark = pytest.mark.slow

PERSISTENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A SAML connection without its provider's metadata, and a key for that."""

    endpoints: dict[str, str]
    key: Path
    certificate: Path


def prepare(house: House, slug: str) -> Prepared:
    key, certificate = create_key(house.folder, slug)
    created = house.call("POST", CONNECTIONS, {"slug": slug, "name": slug, "saml": {"trusts_email": True}})
    house.call("POST", f"{CONNECTIONS}/{slug}/keys", {})
    return Prepared(created["endpoints"], key, certificate)


def read_metadata(house: House, slug: str, address: str) -> None:
    house.call("POST", f"{CONNECTIONS}/{slug}/metadata", {"metadata": httpx.get(f"{address}/metadata").text})


def test_people_sign_in_through_saml_idp(house: House) -> None:
    """It signs the response and the assertion, and its NameID is persistent."""
    folder = NODE / "node_modules" / "saml-idp"
    require("node", "openssl", folder)
    prepared = prepare(house, "saml-idp")
    ours = prepared.endpoints
    with Port() as port:
        address = f"http://127.0.0.1:{port.number}"
        own = {"issuer": "urn:saml-idp", "cert": prepared.certificate, "key": prepared.key, "host": "127.0.0.1", "port": port.number}
        options = {"acsUrl": ours["acs_url"], "audience": ours["entity_id"], **own}
        arguments = " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in options.items())
        with Program(f"exec node {folder}/bin/run.js {arguments}", port.number, house.folder, {}).wait_until_it_listens() as program:
            read_metadata(house, "saml-idp", address)
            with house.active("saml-idp"), FormBrowser(house.service.address, address) as browser:
                house.begin(browser, "saml-idp")
                [form] = [form for form in browser.forms if "userName" in form.fields]
                browser.submit(form, userName="kim-17", nameIdFormat=PERSISTENT, email="kim@acme.example")
                browser.submit_saml()
                assert house.is_signed_in(browser), (browser.address, browser.text, program.output[-3000:])
    [(email, fault, received)] = house.sign_ins("saml-idp")
    assert (email, fault, "email" in received) == ("kim@acme.example", None, True)


def test_people_sign_in_through_samlify(house: House) -> None:
    """It verifies our signed request, and encrypts its assertion for the key in our metadata."""
    require("node", "openssl", NODE / "node_modules" / "samlify")
    prepared, metadata = prepare(house, "samlify"), house.folder / "samlify.xml"
    metadata.write_text(httpx.get(prepared.endpoints["metadata_url"]).text)
    with Port() as port:
        address = f"http://127.0.0.1:{port.number}"
        files = {"CERTIFICATE": prepared.certificate, "KEY": prepared.key, "METADATA": metadata}
        variables = {"ADDRESS": address, **{name: str(path) for name, path in files.items()}}
        command = f"exec node {shlex.quote(str(NODE))}/samlify_provider.mjs"
        with Program(command, port.number, house.folder, variables).wait_until_it_listens() as program:
            read_metadata(house, "samlify", address)
            with house.active("samlify"), FormBrowser(house.service.address, address) as browser:
                house.begin(browser, "samlify")
                assert "SAMLResponse" in browser.text, (browser.text, program.output[-3000:])
                browser.submit_saml()
                assert house.is_signed_in(browser), (house.sign_ins("samlify"), browser.text)
    assert house.sign_ins("samlify") == [("lee@acme.example", None, {"email"})]
