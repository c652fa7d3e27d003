"""The person in the plan tests: follows redirects, signs in and agrees, as the suite's browser does."""

import re
from dataclasses import dataclass
from html import unescape
from typing import Final
from urllib.parse import parse_qsl

from tests.federation.api.end_session.applications import CROSS_SITE
from tests.support.browser import SIGN_IN, FakeBrowser, form_token, hidden_fields, leads_to
from tests.support.builders import EMAIL, PASSWORD, Answer

_MOST_RESPONSES: Final = 10  # responses


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The pages that the person answered, and the end: a request to the application, or our page."""

    sign_in_pages: tuple[str, ...]
    consent_pages: int
    page: Answer | None  # our page that is shown at the end
    address: str = ""  # where the application got the request, without the query
    method: str = ""
    query: dict[str, str] | None = None
    form: dict[str, str] | None = None

    @property
    def questions(self) -> int:
        return len(self.sign_in_pages) + self.consent_pages


class Person:
    """The person with the account `EMAIL`, at a browser."""

    def __init__(self, browser: FakeBrowser) -> None:
        self.browser = browser

    async def open(self, path: str) -> Outcome:
        return await self._answer(await self.browser.open(path))

    async def follow_form(self, path: str, fields: dict[str, str]) -> Outcome:
        """Submit a form that another site shows. The browser sends no cookies with it (SameSite=Lax)."""
        cookies, self.browser.cookies = self.browser.cookies, {}
        answer = await self.browser.send(path, CROSS_SITE, **fields)
        self.browser.cookies = {**cookies, **self.browser.cookies}
        return await self._answer(answer)

    async def agree(self, page: Answer) -> Outcome:
        """Press the first button on a page that asks a question."""
        return await self._answer(await self._agree(page))

    async def _agree(self, page: Answer) -> Answer:
        return await self.browser.answer(page, "continue")

    async def _answer(self, answer: Answer) -> Outcome:
        """Follow redirects, sign in and consent, until the browser leaves our site or shows another page."""
        sign_in_pages: list[str] = []
        consent_pages = 0
        for _ in range(_MOST_RESPONSES):
            if answer.status == 303 and leads_to(answer).startswith("/"):
                answer = await self.browser.open(leads_to(answer))
            elif "<h1>Sign in" in answer.text:
                sign_in_pages.append(answer.text)
                fields = {"email": EMAIL, "password": PASSWORD, "next": hidden_fields(answer)["next"]}
                answer = await self.browser.send(SIGN_IN, form_token=form_token(answer), **fields)
            elif "<h1>Continue to <bdi>" in answer.text:
                consent_pages += 1
                answer = await self._agree(answer)
            else:
                break
        else:
            raise AssertionError(f"the pages do not end: {answer.text}")
        pages = tuple(sign_in_pages)
        if answer.status == 303:
            address, _, query = leads_to(answer).partition("?")
            fields = dict(parse_qsl(query, strict_parsing=True)) if query else {}
            return Outcome(sign_in_pages=pages, consent_pages=consent_pages, page=None, address=address, method="GET", query=fields)
        if '<form id="answer" method="post"' in answer.text:
            return _submitted_by_script(answer, Outcome(sign_in_pages=pages, consent_pages=consent_pages, page=None))
        return Outcome(sign_in_pages=pages, consent_pages=consent_pages, page=answer)


def _submitted_by_script(page: Answer, outcome: Outcome) -> Outcome:
    """Return the request from the form that the page submits (OAuth 2.0 Form Post Response Mode section 2)."""
    address, _, query = _action(page).partition("?")
    assert "enctype" not in page.text, "the default is application/x-www-form-urlencoded"
    assert 'document.getElementById("answer").submit()' in page.text
    assert "form-action" not in page.headers["Content-Security-Policy"], "it would apply to the redirects of the application, too"
    assert page.headers["Cache-Control"] == "no-store"
    return Outcome(
        sign_in_pages=outcome.sign_in_pages,
        consent_pages=outcome.consent_pages,
        page=None,
        address=address,
        method="POST",
        query=dict(parse_qsl(query)),
        form=hidden_fields(page),
    )


def _action(page: Answer) -> str:
    """Return the first form's target."""
    match = re.search(r'<form[^>]* method="post" action="([^"]+)"', page.text)
    assert match, page.text
    return unescape(match[1])
