"""A browser without scripts: follows redirects and refreshes, keeps cookies, and submits our pages' forms."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from types import TracebackType
from typing import Final, Self
from urllib.parse import urljoin, urlsplit

import httpx

from tests.proof.e2e.process import NO_TLS
from tests.support.waiting import PATIENCE

LONGEST_CHAIN: Final = 20  # redirects


@dataclass
class Form:
    """A form with its fields and their values."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.refresh: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(attributes.get("action", ""), attributes.get("method", "get").lower()))
        elif tag == "input" and self.forms and attributes.get("type") != "checkbox":
            self.forms[-1].fields[attributes.get("name", "")] = attributes.get("value", "")
        elif tag == "meta" and attributes.get("http-equiv") == "refresh":
            self.refresh = attributes["content"].partition("url=")[2]


class FormBrowser:
    """A browser that follows redirects and submits forms on these origins.

    A redirect to another origin ends the chain. `address` is its target.
    """

    def __init__(self, *origins: str) -> None:
        self._origins = {urlsplit(origin).netloc for origin in origins}
        # A server may close a connection that it has just promised to keep. A browser then sends a GET again, httpx does not.
        self._client = httpx.Client(verify=NO_TLS, trust_env=False, timeout=PATIENCE, limits=httpx.Limits(max_keepalive_connections=0))
        # By host, whatever the port. As in browsers, a loopback address also gets cookies that are `Secure`.
        self._cookies: dict[str, dict[str, str]] = {}
        self.address = ""
        self.response = httpx.Response(204)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._client.close()

    @property
    def text(self) -> str:
        return self.response.text

    @property
    def forms(self) -> list[Form]:
        return self._page().forms

    def _page(self) -> "_Forms":
        page = _Forms()
        page.feed(self.text)
        return page

    def open(self, address: str) -> None:
        """Open an address, and follow redirects."""
        self._send("GET", address, None)

    def submit(self, form: Form, **fields: str) -> None:
        """Submit a form with these fields filled in, and follow redirects."""
        target = urljoin(self.address, form.action or self.address)
        self._send(form.method.upper(), target, {**form.fields, **fields})

    def sign_in(self, email: str, password: str) -> None:
        """Fill in the sign-in form on the open page."""
        [form] = [form for form in self.forms if "password" in form.fields]
        self.submit(form, email=email, password=password)

    def answer(self, field_name: str, value: str) -> None:
        """Submit the form in which a hidden field has this value, as a user who presses its button does."""
        [form] = [form for form in self.forms if form.fields.get(field_name) == value]
        self.submit(form)

    def submit_saml(self) -> None:
        """Submit the form with a SAML message, which a script submits in a browser with scripts."""
        [form] = [form for form in self.forms if form.fields.keys() & {"SAMLResponse", "SAMLRequest"}]
        self.submit(form)

    def _send(self, method: str, address: str, data: dict[str, str] | None) -> None:
        for _ in range(LONGEST_CHAIN):
            self.address = address
            if urlsplit(address).netloc not in self._origins:
                return
            origin = {"Origin": f"{urlsplit(address).scheme}://{urlsplit(address).netloc}"} if method == "POST" else {}
            cookies = self._cookies.setdefault(urlsplit(address).hostname or "", {})
            cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())} if cookies else {}
            headers = {"Accept": "text/html", "User-Agent": "Mozilla/5.0", **origin, **cookie}
            self.response = self._client.request(method, address, data=data, headers=headers)
            self._client.cookies.clear()
            self._keep_cookies(cookies)
            target = self.response.headers["Location"] if self.response.is_redirect else self._page().refresh
            if target is None:
                return
            if self.response.status_code != 307:
                method, data = "GET", None
            address = urljoin(address, target)
        raise AssertionError(f"more than {LONGEST_CHAIN} redirects, the last one to {address}")

    def _keep_cookies(self, cookies: dict[str, str]) -> None:
        for header in self.response.headers.get_list("set-cookie"):
            for name, cookie in SimpleCookie(header).items():
                ends = parsedate_to_datetime(cookie["expires"]) if cookie["expires"] else None
                if cookie["max-age"] == "0" or (ends is not None and ends <= datetime.now(UTC)):
                    cookies.pop(name, None)
                else:
                    cookies[name] = cookie.value
