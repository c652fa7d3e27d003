"""New users join in a browser. The walks are counted in pages and emails, and every page passes axe-core.

The walks also write their times to tests/artefacts/joining.txt, if screenshots are wanted.
"""

import os
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final
from urllib.parse import urlencode

import pytest

from tests.proof.e2e.browser import ARTEFACTS, SCREENSHOTS_VARIABLE, Browser, name_of
from tests.proof.e2e.conftest import SharedService, settings_of_owner
from tests.proof.e2e.pages.audits import audit_kept
from tests.proof.e2e.process import Service
from tests.proof.e2e.sink import MailSink
from tests.proof.e2e.test_oauth_clients import Callback

pytestmark = pytest.mark.slow

OWNER, OWNERS_PASSWORD = "grace@example.com", "nine lions at the river"
NEW, PASSWORD = "newcomer@example.com", "seven lions at the gate"
SETTINGS: Final = {
    **settings_of_owner(OWNER, OWNERS_PASSWORD),
    "SSO_EMAIL_SIGN_IN": "true",
}
# Only an application without https asks every time. An application with https does not ask after a sign-up for it (RFC 8252 section 8.6).
CONSENT: Final = "Continue to Shop?"


@pytest.fixture
def sink(shared: SharedService) -> MailSink:
    return shared.sink


@pytest.fixture
def application() -> Iterator[Callback]:
    application = Callback()
    yield application
    application.close()


@pytest.fixture
def owner(running: Service) -> str:
    """The access token for the owner of the organization Acme."""
    token = str(running.login(OWNER, OWNERS_PASSWORD)["access_token"])
    assert running.post("/api/organizations", {"slug": "acme", "name": "Acme & Sons"}, token=token).status_code == 200
    branding = {"primary_color": "#b0306a"}
    assert running.call("PATCH", "/api/organizations/acme/branding", branding, token=token).status_code == 200
    return token


@pytest.fixture
def shop(running: Service, owner: str, application: Callback) -> str:
    """An application's client id at Acme."""
    service = {"slug": "shop", "name": "Shop", "service_type": "web", "redirect_uris": [application.uri]}
    answer = running.post("/api/organizations/acme/services", service, token=owner)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["service"]["client_id"])


def authorization_request(running: Service, client_id: str, redirect_uri: str) -> str:
    """Return the address to which the application sends a browser without a session."""
    verifier = token_urlsafe(32)
    challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")
    query = {
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "response_type": "code",
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "state": "x",
    }
    return f"{running.address}/auth/authorize?{urlencode(query)}"


class Walk:
    """A user's way to a goal: the pages on it, and the seconds that the browser and the service took."""

    def __init__(self, browser: Browser, name: str) -> None:
        self.pages: list[str] = []
        self._browser, self._name, self._seconds = browser, name, 0.0

    def open(self, address: str) -> None:
        with self._clock():
            self._browser.open(address)

    def act(self, label: str, **fields: str) -> None:
        """Fill the page's fields, and press the button or follow the link with this label."""
        self.read()
        with self._clock():
            for name, text in fields.items():
                self._browser.fill(name.replace("_", " "), text)
            if any(name_of(button) == label for button in self._browser.find("button")):
                self._browser.press(label)
            else:
                self._browser.follow(label)

    def read(self) -> None:
        """Count the page, and keep it for axe-core. Its screenshots are saved, if they are wanted."""
        self.pages.append(self._browser.heading)
        self._browser.keep(f"{self._name}-{len(self.pages)}")

    def arrive(self, emails: int) -> None:
        """Check that the browser has no complaints, and the pages with axe-core. Report the walk."""
        assert self._browser.complaints() == []
        assert audit_kept(self._browser) == {}
        if os.environ.get(SCREENSHOTS_VARIABLE):
            with (ARTEFACTS / "joining.txt").open("a") as report:
                report.write(f"{self._name}: {emails} email, {len(self.pages)} pages, {self._seconds:.2f} s\n")

    @contextmanager
    def _clock(self) -> Iterator[None]:
        since = time.monotonic()
        yield
        self._seconds += time.monotonic() - since


def test_an_invitee_joins_with_one_email_and_one_page(running: Service, owner: str, sink: MailSink, browser: Browser) -> None:
    answer = running.post("/api/organizations/acme/invitations", {"email": NEW, "role": "member"}, token=owner)
    assert answer.status_code == 200, answer.text
    walk = Walk(browser, "joining-by-invitation")
    walk.open(sink.wait_for(NEW).link)
    walk.act("Join", **{"Your_name_(optional)": "Ada Lovelace", "Choose_a_password": PASSWORD})
    assert browser.heading == "Your organizations"
    assert "Acme & Sons" in browser.text
    assert walk.pages == ["You are invited to Acme & Sons"]
    assert len(sink.emails_to(NEW)) == 1
    walk.arrive(emails=1)


def test_a_new_user_of_an_application_signs_up_and_comes_back_with_one_email_each(
    running: Service, shop: str, application: Callback, sink: MailSink, browser: Browser
) -> None:
    request = authorization_request(running, shop, application.uri)
    walk = Walk(browser, "sign-up-for-an-application")
    walk.open(request)
    walk.act("Create an account")
    assert "Acme & Sons" in browser.text, "the sign-up page has the branding"
    walk.act("Create account", Email_address=NEW, Password=PASSWORD)
    walk.read()
    walk.open(sink.wait_for(NEW).link)
    walk.act("Continue")
    assert browser.heading == "Welcome to the shop"
    assert walk.pages == ["Sign in to Shop", "Create your account for Shop", "Check your inbox", CONSENT]
    assert len(sink.emails_to(NEW)) == 1
    walk.arrive(emails=1)

    browser.forget()
    walk = Walk(browser, "sign-in-with-a-code")
    walk.open(request)
    walk.act("Email me a code", Email_address=NEW)
    code = re.search(r"^[0-9]{6}\b", sink.wait_for(NEW, 2).text, re.MULTILINE)
    assert code, "the email has a code"
    walk.act("Continue", **{"6-digit_code": code[0]})
    walk.act("Continue")
    assert browser.heading == "Welcome to the shop"
    assert walk.pages == ["Sign in to Shop", "Check your inbox", CONSENT]
    walk.arrive(emails=1)
