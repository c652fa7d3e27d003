"""SimpleSAMLphp is an organization's identity provider. Only `./run test foreign --all` runs it."""

import json
import shlex
from pathlib import Path
from typing import Any, Final

import pytest

from tests.foreign.connections.conftest import House, create_key
from tests.foreign.connections.debian import ROOT, find, requires
from tests.foreign.programs import Program
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Port

SHARE: Final = ROOT / "usr" / "share" / "simplesamlphp"
EXTENSIONS: Final = ("xml", "dom", "simplexml", "xmlreader", "xmlwriter", "tokenizer", "ctype", "posix", "iconv", "phar")
PERSISTENT: Final = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
PASSWORD: Final = "the password at SimpleSAMLphp"

pytestmark = [pytest.mark.slow, requires("SimpleSAMLphp", "usr/share/simplesamlphp")]


def write_settings(file: Path, variable: str, settings: Any) -> None:
    """SimpleSAMLphp reads its settings as PHP. This code reads them from JSON."""
    file.with_suffix(".json").write_text(json.dumps(settings))
    file.write_text(f"<?php\n${variable} = json_decode(file_get_contents('{file.with_suffix('.json')}'), true);\n")


class SimpleSamlPhp:
    """A SimpleSAMLphp that knows a single service provider by its metadata. It refuses requests without a signature."""

    def __init__(self, house: House, folder: Path, port: int, metadata: bytes, *, encrypts: bool) -> None:
        self.house = house
        self.encrypts = encrypts
        self.address = f"http://127.0.0.1:{port}"
        key, certificate = create_key(folder)
        (folder / "sp.xml").write_bytes(metadata)
        config = {
            "baseurlpath": f"{self.address}/",
            **dict.fromkeys(("certdir", "loggingdir", "datadir", "tempdir", "metadatadir"), f"{folder}/"),
            "secretsalt": "a salt of these tests",
            "auth.adminpassword": PASSWORD,
            "technicalcontact_email": "admin@acme.example",
            "logging.handler": "errorlog",
            "errorreporting": False,
            "enable.saml20-idp": True,
            "module.enable": {"exampleauth": True, "core": True, "saml": True},
            "session.cookie.secure": False,
            "session.cookie.samesite": "Lax",
            "session.phpsession.savepath": str(folder),
            "store.type": "phpsession",
            "metadata.sources": [{"type": "flatfile"}, {"type": "xml", "file": str(folder / "sp.xml")}],
        }
        provider = {
            "host": "__DEFAULT__",
            "privatekey": key.name,
            "certificate": certificate.name,
            "auth": "users",
            "validate.authnrequest": True,
            "redirect.validate": True,
            "validate.logout": True,
            "sign.logout": True,
            "NameIDFormat": PERSISTENT,
            "userid.attribute": "uid",
            "assertion.encryption": encrypts,
        }
        user = {"uid": ["lee"], "email": ["lee@acme.example"], "given_name": ["Lee"], "groups": ["staff"]}
        write_settings(folder / "config.php", "config", config)
        write_settings(folder / "authsources.php", "config", {"users": {0: "exampleauth:UserPass", f"lee:{PASSWORD}": user}})
        write_settings(folder / "saml20-idp-hosted.php", "metadata", {"__DYNAMIC:1__": provider})
        lines = ["display_errors=0", "error_reporting=E_ALL & ~E_DEPRECATED", f"extension_dir={find('usr/lib/php/2*')}"]
        (folder / "php.ini").write_text("\n".join([*lines, *(f"extension={name}" for name in EXTENSIONS), ""]))
        php = [find("usr/bin/php?.?"), "-c", folder / "php.ini", "-S", f"127.0.0.1:{port}", "-t", SHARE / "www"]
        variables = {"SIMPLESAMLPHP_CONFIG_DIR": str(folder), "PHP_INI_SCAN_DIR": ""}
        self.program = Program(f"exec {shlex.join(map(str, php))}", port, folder, variables)

    def sign_in(self, browser: FormBrowser, slug: str) -> None:
        """Sign in at SimpleSAMLphp, which asks for the password."""
        self.house.begin(browser, slug)
        matching = [form for form in browser.forms if "password" in form.fields]
        assert matching, (browser.address, browser.text, self.program.output[-3000:])
        browser.submit(matching[0], username="lee", password=PASSWORD)
        assert (b":EncryptedAssertion" in self.house.submit_messages(browser)) is self.encrypts
        assert self.house.is_signed_in(browser), (browser.address, browser.text, self.house.sign_ins(slug), self.program.output[-3000:])

    def sign_out(self, browser: FormBrowser) -> None:
        """Sign out at SimpleSAMLphp."""
        end = f"{self.address}/module.php/core/frontpage_welcome.php"
        browser.open(f"{self.address}/saml2/idp/SingleLogoutService.php?ReturnTo={end}")
        self.house.submit_messages(browser)
        assert browser.address == end, (browser.address, browser.text, self.program.output[-3000:])


@pytest.mark.parametrize("encrypts", [False, True], ids=["signed", "encrypted"])
def test_people_sign_in_and_out(house: House, tmp_path: Path, *, encrypts: bool) -> None:
    """It verifies our requests. It signs the response and the assertion, and can encrypt the assertion, with AES-CBC.

    A sign-out at Gatehouse or at the provider ends the two sessions.
    """
    slug = f"php-{'encrypted' if encrypts else 'signed'}"
    metadata = house.add_saml(slug, groups="groups")
    with Port() as port:
        provider = SimpleSamlPhp(house, tmp_path, port.number, metadata, encrypts=encrypts)
        house.walk_by_saml(slug, provider, f"{provider.address}/saml2/idp/metadata.php")
    [(email, fault, received), *_] = house.sign_ins(slug)
    assert (email, fault, received >= {"email", "groups"}) == ("lee@acme.example", None, True)
