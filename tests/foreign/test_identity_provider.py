"""A third-party OpenID provider is Gatehouse's identity provider."""

import shlex
from contextlib import ExitStack

import pytest

from tests.foreign.conftest import Start
from tests.foreign.programs import NODE, require
from tests.proof.e2e.conftest import service_home, settings_of_own_database
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Port, Service

pytestmark = pytest.mark.slow


def test_users_sign_in_through_oidc_provider(start: Start) -> None:
    require("node", NODE / "node_modules" / "oidc-provider")
    with ExitStack() as stack:
        port = stack.enter_context(Port())
        issuer = f"http://localhost:{port.number}"
        client = {"CLIENT_ID": "gatehouse", "CLIENT_SECRET": "a secret at the provider"}
        settings = {
            **client,
            "ISSUER": issuer,
            "AUTHORIZE_URL": f"{issuer}/auth",
            "TOKEN_URL": f"{issuer}/token",
            "USERINFO_URL": f"{issuer}/me",
            "JWKS_URL": f"{issuer}/jwks",
        }
        service = Service(
            stack.enter_context(service_home()),
            **stack.enter_context(settings_of_own_database()),
            **{f"SSO_WEBSUITE_{name}": value for name, value in settings.items()},
        )
        stack.callback(service.clean_up)
        service.start()
        callback = f"{service.address}/auth/websuite/callback"
        start(f"exec node {shlex.quote(str(NODE))}/identity_provider.mjs", port.number, ADDRESS=issuer, REDIRECT_URI=callback, **client)

        browser = stack.enter_context(FormBrowser(service.address, issuer))
        browser.open(f"{service.address}/auth/websuite")
        [form] = [form for form in browser.forms if form.fields.get("prompt") == "login"]
        browser.submit(form, login="grace", password="any")
        [form] = [form for form in browser.forms if form.fields.get("prompt") == "consent"]
        browser.submit(form)
        assert browser.address == f"{service.address}/app/account/applications", browser.text
        assert "grace@example.com" in browser.text
