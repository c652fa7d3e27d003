"""Browsers that applications send to be signed in, and out."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs

from lxml import etree
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from ports import Ports
from tests.support.browser import SIGN_IN, Visitor, form_token, leads_to
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, Answer
from tests.support.saml import (
    NS,
    STATUS,
    Application,
    Posted,
    add_application,
    authn_request,
    encoded,
    inflated,
    logout_request,
    logout_response,
    posted,
    redirected,
)
from tests.support.services import add_service_user
from tests.support.tenants import Tenant

ELSEWHERE = b"https://shop.example.com"
NOTHING_MORE: Mapping[str, str] = MappingProxyType({})
Meanwhile = Callable[[Application], Awaitable[object]]


class Applications:
    """Those that Ada uses."""

    def __init__(self, ports: Ports, pool: Pool, acme: Tenant, ada: Account) -> None:
        self._ports, self._pool, self._acme, self._ada = ports, pool, acme, ada

    async def add(self, slug: str = "shop", tenant: Tenant | None = None, **changes: Any) -> Application:
        """One of Acme, or of this organization; it is set up with `changes` from what is usual."""
        where = tenant or self._acme
        application = await add_application(self._ports, self._pool, where.org, where.slug, slug, **changes)
        await add_service_user(self._ports, application.id, self._ada.id)
        return application


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


class Said:
    """A message that the browser takes along in an address."""

    def __init__(self, address: str) -> None:
        self.url, _, query = address.partition("?")
        self.query = {name: values[0] for name, values in parse_qs(query, strict_parsing=True).items()}
        [self.name] = self.query.keys() & {"SAMLRequest", "SAMLResponse"}
        self.root = etree.fromstring(inflated(self.query[self.name]))

    @property
    def kind(self) -> str:
        return str(self.root.tag).rpartition("}")[2]

    def find(self, path: str) -> Any:
        return self.root.xpath(path, namespaces=NS)

    @property
    def statuses(self) -> list[str]:
        return [str(value).removeprefix(STATUS) for value in self.find("//samlp:StatusCode/@Value")]


async def ask_to_sign_out(
    visitor: Traveller, application: Application, name_id: str, *indexes: str, named: Mapping[str, str] = NOTHING_MORE, **more: str
) -> Answer:
    message = logout_request(application, visitor.now(), name_id, *indexes, named=named, ID="_bye")
    return await visitor.open(redirected(f"{application.path}/slo", message, **more))


async def sign_out(visitor: Traveller, **fields: str) -> Answer:
    return await visitor.submit("/app/sign-out", **fields)


class Walk:
    """A browser that is signed in to applications, is signed out, and goes from one to the next of them as it is told."""

    def __init__(self, visitor: Traveller, *applications: Application) -> None:
        self.visitor = visitor
        self.applications = {application.slug: application for application in applications}
        self.told: list[str] = []

    async def sign_in(self) -> dict[str, Any]:
        await self.visitor.sign_in()
        return {slug: await self.visitor.sign_on(application) for slug, application in self.applications.items()}

    async def begin(self, asker: Application | None) -> Answer:
        """The first step of a sign-out that this application begins, or our own page."""
        sessions = await self.sign_in()
        if asker is not None:
            session = sessions[asker.slug]
            return await ask_to_sign_out(self.visitor, asker, session.name_id, session.session_index, RelayState="there")
        await sign_out(self.visitor)
        return await self.visitor.open(f"{next(iter(self.applications.values())).path}/slo")

    def asked(self, step: Answer) -> tuple[Application, str] | None:
        """Which application the browser was sent to, and what it is to answer."""
        if step.status != 302 or (said := Said(onward(step))).kind != "LogoutRequest":
            return None
        application = self.applications[said.url.split("//")[1].partition(".")[0]]
        return application, said.root.get("ID")

    async def back(self, application: Application, id_: str) -> Answer:
        """The step after this application has said that it is done."""
        done = logout_response(application, self.visitor.now(), id_)
        step = await self.visitor.open(redirected(f"{application.path}/slo", done, "SAMLResponse"))
        while step.status == 302 and onward(step).startswith("/"):
            step = await self.visitor.open(onward(step))
        return step

    async def walk(self, step: Answer, happens: Meanwhile | None = None) -> Answer:
        """The last step. What happens does while the browser is at the first application, which is told by then."""
        while (asked := self.asked(step)) is not None:
            application, id_ = asked
            self.told.append(application.slug)
            if happens is not None:
                await happens(application)
                happens = None
            step = await self.back(application, id_)
        return step


def statuses(step: Answer, asker: Application) -> list[str]:
    said = Said(onward(step))
    assert (said.url, said.kind, said.query["RelayState"]) == (asker.configuration.slo_url, "LogoutResponse", "there")
    return said.statuses
