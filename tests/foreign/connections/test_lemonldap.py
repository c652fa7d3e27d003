"""LemonLDAP::NG is an organization's identity provider, by OpenID Connect and by SAML. Only `./run test foreign --all` runs it."""

import json
import re
import shlex
import subprocess
from html import unescape
from pathlib import Path
from typing import Any, Final

import pytest

from tests.foreign.connections.conftest import CONNECTIONS, SECRET, House, create_key
from tests.foreign.connections.debian import ROOT, find, requires
from tests.foreign.programs import Program
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Port

SHARE: Final = ROOT / "usr" / "share" / "lemonldap-ng"
USER: Final = "dwho"  # the demonstration users have the same password
INI: Final = """
[all]
logLevel = info
logger = Lemonldap::NG::Common::Logger::Std
userLogger = Lemonldap::NG::Common::Logger::Std
[configuration]
type = File
dirName = {folder}/conf
localStorage = Cache::FileCache
localStorageOptions = {{ 'namespace' => 'conf', 'default_expires_in' => 600, 'cache_root' => '{folder}/cache', 'cache_depth' => 1 }}
[portal]
templateDir = {templates}
staticPrefix = /static
languages = en
"""

pytestmark = [pytest.mark.slow, requires("LemonLDAP::NG", "usr/share/lemonldap-ng")]


def write_configuration(folder: Path, address: str, settings: dict[str, Any]) -> None:
    """Write the configuration for a portal at this address, which keeps its sessions in files."""
    for name in ("conf", "sessions", "lock", "cache"):
        (folder / name).mkdir()
    key, certificate = create_key(folder)
    arguments = ["openssl", "rsa", "-in", str(key), "-pubout"]
    public = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    files = {"Directory": str(folder / "sessions"), "LockDirectory": str(folder / "lock")}
    common = {
        "cfgNum": 1,
        "cfgDate": 1,
        "cfgAuthor": "tests",
        "portal": f"{address}/",
        "domain": "127.0.0.1",
        "locationRules": {"127.0.0.1": {"default": "accept"}},
        "securedCookie": 0,
        "key": "a key of these tests",
        "authentication": "Demo",
        "userDB": "Same",
        "macros": {"address": '"$uid\\@acme.example"', "_whatToTrace": "$uid"},
        "groups": {"staff": "1"},
        "globalStorage": "Apache::Session::File",
        "globalStorageOptions": files,
        "persistentStorage": "Apache::Session::File",
        "persistentStorageOptions": files,
        "oidcServicePrivateKeySig": key.read_text(),
        "oidcServicePublicKeySig": public,
        "oidcServiceKeyIdSig": "first",
        "samlServicePrivateKeySig": key.read_text(),
        "samlServicePublicKeySig": certificate.read_text(),
        "samlOrganizationName": "Acme",
        "samlOrganizationDisplayName": "Acme",
        "samlOrganizationURL": "https://acme.example",
    }
    (folder / "conf" / "lmConf-1.json").write_text(json.dumps(common | settings))
    (folder / "lemonldap-ng.ini").write_text(INI.format(folder=folder, templates=SHARE / "portal" / "templates"))


class LemonLdap:
    """A LemonLDAP::NG portal with its demonstration users, which has a single application."""

    def __init__(self, house: House, folder: Path, port: int, settings: dict[str, Any], *, encrypts: bool = False) -> None:
        self.house, self.encrypts = house, encrypts
        self.address = f"http://127.0.0.1:{port}"
        write_configuration(folder, self.address, settings)
        libraries = find("usr/lib/*/perl5/5.*")
        variables = {
            "LLNG_DEFAULTCONFFILE": str(folder / "lemonldap-ng.ini"),
            "PERL5LIB": f"{ROOT}/usr/share/perl5:{libraries}",
            "LD_LIBRARY_PATH": str(libraries.parents[1]),
        }
        portal = shlex.quote(str(SHARE / "portal" / "htdocs" / "index.psgi"))
        command = f"exec perl {shlex.quote(str(ROOT / 'usr' / 'bin' / 'plackup'))} --host 127.0.0.1 --port {port} {portal}"
        self.program = Program(command, port, folder, variables)

    def sign_in(self, browser: FormBrowser, slug: str) -> None:
        """Sign in at the portal, which asks for the password."""
        self.house.begin(browser, slug)
        matching = [form for form in browser.forms if "password" in form.fields]
        assert matching, (browser.address, browser.text, self.program.output[-3000:])
        browser.submit(matching[0], user=USER, password=USER)
        assert (b":EncryptedAssertion" in self.house.submit_messages(browser)) is self.encrypts
        assert self.house.is_signed_in(browser), (browser.address, browser.text, self.house.sign_ins(slug), self.program.output[-3000:])

    def sign_out(self, browser: FormBrowser) -> None:
        """Sign out at the portal. A frame leads to Gatehouse, and shows whether its response is accepted."""
        browser.open(f"{self.address}/?logout=1")
        [frame] = re.findall('<iframe src="([^"]+)"', browser.text)
        browser.open(unescape(frame))
        assert browser.address.endswith("/icons/ok.png"), (browser.address, browser.text, self.program.output[-3000:])


def test_people_sign_in_and_out_by_openid_connect(house: House, tmp_path: Path) -> None:
    """A sign-out here ends the session at the portal. This version sends no logout tokens."""
    slug = "lemon-oidc"
    with Port() as port:
        issuer = f"http://127.0.0.1:{port.number}/"
        ends = house.add(slug, issuer, "client_secret_post")
        options = {
            "ClientID": f"gatehouse-{slug}",
            "ClientSecret": SECRET,
            "RedirectUris": ends["redirect_uri"],
            "PostLogoutRedirectUris": ends["post_logout_redirect_uri"],
            "IDTokenSignAlg": "RS256",
            "BypassConsent": 1,
            "LogoutBypassConfirm": 1,
            "RequirePKCE": 1,
            "UserIDAttr": "uid",
        }
        settings = {
            "issuerDBOpenIDConnectActivation": 1,
            "oidcRPMetaDataOptions": {slug: {f"oidcRPMetaDataOptions{name}": value for name, value in options.items()}},
            "oidcRPMetaDataExportedVars": {slug: {"email": "address", "groups": "groups", "name": "cn"}},
        }
        provider = LemonLdap(house, tmp_path, port.number, settings)
        with provider.program.wait_until_it_listens():
            assert house.errors(slug) == []
            with house.active(slug), FormBrowser(house.service.address, provider.address) as browser:
                provider.sign_in(browser, slug)
                house.sign_out(browser)
                provider.sign_in(browser, slug)
    [(email, fault, received), *_] = house.sign_ins(slug)
    assert (email, fault, received >= {"email", "name"}) == ("dwho@acme.example", None, True)


@pytest.mark.parametrize("encrypts", [False, True], ids=["signed", "encrypted"])
def test_people_sign_in_and_out_by_saml(house: House, tmp_path: Path, *, encrypts: bool) -> None:
    """It verifies our requests, and can encrypt the assertion. A sign-out at Gatehouse or at the provider ends the two sessions."""
    slug = f"lemon-{'encrypted' if encrypts else 'signed'}"
    metadata = house.add_saml(slug).decode()
    options = {
        "NameIDFormat": "persistent",
        "CheckSSOMessageSignature": 1,
        "CheckSLOMessageSignature": 1,
        "SignSSOMessage": 1,
        "SignSLOMessage": 1,
        "EncryptionMode": "assertion" if encrypts else "none",
    }
    attributes = {"address": "1;email;;", "groups": "0;groups;;"}
    settings = {
        "issuerDBSAMLActivation": 1,
        "samlSPMetaDataXML": {slug: {"samlSPMetaDataXML": metadata}},
        "samlSPMetaDataOptions": {slug: {f"samlSPMetaDataOptions{name}": value for name, value in options.items()}},
        "samlSPMetaDataExportedAttributes": {slug: attributes},
    }
    with Port() as port:
        provider = LemonLdap(house, tmp_path, port.number, settings, encrypts=encrypts)
        house.walk_by_saml(slug, provider, f"{provider.address}/saml/metadata/idp")
        stored = house.call("GET", f"{CONNECTIONS}/{slug}")["saml"]
        assert stored["slo_response_url"] == f"{provider.address}/saml/singleLogoutReturn"
    [(email, fault, received), *_] = house.sign_ins(slug)
    assert (email, fault, received >= {"email"}) == ("dwho@acme.example", None, True)
