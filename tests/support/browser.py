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

SIGN_IN, ACCOUNT, HOME = "/app/sign-in", "/app/account", "/app"
FLOW: Final = re.compile(r"/app/flow/[0-9a-f-]{36}(/[a-z-]+)?")
ENDED: Final = re.compile("<h1>(This sign-in is no longer open|You're signed in|You&#39;re signed in)</h1>")
HTML: Final = (b"accept", b"text/html,application/xhtml+xml,*/*;q=0.8")
FORM: Final = (b"content-type", b"application/x-www-form-urlencoded")
MULTIPART: Final = (b"content-type", b"multipart/form-data; boundary=limit")
AGENT: Final = (b"user-agent", FIREFOX.encode())
Header = tuple[bytes, bytes]


def form_token(answer: Answer) -> str:
    match = re.search(r'name="form_token" value="([^"]+)"', answer.text)
    assert match, answer.text
    return match[1]


def hidden_fields(answer: Answer) -> dict[str, str]:
    """Return the hidden fields in all forms on a page."""
    return {name: unescape(value) for name, value in re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', answer.text)}


def action_of(answer: Answer) -> str:
    """Return the path to which a page's first form is sent."""
    match = re.search(r'<form method="post" action="([^"]+)"', answer.text)
    assert match, answer.text
    return unescape(match[1])


def is_step(path: str, step: str) -> bool:
    """Return whether this path belongs to a sign-in step, such as `code`."""
    match = FLOW.fullmatch(path)
    return match is not None and match[1] == f"/{step}"


def step_of(page: Answer, step: str) -> str:
    """Return the path to another step in the flow that this page belongs to."""
    return f"{action_of(page).rpartition('/')[0]}/{step}"


def has_ended(answer: Answer) -> bool:
    """Return whether this page belongs to a sign-in that is no longer open in this browser."""
    return answer.status == 200 and "Location" not in answer.headers and bool(re.search(ENDED, answer.text))


def set_cookies(answer: Answer) -> dict[str, "Morsel[str]"]:
    """Return the cookies that an answer sets, by name."""
    jar: SimpleCookie = SimpleCookie()
    for line in answer.headers.getlist("Set-Cookie"):
        jar.load(line)
    return dict(jar)


class FakeBrowser:
    """A browser. It sends `origin` as its forms' origin."""

    def __init__(self, app: QuartTrio, origin: str = BASE_URL) -> None:
        self._app = app
        self._origin = origin
        self.cookies: dict[str, str] = {}
        self.path = ""  # on the page that was opened last
        self.code_path = ""  # on the step to which an answer has led last

    async def open(self, path: str, *headers: Header, method: str = "GET", follows: bool = True) -> Answer:
        """Open a page. If it leads to a sign-in step, return the step's page, unless `follows` is false."""
        self.path = path
        answer = self._keep(await ask(self._app, method, path, headers=[HTML, AGENT, *self._cookie_header(), *headers]))
        target = answer.headers.get("Location", "")
        return await self.open(target, *headers) if follows and FLOW.fullmatch(target) else answer

    async def fill(self, page: Answer, **fields: str) -> Answer:
        """Fill in a page's first form, and send it."""
        return await self.send(action_of(page), **{"form_token": form_token(page), **fields})

    async def answer(self, page: Answer, answer: str) -> Answer:
        """Answer a page's question."""
        return await self.fill(page, answer=answer, question=hidden_fields(page).get("question", ""))

    async def send(self, path: str, *headers: Header, **fields: str) -> Answer:
        """Send a form with exactly these fields, without the page's token.

        A form with a token is always a new copy, unless it has a key.
        """
        if "form_token" in fields:
            fields.setdefault("form_key", token_urlsafe(16))
        sent = [HTML, AGENT, FORM, (b"origin", self._origin.encode()), *self._cookie_header(), *headers]
        return self._keep(await ask(self._app, "POST", path, headers=sent, body=urlencode(fields).encode()))

    async def submit(self, path: str, page: str = ACCOUNT, **fields: str) -> Answer:
        """Open a page and submit a form there."""
        return await self.send(path, **{"form_token": form_token(await self.open(page)), **fields})

    async def upload(self, path: str, page: str, file: bytes, *, name: str = "image.png", kind: str = "image/png", **fields: str) -> Answer:
        """Open a page, and submit its form with a file."""
        fields = {"form_token": form_token(await self.open(page)), "form_key": token_urlsafe(16), **fields}
        parts = [f'Content-Disposition: form-data; name="{field}"\r\n\r\n{text}'.encode() for field, text in fields.items()]
        parts.append(f'Content-Disposition: form-data; name="image"; filename="{name}"\r\nContent-Type: {kind}\r\n\r\n'.encode() + file)
        body = b"".join(b"--limit\r\n" + part + b"\r\n" for part in parts) + b"--limit--\r\n"
        headers = [HTML, AGENT, MULTIPART, (b"origin", self._origin.encode()), *self._cookie_header()]
        return self._keep(await ask(self._app, "POST", path, headers=headers, body=body))

    async def sign_in(self, email: str = EMAIL, password: str = PASSWORD, *, after: str = "") -> Answer:
        """Sign in on the page that continues at this path. An application's request begins a flow."""
        page = await self.open(f"{SIGN_IN}?{urlencode({'next': after})}" if after else SIGN_IN)
        if page.status == 303:
            page = await self.open(leads_to(page))
        return await self.fill(page, email=email, password=password, **({"next": after} if after else {}))

    async def show_code(self, code: str, **fields: str) -> Answer:
        """Send a second-factor code to the page to which the last answer has led."""
        return await self.submit(self.code_path, self.code_path, code=code, **fields)

    async def sign_in_with(self, app: Authenticator, **fields: str) -> None:
        assert is_step(leads_to(await self.sign_in()), "code")
        assert await self.follow(leads_to(await self.show_code(app.code(), **fields))) == HOME

    async def follow(self, path: str) -> str:
        """Return where a sign-in's end leads, if this is the path of an end."""
        return leads_to(await self.open(path)) if FLOW.fullmatch(path) else path

    async def ends_at(self, answer: Answer) -> str:
        """Return where the sign-in ends that this answer continues."""
        return await self.follow(leads_to(answer))

    async def is_in(self) -> bool:
        return (await self.open(ACCOUNT)).status == 200

    def _cookie_header(self) -> list[Header]:
        if not self.cookies:
            return []
        return [(b"cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()).encode())]

    def _keep(self, answer: Answer) -> Answer:
        if is_step(answer.headers.get("Location", ""), "code"):
            self.code_path = answer.headers["Location"]
        for name, morsel in set_cookies(answer).items():
            if morsel["max-age"] == "0":
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = morsel.value
        return answer


def leads_to(answer: Answer) -> str:
    """Return a redirect's target."""
    assert answer.status == 303, (answer.status, answer.text)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.text == ""
    return str(answer.headers["Location"])


def main_of(answer: Answer) -> str:
    """Return a page's markup without its frame, and without the commands under "Show as curl"."""
    content = answer.text.partition("<main")[2].partition(">")[2].partition("</main>")[0]
    return content.partition('<details class="curl">')[0]
