"""A sign-in's high risk belongs to its session, and a second factor answers it."""

from datetime import timedelta
from typing import Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow.model import FlowTarget, new_flow
from core.federation.sign_in import BrowserSignIn, sign_in_browser
from core.kernel.causes import Anonymous
from core.kernel.proofs import first_proof
from core.kernel.values import digest, new_secret
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.test_paths import PATHS
from tests.proof.policy.world import ALLOWED, ENROLL, STATES, STEP_UP, World, new_world, outcome_of
from tests.support.browser import main_of
from tests.support.builders import BASE_URL, PASSWORD, Answer, Api, run_sql
from tests.support.connections.proofs import ProvedSignIn, connection_proof
from tests.support.mfa import add_mfa
from tests.support.saml import posted_response
from tests.support.saml.browser import sign_in_over_api

IS_HIGH: Final = "update sessions set risk_is_high = true"
NEW_SIGN_INS: Final = ("password", "passkey")


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    return await new_world(api, app, ports, pool, clock)


async def guess(world: World, times: int = 4) -> None:
    for _ in range(times):
        assert (await world.api.login(world.ada.email, "wrong password")).status == 401


async def opens(world: World, token: str) -> str:
    return outcome_of(await world.api.get("/api/organizations/acme/members", token=token))


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
async def test_every_path_asks_for_the_second_factor_in_a_session_of_a_high_risk(world: World, state: str) -> None:
    """The device's risk is low since."""
    paths = {name: path for name, path in PATHS.items() if state not in path.skips}
    await world.enter(STATES[state])
    prepared = {name: await path.prepare(world) for name, path in paths.items()}
    await run_sql(world.pool, IS_HIGH)
    await run_sql(world.pool, "update devices set risk_score = 0")
    await world.put({"second_factor": ["high_risk"]})
    outcomes = {name: await path.walk(world, prepared[name]) for name, path in paths.items()}
    assert outcomes == {name: ALLOWED if name in NEW_SIGN_INS else path.result("second factor", state) for name, path in paths.items()}


async def test_a_session_keeps_the_risk_of_its_sign_in_whatever_its_device_has(world: World) -> None:
    await world.put({"second_factor": ["high_risk"]})
    token = (await world.api.login(world.ada.email, PASSWORD)).json["access_token"]
    assert await opens(world, token) == ALLOWED
    for high, score, outcome in ((False, 71, ALLOWED), (True, 70, ENROLL)):
        await run_sql(world.pool, "update sessions set risk_is_high = %s", high)
        await run_sql(world.pool, "update devices set risk_score = %s", score)
        await run_sql(world.pool, "delete from policy_passes")
        assert await opens(world, token) == outcome, (high, score)


async def test_what_begins_in_a_session_of_a_high_risk_has_this_risk(world: World) -> None:
    await world.enter(STATES["bare"])
    names = ("code", "device", "creation of a personal token")
    prepared = {name: await PATHS[name].prepare(world) for name in names}
    earlier = [id_ for (id_,) in await run_sql(world.pool, "select id from sessions")]
    await run_sql(world.pool, IS_HIGH)
    assert {name: await PATHS[name].walk(world, prepared[name]) for name in names} == dict.fromkeys(names, ALLOWED)
    begun = await run_sql(
        world.pool,
        """
        select grant_type, personal_token, risk_is_high from sessions
        where id <> all(%s) order by grant_type""",
        earlier,
    )
    assert begun == [("authorization_code", False, True), ("device_code", False, True), (None, True, True)]


async def test_the_browser_session_of_an_api_sign_in_has_its_risk(world: World) -> None:
    await guess(world)
    answer = await sign_in_over_api(world.api, await world.browser.start_sign_on(world.application))
    await run_sql(world.pool, "update devices set risk_score = 0")
    assert "Success" in posted_response(await world.browser.open(answer.json["redirect_url"].removeprefix(BASE_URL))).statuses
    sessions = "select browser_hash is not null, risk_is_high from sessions order by 1"
    assert await run_sql(world.pool, sessions) == [(False, True), (True, True)]


@pytest.mark.parametrize("device", [{"X-Device-Id": "a device id of 22 letters"}, {}], ids=["with an id", "without"])
@pytest.mark.parametrize("wrong", [3, 4])
async def test_the_same_password_again_does_not_lower_a_high_risk(world: World, device: dict[str, str], wrong: int) -> None:
    """The second factor does, or a day without failures."""
    await world.put({"second_factor": ["high_risk"]})
    await guess(world, wrong)

    async def sign_in(**target: str) -> Answer:
        body = {"email": world.ada.email, "password": PASSWORD, **target}
        return await world.api.post("/api/auth/login", body, headers=device)

    sessions = [await sign_in() for _ in range(3)]
    assert [await opens(world, session.json["access_token"]) for session in sessions] == [ENROLL] * 3
    assert outcome_of(await sign_in(org_slug="acme", service_slug="shop")) == ENROLL
    assert await run_sql(world.pool, "select distinct risk_score from login_events where success") == [(min(100, 30 + 20 * wrong),)]
    world.clock.advance(timedelta(days=1))
    assert await opens(world, (await sign_in()).json["access_token"]) == ALLOWED


async def test_a_second_factor_ends_a_high_risk(world: World) -> None:
    authenticator = await add_mfa(world.ports, world.ada)
    await world.put({"second_factor": ["high_risk"]})
    await guess(world)
    for step in (0, 1):
        begun = (await world.api.login(world.ada.email, PASSWORD)).json
        verified = await world.api.post("/api/auth/mfa/verify", {"code": authenticator.code(step)}, token=begun["access_token"])
        assert verified.status == 200, verified.text
    scores = "select risk_score from login_events where success order by created_at, id"
    assert sorted(await run_sql(world.pool, scores)) == [(0,), (100,)]


async def test_a_session_keeps_a_high_risk_until_its_own_second_factor(world: World) -> None:
    """A later sign-in on the same device has a low risk."""
    device = {"X-Device-Id": "a device id of 22 letters"}
    await world.put({"second_factor": ["high_risk"]})
    await guess(world)

    async def sign_in() -> str:
        answer = await world.api.post("/api/auth/login", {"email": world.ada.email, "password": PASSWORD}, headers=device)
        return str(answer.json["access_token"])

    first = await sign_in()
    assert await opens(world, first) == ENROLL
    authenticator = await add_mfa(world.ports, world.ada)
    for step in (0, 1):
        verified = await world.api.post("/api/auth/mfa/verify", {"code": authenticator.code(step)}, token=await sign_in(), headers=device)
        assert await opens(world, verified.json["access_token"]) == ALLOWED
    assert await run_sql(world.pool, "select risk_score from devices where client_hash is not null") == [(0,)]
    assert await run_sql(world.pool, "select risk_is_high, count(*) from sessions group by 1 order by 1") == [(False, 1), (True, 2)]
    assert await opens(world, first) == STEP_UP
    world.clock.advance(timedelta(minutes=1))
    proof = {"password": PASSWORD, "code": authenticator.code(0)}
    again = await world.api.post("/api/auth/reauthenticate", proof, token=first)
    assert again.status == 200, again.text
    assert await opens(world, first) == ALLOWED


@pytest.mark.parametrize("method", ["password", "email", "codehost", "connection"])
async def test_no_first_factor_lowers_a_high_risk(world: World, method: str) -> None:
    """All first factors, sent again from the same browser, have the same risk."""
    await guess(world)
    cookie, client = None, PresentedDevice(device_id="a device id of 22 letters")
    for _ in range(2):
        now = world.clock.now()
        proof = connection_proof(world.org, now) if method == "connection" else first_proof(method, now)
        flow = new_flow(now, FlowTarget.PAGE, "/app", digest(new_secret()))
        outcome = await sign_in_browser(world.ports, Anonymous(), flow, ProvedSignIn(world.ada, proof), cookie, client)
        assert isinstance(outcome, BrowserSignIn), "the account has no second factor"
        cookie = outcome.cookie
        world.clock.advance(timedelta(minutes=1))
    assert await run_sql(world.pool, "select risk_is_high from sessions") == [(True,), (True,)]


@pytest.mark.parametrize("is_high", [False, True], ids=["usual", "unusual"])
async def test_pages_and_answers_say_that_a_sign_in_is_unusual(world: World, is_high: bool) -> None:
    """Only if the rule asks for nothing in usual sign-ins."""
    await world.enter(STATES["bare"])
    await run_sql(world.pool, "update sessions set risk_is_high = %s", is_high)
    await world.put({"second_factor": ["high_risk"] if is_high else ["everyone"]})
    sentence = "This sign-in is unusual. Acme requires a second factor." if is_high else "Acme requires a second factor."
    answer = await world.api.get("/api/organizations/acme/members", token=world.token)
    assert answer.json["error"] == f"{sentence} Set it up, and sign in again."
    page = await world.browser.open("/app/enroll?org=acme")
    assert f"<p>{sentence} Set it up now." in main_of(page)
