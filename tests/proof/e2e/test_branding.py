"""An organization's branding in a browser: pages, emails, computed colors, and a logo from another host."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from core.tenancy.model.settings import OUTLINE, TEXT, Color, contrast
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import Start, settings_of_owner
from tests.proof.e2e.process import Service
from tests.proof.e2e.sink import MailSink

pytestmark = pytest.mark.slow

OWNER, PASSWORD = "grace@example.com", "nine lions at the river"
INVITED = "newcomer@example.com"
LOGO = b"""<svg xmlns="http://www.w3.org/2000/svg" width="96" height="48" viewBox="0 0 96 48"><path fill="#5b1a7a" d="M4 44 24 4l20 40z"/>
<circle cx="70" cy="24" r="20" fill="#e8702a"/></svg>"""


class LogoServer(ThreadingHTTPServer):
    """A server with an image that keeps the headers of requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), LogoRequest)
        self.request_headers: list[dict[str, str]] = []

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"  # another host than the service: a host's ports share their cookies


class LogoRequest(BaseHTTPRequestHandler):
    server: LogoServer

    def do_GET(self) -> None:
        self.server.request_headers.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(200)
        self.send_header("Content-Type", "image/svg+xml")
        self.send_header("Content-Length", str(len(LOGO)))
        self.end_headers()
        self.wfile.write(LOGO)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 (the library's name)
        pass


@pytest.fixture
def logo() -> Iterator[LogoServer]:
    with LogoServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def running(service: Start, sink: MailSink, own_database: dict[str, str]) -> Service:
    settings = settings_of_owner(OWNER, PASSWORD)
    return service(SSO_SMTP_URL=sink.url, **settings, **own_database).start()


def color_of(browser: Browser, selector: str, style: str) -> Color:
    """Return the computed style."""
    value: str = browser.script(f"return getComputedStyle(document.querySelector('{selector}'))['{style}']")
    match = re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", value)
    assert match, (selector, style, value)
    return Color(*map(int, match.groups()))


def check_colors(browser: Browser, button: str, label: str, card: str, link: str, color: str) -> None:
    """Check, in both color schemes, that the button has the color, and that all text has enough contrast."""
    for dark in (False, True):
        browser.use_dark(dark)
        browser.wait_until(lambda: color_of(browser, button, "backgroundColor") == Color.parse(color))
        ground = color_of(browser, card, "backgroundColor")
        assert (ground.luminance < 0.5) == dark
        assert contrast(color_of(browser, label, "color"), Color.parse(color)) >= TEXT
        assert contrast(color_of(browser, link, "color"), ground) >= TEXT
        assert contrast(color_of(browser, button, "borderTopColor"), ground) >= OUTLINE
    browser.use_dark(False)


def check_page(browser: Browser, name: str, color: str) -> None:
    assert browser.title.endswith(f" · {name}")
    assert browser.script("return document.querySelector('header').innerText.trim()") == name
    browser.wait_until(lambda: browser.script("return document.querySelector('.logo').naturalWidth") > 0)
    assert browser.script("return document.querySelector('.logo').getBoundingClientRect().height") == 32
    assert browser.find("footer")[0].text == f"Gatehouse signs people in for {name}."
    assert browser.find("script") == []
    check_colors(browser, "button", "button", "main", "footer a", color)
    browser.press_tab()
    browser.wait_until(lambda: browser.script("return getComputedStyle(document.activeElement).outlineWidth") == "3px")
    assert contrast(color_of(browser, ":focus-visible", "outlineColor"), color_of(browser, "main", "backgroundColor")) >= OUTLINE
    assert browser.complaints() == []


def check_mail(browser: Browser, html: str, name: str, color: str, file: Path) -> None:
    file.write_text(html)
    browser.open(file.as_uri())
    browser.wait_until(lambda: browser.script("return document.querySelector('img').naturalWidth") > 0)
    assert browser.text.startswith(f"{name}\n")
    check_colors(browser, "td.button", "a.label", ".card", "a.link", color)
    # The page has the same text without the logo.
    browser.script("document.querySelector('img').remove()")
    assert browser.text.startswith(f"{name}\n")


LOOKS = [
    ("plain", "Acme Portal", "#7a1fa2"),
    ("pale", 'Zoë\'s "onload=" <script>Portal</script>', "#fff6d5"),
    ("dark", "פורטל אקמה 42", "#0a1420"),
]


def test_pages_and_emails_have_the_branding_and_are_readable(
    running: Service, sink: MailSink, browser: Browser, logo: LogoServer, home: Path
) -> None:
    token = running.login(OWNER, PASSWORD)["access_token"]
    assert running.post("/api/organizations", {"slug": "acme", "name": "Acme & Sons"}, token=token).status_code == 200

    for number, (look, name, color) in enumerate(LOOKS, 1):
        body: dict[str, Any] = {"logo_url": f"{logo.origin}/logo.svg", "primary_color": color, "product_name": name}
        answer = running.call("PATCH", "/api/organizations/acme/branding", body, token=token)
        assert (answer.status_code, answer.json()) == (200, body)

        assert running.post("/api/auth/forgot-password", {"email": OWNER, "org_slug": "acme"}).status_code == 200
        email = sink.wait_for(OWNER, number, "Set a new password")  # the platform also reminds its owners of a second factor
        assert email.message["Subject"] == f"Set a new password - {name}"
        assert email.link.startswith(f"{running.address}/auth/reset-password?token=")
        check_mail(browser, email.html, name, color, home / "mail.html")
        browser.open((home / "mail.html").as_uri())
        browser.photograph(f"branded-mail-{look}")

        browser.open(email.link)
        assert browser.heading == "Set a new password"
        check_page(browser, name, color)
        browser.photograph(f"branded-reset-{look}")

        invitation = running.post("/api/organizations/acme/invitations", {"email": INVITED, "role": "member"}, token=token).json()
        email = sink.wait_for(INVITED, number)
        assert email.message["Subject"] == f"You are invited to Acme & Sons - {name}"
        browser.open(email.link)
        assert browser.heading == "You are invited to Acme & Sons"
        check_page(browser, name, color)
        browser.photograph(f"branded-invitation-{look}")
        browser.press("Decline")
        assert browser.title.endswith(f" · {name}")
        assert invitation["token"] not in browser.source

    # The logo's host learns that it is shown, and nothing else.
    assert logo.request_headers
    assert all(not {"referer", "cookie", "authorization"} & headers.keys() for headers in logo.request_headers)
    assert running.stop() == 0
