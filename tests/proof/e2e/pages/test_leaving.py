"""Chromium follows an application to another origin after its callback, from every page that leads to an application.

Chromium applies `form-action` to all redirects after a form, also to redirects by other servers
(https://github.com/w3c/webappsec-csp/issues/8). Only a browser can show it.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import psycopg
import pytest

from entrypoints.http.base.rendering.templates import POSTING_AWAY
from tests.edge.test_pages import LEADING_AWAY
from tests.fakes.client_documents import ClientServer
from tests.fakes.openid_issuers import CLIENT_ID, SECRET, OpenIdIssuers
from tests.federation.api.relying import PKCE
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import SharedService, settings_of_owner
from tests.proof.e2e.process import Service
from tests.proof.e2e.test_account import STEP, code_of
from tests.support.connections.proofs import older_sessions
from tests.support.saml import PROVIDER_CERTIFICATE

pytestmark = pytest.mark.slow

FOLDER: Final = TemporaryDirectory(prefix="clients-")  # until the process ends
CLIENTS: Final = ClientServer(Path(FOLDER.name))
OWNER, PASSWORD = "grace@example.com", "nine lions at the river"
SETTINGS: Final = {
    **settings_of_owner(OWNER, PASSWORD),
    "SSO_EMAIL_SIGN_IN": "true",
    "SSO_OUTBOUND_ALLOW": "127.0.0.1",
    "SSO_OUTBOUND_CA_FILE": str(CLIENTS.certificate),
}
SHOP: Final = "/api/organizations/acme/services/shop"
RESOURCES: Final = "/api/organizations/acme/api-resources"
MCP: Final = "http://127.0.0.1:8000/mcp"


class Application(ThreadingHTTPServer):
    """An application at 127.0.0.1 that redirects every request to another origin, where its users are at home."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.origin, self.home = f"http://127.0.0.1:{self.server_port}", f"http://localhost:{self.server_port}/home"
        self.received: list[tuple[str, str, str | None, str | None]] = []  # method, path, Origin and Referer
        Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    server: Application

    def do_GET(self) -> None:
        if self.headers["Host"].startswith("127.0.0.1"):
            self.server.received.append((self.command, urlsplit(self.path).path, self.headers["Origin"], self.headers["Referer"]))
        is_home = self.path == "/home"
        self.send_response(200 if is_home else 302)
        self.send_header("Content-Type" if is_home else "Location", "text/html" if is_home else self.server.home)
        self.end_headers()
        self.wfile.write(b"<!doctype html><link rel=icon href='data:,'><h1>Home</h1>" if is_home else b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@dataclass
class World:
    """A browser, and a service with an organization and its application."""

    shared: SharedService
    application: Application
    client_id: str
    browser: Browser
    email: str = ""

    @property
    def service(self) -> Service:
        return self.shared.service

    def request(self, **changes: str) -> str:
        """Return the path for an authorization request."""
        request = {"client_id": self.client_id, "redirect_uri": f"{self.application.origin}/callback", "response_type": "code"}
        return f"/auth/authorize?{urlencode({**request, 'scope': 'openid', 'state': 's3cret', **changes})}"

    def open(self, path: str) -> None:
        self.browser.open(f"{self.service.address}{path}")

    def execute(self, sql: str) -> None:
        with psycopg.connect(self.shared.conninfo) as connection:
            connection.execute(sql, [self.email])

    def add_user(self, agrees: bool = True) -> None:
        """Add a user who has agreed to the application's access."""
        self.service.register(self.email, PASSWORD)
        self.service.follow(self.shared.sink.wait_for(self.email).link)
        if agrees:
            self.agree()

    def agree(self) -> None:
        self.execute(
            "insert into consents (user_id, org_id, service_id, scope, granted_at)"
            " select u.id, s.org_id, s.id, '{openid}', now() from users u, services s where u.email = %s and s.slug = 'shop'"
        )

    def sign_in(self) -> None:
        self.browser.fill("Email address", self.email)
        self.press("Password", PASSWORD, "Sign in")

    def press(self, label: str, text: str, button: str) -> None:
        self.browser.fill(label, text)
        self.browser.press(button)

    def sign_up(self) -> str:
        """Sign up on the page, agree, and return the email's link."""
        self.open(self.request(prompt="create"))
        self.browser.fill("Email address", self.email)
        self.press("Password", PASSWORD, "Create account")
        self.agree()
        return self.shared.sink.wait_for(self.email).link


@pytest.fixture(scope="module")
def application() -> Iterator[Application]:
    with Application() as started:
        yield started
        started.shutdown()


@pytest.fixture(scope="module")
def clients() -> Iterator[ClientServer]:
    """The external clients' server, on this machine as the issuer is."""
    with CLIENTS:
        yield CLIENTS


@pytest.fixture(scope="module")
def client_id(shared: SharedService, application: Application, clients: ClientServer) -> str:
    service, origin = shared.serving(), application.origin
    post = partial(service.post, token=service.login(OWNER, PASSWORD)["access_token"])
    shop = {"slug": "shop", "name": "Shop", "service_type": "web", "redirect_uris": [f"{origin}/callback"]}
    saml = {"enabled": True, "entity_id": f"{origin}/metadata", "acs_url": f"{origin}/acs"}
    assert post("/api/organizations", {"slug": "acme", "name": "Acme"}).status_code == 200
    created = post("/api/organizations/acme/services", {**shop, "post_logout_redirect_uris": [f"{origin}/bye"]})
    assert created.status_code == 200, created.text
    access = {"policy": "anyone", "launch_url": f"{origin}/start"}
    resource = post(
        RESOURCES, {"identifier": MCP, "name": "Orders", "scopes": [{"name": "orders:read", "description": "Read your orders"}]}
    )
    policy = f"{RESOURCES}/{resource.json()['id']}/external-clients"
    answers = [
        service.call("PUT", policy, {"admit": "any", "access": "anyone"}, token=service.login(OWNER, PASSWORD)["access_token"]),
        post(f"{SHOP}/saml", saml),
        post(f"{SHOP}/saml/certificate"),
        service.call("PUT", f"{SHOP}/access", access, token=service.login(OWNER, PASSWORD)["access_token"]),
    ]
    assert [answer.status_code for answer in answers] == [200] * 4, [answer.text for answer in answers]
    return str(created.json()["service"]["client_id"])


@pytest.fixture
def world(shared: SharedService, application: Application, client_id: str, browser: Browser) -> World:
    application.received.clear()
    return World(shared, application, client_id, browser, f"{token_hex(4)}@example.com")


def by_password(world: World, **changes: str) -> None:
    world.add_user()
    world.open(world.request(**changes))
    world.sign_in()


def by_offer_of_a_passkey(world: World) -> None:
    world.add_user()
    with world.browser.authenticator(), world.browser.on_new_pages("navigator.credentials.create = () => new Promise(() => {});"):
        world.open(world.request())
        world.sign_in()
        assert world.browser.heading == "Sign in faster next time"
        world.browser.follow("Not now")


def by_second_factor(world: World) -> None:
    world.add_user()
    token = world.service.login(world.email, PASSWORD)["access_token"]
    secret = world.service.post("/api/user/mfa/setup", token=token).json()["secret"]
    assert world.service.post("/api/user/mfa/verify", {"code": code_of(secret)}, token=token).status_code == 200
    world.open(world.request())
    world.sign_in()
    world.press("Code", code_of(secret, later=STEP), "Continue")


def by_emailed_code(world: World) -> None:
    ask_for_email(world)
    world.press("6-digit code", re.findall(r"(?m)^\d{6}\b", world.shared.sink.wait_for(world.email, 2).text)[0], "Continue")


def by_emailed_link(world: World) -> None:
    ask_for_email(world)
    world.browser.open(world.shared.sink.wait_for(world.email, 2).link)
    world.browser.press("Continue")


def ask_for_email(world: World) -> None:
    world.add_user()
    world.open(world.request())
    world.press("Email address", world.email, "Email me a code")


def by_sign_up(world: World) -> None:
    world.browser.open(world.sign_up())


def by_verification_in_another_browser(world: World) -> None:
    link = world.sign_up()
    world.browser.forget()
    world.browser.open(link)
    world.press("Password", PASSWORD, "Sign in")


def by_consent(world: World) -> None:
    world.add_user(agrees=False)
    world.open(world.request())
    world.sign_in()
    world.browser.press("Continue")


def by_consent_to_an_external_client(world: World) -> None:
    """The service fetches its document over TLS."""
    address = CLIENTS.publish("/assistant", "127.0.0.1", redirect_uris=[f"{world.application.origin}/callback"])
    world.add_user(agrees=False)
    world.open(world.request(client_id=address, resource=MCP, scope="orders:read", **PKCE))
    world.sign_in()
    assert world.browser.heading == f"Give 127.0.0.1:{CLIENTS.port} access?"
    world.browser.press("Continue")


def by_reauthentication(world: World) -> None:
    world.add_user()
    world.open("/app/sign-in")
    world.sign_in()
    world.execute(f"{older_sessions('3 hours')} where user_id = (select id from users where email = %s)")  # noqa: S608
    world.open(f"/app/reauthenticate?{urlencode({'next': world.request()})}")
    world.press("Password", PASSWORD, "Confirm")


def by_enrollment_later(world: World) -> None:
    """A rule that starts later leaves the choice to the user."""
    world.add_user()
    world.execute("""
        with put as (
            insert into sign_in_policies (id, org_id, rules, changed_at)
            select gen_random_uuid(), o.id, '{"second_factor": ["everyone"], "due_at": {"second_factor": "2999-01-01T00:00:00Z"}}', now()
            from organizations o join users u on u.email = %s where o.slug = 'acme' returning org_id, version)
        update organizations o set sign_in_policy_version = put.version from put where o.id = put.org_id""")
    world.open(world.request())
    world.sign_in()
    assert world.browser.heading == "One more step", world.browser.heading
    world.browser.press("Not now")
    world.browser.wait_until(lambda: world.browser.address == world.application.home)
    world.execute(
        "with gone as (delete from sign_in_policies where %s <> '' and org_id is not null) "
        "update organizations set sign_in_policy_version = null"
    )


def by_sign_out(world: World) -> None:
    world.add_user()
    world.open("/app/sign-in")
    world.sign_in()
    request = {"client_id": world.client_id, "post_logout_redirect_uri": f"{world.application.origin}/bye"}
    world.open(f"/auth/end-session?{urlencode(request)}")
    world.browser.press("Sign out")


def by_invitation(world: World) -> None:
    token = world.service.login(OWNER, PASSWORD)["access_token"]
    answer = world.service.post("/api/organizations/acme/invitations", {"email": world.email, "role": "member"}, token=token)
    assert answer.status_code == 200, answer.text
    world.browser.open(world.shared.sink.wait_for(world.email).link)
    world.press("Choose a password", PASSWORD, "Join")


def by_saml(world: World) -> None:
    world.email = OWNER
    world.open(f"/app/sign-in?{urlencode({'next': f'{SHOP}/saml/login'})}")
    world.sign_in()


def by_connection(world: World) -> None:
    """To a connection's identity provider, which is at the application's origin."""
    world.email = OWNER
    post = partial(world.service.post, token=world.service.login(OWNER, PASSWORD)["access_token"])
    saml = {"entity_id": "urn:idp", "sso_url": f"{world.application.origin}/sso", "sso_binding": "post", "signs_requests": False}
    connections = "/api/organizations/acme/connections"
    assert post(connections, {"slug": "idp", "name": "Identity provider", "saml": saml}).status_code == 201
    assert post(f"{connections}/idp/certificates", {"certificate": PROVIDER_CERTIFICATE}).status_code == 201
    world.open(f"/app/sign-in?{urlencode({'next': '/app/organizations/acme/connections/idp/test/start'})}")
    world.sign_in()


def by_link_to_a_connection(world: World) -> None:
    """The identity provider asserts an account's address, so its user signs in to the account once."""
    world.email = world.email.replace("example.com", "linked.example")
    world.add_user()
    with connect(world, "okta"):
        world.open(world.request(connection="okta"))
        assert world.browser.heading == "Link your account"
        world.browser.press("Continue to sign in")
        world.press("Password", PASSWORD, "Sign in")


def by_switching_accounts(world: World) -> None:
    """The identity provider signs in another user than the browser's user."""
    world.add_user()
    world.open("/app/sign-in")
    world.sign_in()
    world.email = world.email.replace("example.com", "switched.example")
    with connect(world, "keycloak"):
        world.open(world.request(connection="keycloak", prompt="login"))
        assert world.browser.heading == "Switch accounts?"
        world.browser.press("Sign out and switch")
        world.browser.press("Continue")


@contextmanager
def connect(world: World, slug: str) -> Iterator[None]:
    """Add an active connection to an identity provider that asserts the world's address, at a proved domain."""
    call = partial(world.service.call, token=world.service.login(OWNER, PASSWORD)["access_token"])
    connections = "/api/organizations/acme/connections"
    with OpenIdIssuers() as server:
        issuer = server.add(slug, email=world.email, claims={"email_verified": True})
        oidc = {"issuer": issuer.url, "client_id": CLIENT_ID, "client_authentication": "client_secret_basic"}
        assert call("POST", connections, {"slug": slug, "name": "Our provider", "oidc": oidc}).is_success
        assert call("PUT", f"{connections}/{slug}/client-secret", {"client_secret": SECRET}).is_success
        assert call("POST", f"{connections}/{slug}/activate", None).is_success
        world.execute(
            "insert into domains (org_id, domain, challenge, verified_at, created_at)"
            " select id, split_part(%s, '@', 2), 'x', now(), now() from organizations where slug = 'acme'"
        )
        yield


WALKS: Final[dict[str, Callable[[World], None]]] = {
    "accounts/sign_up.html": by_sign_up,
    "accounts/verified.html": by_verification_in_another_browser,
    "authentication/email_sign_in_code.html": by_emailed_code,
    "authentication/email_sign_in_link.html": by_emailed_link,
    "authentication/enroll.html": by_enrollment_later,
    "authentication/other_user.html": by_switching_accounts,
    "authentication/passkey_offer.html": by_offer_of_a_passkey,
    "authentication/reauthentication.html": by_reauthentication,
    "authentication/sign_in.html": by_password,
    "authentication/sign_in_code.html": by_second_factor,
    "federation/authorize.html": by_consent,
    "federation/connection_form.html": by_connection,
    "federation/end_session.html": by_sign_out,
    "federation/external_consent.html": by_consent_to_an_external_client,
    "federation/form_post.html": partial(by_password, response_mode="form_post"),
    "federation/link_connection.html": by_link_to_a_connection,
    "federation/saml_response.html": by_saml,
    "tenancy/invitation.html": by_invitation,
}


def test_every_page_that_leads_to_an_application_is_walked() -> None:
    assert WALKS.keys() == LEADING_AWAY | POSTING_AWAY


@pytest.mark.parametrize("page", WALKS)
def test_the_browser_arrives_where_the_application_goes(world: World, page: str) -> None:
    """And the application learns our origin from the browser, but no path, query or token."""
    WALKS[page](world)
    world.browser.wait_until(lambda: world.browser.address == world.application.home)
    assert world.browser.heading == "Home"
    assert world.browser.complaints() == []
    [(method, _, origin, referrer)] = world.application.received
    if page in POSTING_AWAY:
        assert (method, origin, referrer) == ("POST", world.service.address, f"{world.service.address}/")
    else:
        assert (method, origin, referrer) == ("GET", None, None)
