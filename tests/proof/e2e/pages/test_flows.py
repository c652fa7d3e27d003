"""Users who go back, reload, use several tabs, or come late during a sign-in. All of them can go on."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit
from uuid import uuid4

import httpx
import psycopg
import pyotp
import pytest

from core.authentication.flow.model import MAX_OPEN
from core.kernel.connections import WEBSUITE
from tests.fakes.provider import FakeProvider
from tests.proof.e2e.browser import Browser, name_of
from tests.proof.e2e.conftest import SharedService, Start, settings_of_owner
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Service
from tests.proof.e2e.sink import MailSink
from tests.support.waiting import until

pytestmark = pytest.mark.slow

ADA, EVE, PASSWORD = "ada@example.com", "eve@example.com", "nine lions at the river"
SETTINGS: Final = {
    **settings_of_owner(ADA, PASSWORD),
    "SSO_EMAIL_SIGN_IN": "on",
}
NO_LONGER_OPEN, SIGNED_IN = "This sign-in is no longer open", "You're signed in"


class Shop:
    """An application on its own origin. `/start` begins a sign-in, as its `initiate_login_uri`."""

    def __init__(self, gatehouse: str, name: str) -> None:
        shop = self
        self.gatehouse, self.name, self.client_id = gatehouse, name, ""
        self.started: list[dict[str, list[str]]] = []  # the queries for `/start`

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                if path == "/start":
                    shop.started.append(parse_qs(query))
                    self.send_response(302)
                    self.send_header("Location", shop.request(state="from-start"))
                    self.end_headers()
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(f"<!doctype html><link rel=icon href='data:,'><h1>Welcome to {shop.name}</h1>".encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()

    def request(self, **more: str) -> str:
        """Return the address at which it sends the browser to us."""
        fields = {"client_id": self.client_id, "redirect_uri": f"{self.origin}/callback", "response_type": "code", **more}
        return f"{self.gatehouse}/auth/authorize?{urlencode(fields)}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class Sites:
    """The service, two applications, and a user's browser."""

    running: Service
    conninfo: str
    sink: MailSink
    browser: Browser
    shop: Shop
    stall: Shop

    def sql(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement, parameters)
            rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
            return rows

    def begin(self, application: Shop | None = None, **more: str) -> str:
        """Open an application's request. Return the address of the flow's page."""
        application = application or self.shop
        self.browser.open(application.request(**more))
        assert self.browser.heading == f"Sign in to {application.name}"
        assert urlsplit(self.browser.address).path.startswith("/app/flow/")
        return self.browser.address

    def enter(self, email: str = ADA, password: str = PASSWORD) -> str:
        """Fill in the sign-in form. Return the next page's heading."""
        self.browser.fill("Email address", email)
        self.browser.fill("Password", password)
        self.browser.press("Sign in")
        return self.browser.heading

    def agree(self, application: Shop | None = None, **expected: str) -> None:
        """Agree to continue to the application, which gets a code."""
        application = application or self.shop
        assert self.browser.heading == f"Continue to {application.name}?"
        self.browser.press("Continue")
        assert self.browser.heading == f"Welcome to {application.name}"
        fields = parse_qs(urlsplit(self.browser.address).query)
        assert (len(fields["code"]), fields | {name: [value] for name, value in expected.items()}) == (1, fields)

    def check_ended(self, heading: str, link: str = "Continue to Shop") -> None:
        """Check that the page says that the sign-in is not open, and that its link leads to a working sign-in."""
        browser = self.browser
        assert browser.heading == heading
        assert [name_of(each) for each in browser.find("main a")] == [link]
        browser.follow(link)
        if link == "Continue to Shop":
            assert self.shop.started.pop() == {"iss": [self.running.address]}
            if browser.heading == "Sign in to Shop":
                self.enter()
            self.agree(state="from-start")
            return
        if heading == NO_LONGER_OPEN:
            assert browser.heading == "Sign in"
            self.enter()
        assert urlsplit(browser.address).path.startswith("/app/platform"), "signed in at our own pages"

    def add_user_with_codes(self, email: str = EVE) -> list[str]:
        """Add a user with a second factor. Return the backup codes."""
        self.running.register(email, PASSWORD)
        self.running.follow(self.sink.wait_for(email).link)
        token = self.running.login(email, PASSWORD)["access_token"]
        secret = self.running.post("/api/user/mfa/setup", {}, token=token).json()["secret"]
        answer = self.running.post("/api/user/mfa/verify", {"code": pyotp.TOTP(secret).now()}, token=token)
        assert answer.status_code == 200, answer.text
        codes: list[str] = answer.json()["backup_codes"]
        return codes


@pytest.fixture
def sites(running: Service, shared: SharedService, browser: Browser) -> Iterator[Sites]:
    token = running.login(ADA, PASSWORD)["access_token"]
    assert running.post("/api/organizations", {"name": "Acme", "slug": "acme"}, token=token).status_code == 200
    shop, stall = Shop(running.address, "Shop"), Shop(running.address, "Stall")
    for each in (shop, stall):
        redirect_uri = f"{each.origin}/callback"
        service = {"slug": each.name.lower(), "name": each.name, "service_type": "web", "redirect_uris": [redirect_uri]}
        answer = running.post("/api/organizations/acme/services", service, token=token)
        assert answer.status_code == 200, answer.text
        each.client_id = answer.json()["service"]["client_id"]
    sites = Sites(running, shared.conninfo, shared.sink, browser, shop, stall)
    # The API accepts only https here.
    sites.sql("update services set initiate_login_uri = %s where slug = 'shop'", f"{shop.origin}/start")
    yield sites
    shop.close()
    stall.close()


# Back and reload


def test_back_to_the_password_after_it_was_right(sites: Sites) -> None:
    codes, browser = sites.add_user_with_codes(), sites.browser
    sites.begin(state="back")
    assert sites.enter(EVE) == "Enter your code"
    browser.photograph("flow-code")
    browser.back()
    assert browser.heading == "Sign in to Shop"
    assert sites.enter(EVE, "wrong") == "Sign in to Shop"
    assert "The email address or the password is wrong." in browser.text
    assert sites.enter(EVE) == "Enter your code"
    browser.fill("Code", codes[0])
    browser.press("Continue")
    sites.agree(state="back")
    assert [each for each in browser.complaints() if "401" not in each] == []


def test_another_user_signs_in_after_going_back(sites: Sites) -> None:
    sites.add_user_with_codes()
    sites.begin(state="other")
    assert sites.enter(EVE) == "Enter your code"
    sites.browser.back()
    assert sites.enter(ADA) == "Continue to Shop?", "the new password replaces the proof and its user"
    assert ADA in sites.browser.text
    sites.agree(state="other")
    assert sites.browser.complaints() == []


def test_back_to_a_finished_sign_in(sites: Sites) -> None:
    sites.begin()
    sites.enter()
    sites.agree()
    codes = "select count(*) from authorization_codes"
    [issued] = sites.sql(codes)
    sites.browser.back()  # the browser may show the page that it kept
    sites.browser.reload()
    assert sites.browser.heading == SIGNED_IN
    assert sites.sql(codes) == [issued]
    sites.browser.photograph("flow-finished")
    sites.check_ended(SIGNED_IN)
    assert sites.browser.complaints() == []


def test_the_form_of_a_finished_sign_in_is_sent_again(sites: Sites) -> None:
    browser = sites.browser
    sites.begin()
    sites.enter(password="wrong")
    first = browser.tab
    browser.open_tab(browser.address)
    sites.enter()
    sites.agree()
    codes = sites.sql("select code_hash from authorization_codes")
    browser.switch_to(first)
    browser.complaints()
    browser.reload()
    assert sites.sql("select code_hash from authorization_codes") == codes
    sites.check_ended(SIGNED_IN)
    assert browser.complaints() == []


def test_a_reload_writes_nothing(sites: Sites) -> None:
    codes, browser = sites.add_user_with_codes(), sites.browser
    rows = "select f.xmin::text, f::text from sign_in_flows f"

    def reload(heading: str) -> None:
        assert browser.heading == heading
        before = sites.sql(rows)
        browser.reload()
        assert browser.heading == heading
        assert sites.sql(rows) == before

    sites.begin()
    reload("Sign in to Shop")
    browser.follow("Create an account")
    reload("Create your account for Shop")
    browser.back()
    browser.fill("Email address", EVE)
    browser.press("Email me a code")
    until(lambda: sites.sql("select 1 from sign_in_flows where challenge_code is not null"), "the mailer has made the code")
    reload("Check your inbox")
    browser.follow("use another address or your password")
    sites.enter(EVE)
    reload("Enter your code")
    browser.fill("Code", codes[0])
    browser.press("Continue")
    reload("Continue to Shop?")
    sites.agree()
    assert browser.complaints() == []


# Tabs


def test_two_tabs_with_two_applications(sites: Sites) -> None:
    browser = sites.browser
    sites.begin(state="first")
    first = browser.tab
    browser.open_tab(sites.stall.request(state="second"))
    assert browser.heading == "Sign in to Stall"
    sites.enter()
    sites.agree(sites.stall, state="second")
    browser.switch_to(first)
    assert sites.enter() == "Continue to Shop?", "its form still works"
    sites.agree(state="first")
    assert browser.complaints() == []


def test_two_tabs_with_the_same_application(sites: Sites) -> None:
    browser = sites.browser
    sites.begin(state="first")
    first = browser.tab
    browser.open_tab(sites.shop.request(state="second"))
    sites.enter()
    sites.agree(state="second")
    browser.switch_to(first)
    browser.reload()
    assert browser.heading == "Continue to Shop?", "a session exists now"
    sites.agree(state="first")
    assert browser.complaints() == []


def test_signed_in_elsewhere_meanwhile(sites: Sites) -> None:
    browser = sites.browser
    sites.begin(state="plain")
    plain = browser.tab
    browser.open_tab(sites.shop.request(state="fresh", prompt="login"))
    fresh = browser.tab
    browser.open_tab(f"{sites.running.address}/app/sign-in")
    assert sites.enter() == "Platform"
    browser.switch_to(plain)
    browser.reload()
    sites.agree(state="plain")
    browser.switch_to(fresh)
    browser.reload()
    sites.agree(state="fresh")
    assert browser.complaints() == []


def test_signed_out_meanwhile(sites: Sites) -> None:
    browser = sites.browser
    sites.begin(state="out")
    sites.enter()
    assert browser.heading == "Continue to Shop?"
    question = browser.tab
    browser.open_tab(f"{sites.running.address}/app/account")
    browser.press("Sign out")
    browser.switch_to(question)
    browser.press("Continue")
    assert browser.heading == "Sign in to Shop"
    sites.enter()
    sites.agree(state="out")
    assert browser.complaints() == []


def test_another_user_signed_in_meanwhile(sites: Sites) -> None:
    browser = sites.browser
    sites.running.register(EVE, PASSWORD)
    sites.running.follow(sites.sink.wait_for(EVE).link)
    sites.begin(state="switched")
    sites.enter()
    assert browser.heading == "Continue to Shop?"
    question = browser.tab
    browser.open_tab(f"{sites.running.address}/app/account")
    browser.press("Sign out")
    sites.enter(EVE)
    browser.switch_to(question)
    browser.press("Continue")
    assert browser.heading == "Continue to Shop?"
    assert EVE in browser.text, "the present user is asked"
    sites.agree(state="switched")
    assert [each for each in browser.complaints() if "403" not in each] == []


# Sign-ins that are no longer open


@pytest.mark.parametrize("application", ["shop", "stall"])
def test_expired(sites: Sites, application: str) -> None:
    """A shop has a start address, a stall has none."""
    page = sites.begin(getattr(sites, application))
    sites.sql("update sign_in_flows set begun_at = begun_at - interval '1 day', expires_at = expires_at - interval '1 day'")
    sites.browser.reload()
    sites.browser.photograph(f"flow-no-longer-open-{application}")
    sites.check_ended(NO_LONGER_OPEN, "Continue to Shop" if application == "shop" else "Continue")
    sites.sql("delete from sign_in_flows")  # as the sweep does
    sites.browser.open(page)
    sites.check_ended(SIGNED_IN, "Continue")
    assert sites.browser.complaints() == []


def test_a_form_of_an_expired_sign_in(sites: Sites) -> None:
    sites.begin()
    sites.sql("update sign_in_flows set expires_at = expires_at - interval '1 day'")
    assert sites.enter() == NO_LONGER_OPEN
    sites.check_ended(NO_LONGER_OPEN)
    assert sites.browser.complaints() == []


def test_pushed_out_by_newer_ones(sites: Sites) -> None:
    page = sites.begin()
    for _ in range(MAX_OPEN - 1):
        sites.browser.open(sites.stall.request())
    sites.browser.open(page)
    assert sites.browser.heading == "Sign in to Shop", "the oldest of 20"
    sites.browser.open(sites.stall.request())
    sites.browser.open(page)
    sites.check_ended(NO_LONGER_OPEN)
    assert sites.browser.complaints() == []


def test_unknown_ids_and_those_of_another_browser(sites: Sites) -> None:
    browser = sites.browser
    page = sites.begin(login_hint=EVE)
    unknown = f"{sites.running.address}/app/flow/{uuid4()}"
    browser.forget()
    pages = []
    for address in (page, page.removesuffix("/sign-in"), f"{unknown}/sign-in", unknown):
        browser.open(address)
        pages.append(re.sub(r'nonce="[^"]*"', "", browser.source))
    assert len(set(pages)) == 1, "nothing is revealed"
    assert "Shop" not in pages[0]
    assert EVE not in pages[0]
    sites.check_ended(NO_LONGER_OPEN, "Continue")
    browser.open(page)
    sites.check_ended(SIGNED_IN, "Continue")
    assert browser.complaints() == []


def test_another_step_in_the_address(sites: Sites) -> None:
    codes, browser = sites.add_user_with_codes(), sites.browser
    page = sites.begin()
    flow = page.removesuffix("/sign-in")
    for step in ("", "/code", "/consent", "/confirm", "/select", "/email"):
        browser.open(flow + step)
        assert (browser.address, browser.heading) == (page, "Sign in to Shop"), step
    sites.enter(EVE)
    for step in ("", "/consent", "/confirm"):
        browser.open(flow + step)
        assert (browser.address, browser.heading) == (f"{flow}/code", "Enter your code"), step
    browser.fill("Code", codes[0])
    browser.press("Continue")
    question = browser.address
    for step in ("", "/code", "/sign-in", "/sign-up", "/consent", "/select", "/email"):
        browser.open(flow + step)
        assert (browser.address, browser.heading) == (question, "Continue to Shop?"), step
    sites.agree()
    assert browser.complaints() == []


# Providers, emails and cookies


def test_the_answer_of_a_provider_comes_twice(service: Start, own_database: dict[str, str], browser: Browser) -> None:
    with FakeProvider(WEBSUITE) as provider:
        running = service(**provider.variables(), **own_database).start()
        browser.open(f"{running.address}/app/sign-in?next=/app/account/identities")
        [link] = [each for each in browser.find("a") if name_of(each) == "Continue with Websuite"]
        cookie = "; ".join(f"{name}={each['value']}" for name, each in browser.cookies().items())
        with httpx.Client(trust_env=False, headers={"Cookie": cookie}) as same_browser:
            answer = provider.authorize(same_browser.get(str(link.get_attribute("href"))).headers["Location"])
        browser.open(answer)
        assert browser.heading == "Linked accounts"
        assert browser.complaints() == []
        for again in (browser.open, browser.open_tab):
            again(answer)
            assert "already used" in browser.text
            browser.follow("Go to your account")
            assert browser.heading == "Your account"


def test_the_link_of_an_email_in_another_browser(sites: Sites) -> None:
    browser = sites.browser
    page = sites.begin()
    browser.fill("Email address", ADA)
    browser.press("Email me a code")
    link = sites.sink.wait_for(ADA).link
    browser.forget()
    browser.open(link)
    assert browser.heading == "Sign in on this device?"
    browser.press("Sign in here")
    assert browser.heading == "Platform"
    browser.open(page)
    sites.check_ended(SIGNED_IN, "Continue")
    assert browser.complaints() == []


class CookielessBrowser(FormBrowser):
    """A browser that keeps no cookies."""

    def _keep_cookies(self, cookies: dict[str, str]) -> None:
        pass


def test_no_cookies_at_all(sites: Sites) -> None:
    with CookielessBrowser(sites.running.address) as browser:
        browser.open(sites.shop.request())
        assert "Allow cookies for this site" in browser.text
        assert "Shop" not in browser.text
        browser.open(urljoin(browser.address, "/app"))
        browser.sign_in(ADA, PASSWORD)
        assert "Your browser sent no cookies. Allow cookies for this site" in browser.text
        assert 'href="/app/account"' in browser.text
