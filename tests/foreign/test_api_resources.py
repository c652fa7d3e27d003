"""The guide to API resources: its programs check access tokens with PyJWT and with jose, for a user and for an application."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from tests.foreign.gatehouse import Gatehouse
from tests.foreign.programs import NODE, PYTHON, Program, require
from tests.foreign.quickstarts import PageReader
from tests.proof.e2e.docs.documented import DOCS
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Port

pytestmark = pytest.mark.slow

GUIDE: Final = DOCS / "guides" / "api-resources.md"
CALLBACK: Final = "https://dashboard.example.com/callback"


class Guide(PageReader):
    """A guide's reader, who starts its programs one by one."""

    @property
    def identifier(self) -> str:
        return f"{self.address}/"

    def run(self, command: str, issuer: str) -> Program:
        variables = {"ISSUER": issuer, "AUDIENCE": self.identifier}
        return Program(command, self._port.number, self._folder, variables).wait_until_it_listens()


@pytest.fixture
def guide(gatehouse: Gatehouse, tmp_path: Path) -> Iterator[Guide]:
    require("node", NODE / "node_modules" / "jose", PYTHON / "flask")
    with ExitStack() as stack:
        guide = Guide(gatehouse, GUIDE, tmp_path, stack.enter_context(Port()))
        stack.callback(guide.close)
        guide.follow()
        yield guide


def tokens_of_user(gatehouse: Gatehouse, guide: Guide, browser: FormBrowser, **fields: str) -> dict[str, Any]:
    """Sign the user in to the application, agree, and return its tokens."""
    client = guide.value("client"), guide.value("secret")
    request = {"client_id": client[0], "redirect_uri": CALLBACK, "response_type": "code", **fields}
    browser.open(f"{gatehouse.address}/auth/authorize?{urlencode(request)}")
    if gatehouse.asks(browser, "sign-in"):
        gatehouse.sign_in(browser)
    elif browser.address.startswith(gatehouse.address):
        gatehouse.agree(browser)
    [code] = parse_qs(urlsplit(browser.address).query)["code"]
    body = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
    answer = httpx.post(f"{gatehouse.address}/auth/token", data=body, auth=client, trust_env=False)
    assert answer.status_code == 200, answer.text
    tokens: dict[str, Any] = answer.json()
    return tokens


def test_the_programs_of_the_guide_check_tokens(gatehouse: Gatehouse, guide: Guide, forms: Callable[[str], FormBrowser]) -> None:
    browser = forms(gatehouse.address)
    tokens = tokens_of_user(gatehouse, guide, browser, scope="openid orders:read", resource=guide.identifier)
    of_user, of_program = tokens["access_token"], guide.value("token")
    elsewhere = tokens_of_user(gatehouse, guide, browser, scope="openid")
    header, payload, signature = of_user.split(".")
    refused = {
        "for another audience": elsewhere["access_token"],
        "an ID token": tokens["id_token"],
        "with another signature": f"{header}.{payload}.{signature[::-1]}",
        "no token": "x",
    }
    assert len(guide.commands) == 2
    for command in guide.commands:
        program = guide.run(command, gatehouse.address)
        try:
            with httpx.Client(base_url=guide.address, trust_env=False) as api:

                def call(token: str | None, method: str = "GET", api: httpx.Client = api) -> tuple[int, str]:
                    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                    answer = api.request(method, "/orders", headers=headers)
                    return answer.status_code, answer.json()["user"] if answer.is_success else answer.headers["WWW-Authenticate"]

                assert call(of_user) == (200, gatehouse.user_id), program.output
                assert call(of_program) == (200, guide.value("client")), program.output
                assert call(of_user, "POST") == (403, 'Bearer error="insufficient_scope", scope="orders:write"')
                assert call(None) == (401, "Bearer")
                for name, token in refused.items():
                    assert call(token) == (401, 'Bearer error="invalid_token"'), (command, name)
                gatehouse.revoke_sessions()
                assert call(of_user) == (200, gatehouse.user_id), "a program that checks tokens by itself accepts them until they expire"
        finally:
            program.stop()
    credentials = guide.value("orders"), guide.value("credential")
    states = [
        httpx.post(f"{gatehouse.address}/auth/introspect", data={"token": token}, auth=credentials, trust_env=False).json()["active"]
        for token in (of_user, of_program, elsewhere["access_token"])
    ]
    assert states == [False, True, False], "introspection knows at once that the session has ended"
