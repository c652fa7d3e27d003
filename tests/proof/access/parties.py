"""Flows with services and browsers in the storm, with several steps: codes, devices and SAML."""

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

import trio
from quart_trio import QuartTrio

from core.authentication.browser import form_token
from core.federation.oauth.model.authorization import AUTHORIZE_PATH
from core.federation.oauth.model.end_session import END_SESSION_PATH
from tests.fakes.outside import FakeClock
from tests.proof.access.things.saml import saml_of
from tests.proof.access.world import HOME, World
from tests.support.browser import ACCOUNT, FakeBrowser
from tests.support.builders import BASE_URL, Answer, Api
from tests.support.saml import SamlApplication, authn_request, inflate, logout_request, posted_response, redirect_url

FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
TOKEN: Final = "/auth/token"
CONSENTS_PATH: Final = "/app/account/consents"
SIGN_OUT_PATH: Final = "/app/sign-out"


class Parties:
    """The home organization's services.

    Everything that works once is used twice at the same time, and must succeed at most once.
    """

    def __init__(self, api: Api, app: QuartTrio, world: World, clock: FakeClock) -> None:
        self._api, self._app, self._clock = api, app, clock
        things, org = world.home.things, world.home.organization
        self._service = {"org": HOME, "service": things["service_slug"]}
        self._client = {"client_id": things["client_id"], "client_secret": things["client_secret"]}
        self._service_id, self._redirect_uri = things["service_id"], things["redirect_uri"]
        self.id_tokens: dict[str, str] = {}  # the last ID token that was issued, per browser
        slugs = (things["service_slug"], things["other_service_slug"])
        self._applications = {
            slug: SamlApplication(org.id, HOME, service, slug, saml_of(HOME, slug), None)
            for service, slug in zip(world.home.services, slugs, strict=True)
        }

    async def exchange_code(self, cookie: str) -> Answer:
        """Sign in to the first service from this browser.

        A code that is used twice ends its session (security O-4).
        """
        answer = await self._agree(f"{AUTHORIZE_PATH}?{urlencode(self._service)}", cookie)
        code = parse_qs(urlsplit(answer.headers.get("Location", "")).query).get("code")
        if code is None:
            return answer
        first, second = await both(lambda: self._api.post(TOKEN, {"code": code[0], **self._client}))
        assert [first.status, second.status] != [200, 200]
        if {first.status, second.status} == {200, 400}:
            tokens = first.json if first.status == 200 else second.json
            assert (await self._api.get("/api/user", token=tokens["access_token"])).status == 401
        return first

    async def use_openid(self, cookie: str, scope: str) -> Answer:
        """Sign in to the first service with OpenID Connect in this browser, agree to the scopes, and use the tokens.

        When two refreshes run at the same time, a single refresh succeeds. The session goes on.
        """
        request = {**self._service, "response_type": "code", "scope": scope, "prompt": "consent"}
        path = f"{AUTHORIZE_PATH}?{urlencode(request)}"
        return await self._start_session(cookie, await self._agree(path, cookie))

    async def ask_silently(self, cookie: str, scope: str) -> Answer:
        """Ask for these scopes without a page. Only if the user has agreed to all scopes, the service gets a code."""
        request = {**self._service, "response_type": "code", "scope": scope, "prompt": "none"}
        return await self._start_session(cookie, await self._open(f"{AUTHORIZE_PATH}?{urlencode(request)}", cookie))

    async def _agree(self, path: str, cookie: str) -> Answer:
        """Send a request in the browser with this session, and agree if a page asks.

        When two answers run at the same time, a single answer gets a code.
        """
        browser = FakeBrowser(self._app)
        browser.cookies["gatehouse-session"] = cookie
        page = without_defect(await browser.open(path))
        if 'name="answer"' not in page.text:
            return page
        answers = await both(lambda: browser.answer(page, "continue"))
        with_code = [answer for answer in answers if "code=" in answer.headers.get("Location", "")]
        assert len(with_code) <= 1, "a flow answers once"
        return with_code[0] if with_code else answers[0]

    async def _start_session(self, cookie: str, answer: Answer) -> Answer:
        code = parse_qs(urlsplit(answer.headers.get("Location", "")).query).get("code")
        if code is None:
            return answer
        grant = {"grant_type": "authorization_code", "code": code[0], "redirect_uri": self._redirect_uri, **self._client}
        answer = without_defect(await self._api.post(TOKEN, grant))
        if answer.status != 200:
            return answer
        tokens = answer.json
        self.id_tokens[cookie] = tokens["id_token"]
        userinfo = without_defect(await self._api.get("/auth/userinfo", token=tokens["access_token"]))
        assert userinfo.status in (200, 401, 403), userinfo.text  # 403: the organization is suspended
        narrowed = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], "scope": "openid email", **self._client}
        pairs = [pair.json for pair in await both(lambda: self._api.post(TOKEN, narrowed)) if pair.status == 200]
        assert len(pairs) <= 1, "a refresh token works once"
        for pair in pairs:
            assert set(pair["scope"].split()) <= set(tokens["scope"].split()) & {"openid", "email"}
        return answer

    async def withdraw_consent(self, cookie: str) -> Answer:
        return await self._send(f"{CONSENTS_PATH}/{self._service_id}/withdraw", cookie)

    async def sign_out(self, cookie: str) -> Answer:
        return await self._send(SIGN_OUT_PATH, cookie)

    async def end_session(self, cookie: str) -> Answer:
        """Let the service send this browser to its logout. No page asks, because the ID token belongs to a session in this browser."""
        return await self._open(f"{END_SESSION_PATH}?{urlencode({'id_token_hint': self.id_tokens.get(cookie, 'none')})}", cookie)

    async def _open(self, path: str, cookie: str) -> Answer:
        return without_defect(await self._api.call("GET", path, headers={"Cookie": f"gatehouse-session={cookie}"}))

    async def _send(self, path: str, cookie: str, **fields: str) -> Answer:
        form = urlencode({"form_token": form_token(cookie), **fields}).encode()
        headers = {**FORM, "Cookie": f"gatehouse-session={cookie}"}
        return without_defect(await self._api.call("POST", path, raw=form, headers=headers))

    async def approve_device(self, token: str) -> Answer:
        """Approve a device at the first service with this token."""
        device = without_defect(await self._api.post("/auth/device/code", self._service))
        if device.status != 200:
            return device
        approval = {"user_code": device.json["user_code"], "action": "approve"}
        await both(lambda: self._api.post("/auth/device/verify", approval, token=token))
        first, second = await both(lambda: self._api.post(TOKEN, {"device_code": device.json["device_code"]}))
        assert [first.status, second.status] != [200, 200]
        return first

    async def sign_on(self, cookie: str, slug: str) -> Answer:
        """Sign in to a service with SAML in this browser, and sign out.

        The logout also ends the browser session.
        """
        application, browser, now = self._applications[slug], FakeBrowser(self._app), self._clock.now()
        browser.cookies["gatehouse-session"] = cookie
        start = without_defect(await browser.open(redirect_url(f"{application.path}/sso", authn_request(application, now))))
        if start.status != 302:
            return start
        path = str(start.headers["Location"]).removeprefix(BASE_URL)
        pages = [page for page in await both(lambda: browser.open(path)) if 'name="SAMLResponse"' in page.text]
        assert len(pages) <= 1
        if not pages or b"<saml:NameID" not in posted_response(pages[0]).document:
            return start
        response, browser.cookies["gatehouse-session"] = posted_response(pages[0]), cookie
        request = logout_request(application, now, response.name_id, response.session_index)
        logout = without_defect(await browser.open(redirect_url(f"{application.path}/slo", request)))
        messages = parse_qs(urlsplit(logout.headers.get("Location", "")).query).get("SAMLResponse")
        if messages is not None and b"UnknownPrincipal" not in inflate(messages[0]):
            browser.cookies["gatehouse-session"] = cookie
            assert (await browser.open(ACCOUNT)).status == 303
        return logout


def without_defect(answer: Answer) -> Answer:
    """Return the response, after checking that it is not an internal error."""
    assert answer.status < 500, answer.text
    return answer


async def both(act: Callable[[], Awaitable[Answer]]) -> tuple[Answer, Answer]:
    """Run `act` twice at the same time. Return both responses."""
    answers: list[Answer] = []

    async def once() -> None:
        answers.append(without_defect(await act()))

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(once)
    return answers[0], answers[1]
