"""A server with Authlib is an organization's identity provider."""

import json
import shlex
import sys

import pytest

from tests import ROOT
from tests.foreign.connections.conftest import SECRET, House
from tests.foreign.programs import FOREIGN, Program
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Port

pytestmark = pytest.mark.slow


def test_people_sign_in_through_a_server_with_authlib(house: House) -> None:
    """It returns claims at its userinfo endpoint only."""
    with Port() as port:
        address = f"http://127.0.0.1:{port.number}"
        endpoints = house.add("authlib", address, "client_secret_post")
        client = {"client_id": "gatehouse-authlib", "client_secret": SECRET, "redirect_uris": [endpoints["redirect_uri"]]}
        variables = {"ADDRESS": address, "CLIENT": json.dumps(client), "AUTHLIB_INSECURE_TRANSPORT": "1", "PYTHONPATH": str(ROOT)}
        script = FOREIGN / "applications" / "authlib_provider.py"
        command = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(script))}"
        with Program(command, port.number, house.folder, variables).wait_until_it_listens() as program:
            assert house.errors("authlib") == [], program.output
            with house.active("authlib"), FormBrowser(house.service.address, address) as browser:
                house.begin(browser, "authlib")
                assert house.is_signed_in(browser), (browser.address, browser.text, program.output)
    assert house.sign_ins("authlib") == [("judy@acme.example", None, {"email", "email_verified", "groups", "name"})]
