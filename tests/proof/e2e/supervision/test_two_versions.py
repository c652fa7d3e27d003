"""Two releases side by side, on a shared database and behind a shared address, as during an upgrade."""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit
from uuid import UUID

import httpx
import pyotp
import pytest

from adapters.crypto import generate_key
from core.federation.saml.model.configuration import SamlConfiguration
from core.kernel.connections import WEBSUITE
from tests import ROOT
from tests.engine.releases import two_releases
from tests.fakes.provider import FakeProvider
from tests.proof.e2e.conftest import service_home
from tests.proof.e2e.docs.forms import Form, FormBrowser
from tests.proof.e2e.process import Service
from tests.proof.e2e.sink import MailSink
from tests.support import database
from tests.support.saml import SamlApplication, authn_request, redirect_url

pytestmark = pytest.mark.slow

OWNER, ADA, PASSWORD = "owner@gatehouse.example", "ada@example.com", "correct horse battery staple"
CALLBACK: Final = "https://shop.example.com/callback"


class Balancer(FormBrowser):
    """A browser in front of two processes with a shared public address. `process` gets the next requests."""

    def __init__(self, public: str, process: Service) -> None:
        super().__init__(public)
        self.process = process
        self._client.event_hooks["request"] = [self._choose]

    def _choose(self, request: httpx.Request) -> None:
        request.url = request.url.copy_with(port=urlsplit(self.process.address).port)

    def keep_cookies(self, answer: httpx.Response) -> None:
        """Keep the cookies from an answer that this browser did not ask for."""
        self.response = answer
        self._keep_cookies(self._cookies.setdefault("localhost", {}))

    def go(self, path: str) -> str:
        """Open a path. Return the page's heading, or the application's address."""
        self.open(urljoin(self.process.settings["SSO_BASE_URL"], path))
        return self.place

    @property
    def place(self) -> str:
        """The page's heading, or the application's address."""
        if self.address.startswith(CALLBACK):
            return self.address
        assert self.response.status_code in (200, 400, 401, 403), (self.response.status_code, self.text)
        match = re.search(r"<h1[^>]*>(.*?)</h1>", self.text, re.DOTALL)
        assert match, self.text
        return re.sub("<[^>]+>", "", match[1])

    def form_with(self, name: str) -> Form:
        """Return the form with a field that has this name."""
        return next(form for form in self.forms if name in form.fields)

    def fill(self, **fields: str) -> str:
        """Fill in the form with these fields, and send it. Return the place to which it leads."""
        self.submit(self.form_with(next(iter(fields))), **fields)
        return self.place


@dataclass
class Pair:
    """Two processes, and an organization's application."""

    old: Service
    new: Service
    sink: MailSink
    provider: FakeProvider
    client: dict[str, str] = field(default_factory=dict)
    browsers: list[Balancer] = field(default_factory=list)

    def browser(self, process: Service) -> Balancer:
        self.browsers.append(Balancer(self.new.settings["SSO_BASE_URL"], process))
        return self.browsers[-1]

    def request(self, **more: str) -> str:
        fields = {"client_id": self.client["client_id"], "redirect_uri": CALLBACK, "response_type": "code", "scope": "openid", **more}
        return f"/auth/authorize?{urlencode(fields)}"

    def exchange(self, process: Service, address: str) -> dict[str, Any]:
        """Return the tokens for the code in this application address."""
        fields = {
            "grant_type": "authorization_code",
            "code": parse_qs(urlsplit(address).query)["code"][0],
            "redirect_uri": CALLBACK,
            **self.client,
        }
        with httpx.Client(trust_env=False) as client:
            answer = client.post(f"{process.address}/auth/token", data=fields)
        assert answer.status_code == 200, answer.text
        tokens: dict[str, Any] = answer.json()
        return tokens

    @property
    def directions(self) -> tuple[tuple[Service, Service], tuple[Service, Service]]:
        """The process where something begins, and the process where it continues."""
        return (self.old, self.new), (self.new, self.old)

    def add_user(self, email: str) -> None:
        """Add a user with a verified address."""
        self.new.register(email, PASSWORD)
        self.new.follow(self.sink.wait_for(email).link)

    def add_user_with_codes(self, email: str) -> list[str]:
        """Add a user with a second factor. Return the backup codes."""
        self.add_user(email)
        token = self.new.login(email, PASSWORD)["access_token"]
        secret = self.new.post("/api/user/mfa/setup", {}, token=token).json()["secret"]
        code = pyotp.TOTP(secret).now()
        answer = self.new.post("/api/user/mfa/verify", {"code": code}, token=token)
        assert answer.status_code == 200, answer.text
        codes: list[str] = answer.json()["backup_codes"]
        return codes


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        home = stack.enter_context(service_home())
        own = stack.enter_context(database.Database(os.environ[database.SERVER_VARIABLE], template="template1"))
        provider = stack.enter_context(FakeProvider(WEBSUITE))
        sink = MailSink()
        sink.start()
        stack.callback(sink.close)
        settings = {
            "SSO_DATABASE_URL": own.conninfo,
            "SSO_ENCRYPTION_KEYS": generate_key(),
            "SSO_SMTP_URL": sink.url,
            "SSO_EMAIL_SIGN_IN": "on",
            "SSO_AUTO_APPROVE_ORGANIZATIONS": "true",
            "SSO_PLATFORM_OWNER_EMAIL": OWNER,
            "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD,
            **provider.variables(),
        }
        old, new = Service(home, **settings), Service(home, **settings)
        for process, release in zip((old, new), two_releases(home / "release"), strict=True):
            process.in_new_interpreter(release.folder != ROOT)
            process.settings |= {"SSO_BASE_URL": new.address, "PYTHONPATH": str(release.folder)}
            stack.callback(process.clean_up)
            process.start()
            assert process.get("/health").json()["version"] == release.version
        pair = Pair(old, new, sink, provider)
        token = old.login(OWNER, PASSWORD)["access_token"]
        assert old.post("/api/organizations", {"name": "Acme", "slug": "acme"}, token=token).status_code == 200
        service = {"slug": "shop", "name": "Shop", "service_type": "web", "redirect_uris": [CALLBACK]}
        answer = old.post("/api/organizations/acme/services", service, token=token)
        assert answer.status_code == 200, answer.text
        pair.client = {"client_id": answer.json()["service"]["client_id"], "client_secret": answer.json()["client_secret"]}
        yield pair
        for browser in pair.browsers:
            browser.__exit__(None, None, None)


def signed_in(pair: Pair, process: Service) -> Balancer:
    """Return a browser in which the owner has signed in to the application."""
    browser = pair.browser(process)
    assert browser.go(pair.request()) == "Sign in to Shop"
    if "Continue to" in browser.fill(email=OWNER, password=PASSWORD):
        browser.answer("answer", "continue")
    assert "code=" in browser.place
    return browser


def test_sessions_tokens_and_silent_requests_work_at_either(pair: Pair) -> None:
    for first, second in pair.directions:
        browser = signed_in(pair, first)
        tokens = pair.exchange(second, browser.place)
        browser.process = second
        assert browser.go("/app/account") == "Your account"
        tokens |= pair.exchange(first, browser.go(pair.request(prompt="none")))
        for process in (second, first):
            assert process.get("/auth/userinfo", token=tokens["access_token"]).status_code == 200
        api_tokens = first.login(OWNER, PASSWORD)
        assert second.get("/api/user", token=api_tokens["access_token"]).json()["email"] == OWNER
        refreshed = second.post("/api/auth/refresh", {"refresh_token": api_tokens["refresh_token"]}).json()
        assert first.get("/api/user", token=refreshed["access_token"]).status_code == 200


def test_a_sign_in_continues_at_either(pair: Pair) -> None:
    codes = pair.add_user_with_codes("steps@example.com")
    for first, second in pair.directions:
        browser = pair.browser(first)
        browser.go(pair.request(state="steps"))
        browser.process = second
        assert browser.fill(email="steps@example.com", password="wrong").startswith("Sign in")
        browser.process = first
        assert browser.fill(email="steps@example.com", password=PASSWORD) == "Enter your code"
        browser.process = second
        assert browser.go(browser.address) == "Enter your code"
        if browser.fill(code=codes.pop()) == "Continue to Shop?":
            browser.process = first
            browser.answer("answer", "continue")
        assert "state=steps" in browser.place
        assert pair.exchange(first, browser.place)["access_token"]


def test_a_question_is_answered_at_the_other(pair: Pair) -> None:
    for first, second in pair.directions:
        browser = pair.browser(first)
        browser.go(pair.request(state="asked", prompt="consent"))
        assert browser.fill(email=OWNER, password=PASSWORD) == "Continue to Shop?"
        browser.process = second
        browser.answer("answer", "continue")
        assert "state=asked" in browser.place


def test_an_email_continues_a_sign_in_at_the_other(pair: Pair) -> None:
    for number, (first, second) in enumerate(pair.directions):
        address = f"mail-{number}@example.com"
        pair.add_user(address)
        pair.sink.forget()
        browser = pair.browser(first)
        browser.go(pair.request(state="mail"))
        [action] = [path for path in re.findall(r'formaction="([^"]*)"', browser.text) if "/passkey" not in path]
        browser.submit(Form(action, "post", browser.form_with("password").fields), email=address)
        assert browser.place == "Check your inbox"
        [code] = re.findall(r"\b(\d{6})\b", pair.sink.wait_for(address).text)
        browser.process = second
        assert browser.fill(code=code) == "Continue to Shop?"
        browser.answer("answer", "continue")
        assert "state=mail" in browser.place


def test_a_provider_request_ends_at_the_other(pair: Pair) -> None:
    for first, second in pair.directions:
        browser = pair.browser(first)
        browser.open(urljoin(pair.new.address, "/auth/websuite?next=/app/account"))
        with httpx.Client(trust_env=False) as client:
            back = client.get(browser.address).headers["Location"]
        browser.process = second
        assert browser.go(back) == "Your account"


def test_clients_of_the_api_continue_at_the_other(pair: Pair) -> None:
    codes = pair.add_user_with_codes("client@example.com")
    for first, second in pair.directions:
        waiting = first.post("/api/auth/login", {"email": "client@example.com", "password": PASSWORD}).json()
        tokens = second.post("/api/auth/mfa/verify", {"code": codes.pop()}, token=waiting["access_token"])
        assert tokens.status_code == 200, tokens.text
        assert first.get("/api/user", token=tokens.json()["access_token"]).json()["email"] == "client@example.com"


def test_a_saml_sign_on_continues_at_the_other(pair: Pair) -> None:
    token = pair.old.login(OWNER, PASSWORD)["access_token"]
    service, urls = "/api/organizations/acme/services/shop", {name: f"https://shop.example.com/{name}" for name in ("metadata", "acs")}
    setup = {"enabled": True, "entity_id": urls["metadata"], "acs_url": urls["acs"]}
    assert pair.old.post(f"{service}/saml", setup, token=token).status_code == 200
    assert pair.old.post(f"{service}/saml/certificate", token=token).status_code == 200
    configuration = SamlConfiguration(entity_id=urls["metadata"], acs_url=urls["acs"])
    shop = SamlApplication(UUID(int=0), "acme", UUID(int=0), "shop", configuration, None, pair.new.address)
    for first, second in pair.directions:
        browser = pair.browser(first)
        with httpx.Client(trust_env=False) as client:
            answer = client.get(f"{first.address}{redirect_url(f'{shop.path}/sso', authn_request(shop, datetime.now(UTC)))}")
        browser.keep_cookies(answer)
        browser.process = second
        assert browser.go(answer.headers["Location"]) == "Sign in to Shop"
        browser.process = first
        browser.submit(browser.form_with("password"), email=OWNER, password=PASSWORD)
        assert browser.forms[0].action == urls["acs"]
