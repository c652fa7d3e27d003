"""The way from the hosted page's first field to an organization's identity provider and back, in a real browser."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.fakes.openid_issuers import CLIENT_ID, SECRET, FakeIssuer, OpenIdIssuers
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import Service

pytestmark = pytest.mark.slow

ADA, PASSWORD = "ada@example.com", "nine lions at the river"
DOMAIN = """
    insert into domains (org_id, domain, challenge, verified_at, created_at)
    select id, 'acme.example', 'x', now(), now() from organizations"""


@pytest.fixture
def issuer() -> Iterator[FakeIssuer]:
    with OpenIdIssuers() as server:
        yield server.add("okta", email="grace@acme.example", claims={"email_verified": True})


@pytest.fixture
def running(service: Start, own_database: dict[str, str], issuer: FakeIssuer) -> Service:
    """A service with the organization acme. Its domain leads to its connection."""
    owner = {"SSO_PLATFORM_OWNER_EMAIL": ADA, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD}
    settings = {"SSO_AUTO_APPROVE_ORGANIZATIONS": "true", "SSO_OUTBOUND_ALLOW": "127.0.0.1"}
    running = service(**settings, **owner, **own_database).start()
    token = running.login(ADA, PASSWORD)["access_token"]
    connection = {"slug": "okta", "name": "Acme Okta", "oidc": {"issuer": issuer.url, "client_id": CLIENT_ID}}
    calls = [
        ("POST", "", {"name": "Acme", "slug": "acme"}),
        ("POST", "/acme/connections", connection),
        ("PUT", "/acme/connections/okta/client-secret", {"client_secret": SECRET}),
        ("POST", "/acme/connections/okta/activate", None),
        ("PUT", "/acme/hrd/acme.example", {"connection": "okta"}),
    ]
    for method, path, body in calls:
        answer = running.call(method, f"/api/organizations{path}", body, token=token)
        assert answer.is_success, (path, answer.text)
    with psycopg.connect(own_database["SSO_DATABASE_URL"], autocommit=True) as connection_:
        connection_.execute(DOMAIN)
    return running


def test_an_address_leads_to_the_identity_provider_and_back(running: Service, browser: Browser, issuer: FakeIssuer) -> None:
    browser.open(f"{running.address}/app/sign-in")
    browser.photograph("sign-in-address-first")
    browser.fill("Email address", "grace@acme.example")
    browser.press("Continue")
    assert browser.heading == "Your applications"
    [sent] = [request.sent for request in issuer.received if request.path.endswith("/authorize")]
    assert sent["login_hint"] == "grace@acme.example"
    browser.forget()
    browser.open(f"{running.address}/app/sign-in")
    # An address at another domain gets the password field, which a password manager has filled in.
    browser.fill("Email address", ADA)
    browser.press("Continue")
    browser.photograph("sign-in-password-after-address")
    browser.fill("Password", PASSWORD)
    browser.press("Sign in")
    assert browser.heading != "Sign in"
    assert browser.complaints() == []
    browser.forget()
    # The identity provider refuses. The user chooses a password.
    issuer.refuses = "access_denied"
    browser.open(f"{running.address}/app/sign-in")
    browser.fill("Email address", "grace@acme.example")
    browser.press("Continue")
    browser.follow("Back to the sign-in")
    browser.fill("Email address", "grace@acme.example")
    browser.press("Use a password")
    assert browser.heading == "Sign in"
    browser.follow("Forgot your password?")
    browser.fill("Email address", "grace@acme.example")
    browser.press("Send link")
    browser.photograph("forgot-password-connection")
    assert "Continue with Acme Okta" in browser.text
    browser.press("Send link")
    assert browser.heading == "Check your inbox"
