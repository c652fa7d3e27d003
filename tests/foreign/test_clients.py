"""Third-party OpenID Connect clients sign a user in, unmodified and with their documented settings.

A client is a small application, which shows the claims after the sign-in. Some clients also read the userinfo endpoint
and renew their tokens.
"""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
from joserfc.jwk import ECKey

from tests.foreign.conftest import Start
from tests.foreign.gatehouse import EMAIL, NAME, Gatehouse
from tests.foreign.programs import NODE, PYTHON, require
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Port

pytestmark = pytest.mark.slow

Forms = Callable[[str], FormBrowser]

# As words in a command: the programs' folders.
SCRIPTS, PROGRAMS = (shlex.quote(str(folder)) for folder in (NODE, NODE.parent / "applications"))


@dataclass(frozen=True)
class Application:
    """An application: the command that starts it, its redirect URI, and whether it has `/userinfo` and `/refresh`.

    `has_key`: it gets a private key in place of the client secret, and must push its requests and bind its tokens.
    """

    name: str
    command: str
    callback: str = "/callback"
    renews: bool = False
    has_key: bool = False


APPLICATIONS: Final = [
    Application("openid-client", f"node {SCRIPTS}/openid_client.mjs", renews=True),
    Application("openid-client-bound", f"node {SCRIPTS}/openid_client_bound.mjs", renews=True, has_key=True),
    Application("passport-openidconnect", f"node {SCRIPTS}/passport.mjs"),
    Application("auth-js", f"node {SCRIPTS}/auth_js.mjs", "/auth/callback/gatehouse"),
    Application("authlib", f"uvicorn --app-dir {PROGRAMS} authlib_starlette:app --port $PORT", renews=True),
    Application("idpy-oidc", f"flask --app {PROGRAMS}/idpy_oidc.py run --port $PORT", renews=True),
]


def claims_in(browser: FormBrowser) -> dict[str, Any]:
    """Return the claims that the application shows."""
    assert browser.response.status_code == 200, browser.text
    claims: dict[str, Any] = json.loads(browser.text)
    return claims


def demands(key: ECKey) -> dict[str, Any]:
    """Return the settings for an application with this key, which must push its requests and bind its tokens."""
    public = {"jwks": {"keys": [key.as_dict(private=False)]}}
    return {**public, "require_pushed_authorization_requests": True, "dpop_bound_access_tokens": True}


@pytest.mark.parametrize("application", APPLICATIONS, ids=lambda application: application.name)
def test_a_user_signs_in(application: Application, gatehouse: Gatehouse, forms: Forms, start: Start) -> None:
    require("node", NODE / "node_modules" / "express", PYTHON / "python")
    with Port() as port:
        address = f"http://localhost:{port.number}"
        key = ECKey.generate_key("P-256", {"kid": "one"})
        client = gatehouse.register(application.name, f"{address}{application.callback}", **(demands(key) if application.has_key else {}))
        variables = {**client.variables, **({"PRIVATE_KEY": json.dumps(key.as_dict(private=True))} if application.has_key else {})}
        start(f"exec {application.command}", port.number, ADDRESS=address, PORT=str(port.number), **variables)

        browser = forms(address)
        browser.open(f"{address}/login")
        if browser.address.startswith(address):  # an application's page with a button for the provider
            browser.submit(*browser.forms)
        gatehouse.sign_in(browser)
        claims = claims_in(browser)
        assert (claims["sub"], claims["email"], claims["name"]) == (gatehouse.user_id, EMAIL, NAME)
        if not application.renews:
            return

        for path in ("/userinfo", "/refresh", "/userinfo"):
            browser.open(f"{address}{path}")
            assert claims_in(browser)["sub"] == gatehouse.user_id
        gatehouse.revoke_sessions()
        browser.open(f"{address}/userinfo")
        assert browser.response.status_code == 502
        browser.open(f"{address}/refresh")
        assert browser.response.status_code == 502
        assert "invalid_grant" in browser.text
