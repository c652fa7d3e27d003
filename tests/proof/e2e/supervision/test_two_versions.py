"""Version 0.9.0 beside this one, on one database and behind one address, as during an upgrade."""

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
from core.kernel.values import new_secret
from tests import ROOT
from tests.engine.releases import kept_release
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
BEGAN_EARLIER: Final = "This sign-in began before an upgrade. Sign in again."


class Balancer(FormBrowser):
    """A browser in front of two processes with one public address. `process` gets the next requests."""

    def __init__(self, public: str, process: Service) -> None:
        super().__init__(public)
        self.process = process
        self._client.event_hooks["request"] = [self._choose]

    def _choose(self, request: httpx.Request) -> None:
        request.url = request.url.copy_with(port=urlsplit(self.process.address).port)

    def keep_cookies(self, answer: httpx.Response) -> None:
        """Keep the cookies of an answer that this browser did not ask for."""
        self.response = answer
        self._keep_cookies(self._cookies.setdefault("localhost", {}))

    def go(self, path: str) -> str:
        """Open a path. Return the heading of the page, or the address of the application."""
        self.open(urljoin(self.process.settings["SSO_BASE_URL"], path))
        return self.place

    @property
    def place(self) -> str:
        """The heading of the page, or the address of the application."""
        if self.address.startswith(CALLBACK):
            return self.address
        assert self.response.status_code in (200, 400, 401, 403), (self.response.status_code, self.text)
        match = re.search(r"<h1[^>]*>(.*?)</h1>", self.text, re.DOTALL)
        assert match, self.text
        return re.sub("<[^>]+>", "", match[1])

    def form_with(self, name: str) -> Form:
        """Return the form with a field of this name."""
        return next(form for form in self.forms if name in form.fields)

    def fill(self, **fields: str) -> str:
        """Fill in the form with these fields, and send it. Return the place to which it leads."""
        self.submit(self.form_with(next(iter(fields))), **fields)
        return self.place


@dataclass
class Pair:
    """Two processes, and an application of an organization."""

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
        """Return the tokens for the code in this address of the application."""
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
        old, new = Service(home, **settings).in_new_interpreter(), Service(home, **settings)
        for process, modules in ((old, kept_release("0.9.0")), (new, ROOT)):
            process.settings |= {"SSO_BASE_URL": new.address, "PYTHONPATH": str(modules)}
            stack.callback(process.clean_up)
            process.start()
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
    for first, second in ((pair.old, pair.new), (pair.new, pair.old)):
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


# A sign-in of this version meets version 0.9.0


def test_a_sign_in_that_began_here_starts_again_there(pair: Pair) -> None:
    browser = pair.browser(pair.new)
    assert browser.go(pair.request(state="here")) == "Sign in to Shop"
    address = browser.address
    assert urlsplit(address).path == "/app/sign-in"
    browser.process = pair.old
    assert browser.go(address) == "Sign in to Shop", "the address has the request"
    browser.process = pair.new
    assert browser.go(address) == "Sign in to Shop"
    browser.process = pair.old
    assert browser.fill(email=OWNER, password="wrong") == "Sign in", "the form of this version is accepted there"
    ended = browser.fill(email=OWNER, password=PASSWORD)
    if "Continue to" in ended:
        browser.answer("answer", "continue")
    assert "state=here" in browser.place
    assert pair.exchange(pair.new, browser.place)["access_token"]


def test_each_step_of_this_version_leads_to_the_sign_in_page_there(pair: Pair) -> None:
    codes = pair.add_user_with_codes("steps@example.com")
    findings = {}
    browser = pair.browser(pair.new)
    browser.go(pair.request(state="steps"))

    def visit(step: str, **fields: str) -> None:
        """Open the page and send its form there. Return to the page here."""
        page, form = browser.address, browser.forms[0]
        assert parse_qs(urlsplit(form.action).query)["step"] == [f"/{step}"], form
        browser.process = pair.old
        opened = browser.go(page)
        browser.submit(form, **fields)
        findings[step] = (opened, browser.place)
        browser.process = pair.new
        assert browser.go(page)
        assert browser.address == page, "and it is still open here"

    visit("sign-in", email="steps@example.com", password="wrong")
    for link, fields in (
        ("sign-up", {"email": "up@example.com", "password": "short"}),
        ("forgot-password", {"email": "steps@example.com"}),
    ):
        page = browser.address
        [address] = [each for each in re.findall(r'href="([^"]*)"', browser.text.replace("&amp;", "&")) if each.endswith(f"step=/{link}")]
        browser.go(address)
        visit(link, **fields)
        browser.go(page)
    actions = re.findall(r'formaction="([^"]*)"', browser.text.replace("&amp;", "&"))
    [email] = [action for action in actions if "/passkey" not in action]
    form = browser.form_with("password")
    browser.submit(Form(email, "post", form.fields), email="steps@example.com")
    visit("email", code="123456")
    assert browser.go(urljoin(browser.address, form.action))
    assert browser.fill(email="steps@example.com", password=PASSWORD) == "Enter your code"
    visit("code", code="123456")
    assert browser.fill(code=codes[0]) == "Continue to Shop?"
    assert findings == dict.fromkeys(findings, ("Sign in to Shop", "Sign in"))
    question, form = browser.address, browser.forms[0]
    browser.process = pair.old
    assert browser.go(question) == "Continue to Shop?", "the user is signed in there, too"
    browser.submit(form)
    assert (browser.place, 'href="/app/account"' in browser.text) == ("Access denied", True), "its form token is that of the session"
    browser.process = pair.new
    browser.go(question)
    browser.answer("answer", "continue")
    assert "state=steps" in browser.place
    browser.process = pair.old
    assert "state=steps" in browser.go(question), "the request is answered again"


# A sign-in of version 0.9.0 meets this version


def test_a_second_factor_that_was_asked_for_there(pair: Pair) -> None:
    codes = pair.add_user_with_codes("factor@example.com")
    browser = pair.browser(pair.old)
    browser.go(pair.request(state="factor"))
    assert browser.fill(email="factor@example.com", password=PASSWORD) == "Enter your code"
    page, form = browser.address, browser.form_with("code")
    browser.process = pair.new
    browser.open(page)
    assert (browser.place, BEGAN_EARLIER in browser.text) == ("Sign in to Shop", True)
    browser.submit(form, code=codes[0])
    assert (browser.place, BEGAN_EARLIER in browser.text) == ("Sign in to Shop", True)
    assert browser.fill(email="factor@example.com", password=PASSWORD) == "Enter your code"
    assert browser.fill(code=codes[1]) == "Continue to Shop?"
    browser.answer("answer", "continue")
    assert "state=factor" in browser.place


def test_an_email_that_was_asked_for_there(pair: Pair) -> None:
    pair.add_user("mail@example.com")
    browser = pair.browser(pair.old)
    browser.go(pair.request(state="mail"))
    [email] = re.findall(r'formaction="([^"]*)"', browser.text)
    browser.submit(Form(email, "post", browser.form_with("password").fields), email="mail@example.com")
    assert browser.place == "Check your inbox"
    page, form = browser.address, browser.form_with("code")
    browser.process = pair.new
    browser.open(page)
    assert (browser.place, BEGAN_EARLIER in browser.text) == ("Sign in to Shop", True)
    browser.submit(form, code="123456")
    assert (browser.place, BEGAN_EARLIER in browser.text) == ("Sign in to Shop", True)
    # Either version can have taken the email out of the queue. This one finds nothing to send, so there may be no link.
    browser.go(f"/auth/email-sign-in?token={new_secret()}")
    assert (browser.place, browser.response.status_code, 'href="/app/sign-in"' in browser.text) == ("This link doesn't work", 400, True)


def test_forms_of_pages_from_there(pair: Pair) -> None:
    browser = pair.browser(pair.old)
    browser.go(pair.request(state="forms", prompt="consent"))
    browser.process = pair.new
    assert browser.fill(email=OWNER, password=PASSWORD) == "Continue to Shop?"
    browser.process = pair.old
    assert browser.go(pair.request(state="forms", prompt="consent")) == "Continue to Shop?"
    question = browser.forms[0]
    browser.process = pair.new
    browser.submit(question)
    assert browser.place == "Continue to Shop?", "the user is asked again"
    browser.answer("answer", "continue")
    assert "state=forms" in browser.place

    other = pair.browser(pair.old)
    assert other.go("/app/sign-up") == "Create your account"
    other.process = pair.new
    assert other.fill(email="form@example.com", password=PASSWORD) == "Check your inbox"


def test_a_request_with_a_stamp_from_there(pair: Pair) -> None:
    browser = signed_in(pair, pair.new)
    browser.process = pair.old
    assert browser.go(pair.request(state="stamp", prompt="login")) == "Sign in to Shop"
    form = browser.form_with("password")
    assert "asked=" in form.fields["next"]
    browser.process = pair.new
    assert browser.go(form.fields["next"]) == "Sign in to Shop", "a stamp is no sign-in"
    browser.submit(form, email=OWNER, password=PASSWORD)
    assert browser.place == "Sign in to Shop"
    ended = browser.fill(email=OWNER, password=PASSWORD)
    if "Continue to" in ended:
        browser.answer("answer", "continue")
    assert "state=stamp" in browser.place


def test_a_trip_to_a_provider_from_there(pair: Pair) -> None:
    for first, second in ((pair.old, pair.new), (pair.new, pair.old)):
        browser = pair.browser(first)
        browser.open(urljoin(pair.new.address, "/auth/websuite?next=/app/account"))
        with httpx.Client(trust_env=False) as client:
            back = client.get(browser.address).headers["Location"]
        browser.process = second
        assert (browser.go(back), browser.response.status_code) == ("This request didn&#39;t work", 400)
        assert 'href="/app/account"' in browser.text


def test_clients_of_the_api_start_again(pair: Pair) -> None:
    pair.add_user_with_codes("client@example.com")
    for first, second in ((pair.old, pair.new), (pair.new, pair.old)):
        waiting = first.post("/api/auth/login", {"email": "client@example.com", "password": PASSWORD}).json()
        refused = second.post("/api/auth/mfa/verify", {"code": "123456"}, token=waiting["access_token"])
        assert (refused.status_code, "Sign in again." in refused.text) == (401, True)
        asked = first.post("/api/auth/email-sign-in", {"email": "client@example.com"}).json()
        refused = second.post("/api/auth/email-sign-in/verify", {"request_token": asked["request_token"], "code": "123456"})
        assert (refused.status_code, "Request a new email." in refused.text) == (401, True)


def test_a_saml_sign_on(pair: Pair) -> None:
    token = pair.old.login(OWNER, PASSWORD)["access_token"]
    service, urls = "/api/organizations/acme/services/shop", {name: f"https://shop.example.com/{name}" for name in ("metadata", "acs")}
    setup = {"enabled": True, "entity_id": urls["metadata"], "acs_url": urls["acs"]}
    assert pair.old.post(f"{service}/saml", setup, token=token).status_code == 200
    assert pair.old.post(f"{service}/saml/certificate", token=token).status_code == 200
    configuration = SamlConfiguration(entity_id=urls["metadata"], acs_url=urls["acs"])
    shop = SamlApplication(UUID(int=0), "acme", UUID(int=0), "shop", configuration, None, pair.new.address)

    def start(browser: Balancer) -> str:
        """Return where the browser goes on."""
        with httpx.Client(trust_env=False) as client:
            path = redirect_url(f"{shop.path}/sso", authn_request(shop, datetime.now(UTC)))
            answer = client.get(f"{browser.process.address}{path}")
        assert answer.status_code == 302, answer.text
        browser.keep_cookies(answer)
        return answer.headers["Location"]

    for first, second in ((pair.old, pair.new), (pair.new, pair.old)):
        browser = pair.browser(first)
        back = start(browser)
        browser.process = second
        assert (browser.go(back), browser.response.status_code) == ("This request didn&#39;t work", 400)

    browser = pair.browser(pair.new)
    assert browser.go(start(browser)) == "Sign in to Shop"
    page = browser.address
    browser.process = pair.old
    assert browser.go(page) == "Sign in"
    browser.process = pair.new
    browser.go(page)
    browser.process = pair.old
    browser.fill(email=OWNER, password=PASSWORD)
    assert browser.response.status_code == 200, "signed in at our own pages there"
    browser.process = pair.new
    browser.open(page)
    assert browser.forms[0].action == urls["acs"], "this version still answers the application"
