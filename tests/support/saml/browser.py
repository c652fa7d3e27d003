"""Browsers in SAML sign-ons and logouts."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from lxml import etree
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.support.browser import FakeBrowser, action_of, is_step, leads_to
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, Answer, Api
from tests.support.saml import (
    NS,
    STATUS,
    PostedResponse,
    SamlApplication,
    add_application,
    authn_request,
    encode_base64,
    inflate,
    logout_request,
    logout_response,
    posted_response,
    redirect_url,
)
from tests.support.services import add_service_user
from tests.support.tenants import Tenant

OTHER_SITE = b"https://shop.example.com"
NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})
Interruption = Callable[[SamlApplication], Awaitable[object]]


class SamlApplications:
    """The SAML applications that a user is assigned to."""

    def __init__(self, ports: Ports, pool: Pool, acme: Tenant, user: Account) -> None:
        self._ports, self._pool, self._acme, self._ada = ports, pool, acme, user

    async def add(self, slug: str = "shop", tenant: Tenant | None = None, **changes: Any) -> SamlApplication:
        """Add an application to acme or to `tenant`.

        `changes` override the default configuration.
        """
        tenant = tenant or self._acme
        application = await add_application(self._ports, self._pool, tenant.org, tenant.slug, slug, **changes)
        await add_service_user(self._ports, application.id, self._ada.id, signed_in=False)
        return application


class SamlBrowser(FakeBrowser):
    """A browser that follows SAML applications' redirects."""

    def __init__(self, app: QuartTrio, clock: Any, origin: str = BASE_URL) -> None:
        super().__init__(app, origin)
        self._clock = clock

    def now(self) -> Any:
        return self._clock.now()

    async def start_sign_on(self, application: SamlApplication, relay_state: str | None = None, **request: Any) -> str:
        """Deliver the application's AuthnRequest with HTTP-Redirect.

        Return the path where the sign-on continues.
        """
        message = authn_request(application, self._clock.now(), **request)
        more = {} if relay_state is None else {"RelayState": relay_state}
        answer = await self.open(redirect_url(f"{application.path}/sso", message, **more))
        return redirect_target(answer, 302)

    async def post_cross_site(self, path: str, **fields: str) -> Answer:
        """Post a form from another site. The browser sends no SameSite=Lax cookies with it."""
        cookies, self.cookies = self.cookies, {}
        try:
            answer = await self.send(path, (b"origin", OTHER_SITE), (b"sec-fetch-site", b"cross-site"), **fields)
        finally:
            self.cookies = {**cookies, **self.cookies}
        return answer

    async def start_sign_on_by_post(self, application: SamlApplication, relay_state: str | None = None, **request: Any) -> str:
        """Deliver an AuthnRequest with HTTP-POST. Return the path where the sign-on continues."""
        fields = {"SAMLRequest": encode_base64(authn_request(application, self._clock.now(), **request))}
        if relay_state is not None:
            fields["RelayState"] = relay_state
        return redirect_target(await self.post_cross_site(f"{application.path}/sso", **fields), 303)

    async def sign_in_at(self, path: str, email: str = EMAIL, password: str = PASSWORD) -> str:
        """Fill in the sign-in form to which this page leads. Return where it redirects: the sign-in, or its step for the code."""
        page = await self.open(path)
        action = action_of(page)
        assert is_step(action, "sign-in"), page.text
        target = leads_to(await self.fill(page, email=email, password=password))
        assert target in (action.removesuffix("/sign-in"), action.replace("/sign-in", "/code"))
        return target

    async def sign_on(self, application: SamlApplication, **request: Any) -> PostedResponse:
        """Return the response for the application. The browser is signed in already."""
        return posted_response(await self.open(await self.start_sign_on(application, **request)))


def redirect_target(answer: Answer, status: int = 302) -> str:
    """Return a redirect's target. Our own URLs are returned as paths."""
    assert answer.status == status, (answer.status, answer.text.rpartition("<main>")[2])
    assert answer.headers["Cache-Control"] == "no-store"
    return str(answer.headers["Location"]).removeprefix(BASE_URL)


class RedirectedMessage:
    """A SAML message in a redirect."""

    def __init__(self, address: str) -> None:
        self.url, _, query = address.partition("?")
        self.query = {name: values[0] for name, values in parse_qs(query, strict_parsing=True).items()}
        [self.name] = self.query.keys() & {"SAMLRequest", "SAMLResponse"}
        self.root = etree.fromstring(inflate(self.query[self.name]))

    @property
    def kind(self) -> str:
        return str(self.root.tag).rpartition("}")[2]

    def find(self, path: str) -> Any:
        return self.root.xpath(path, namespaces=NS)

    @property
    def statuses(self) -> list[str]:
        return [str(value).removeprefix(STATUS) for value in self.find("//samlp:StatusCode/@Value")]


async def request_logout(
    browser: SamlBrowser,
    application: SamlApplication,
    name_id: str,
    *indexes: str,
    name_attributes: Mapping[str, str] = NO_ATTRIBUTES,
    **more: str,
) -> Answer:
    message = logout_request(application, browser.now(), name_id, *indexes, name_attributes=name_attributes, ID="_bye")
    return await browser.open(redirect_url(f"{application.path}/slo", message, **more))


async def sign_out(browser: SamlBrowser, **fields: str) -> Answer:
    return await browser.submit("/app/sign-out", **fields)


class LogoutWalk:
    """A single logout in a browser that is signed in to these applications."""

    def __init__(self, browser: SamlBrowser, *applications: SamlApplication) -> None:
        self.browser = browser
        self.applications = {application.slug: application for application in applications}
        self.notified: list[str] = []  # slugs, in this order

    async def sign_in(self) -> dict[str, Any]:
        await self.browser.sign_in()
        return {slug: await self.browser.sign_on(application) for slug, application in self.applications.items()}

    async def start(self, initiator: SamlApplication | None) -> Answer:
        """Start a logout at this application, or on our own page. Return the first step."""
        sessions = await self.sign_in()
        if initiator is not None:
            session = sessions[initiator.slug]
            return await request_logout(self.browser, initiator, session.name_id, session.session_index, RelayState="there")
        await sign_out(self.browser)
        return await self.browser.open(f"{next(iter(self.applications.values())).path}/slo")

    def pending_request(self, step: Answer) -> tuple[SamlApplication, str] | None:
        """Return the application with a LogoutRequest in this step, and the request's id, or None."""
        if step.status != 302 or (message := RedirectedMessage(redirect_target(step))).kind != "LogoutRequest":
            return None
        application = self.applications[message.url.split("//")[1].partition(".")[0]]
        return application, message.root.get("ID")

    async def confirm(self, application: SamlApplication, id_: str) -> Answer:
        """Confirm this application's request. Return the next step."""
        response = logout_response(application, self.browser.now(), id_)
        step = await self.browser.open(redirect_url(f"{application.path}/slo", response, "SAMLResponse"))
        while step.status == 302 and redirect_target(step).startswith("/"):
            step = await self.browser.open(redirect_target(step))
        return step

    async def finish(self, step: Answer, interrupt: Interruption | None = None) -> Answer:
        """Confirm all requests and return the last step.

        `interrupt` runs while the browser is at the first application.
        """
        while (request := self.pending_request(step)) is not None:
            application, id_ = request
            self.notified.append(application.slug)
            if interrupt is not None:
                await interrupt(application)
                interrupt = None
            step = await self.confirm(application, id_)
        return step


def statuses(step: Answer, initiator: SamlApplication) -> list[str]:
    """Return the status codes in the LogoutResponse to the initiating application."""
    message = RedirectedMessage(redirect_target(step))
    assert (message.url, message.kind, message.query["RelayState"]) == (initiator.configuration.slo_url, "LogoutResponse", "there")
    return message.statuses


async def sign_in_over_api(api: Api, path: str, **more: Any) -> Answer:
    """Sign the user in over the API, for the sign-on that is pending at this path."""
    [state] = parse_qs(urlsplit(path).query)["saml_state"]
    return await api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, "saml_state": state, **more})
