"""An organization with an application and a user, the states of a sign-in, and what paths result in."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import UUID, uuid4

from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.devices import PresentedDevice
from core.authentication import reauthentication
from core.authentication.flow.model import FlowTarget, new_flow
from core.federation.sign_in import BrowserSignIn, sign_in_browser
from core.kernel.access import AccountGone
from core.kernel.causes import SYSTEM, Anonymous
from core.kernel.connections import CODEHOST
from core.kernel.errors import refuse
from core.kernel.proofs import Method, Proof, Proofs, first_proof
from core.kernel.roles import ADMIN, RoleName
from core.kernel.sign_in_policy.rules import Rules
from core.kernel.values import digest, new_secret
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import FLOW
from tests.support.builders import Answer, Api, SignedIn, add_account, add_member, add_organization, run_sql, sign_in
from tests.support.connections.proofs import ProvedSignIn, connection_proof
from tests.support.mfa import Authenticator, add_mfa
from tests.support.saml import SamlApplication, add_application, posted_response
from tests.support.saml.browser import SamlBrowser
from tests.support.services import add_service_user

ALLOWED, STEP_UP, ENROLL, REFUSED = "allowed", "step up", "enroll", "refused"
DUE = "allowed, and enroll later"
SECRET: Final = "a client secret"
CALLBACK: Final = "https://shop.example.com/callback"


@dataclass(frozen=True, slots=True)
class State:
    """A user's factors, and the methods in their last sign-in."""

    factors: tuple[Method, ...]
    used: tuple[Method, ...]

    def proofs(self, at: datetime) -> Proofs:
        return tuple(
            Proof(method, at, user_verified=method is Method.PASSKEY, phishing_resistant=method is Method.PASSKEY) for method in self.used
        )


STATES: Final[Mapping[str, State]] = {
    "bare": State((Method.PASSWORD,), (Method.PASSWORD,)),
    "code left out": State((Method.PASSWORD, Method.TOTP), (Method.PASSWORD,)),
    "code used": State((Method.PASSWORD, Method.TOTP), (Method.PASSWORD, Method.TOTP)),
    "passkey left out": State((Method.PASSWORD, Method.PASSKEY), (Method.PASSWORD,)),
    "passkey used": State((Method.PASSWORD, Method.PASSKEY), (Method.PASSKEY,)),
}


@dataclass(slots=True)
class World:
    """Acme, its application Shop, and Ada, who is an admin there."""

    api: Api
    app: QuartTrio
    ports: Ports
    pool: Pool
    clock: FakeClock
    org: UUID
    application: SamlApplication
    client_id: UUID
    ada: Account
    state: State = STATES["bare"]
    authenticator: Authenticator | None = None
    session: SignedIn | None = None
    browser: SamlBrowser = field(init=False)

    def __post_init__(self) -> None:
        self.browser = SamlBrowser(self.app, self.clock)

    @property
    def service(self) -> UUID:
        return self.application.id

    @property
    def token(self) -> str:
        assert self.session is not None, "the user is signed in"
        return self.session.access_token

    async def put(self, document: Mapping[str, Any], *, service: UUID | None = None, org: UUID | None = None) -> None:
        """Store a sign-in policy, by default for Acme."""
        policy = SignInPolicy(
            id=uuid4(), org_id=org or self.org, service_id=service, rules=Rules.read(document), changed_at=self.clock.now(), changed_by=None
        )
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.sign_in_policies.put(policy)

    async def put_on_platform(self, document: Mapping[str, Any]) -> None:
        policy = SignInPolicy(
            id=uuid4(), org_id=None, service_id=None, rules=Rules.read(document), changed_at=self.clock.now(), changed_by=None
        )
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.sign_in_policies.put(policy)

    async def enter(self, state: State) -> None:
        """Give Ada these factors, and an API session and a browser session that began with these proofs."""
        self.state = state
        if Method.TOTP in state.factors:
            self.authenticator = await add_mfa(self.ports, self.ada)
        if Method.PASSKEY in state.factors:
            await run_sql(self.pool, "update users set passkey_count = 1 where id = %s", self.ada.id)
        self.session = await sign_in(self.ports, self.ada, self.org)
        await self.prove(self.session.session_id)
        await self.open_browser()

    async def open_browser(self) -> UUID:
        """Begin a session in the browser, and return its id."""
        began, cookie = await sign_in(self.ports, self.ada), new_secret()
        await run_sql(self.pool, "update sessions set browser_hash = %s where id = %s", digest(cookie), began.session_id)
        self.browser.cookies["gatehouse-session"] = cookie
        await self.prove(began.session_id)
        return began.session_id

    async def sign_in_silently(self) -> None:
        """Sign in to the browser, and confirm the session over the API, at identity providers that do not ask the user."""
        now = self.clock.now()
        silent, assertion = first_proof(CODEHOST, now, is_fresh=False), replace(connection_proof(self.org, now), is_fresh=False)
        for proof in (silent, assertion):
            flow = new_flow(now, FlowTarget.PAGE, "/app", digest(new_secret()))
            method, cookie = ProvedSignIn(self.ada, proof), self.browser.cookies["gatehouse-session"]
            outcome = await sign_in_browser(self.ports, Anonymous(), flow, method, cookie, PresentedDevice())
            if isinstance(outcome, BrowserSignIn):  # the second factor is not missing
                self.browser.cookies["gatehouse-session"] = outcome.cookie
        assert self.session is not None, "the user is signed in"
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            ada = await tx.accounts.lock(self.ada.id) or refuse(AccountGone)
            await reauthentication.complete_at_provider(self.ports, tx, ada, self.session.session_id, CODEHOST, silent)

    async def prove(self, session_id: UUID) -> None:
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.session_sign_ins.reauthenticate(session_id, self.ada.id, self.state.proofs(self.clock.now()))

    # The application

    async def send(self, path: str, *, with_secret: bool = True, **fields: str) -> Answer:
        """Send a form as the application."""
        secret = {"client_secret": SECRET} if with_secret else {}
        raw = urlencode({"client_id": str(self.client_id), **secret, **fields}).encode()
        return await self.api.call("POST", path, raw=raw, headers={"Content-Type": "application/x-www-form-urlencoded"})

    async def authorize(self, **fields: str) -> Answer:
        """Open an authorization request in the browser, up to the first answer or page."""
        query = urlencode({"client_id": str(self.client_id), "redirect_uri": CALLBACK, "state": "state", **fields})
        return await self.browser.open(f"/auth/authorize?{query}", follows=False)

    async def sign_on(self, **request: str) -> Answer:
        """Open the application's SAML request in the browser, up to the first answer or page."""
        return await self.browser.open(await self.browser.start_sign_on(self.application, **request), follows=False)

    async def code(self) -> str:
        """Return a code for the browser's user."""
        return parse_qs(urlsplit((await self.authorize()).headers["Location"]).query)["code"][0]

    async def exchange(self, code: str) -> Answer:
        return await self.send("/auth/token", grant_type="authorization_code", code=code, redirect_uri=CALLBACK)


async def new_world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, role: RoleName = ADMIN) -> World:
    org = await add_organization(pool, "acme")
    ada = await add_account(ports, "ada@example.com")
    await add_member(pool, org, ada.id, role, confirmed=True)
    application = await add_application(ports, pool, org, "acme")
    service = application.id
    await add_service_user(ports, service, ada.id, signed_in=False)
    [(client_id,)] = await run_sql(pool, "select client_id from services where id = %s", service)
    return World(api, app, ports, pool, clock, org, application, client_id, ada)


def outcome_of(answer: Answer) -> str:
    """Return the outcome that the API's answer has."""
    body = answer.json if answer.text.startswith("{") else {}
    if answer.status < 300:
        return ALLOWED
    if "enrolment_url" in body:
        assert urlsplit(body["enrolment_url"]).path == "/app/enroll"
        return ENROLL
    if 'max_age="0"' in answer.headers.get("WWW-Authenticate", ""):  # the session is good elsewhere
        return STEP_UP
    if "rule" not in body:
        assert (answer.status, body.get("error")) == (400, "invalid_grant"), answer.text
        assert any(name in body["error_description"] for name in ("Acme", "Shop")), "it names the rule"
        return "invalid grant"
    return REFUSED if answer.status == 403 else STEP_UP


def outcome_of_page(answer: Answer) -> str:
    target = answer.headers.get("Location", "")
    if target.startswith("/app/enroll"):
        return ENROLL
    if target.startswith("/app/reauthenticate"):
        return STEP_UP
    if answer.status == 403:
        return REFUSED
    assert answer.status == 200, (answer.status, target)
    return ALLOWED


async def outcome_of_flow(world: World, answer: Answer) -> str:
    """Return the outcome that the application's request in the browser first gets."""
    if answer.status == 200:
        statuses = posted_response(answer).statuses
        return {"Success": ALLOWED, "NoPassive": STEP_UP, "NoAuthnContext": ENROLL}[statuses[-1]]
    target = answer.headers["Location"]
    if target.startswith(CALLBACK):
        fields = parse_qs(urlsplit(target).query)
        errors = {"login_required": STEP_UP, "unmet_authentication_requirements": ENROLL}
        return ALLOWED if "code" in fields else errors[fields["error"][0]]
    if target.endswith("/sign-in"):
        return STEP_UP
    if FLOW.fullmatch(target):
        answer = await world.browser.open(target, follows=False)
    return outcome_of_page(answer)
