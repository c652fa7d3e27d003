"""oidc-provider is an organization's identity provider, in five configurations."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.foreign.connections.conftest import CONNECTIONS, SECRET, House
from tests.foreign.programs import NODE, Program, require
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Port
from tests.support.waiting import until

pytestmark = pytest.mark.slow

# By connection name: what our client is there, besides its id and addresses.
CONFIGURATIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "basic": {"token_endpoint_auth_method": "client_secret_basic"},
    "post": {"token_endpoint_auth_method": "client_secret_post"},
    "key": {"token_endpoint_auth_method": "private_key_jwt"},
    "curve": {"token_endpoint_auth_method": "client_secret_basic", "id_token_signed_response_alg": "ES256"},
    "ends": {"token_endpoint_auth_method": "client_secret_basic"},
}


class Providers:
    """The process with all configurations."""

    def __init__(self, house: House, port: int) -> None:
        self.house = house
        self.address = f"http://127.0.0.1:{port}"
        clients = {name: self._client(name, dict(settings)) for name, settings in CONFIGURATIONS.items()}
        variables = {"ADDRESS": self.address, "CLIENTS": json.dumps(clients)}
        self.program = Program(f"exec node {shlex.quote(str(NODE))}/identity_providers.mjs", port, house.folder, variables)

    def _client(self, name: str, settings: dict[str, str]) -> dict[str, Any]:
        """Add a connection. Return our client's registration at its provider."""
        endpoints = self.house.add(name, f"{self.address}/{name}", settings["token_endpoint_auth_method"])
        return {
            "client_id": f"gatehouse-{name}",
            "redirect_uris": [endpoints["redirect_uri"]],
            "post_logout_redirect_uris": [endpoints["post_logout_redirect_uri"]],
            "backchannel_logout_uri": endpoints["backchannel_logout_uri"],
            **({"jwks_uri": endpoints["jwks_uri"]} if name == "key" else {"client_secret": SECRET}),
            **settings,
        }

    def browser(self) -> FormBrowser:
        return FormBrowser(self.house.service.address, self.address)

    def sign_in(self, browser: FormBrowser, slug: str, name: str) -> None:
        """Sign in at a connection's provider, which accepts any login name."""
        self.house.begin(browser, slug)
        forms: tuple[tuple[str, dict[str, str]], ...] = (("login", {"login": name, "password": "any"}), ("consent", {}))
        for prompt, fields in forms:
            matching = [form for form in browser.forms if form.fields.get("prompt") == prompt]
            assert matching, (slug, prompt, browser.address, browser.text, self.program.output)
            browser.submit(matching[0], **fields)


@pytest.fixture(scope="module")
def providers(house: House) -> Iterator[Providers]:
    require("node", NODE / "node_modules" / "oidc-provider")
    with Port() as port:
        providers = Providers(house, port.number)
        with providers.program.wait_until_it_listens():
            yield providers


def test_people_sign_in_with_each_configuration(house: House, providers: Providers) -> None:
    """The check finds no problem, and the log has the claim names."""
    findings: list[Any] = []
    for name in CONFIGURATIONS:
        findings += [(name, error) for error in house.errors(name)]
        with house.active(name), providers.browser() as browser:
            providers.sign_in(browser, name, f"grace-{name}")
            findings += [] if house.is_signed_in(browser) else [(name, browser.address, browser.text)]
        signed_in = house.sign_ins(name)
        expected = [(f"grace-{name}@acme.example", None, {"email", "email_verified", "name", "groups"})]
        findings += [(name, signed_in)] if signed_in != expected else []
    assert findings == [], providers.program.output


def test_a_wrong_secret_is_found_by_the_check_and_named_in_the_log(house: House, providers: Providers) -> None:
    house.call("PUT", f"{CONNECTIONS}/post/client-secret", {"client_secret": "another secret"})
    assert house.errors("post") == ["client"]
    with house.active("post"), providers.browser() as browser:
        providers.sign_in(browser, "post", "heidi")
        assert not house.is_signed_in(browser)
    assert (None, "client", set()) in house.sign_ins("post")


def test_a_sign_out_at_either_side_ends_both_sessions(house: House, providers: Providers) -> None:
    with house.active("ends"), providers.browser() as browser:
        providers.sign_in(browser, "ends", "heidi")
        assert house.is_signed_in(browser)
        browser.open(f"{providers.address}/ends/session/end")  # there: a logout token comes here
        browser.submit(browser.forms[0], logout="yes")
        until(lambda: "backchannel." in providers.program.output, "the provider has reported the sign-out")
        assert "backchannel.error" not in providers.program.output, providers.program.output[-1500:]
        assert not house.is_signed_in(browser)
        providers.sign_in(browser, "ends", "heidi")
        browser.open(f"{house.service.address}/app")  # here: the browser goes there, and comes back
        [form] = [form for form in browser.forms if form.action == "/app/sign-out"]
        browser.submit(form)
        assert browser.address.partition("?")[0] == f"{providers.address}/ends/session/end"
        browser.submit(browser.forms[0], logout="yes")
        assert browser.address.startswith(f"{house.service.address}/auth/connections/"), browser.address
        providers.sign_in(browser, "ends", "heidi")  # asks for the login name again
