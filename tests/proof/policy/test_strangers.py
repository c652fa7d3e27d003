"""The access decision comes before the sign-in policy: users without access to an application learn nothing about its rules."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.test_flows import DUE
from tests.proof.policy.world import STATES, World, new_world
from tests.support.browser import FLOW, form_token, leads_to, main_of
from tests.support.builders import PASSWORD, Answer, Api, run_sql
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PasskeyUser, sign_in_with_passkey
from tests.support.saml import posted_response
from tests.support.saml.browser import SamlBrowser

NONE: Final = "no rules"
RULES: Final[Mapping[str, Mapping[str, Any]]] = {
    NONE: {},
    "second factor": {"second_factor": ["everyone"]},
    "phishing-resistant": {"phishing_resistant": ["everyone"]},
    "another provider": {"methods": ["provider:websuite"]},
    "lifetime": {"session_lifetime_minutes": 1},
    "later": DUE,
}
# Texts that tell about a rule: the explanations by `explain`, refusal members, and the page that sets a factor up
TELLING: Final = re.compile(
    r"Acme(?:</bdi>)? (?:requires|accepts|asks)|You have not used"
    r"|enrolment|\"rule\"|/app/enroll|unmet_authentication|NoAuthnContext"
)
ENROLL: Final = "/app/enroll"
TARGET: Final = {"org_slug": "acme", "service_slug": "shop"}


@dataclass(frozen=True, slots=True)
class Prepared:
    """The codes and tokens that Ada got while she had access."""

    code: str
    refresh_token: str
    device: Any  # codes that she approved
    authenticator: Any  # with her passkey


@dataclass(frozen=True, slots=True)
class SeenAnswer:
    """The parts in an answer that its reader sees."""

    status: int
    location: str
    title: str | None
    saml: tuple[str, ...]
    of_rules: tuple[str, ...]  # texts that tell about a rule


async def _prepare(world: World, authenticator: Any) -> Prepared:
    device = (await world.send("/auth/device/code", with_secret=False)).json
    approved = await world.api.post("/auth/device/verify", {"user_code": device["user_code"], "action": "approve"}, token=world.token)
    assert approved.status == 200, approved.text
    refresh_token = (await world.exchange(await world.code())).json["refresh_token"]
    return Prepared(await world.code(), refresh_token, device, authenticator)


async def _follow(world: World, answer: Answer) -> Answer:
    """Follow a flow up to its page, or to an answer that leads elsewhere."""
    while FLOW.fullmatch(target := answer.headers.get("Location", "")):
        answer = await world.browser.open(target, follows=False)
    return answer


async def _authorize(world: World, **fields: str) -> Answer:
    return await _follow(world, await world.authorize(**fields))


async def _sign_on(world: World, **fields: str) -> Answer:
    path = await world.browser.start_sign_on(world.application, **fields)
    return await _follow(world, await world.browser.open(path, follows=False))


async def _verify_device(world: World) -> Answer:
    codes = (await world.send("/auth/device/code", with_secret=False)).json
    return await world.api.post("/auth/device/verify", {"user_code": codes["user_code"], "action": "approve"}, token=world.token)


async def _postpone(world: World) -> Answer:
    token = form_token(await world.browser.open("/app/account/security"))
    return await world.browser.send(ENROLL, form_token=token, org="acme", service="shop", next="/app/account")


async def _exchange_device(world: World, codes: Any) -> Answer:
    grant = "urn:ietf:params:oauth:grant-type:device_code"
    return await world.send("/auth/token", with_secret=False, grant_type=grant, device_code=codes["device_code"])


JSON: Final = {"Accept": "application/json"}
REQUESTS: Final[Mapping[str, Callable[[World, Prepared], Awaitable[Answer]]]] = {
    "password": lambda world, _: world.api.post("/api/auth/login", {"email": world.ada.email, "password": PASSWORD, **TARGET}),
    "passkey": lambda world, had: sign_in_with_passkey(world.api, had.authenticator, TARGET),
    "authorization": lambda world, _: _authorize(world),
    "silent authorization": lambda world, _: _authorize(world, prompt="none"),
    "authorization with a new sign-in": lambda world, _: _authorize(world, prompt="login"),
    "SAML": lambda world, _: _sign_on(world),
    "passive SAML": lambda world, _: _sign_on(world, IsPassive="true"),
    "SAML with a new sign-in": lambda world, _: _sign_on(world, ForceAuthn="true"),
    "SAML without a request": lambda world, _: world.browser.open(f"{world.application.management}/login", follows=False),
    "SAML over the API": lambda world, _: world.api.get(f"{world.application.management}/login", token=world.token, headers=JSON),
    "approval of a device": lambda world, _: _verify_device(world),
    "code": lambda world, had: world.exchange(had.code),
    "device": lambda world, had: _exchange_device(world, had.device),
    "refresh": lambda world, had: world.send("/auth/token", grant_type="refresh_token", refresh_token=had.refresh_token),
    "page of enrollment": lambda world, _: world.browser.open(f"{ENROLL}?org=acme&service=shop&next=/app/account", follows=False),
    "enrollment later": lambda world, _: _postpone(world),
    "reauthentication": lambda world, _: world.browser.open("/app/reauthenticate?policy=acme/shop&next=/app/account", follows=False),
}


def _seen(answer: Answer) -> SeenAnswer:
    """Return the parts of an answer that its reader sees, without values that are new every time."""
    title = re.search("<h1>(.*?)</h1>", answer.text)
    location = answer.headers.get("Location", "")
    return SeenAnswer(
        status=answer.status,
        location=re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "id", location),
        title=title[1] if title else None,
        saml=tuple(posted_response(answer).statuses) if 'name="SAMLResponse"' in answer.text else (),
        of_rules=tuple(TELLING.findall(answer.text + location)),
    )


async def _take_access(world: World, access_policy: str) -> None:
    """Make Ada a stranger at Shop, which has this access policy."""
    await run_sql(world.pool, "update services set access_policy = %s", access_policy)
    for statement in ("delete from memberships", "delete from service_users", "delete from end_users"):
        await run_sql(world.pool, statement)


@pytest.mark.slow
async def test_users_without_access_get_the_answers_of_an_application_without_a_policy(
    api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    """Shop is private, and Ada has lost her access to it."""
    world = await new_world(api, app, ports, pool, clock)
    await world.enter(STATES["bare"])
    passkey = PasskeyUser(world.api, world.token)
    await passkey.add()
    had = {rule: await _prepare(world, passkey.authenticator) for rule in RULES}
    await _take_access(world, "assigned")
    clock.advance(timedelta(minutes=5))
    answers = dict[str, dict[str, SeenAnswer]]()
    for rule, document in RULES.items():
        await world.put(document)
        answers[rule] = {name: _seen(await request(world, had[rule])) for name, request in REQUESTS.items()}
    without = answers.pop(NONE)
    assert not [name for name, told in without.items() if told.of_rules]
    differences = {
        (rule, name): (told, without[name]) for rule, of_rule in answers.items() for name, told in of_rule.items() if told != without[name]
    }
    assert not differences


@pytest.mark.slow
@pytest.mark.parametrize(("is_sign_on", "access_policy"), [(False, "assigned"), (True, "assigned"), (True, "anyone")])
async def test_the_page_for_the_second_factor_says_nothing_to_users_without_access(
    api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, is_sign_on: bool, access_policy: str
) -> None:
    """SAML admits no strangers where anyone may use the application."""
    world, seen = await new_world(api, app, ports, pool, clock), dict[bool, str]()
    await world.enter(STATES["bare"])
    await PasskeyUser(world.api, world.token).add_key(second_factor=True)
    await add_mfa(ports, world.ada)
    for has_access in (True, False):
        await world.put({"methods": ["password", "passkey"], "second_factor": ["everyone"]})
        if not has_access:
            await _take_access(world, access_policy)
        clock.advance(timedelta(minutes=1))
        world.browser = SamlBrowser(app, clock)
        begun = await world.sign_on() if is_sign_on else await world.authorize()
        answer = await world.browser.fill(await world.browser.open(leads_to(begun)), email=world.ada.email, password=PASSWORD)
        seen[has_access] = main_of(await world.browser.open(leads_to(answer)))
    assert ["Acme requires" in seen[has_access] for has_access in (True, False)] == [True, False]
    assert ["your authenticator app" in seen[has_access] for has_access in (True, False)] == [False, True]


async def test_users_without_access_are_offered_a_passkey_whatever_the_policy_asks_for(
    api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    world, offers = await new_world(api, app, ports, pool, clock), list[bool]()
    await _take_access(world, "assigned")
    for document in ({}, {"second_factor": ["everyone"]}):
        await world.put(document)
        world.browser = SamlBrowser(app, clock)
        page = await world.browser.open(leads_to(await world.authorize()))
        after = leads_to(await world.browser.fill(page, email=world.ada.email, password=PASSWORD, can_passkey="yes"))
        offers.append(after.startswith("/app/passkey"))
    assert offers == [True, True]
