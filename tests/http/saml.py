"""Browsers that applications send to be signed in, and out."""

from typing import Any

from quart_trio import QuartTrio

from tests.builders import BASE_URL, EMAIL, PASSWORD, Answer
from tests.http.visitor import SIGN_IN, Visitor, form_token, leads_to
from tests.saml import Application, Posted, authn_request, encoded, posted, redirected

ELSEWHERE = b"https://shop.example.com"


class Traveller(Visitor):
    """A browser that goes to and fro between applications and us."""

    def __init__(self, app: QuartTrio, clock: Any) -> None:
        super().__init__(app)
        self._clock = clock

    def now(self) -> Any:
        return self._clock.now()

    async def come_from(self, application: Application, relay_state: str | None = None, **asked: Any) -> str:
        """Where the browser is sent on with a request of the application, which was accepted."""
        message = authn_request(application, self._clock.now(), **asked)
        more = {} if relay_state is None else {"RelayState": relay_state}
        answer = await self.open(redirected(f"{application.path}/sso", message, **more))
        return onward(answer, 302)

    async def arrive_with_form(self, path: str, **fields: str) -> Answer:
        """Send the form of another site, with which no cookie of ours comes."""
        kept, self.cookies = self.cookies, {}
        try:
            answer = await self.send(path, (b"origin", ELSEWHERE), (b"sec-fetch-site", b"cross-site"), **fields)
        finally:
            self.cookies = {**kept, **self.cookies}
        return answer

    async def come_with_form(self, application: Application, relay_state: str | None = None, **asked: Any) -> str:
        """The same as `come_from`, by HTTP-POST."""
        fields = {"SAMLRequest": encoded(authn_request(application, self._clock.now(), **asked))}
        if relay_state is not None:
            fields["RelayState"] = relay_state
        return onward(await self.arrive_with_form(f"{application.path}/sso", **fields), 303)

    async def sign_in_at(self, path: str, email: str = EMAIL, password: str = PASSWORD) -> str:
        """Where the form of this page leads when it is sent."""
        page = await self.open(path)
        assert '<form method="post" action="/app/sign-in">' in page.text, page.text
        return leads_to(await self.send(SIGN_IN, form_token=form_token(page), next=path, email=email, password=password))

    async def sign_on(self, application: Application, **asked: Any) -> Posted:
        """What the application gets for this browser, in which somebody is signed in already."""
        return posted(await self.open(await self.come_from(application, **asked)))


def onward(answer: Answer, status: int = 302) -> str:
    """Where an answer of the protocol sends the browser, as a path where it is one of ours."""
    assert answer.status == status, (answer.status, answer.text.rpartition("<main>")[2])
    assert answer.headers["Cache-Control"] == "no-store"
    return str(answer.headers["Location"]).removeprefix(BASE_URL)
