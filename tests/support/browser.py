"""A browser on our pages that keeps cookies and submits forms."""

import re
from html import unescape
from http.cookies import Morsel, SimpleCookie
from secrets import token_urlsafe
from typing import Final
from urllib.parse import urlencode

from quart_trio import QuartTrio

from tests.support.builders import BASE_URL, EMAIL, FIREFOX, PASSWORD, Answer
from tests.support.direct import ask
from tests.support.mfa import Authenticator

SIGN_IN, CODE, ACCOUNT = "/app/sign-in", "/app/sign-in/code", "/app/account"
HTML: Final = (b"accept", b"text/html,application/xhtml+xml,*/*;q=0.8")
FORM: Final = (b"content-type", b"application/x-www-form-urlencoded")
AGENT: Final = (b"user-agent", FIREFOX.encode())
Header = tuple[bytes, bytes]


def form_token(answer: Answer) -> str:
    match = re.search(r'name="form_token" value="([^"]+)"', answer.text)
    assert match, answer.text
    return match[1]


def hidden_fields(answer: Answer) -> dict[str, str]:
    """Return the hidden fields of all forms of a page."""
    return {name: unescape(value) for name, value in re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', answer.text)}


def set_cookies(answer: Answer) -> dict[str, "Morsel[str]"]:
    """Return the cookies that an answer sets, by name."""
    jar: SimpleCookie = SimpleCookie()
    for line in answer.headers.getlist("Set-Cookie"):
        jar.load(line)
    return dict(jar)


class FakeBrowser:
    """A browser. It sends `origin` as the origin of its forms."""

    def __init__(self, app: QuartTrio, origin: str = BASE_URL) -> None:
        self._app = app
        self._origin = origin
        self.cookies: dict[str, str] = {}

    async def open(self, path: str, *headers: Header, method: str = "GET") -> Answer:
        return self._keep(await ask(self._app, method, path, headers=[HTML, AGENT, *self._cookie_header(), *headers]))

    async def send(self, path: str, *headers: Header, **fields: str) -> Answer:
        """Send a form with exactly these fields, without the page's token. Each form with a token is a new copy, unless it has a key."""
        if "form_token" in fields:
            fields.setdefault("form_key", token_urlsafe(16))
        sent = [HTML, AGENT, FORM, (b"origin", self._origin.encode()), *self._cookie_header(), *headers]
        return self._keep(await ask(self._app, "POST", path, headers=sent, body=urlencode(fields).encode()))

    async def submit(self, path: str, page: str = ACCOUNT, **fields: str) -> Answer:
        """Open a page and submit a form of it."""
        return await self.send(path, **{"form_token": form_token(await self.open(page)), **fields})

    async def sign_in(self, email: str = EMAIL, password: str = PASSWORD, *, after: str = "") -> Answer:
        page = f"{SIGN_IN}?{urlencode({'next': after})}" if after else SIGN_IN
        more = {"next": after} if after else {}
        return await self.submit(SIGN_IN, page, email=email, password=password, **more)

    async def show_code(self, code: str, **fields: str) -> Answer:
        return await self.submit(CODE, CODE, code=code, **fields)

    async def sign_in_with(self, app: Authenticator, **fields: str) -> None:
        assert leads_to(await self.sign_in()) == CODE
        assert leads_to(await self.show_code(app.code(), **fields)) == ACCOUNT

    async def is_in(self) -> bool:
        return (await self.open(ACCOUNT)).status == 200

    def _cookie_header(self) -> list[Header]:
        if not self.cookies:
            return []
        return [(b"cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()).encode())]

    def _keep(self, answer: Answer) -> Answer:
        for name, morsel in set_cookies(answer).items():
            if morsel["max-age"] == "0":
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = morsel.value
        return answer


def leads_to(answer: Answer) -> str:
    """Return the target of a redirect."""
    assert answer.status == 303, (answer.status, answer.text)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.text == ""
    return str(answer.headers["Location"])


def main_of(answer: Answer) -> str:
    """Return the markup of a page without its frame, and without the commands under "Show as curl"."""
    content = answer.text.partition("<main")[2].partition(">")[2].partition("</main>")[0]
    return content.partition('<details class="curl">')[0]
