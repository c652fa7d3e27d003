"""The frontend from the guide to passkeys in Chromium, with `@simplewebauthn/browser`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests import ROOT
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.docs.documented import DOCS, files
from tests.proof.e2e.pages.frontend import serving_files

pytestmark = pytest.mark.slow

ADA, PASSWORD = "ada@example.com", "correct horse battery staple"
LIBRARY: Final = ROOT / "tests" / "proof" / "clients" / "node" / "node_modules" / "@simplewebauthn" / "browser" / "esm"
PAGE: Final = """
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Frontend</title>
<link rel="icon" href="data:,">
<input aria-label="Email address" autocomplete="username webauthn">
<script type="importmap">{"imports": {"@simplewebauthn/browser": "./simplewebauthn/index.js"}}</script>
<script type="module">import * as passkeys from "./passkeys.js"; window.passkeys = passkeys;</script>
"""
CALL: Final = """
const [name, parameters, done] = arguments;
window.passkeys[name](...parameters).then(done, (error) => done(`${error.name}: ${error.message}`));
"""


@pytest.fixture
def frontend(tmp_path: Path) -> Iterator[str]:
    for name, text in files(DOCS / "guides" / "passkeys.md").items():
        (tmp_path / name).write_text(text)
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "simplewebauthn").symlink_to(LIBRARY)
    with serving_files(tmp_path) as origin:
        yield origin


def test_a_frontend_adds_and_uses_passkeys(service: Start, own_database: dict[str, str], browser: Browser, frontend: str) -> None:
    owner = {"SSO_PLATFORM_OWNER_EMAIL": ADA, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD}
    running = service(SSO_FRONTEND_URL=frontend, **owner, **own_database).start()

    def call(name: str, *parameters: Any) -> Any:
        return browser.wait_for_script(CALL, name, [running.address, *parameters])

    browser.open(f"{frontend}/index.html")
    browser.wait_until(lambda: browser.script("return 'passkeys' in window"))
    with browser.authenticator() as authenticator:
        token = running.login(ADA, PASSWORD)["access_token"]
        added = call("addPasskey", token, "Laptop")
        assert (added["name"], added["rp_id"]) == ("Laptop", "localhost")
        assert call("addPasskey", token, "Again").startswith("InvalidStateError: ")
        for autofill in (False, True):
            tokens = call("signIn", {}, autofill)
            assert running.get("/api/user", token=tokens["access_token"]).json()["email"] == ADA
        assert call("signIn", {"org_slug": "acme", "service_slug": "none"}).startswith("Error: ")
        assert running.call("DELETE", f"/api/user/passkeys/{added['id']}", token=token).status_code == 204
        assert (
            call("signIn")
            == "Error: This passkey was deleted here. If that wasn't you, open the link in our email about it. Otherwise use another way."
        )
        authenticator.verify_users(False)
        assert call("signIn").startswith("NotAllowedError: ")
    assert [line for line in browser.complaints() if " 40" not in line] == []
