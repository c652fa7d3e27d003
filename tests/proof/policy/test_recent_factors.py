"""A second factor from the last 10 minutes is not asked again in the browser with the live session (security A-12)."""

from datetime import timedelta
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.proofs import Method, Proof, first_proof
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.test_flows import code_of
from tests.proof.policy.world import ALLOWED, STATES, STEP_UP, World, new_world, outcome_of
from tests.support.browser import form_token, is_step, leads_to
from tests.support.builders import PASSWORD, Api, add_account, run_sql
from tests.support.connections.proofs import connection_proof, write_proofs
from tests.support.mfa import add_mfa

SECOND_FACTOR: Final[dict[str, Any]] = {"second_factor": ["everyone"]}
IDLE: Final = {**SECOND_FACTOR, "session_idle_minutes": 5}
REAUTHENTICATE: Final = "/api/auth/reauthenticate"
MEMBERS: Final = "/api/organizations/acme/members"
FRESH: Final = "/api/user/personal-tokens"
TOKEN: Final = {"name": "Nightly", "scopes": ["account:read"], "expires_in_days": 30}


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    """Ada has signed in with her password and a code just now."""
    world = await new_world(api, app, ports, pool, clock)
    await world.enter(STATES["code used"])
    return world


async def sign_in(world: World, user: Account | None = None, **request: str) -> str:
    """Sign in with the password for the application, for which the session is too old. Return the next page's address."""
    page = await world.browser.open(leads_to(await world.authorize(**request)))
    return leads_to(await world.browser.fill(page, email=(user or world.ada).email, password=PASSWORD))


async def methods(world: World) -> list[str]:
    """Return the methods of the proofs in the browser's session."""
    sql = """
        select p ->> 'method' from sessions s, jsonb_array_elements(s.proofs) with ordinality as e(p, number)
        where s.ended_at is null and s.browser_hash is not null order by number"""
    return [method for (method,) in await run_sql(world.pool, sql)]


@pytest.mark.parametrize(("minutes", "asks"), [(9, False), (11, True)])
async def test_a_new_sign_in_in_the_browser_keeps_a_recent_second_factor(world: World, minutes: int, *, asks: bool) -> None:
    await world.put(IDLE)
    world.clock.advance(timedelta(minutes=minutes))
    target = await sign_in(world)
    assert is_step(target, "code") is asks
    if not asks:
        assert (await world.exchange(code_of(await world.browser.open(target, follows=False)))).status == 200
        assert await methods(world) == ["password", "totp"]
        world.clock.advance(timedelta(minutes=6))
        assert is_step(await sign_in(world), "code"), "the kept one is no newer"


async def test_two_applications_with_different_methods_ask_for_each_of_them_once(world: World) -> None:
    """A sign-in keeps the first factors from the last minutes, as a confirmation does."""
    await write_proofs(world.pool, world.ada.id, (first_proof("email", world.clock.now()), Proof(Method.TOTP, world.clock.now())))
    await world.put({"methods": ["password", "totp"], **SECOND_FACTOR}, service=world.service)
    await world.put({"methods": ["email", "password", "totp"], **SECOND_FACTOR})
    world.clock.advance(timedelta(minutes=1))
    page = await world.browser.open(leads_to(await world.authorize()))
    target = leads_to(await world.browser.fill(page, email=world.ada.email, password=PASSWORD))
    code_of(await world.browser.open(target, follows=False))
    assert await methods(world) == ["email", "password", "totp"]
    await world.put({"methods": ["email", "totp"], **SECOND_FACTOR}, service=world.service)
    code_of(await world.authorize(prompt="none"))


async def test_only_the_live_session_of_the_same_user_counts(world: World, ports: Ports) -> None:
    eve = await add_account(ports, "eve@example.com")
    await add_mfa(ports, eve)
    await world.put(IDLE)
    world.clock.advance(timedelta(minutes=6))
    assert is_step(await sign_in(world, eve), "code"), "another user"
    await world.open_browser()
    await run_sql(world.pool, "update sessions set mfa_missing = true")
    assert is_step(await sign_in(world), "code"), "the session itself lacks a factor"
    await world.open_browser()
    cookie = world.browser.cookies["gatehouse-session"]
    token = form_token(await world.browser.open("/app/account"))
    await world.browser.send("/app/sign-out", form_token=token)
    world.browser.cookies["gatehouse-session"] = cookie
    page = await world.browser.open(leads_to(await world.authorize()))
    target = leads_to(await world.browser.fill(page, email=world.ada.email, password=PASSWORD))
    assert is_step(target, "code"), "the session has ended"


@pytest.mark.parametrize(
    ("document", "settings", "request_"),
    [
        ({**IDLE, "methods": ["password", "passkey"]}, None, {}),
        (IDLE, "mfa", {}),
        (IDLE, None, {"prompt": "login"}),
        (IDLE, None, {"max_age": "60"}),
    ],
    ids=["a policy accepts other ones", "the application requires it", "a sign-in", "a newer sign-in"],
)
async def test_the_second_factor_is_asked_for_where_the_recent_one_is_not_enough(
    world: World, document: dict[str, Any], settings: str | None, request_: dict[str, str]
) -> None:
    """Requests that ask for more than a session, and applications that require a second factor, get a new second factor."""
    await run_sql(world.pool, "update users set passkey_count = 1, passkey_second_at = now() where id = %s", world.ada.id)
    await run_sql(world.pool, "update services set required_acr = %s", settings)
    await world.put(document)
    world.clock.advance(timedelta(minutes=6))
    assert is_step(await sign_in(world, world.ada, **request_), "code")


@pytest.mark.parametrize("first", ["connection", "password"])
async def test_a_silent_sign_in_keeps_the_recent_second_factor(world: World, first: str) -> None:
    """Neither a provider nor a connection asks for it, and with it, the application opens as before."""
    now = world.clock.now()
    own = connection_proof(world.org, now) if first == "connection" else first_proof(first, now)
    await write_proofs(world.pool, world.ada.id, (own, Proof(Method.TOTP, now)))
    await world.put(SECOND_FACTOR)
    world.clock.advance(timedelta(minutes=4))
    await world.sign_in_silently()
    assert {first, "connection", "totp"} <= {*await methods(world)}
    code_of(await world.authorize(prompt="none"))


@pytest.mark.parametrize(("minutes", "asks"), [(9, False), (11, True)])
async def test_a_passkey_of_the_last_minutes_is_the_second_factor_beside_a_new_password(world: World, minutes: int, *, asks: bool) -> None:
    passkey = Proof(Method.PASSKEY, world.clock.now(), user_verified=True, phishing_resistant=True)
    await write_proofs(world.pool, world.ada.id, (passkey,))
    await world.put(IDLE)
    world.clock.advance(timedelta(minutes=minutes))
    assert outcome_of(await world.api.get(MEMBERS, token=world.token)) == STEP_UP
    assert (await world.api.get(REAUTHENTICATE, token=world.token)).json["needs_second_factor"] is asks
    assert (await world.api.post(REAUTHENTICATE, {"password": PASSWORD}, token=world.token)).status == (401 if asks else 200)
    assert outcome_of(await world.api.get(MEMBERS, token=world.token)) == (STEP_UP if asks else ALLOWED)
    assert is_step(await sign_in(world), "code") is asks


async def test_each_factor_of_a_fresh_sign_in_is_fresh(world: World) -> None:
    """A second factor that is not asked again makes no sign-in fresh for longer."""
    assert world.authenticator is not None
    world.clock.advance(timedelta(minutes=9))
    renewed = await world.api.post(REAUTHENTICATE, {"password": PASSWORD}, token=world.token)
    assert (renewed.status, renewed.json["authenticated_at"] < renewed.json["fresh_until"]) == (200, True)
    assert (await world.api.post(FRESH, TOKEN, token=world.token)).status == 200
    world.clock.advance(timedelta(minutes=2))
    assert (await world.api.post(FRESH, TOKEN, token=world.token)).status == 401, "the code is 11 minutes old"
    options = (await world.api.get(REAUTHENTICATE, token=world.token)).json
    assert (options["needs_first_factor"], options["needs_second_factor"]) == (False, True)
    code = {"code": world.authenticator.code(1)}
    assert (await world.api.post(REAUTHENTICATE, code, token=world.token)).status == 200
    assert (await world.api.post(FRESH, TOKEN, token=world.token)).status == 200
