"""saml-idp is the identity provider of an organization."""

import shlex
import subprocess

import httpx
import pytest

from tests.foreign.connections.conftest import CONNECTIONS, House
from tests.foreign.programs import NODE, Program, require
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Port

pytestmark = pytest.mark.slow

PERSISTENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"


def test_people_sign_in_through_saml_idp(house: House) -> None:
    """It signs the response and the assertion, and its NameID is persistent."""
    folder = NODE / "node_modules" / "saml-idp"
    require("node", "openssl", folder)
    key, certificate = house.folder / "idp.key", house.folder / "idp.crt"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=idp", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(new, check=True, capture_output=True)
    created = house.call("POST", CONNECTIONS, {"slug": "saml-idp", "name": "saml-idp", "saml": {"trusts_email": True}})
    house.call("POST", f"{CONNECTIONS}/saml-idp/keys", {})
    ours = created["endpoints"]
    with Port() as port:
        address = f"http://127.0.0.1:{port.number}"
        options = {"acsUrl": ours["acs_url"], "audience": ours["entity_id"], "issuer": "urn:saml-idp", "cert": certificate, "key": key}
        more = {"host": "127.0.0.1", "port": port.number}
        arguments = " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in {**options, **more}.items())
        with Program(f"exec node {folder}/bin/run.js {arguments}", port.number, house.folder, {}).wait_until_it_listens() as program:
            house.call("POST", f"{CONNECTIONS}/saml-idp/metadata", {"document": httpx.get(f"{address}/metadata").text})
            with house.active("saml-idp"), FormBrowser(house.service.address, address) as browser:
                house.begin(browser, "saml-idp")
                [form] = [form for form in browser.forms if "userName" in form.fields]
                browser.submit(form, userName="kim-17", nameIdFormat=PERSISTENT, email="kim@acme.example")
                browser.submit_saml()
                assert house.is_signed_in(browser), (browser.address, browser.text, program.output[-3000:])
    [(email, fault, received)] = house.sign_ins("saml-idp")
    assert (email, fault, "email" in received) == ("kim@acme.example", None, True)
