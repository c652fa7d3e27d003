"""The ways that an application's sign-in offers to a session which began at a connection of its organization (security A-12)."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.proofs import Proofs
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.world import ALLOWED, STATES, World, new_world, outcome_of_flow, outcome_of_page
from tests.support.browser import form_token, hidden_fields, leads_to, main_of
from tests.support.builders import Answer, Api
from tests.support.connections import add_connection
from tests.support.connections.proofs import connection_proof, write_proofs

RULES: Final[dict[str, dict[str, Any]]] = {
    "second factor": {"second_factor": ["everyone"]},
    "lifetime": {"session_lifetime_minutes": 30},
    "idle time": {"session_idle_minutes": 30},
}
AGAIN: Final = "Sign in again through"
CODE: Final = "Code from your authenticator app"


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    return await new_world(api, app, ports, pool, clock)


async def enter(world: World, *, has_app: bool) -> Proofs:
    """Let Ada sign in at Acme's connection, half an hour and a minute ago, and return a newer sign-in there."""
    connection = await add_connection(world.ports.storage, world.org)
    await world.enter(STATES["code left out" if has_app else "bare"])
    await write_proofs(world.pool, world.ada.id, (connection_proof(world.org, world.clock.now(), connection=connection.id),))
    world.clock.advance(timedelta(minutes=31))
    return (connection_proof(world.org, world.clock.now(), connection=connection.id),)


async def begin_device(world: World) -> Answer:
    """Approve a device in the browser."""
    codes = (await world.send("/auth/device/code", with_secret=False)).json
    page = await world.browser.open("/auth/device/verify")
    fields = {"form_token": form_token(page), "user_code": codes["user_code"], "action": "approve"}
    return await world.browser.send("/auth/device/verify", **fields)


BEGIN: Final[Mapping[str, Callable[[World], Awaitable[Answer]]]] = {
    "OpenID Connect": World.authorize,
    "SAML": World.sign_on,
    "device": begin_device,
}


async def follow(world: World, answer: Answer) -> Answer:
    """Follow the redirects to our own pages."""
    while answer.headers.get("Location", "").startswith("/app/"):
        answer = await world.browser.open(leads_to(answer), follows=False)
    return answer


async def is_allowed(world: World, answer: Answer, protocol: str) -> bool:
    """Return whether the application opens, or the device is approved."""
    return (outcome_of_page(answer) if protocol == "device" else await outcome_of_flow(world, answer)) == ALLOWED


@pytest.mark.parametrize("protocol", BEGIN)
@pytest.mark.parametrize("has_app", [True, False], ids=["with an app", "without a factor"])
@pytest.mark.parametrize("rule", ["lifetime", "idle time"])
async def test_a_session_that_is_too_old_is_led_to_its_connection(world: World, protocol: str, rule: str, *, has_app: bool) -> None:
    newer = await enter(world, has_app=has_app)
    await world.put(RULES[rule])
    page = await follow(world, await BEGIN[protocol](world))
    assert AGAIN in main_of(page)
    await write_proofs(world.pool, world.ada.id, newer)
    assert await is_allowed(world, await BEGIN[protocol](world), protocol)


@pytest.mark.parametrize("protocol", BEGIN)
async def test_the_second_factor_alone_is_enough_where_only_it_is_missing(world: World, protocol: str) -> None:
    newer = await enter(world, has_app=True)
    await write_proofs(world.pool, world.ada.id, newer)
    await world.put(RULES["second factor"])
    page = await follow(world, await BEGIN[protocol](world))
    assert CODE in main_of(page)
    assert world.authenticator is not None
    answer = await follow(world, await world.browser.fill(page, **{**hidden_fields(page), "code": world.authenticator.code()}))
    assert protocol == "device" or await is_allowed(world, answer, protocol), "the sign-in of the application continues"
    assert await is_allowed(world, await BEGIN[protocol](world), protocol)
