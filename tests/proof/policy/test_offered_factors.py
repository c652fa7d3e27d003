"""Every factor that a sign-in offers leads on: no page and no answer offers a factor that the policy then refuses."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from html import unescape
from typing import Any, Final
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow import flows
from core.authentication.flow.model import Flow
from core.federation.sign_in import sign_in_browser
from core.kernel.causes import Anonymous
from core.kernel.judgement import PolicyPath
from core.kernel.values import base64url
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.proof.policy.test_second_factors import TO_SHOP
from tests.proof.policy.test_sign_in_page import offered
from tests.proof.policy.world import ALLOWED, ENROLL, STATES, World, new_world, outcome_of_flow
from tests.support.browser import FLOW, action_of, form_token, is_step, leads_to, main_of
from tests.support.builders import PASSWORD, Answer, Api, run_sql
from tests.support.connections.proofs import ProvedSignIn, connection_proof
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import NO_TARGET, PasskeyUser
from tests.support.saml.browser import SamlBrowser

POLICIES: Final[Mapping[str, dict[str, Any]]] = {
    "any": {"second_factor": ["everyone"]},
    "an app": {"methods": ["password", "totp"], "second_factor": ["everyone"]},
    "a key": {"methods": ["password", "passkey"], "second_factor": ["everyone"]},
    "a key at high risk": {"methods": ["password", "passkey"], "second_factor": ["high_risk"]},
    "a passkey": {"phishing_resistant": ["everyone"]},
    "a passkey alone": {"methods": ["passkey"]},
}


@dataclass(frozen=True, slots=True)
class Demand:
    """What asks for more than a password: the organization's policy, the application's settings, or a request."""

    policy: Mapping[str, Any] = field(default_factory=dict)
    required_acr: str | None = None
    request: Mapping[str, str] = field(default_factory=dict)

    async def put(self, world: World) -> None:
        await world.put(self.policy)
        await run_sql(world.pool, "update services set required_acr = %s", self.required_acr)


def essential(acr: str) -> dict[str, str]:
    """Return the parameters for a request that requires this acr."""
    claims = {"id_token": {"acr": {"essential": True, "values": [acr]}}}
    return {"scope": "openid", "response_type": "code", "claims": json.dumps(claims)}


def wished(acr: str) -> dict[str, str]:
    """Return the parameters for a request that would like this acr."""
    return {"scope": "openid", "response_type": "code", "acr_values": acr}


DEMANDS: Final[Mapping[str, Demand]] = {
    **{name: Demand(policy=document) for name, document in POLICIES.items()},
    "an application with a second factor": Demand(required_acr="mfa"),
    "an application with passkeys": Demand(required_acr="phr"),
    "an application with passkeys, and a policy": Demand({"second_factor": ["everyone"]}, "phr"),
    "a request for a second factor": Demand(request=essential("mfa")),
    "a request for a passkey": Demand(request=essential("phr")),
    "a wish for a second factor": Demand(request=wished("mfa")),
    "a wish for a passkey": Demand(request=wished("phr")),
}
NO_CODES: Final = "no codes"  # instead of a factor: no backup code is left
ACCOUNTS: Final = (
    set[str](),
    {"app"},
    {"key"},
    {"passkey"},
    {"app", "key"},
    {"app", "passkey"},
    {"key", "passkey"},
    {"app", "key", "passkey", NO_CODES},
)
MARKS: Final = {"passkey": 'data-passkey="get"', "totp": "6-digit code from your authenticator app", "backup_code": " backup code"}


@dataclass(slots=True)
class Person:
    """Ada, who may have an app, a passkey that her sign-ins do not ask for, and a security key as second factor."""

    world: World
    kinds: set[str]
    keys: dict[str, PasskeyUser]
    backup_codes: list[str]

    @classmethod
    async def create(cls, world: World, kinds: set[str]) -> "Person":
        await world.enter(STATES["bare"])
        keys: dict[str, PasskeyUser] = {kind: PasskeyUser(world.api, world.token) for kind in kinds & {"passkey", "key"}}
        codes = list[str]()
        if "passkey" in keys:
            await keys["passkey"].add()
        if "key" in keys:
            codes = (await keys["key"].add_key(second_factor=True))["backup_codes"]
        world.authenticator = await add_mfa(world.ports, world.ada) if "app" in kinds else None
        if NO_CODES in kinds:
            await run_sql(world.pool, "update backup_codes set used_at = now()")
        return cls(world, kinds, keys, list(world.authenticator.backup_codes) if world.authenticator else codes)

    def answers(self, methods: set[str], options: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """Return an answer by every method, and for a ceremony, by every key that it takes."""
        taken = {each["id"] for each in (options or {}).get("allowCredentials", [])}
        credentials = [key.authenticator for key in self.keys.values()] if "passkey" in methods else []
        by_keys = [each.get(dict(options or {})) for each in credentials if taken & {base64url(one.id) for one in each.credentials}]
        codes = []
        if "totp" in methods:
            assert self.world.authenticator is not None, "the account has an app"
            codes.append(self.world.authenticator.code())
        if "backup_code" in methods:
            codes.append(self.backup_codes[-1])
        return [{"credential": each} for each in by_keys] + [{"code": each} for each in codes]

    def names_of_keys(self, options: Mapping[str, Any] | None) -> list[str]:
        """Return the names for the keys that the ceremony takes."""
        taken, names = {each["id"] for each in (options or {}).get("allowCredentials", [])}, {"passkey": "passkey", "key": "security key"}
        own = {kind: {base64url(one.id) for one in user.authenticator.credentials} for kind, user in self.keys.items()}
        return [name for kind, name in names.items() if taken & own.get(kind, set())]

    async def next_time(self) -> None:
        """Let earlier codes be old, and the attempt limits new."""
        self.world.clock.advance(timedelta(minutes=1))
        await run_sql(self.world.pool, "delete from rates")


def read_offer(page: Answer) -> tuple[set[str], dict[str, Any] | None]:
    """Return the second factors that the page offers, and its ceremony's options."""
    main = main_of(page)
    found = re.search(r'data-passkey="get" data-options="([^"]*)"', main)
    return {name for name, mark in MARKS.items() if mark in main}, json.loads(unescape(found[1])) if found else None


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    return await new_world(api, app, ports, pool, clock)


async def show_password(world: World, app: QuartTrio, *, is_high: bool, request: Mapping[str, str] = NO_TARGET) -> Answer:
    """Sign in to Shop with the password, in a new browser, and return the next page."""
    world.browser = SamlBrowser(app, world.clock)
    for _ in range(4 if is_high else 0):
        await run_sql(world.pool, "delete from rates")
        await world.api.login(world.ada.email, "a wrong password")
    page = await world.browser.open(leads_to(await world.authorize(**request)))
    answer = await world.browser.fill(page, email=world.ada.email, password=PASSWORD)
    return await world.browser.open(leads_to(answer))


async def show_with_session(ada: Person, app: QuartTrio, request: Mapping[str, str]) -> Answer:
    """Open Shop with a session that began with the password and the app, if she has an app, and return the page."""
    world = ada.world
    world.browser, world.state = SamlBrowser(app, world.clock), STATES["code used" if "app" in ada.kinds else "bare"]
    await world.open_browser()
    answer = await world.authorize(**request)
    target = answer.headers["Location"]
    return await world.browser.open(target) if FLOW.fullmatch(target) else answer


async def find_refused(ada: Person, app: QuartTrio, demand: Demand, *, is_high: bool) -> list[str]:
    """Take every way that the pages offer. Return the ways after which the user is asked to sign in again."""
    world, request = ada.world, demand.request

    async def show_first() -> Answer:
        return await show_password(world, app, is_high=is_high, request=request)

    await ada.next_time()
    page = await show_first()
    if page.status == 200 and is_step(world.browser.path, "code"):
        refused = await find_refused_seconds(ada, page, show_first, is_high=is_high or bool(request))
    else:
        refused = await find_refused_firsts(ada, page, show_first)
    if not is_high:
        await ada.next_time()
        page = await show_with_session(ada, app, request)
        refused += await find_refused_firsts(ada, page, partial(show_with_session, ada, app, request))
    return refused


async def find_refused_seconds(ada: Person, page: Answer, show: Callable[[], Awaitable[Answer]], *, is_high: bool) -> list[str]:
    """Show every factor that the page after the password offers. `is_high`: the API does not offer the same."""
    world, refused = ada.world, list[str]()
    offered, options = read_offer(page)
    assert offered, "the account asks for a second factor"
    assert f"Use your {' or '.join(ada.names_of_keys(options))}" in main_of(page) or options is None, "it names what the account has"
    if not is_high:
        login = await world.api.post("/api/auth/login", {"email": world.ada.email, "password": PASSWORD, **TO_SHOP})
        assert not login.json.get("mfa_required") or {*login.json["methods"]} == offered, "the API offers the same"
    for number in range(len(ada.answers(offered, options))):
        await ada.next_time()
        page = await show()
        sent = ada.answers(*read_offer(page))[number]
        ada.backup_codes = [code for code in ada.backup_codes if code != sent.get("code")]
        answer = await world.browser.fill(page, **{key: value if key == "code" else json.dumps(value) for key, value in sent.items()})
        outcome = await outcome_of_flow(world, await world.browser.open(leads_to(answer), follows=False))
        refused += [] if outcome in (ALLOWED, ENROLL) else [f"answer {number} of {sorted(offered)}: {outcome}"]
    return refused


async def find_refused_firsts(ada: Person, page: Answer, show: Callable[[], Awaitable[Answer]]) -> list[str]:
    """Use every way that the sign-in page does not fold away, also after a wrong password. Another page leads on."""
    world, refused = ada.world, list[str]()
    if page.status != 200 or not is_step(world.browser.path, "sign-in"):
        asks = is_step(world.browser.path, "consent") or is_step(world.browser.path, "confirm")  # after the sign-in
        outcome = ALLOWED if asks else await outcome_of_flow(world, page)
        return [] if outcome in (ALLOWED, ENROLL) else [f"no page: {outcome}"]
    wrong = await world.browser.fill(page, email=world.ada.email, password="a wrong password")
    shown = offered(page)[0]
    if offered(wrong)[0] != shown:
        refused.append(f"{sorted(offered(wrong)[0])} after a wrong password, {sorted(shown)} before")
    for way in sorted(shown):
        if way == "passkey" and "passkey" not in ada.keys:
            continue  # the page does not know the user
        await ada.next_time()
        page = await show()
        if way == "password":
            answer = await world.browser.fill(page, email=world.ada.email, password=PASSWORD)
        else:
            credential = ada.keys["passkey"].authenticator.get(read_offer(page)[1] or {})
            answer = await world.browser.send(f"{action_of(page)}/passkey", form_token=form_token(page), credential=json.dumps(credential))
        if is_step(leads_to(answer), "code"):
            continue  # the factors that it offers are tried after the password
        outcome = await outcome_of_flow(world, await world.browser.open(leads_to(answer), follows=False))
        refused += [] if outcome in (ALLOWED, ENROLL) else [f"{way} of {sorted(shown)}: {outcome}"]
    return refused


@pytest.mark.slow
@pytest.mark.parametrize("kinds", ACCOUNTS, ids=lambda kinds: " ".join(sorted(kinds)) or "password")
async def test_each_way_that_a_page_offers_leads_to_the_application(world: World, app: QuartTrio, kinds: set[str]) -> None:
    """Or to the page that sets up another factor, if the account has none that is accepted. No step comes twice."""
    ada, refused = await Person.create(world, kinds), dict[str, list[str]]()
    for name, demand in DEMANDS.items():
        await demand.put(world)
        refused[name] = await find_refused(ada, app, demand, is_high="risk" in name)
    assert not (found := {name: ways for name, ways in refused.items() if ways}), found


KEPT: Final = "These ways don't replace your passkey."


@pytest.mark.parametrize(
    ("kinds", "acr", "sentence", "first", "other"),
    [
        ({"passkey"}, "mfa", "a second factor. Sign in with your passkey.", "Sign in", KEPT),
        ({"passkey"}, "phr", "a passkey. Sign in with your passkey.", "Sign in", KEPT),
        (set(), "phr", "a passkey. Create one in your account, and then sign in here with it.", "Create a passkey", "another account"),
        (set(), "mfa", "a second factor. Set one up in your account, and then sign in here with it.", "Set up", "another account"),
    ],
    ids=["passkey, mfa", "passkey, phr", "password, phr", "password, mfa"],
)
async def test_the_page_names_what_helps_this_account(
    world: World, app: QuartTrio, kinds: set[str], acr: str, sentence: str, first: str, other: str
) -> None:
    ada = await Person.create(world, kinds)
    await Demand(required_acr=acr).put(world)
    shown, _, folded = main_of(await show_with_session(ada, app, {})).partition("<details")
    assert f"Shop requires {sentence}" in shown
    assert re.findall('class="button[^>]*>([^<]*)<', shown)[0].startswith(first), "it is the next step"
    assert "<summary>Sign in as another user</summary>" in folded
    assert other in folded
    assert "in your account</a> first" not in folded


# Before the second factor, the page does not know the user's policies.
AFTER_PASSWORD: Final = "Otherwise, only a recovery replaces it: ask an admin of your organization, or the operator of this site."
RECOVERY: Final = "Only a recovery replaces it: ask an admin of your organization, or the operator of this site."
LOST: Final = "/app/account/passkeys/lost"
ON_THE_SERVER: Final = "<code>gatehouse owner recover --reset-factors</code>"


@pytest.mark.slow
@pytest.mark.parametrize("is_owner", [False, True], ids=["user", "platform owner"])
@pytest.mark.parametrize("kinds", [{"passkey"}, {"app", "passkey"}], ids=lambda kinds: " ".join(sorted(kinds)))
async def test_where_only_a_passkey_helps_each_page_names_the_way_for_a_lost_one(
    world: World, app: QuartTrio, kinds: set[str], is_owner: bool
) -> None:
    """Also if the session began with all other factors. No page then promises that another way sets a passkey up."""
    ada, missing = await Person.create(world, kinds), list[str]()
    await run_sql(world.pool, "update users set is_platform_owner = %s where id = %s", is_owner, world.ada.id)
    for name in ("a passkey", "a passkey alone", "an application with passkeys"):
        await world.put(POLICIES.get(name, {}))
        await run_sql(world.pool, "update services set required_acr = %s", None if name in POLICIES else "phr")
        await ada.next_time()
        after_password = await show_password(world, app, is_high=False)
        await world.open_browser()
        with_session = await world.browser.open(leads_to(await world.authorize()))
        refused = await world.browser.fill(with_session, email=world.ada.email, password="a wrong password")
        pages = {"after the password": after_password, "with a session": with_session, "after a wrong password": refused}
        if is_code := "app" in kinds:
            source = "Acme" if name == "a passkey" else "Shop"
            assert name == "a passkey alone" or f"{source} requires a passkey. Use your passkey." in main_of(after_password)
        if name in POLICIES:
            pages["confirmation"] = await world.browser.open("/app/reauthenticate?policy=acme/shop&next=/app")
        for where, page in pages.items():
            expected = AFTER_PASSWORD if is_code and where == "after the password" else ON_THE_SERVER if is_owner else RECOVERY
            if expected not in main_of(page) or "Use one of them" in main_of(page) or 'data-passkey="get"' not in main_of(page):
                missing.append(f"{name}, {where}")
    assert not missing, missing


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "is_user"),
    [({"passkey"}, False), ({"passkey"}, True), ({"app", "passkey"}, True)],
    ids=["passkey, another user", "passkey, with a fresh one", "app passkey, with a fresh one"],
)
async def test_no_page_names_a_recovery_where_the_account_can_replace_a_passkey(
    world: World, app: QuartTrio, kinds: set[str], is_user: bool
) -> None:
    """By a wait, without a second factor (security PK-13), or with a fresh passkey (security PK-12).

    If anyone may use an application, its policy counts only for the factors of its users.
    """
    ada, wrong = await Person.create(world, kinds), list[str]()
    if not is_user:
        await run_sql(world.pool, "update services set access_policy = 'anyone'")
        for statement in ("delete from memberships", "delete from service_users", "delete from end_users"):
            await run_sql(world.pool, statement)
    for name in ("a passkey", "a passkey alone", "an application with passkeys"):
        await world.put(POLICIES.get(name, {}))
        await run_sql(world.pool, "update services set required_acr = %s", None if name in POLICIES else "phr")
        await ada.next_time()
        pages = {} if is_user else {"after the password": await show_password(world, app, is_high=False)}
        world.state = STATES["passkey used" if is_user else "bare"]
        await world.open_browser()
        pages["with a session"] = await world.browser.open(leads_to(await world.authorize(**({"prompt": "login"} if is_user else {}))))
        page = pages["with a session"]
        pages["after a wrong password"] = await world.browser.fill(page, email=world.ada.email, password="a wrong password")
        if name in POLICIES and not is_user:
            pages["confirmation"] = await world.browser.open("/app/reauthenticate?policy=acme/shop&next=/app")
        path = "/app/account/passkeys/new" if is_user else LOST
        assert (await world.browser.open(path)).status == 200, "she can replace it"
        for where, page in pages.items():
            text = main_of(page).replace(AFTER_PASSWORD, "")
            is_missing = 'data-passkey="get"' not in text or not (is_user or LOST in text or "/app/account/security" in text)
            if is_missing or re.search("[Rr]ecover|don't replace", text):
                wrong.append(f"{name}, {where}")
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("kinds", "asks_for"),
    [({"app", "passkey"}, "Use your passkey."), ({"app"}, None)],
    ids=["with a passkey", "without one"],
)
async def test_the_pages_say_that_an_app_is_not_accepted(world: World, app: QuartTrio, kinds: set[str], asks_for: str | None) -> None:
    """Without an accepted factor, the app leads to the page that sets up a factor."""
    ada, sentence = await Person.create(world, kinds), "Acme requires a second factor: a passkey or security key."
    await world.put(POLICIES["a key"])
    await ada.next_time()
    page = await show_password(world, app, is_high=False)
    if asks_for is not None:
        assert f"<p>{sentence} {asks_for}</p>" in main_of(page)
        return
    answer = await world.browser.fill(page, **ada.answers(*read_offer(page))[0])
    enroll = await world.browser.open(leads_to(await world.browser.open(leads_to(answer), follows=False)))
    assert sentence in main_of(enroll)


@pytest.mark.slow
async def test_after_a_sign_in_at_a_connection_the_factors_are_enough_at_its_risk(world: World, app: QuartTrio) -> None:
    """The risk there is high after wrong passwords. A later right attempt has no part in the connection's history."""
    assert (await world.api.login(world.ada.email, PASSWORD)).status == 200
    ada = await Person.create(world, {"app", "passkey"})
    await world.put({"phishing_resistant": ["high_risk"]})
    for _ in range(4):
        await world.api.login(world.ada.email, "a wrong password")
    await run_sql(world.pool, "update login_events set created_at = created_at + interval '30 seconds' where success")
    await ada.next_time()
    world.browser = SamlBrowser(app, world.clock)
    begun = leads_to(await world.authorize())
    cookie = world.browser.cookies["gatehouse-device"]
    flow = await flows.load_open(world.ports, UUID(begun.split("/")[3]), cookie)
    proved = ProvedSignIn(world.ada, connection_proof(world.org, world.clock.now()))
    assert isinstance(await sign_in_browser(world.ports, Anonymous(), flow, proved, None, PresentedDevice(cookie)), Flow)
    page = await world.browser.open(f"/app/flow/{flow.id}")
    offered, options = read_offer(page)
    assert offered == {"passkey"}
    answer = await world.browser.fill(page, credential=json.dumps(ada.answers(offered, options)[0]["credential"]))
    assert await outcome_of_flow(world, await world.browser.open(leads_to(answer), follows=False)) == ALLOWED
    assert await run_sql(world.pool, "select risk_is_high from sessions order by created_at desc limit 1") == [(True,)]


async def test_a_page_counts_no_decision(world: World, app: QuartTrio) -> None:
    """The metric has the decisions about sign-ins, not about what a page offers."""
    await Person.create(world, {"app", "key"})
    await world.put(POLICIES["a key"])
    metrics = world.ports.metrics
    assert isinstance(metrics, FakeMetrics)
    metrics.policy_decisions.clear()
    await show_password(world, app, is_high=False)
    assert {path: count for (path, _), count in metrics.policy_decisions.items()} == {PolicyPath.SIGN_IN: 1}
