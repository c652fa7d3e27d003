"""One table of paths times rules: what each rule of a sign-in policy does on every path to a session or a token."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from entrypoints.http.edge.client_address import NO_ADDRESS
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.world import ALLOWED, ENROLL, REFUSED, STATES, STEP_UP, World, new_world, outcome_of, outcome_of_page
from tests.support.builders import Api

Walk = Callable[[World], Awaitable[str]]
ORGANIZATION: Final = "/api/organizations/acme"


@dataclass(frozen=True, slots=True)
class Rule:
    """A policy, and the outcome of each state of the user. `wait` passes between the sign-in and the use."""

    document: Mapping[str, Any]
    outcomes: Mapping[str, str]
    wait: timedelta = timedelta(0)


def _of(*outcomes: str) -> dict[str, str]:
    return dict(zip(STATES, outcomes, strict=True))


RULES: Final[Mapping[str, Rule]] = {
    "no rules": Rule({}, _of(*[ALLOWED] * 5)),
    "second factor": Rule({"second_factor": ["everyone"]}, _of(ENROLL, STEP_UP, ALLOWED, STEP_UP, ALLOWED)),
    "second factor of admins": Rule({"second_factor": ["admins"]}, _of(ENROLL, STEP_UP, ALLOWED, STEP_UP, ALLOWED)),
    "second factor at a high risk": Rule({"second_factor": ["high_risk"]}, _of(*[ALLOWED] * 5)),
    "phishing-resistant": Rule({"phishing_resistant": ["everyone"]}, _of(ENROLL, ENROLL, ENROLL, STEP_UP, ALLOWED)),
    "only passkeys": Rule({"methods": ["passkey"]}, _of(ENROLL, ENROLL, ENROLL, STEP_UP, ALLOWED)),
    "only passwords": Rule({"methods": ["password"]}, _of(ALLOWED, ALLOWED, ALLOWED, ALLOWED, STEP_UP)),
    "later": Rule({"phishing_resistant": ["everyone"], "due_at": {"phishing_resistant": "2999-01-01T00:00:00Z"}}, _of(*[ALLOWED] * 5)),
    "lifetime": Rule({"session_lifetime_minutes": 10}, _of(*[STEP_UP] * 5), timedelta(minutes=11)),
    "younger than the lifetime": Rule({"session_lifetime_minutes": 15}, _of(*[ALLOWED] * 5), timedelta(minutes=14)),
    "idle": Rule({"session_idle_minutes": 5}, _of(*[STEP_UP] * 5), timedelta(minutes=6)),
    "networks": Rule({"admin_networks": ["198.51.100.0/24"]}, _of(*[REFUSED] * 5)),
    "networks with the address": Rule({"admin_networks": ["203.0.113.0/24", NO_ADDRESS]}, _of(*[ALLOWED] * 5)),
}
OF_AGE: Final = ("lifetime", "idle")
OF_NETWORKS: Final = ("networks",)


async def _call_the_api(world: World) -> str:
    return outcome_of(await world.api.get(f"{ORGANIZATION}/members", token=world.token))


async def _select(world: World) -> str:
    return outcome_of(await world.api.post(f"{ORGANIZATION}/select", token=world.token))


async def _open_the_console(world: World) -> str:
    return outcome_of_page(await world.browser.open("/app/organizations/acme"))


@dataclass(frozen=True, slots=True)
class Path:
    """A path to a session or token, and the rules that it leaves out."""

    walk: Walk
    ignores: tuple[str, ...] = ()


PATHS: Final[Mapping[str, Path]] = {
    "API": Path(_call_the_api),
    "selection": Path(_select),
    "console": Path(_open_the_console),
}


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("rule", RULES)
async def test_a_rule_has_its_outcome_on_every_path(
    api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, rule: str, state: str
) -> None:
    world = await new_world(api, app, ports, pool, clock)
    await world.put(RULES[rule].document)
    await world.enter(STATES[state])
    clock.advance(RULES[rule].wait)
    expected = {name: ALLOWED if rule in path.ignores else RULES[rule].outcomes[state] for name, path in PATHS.items()}
    assert {name: await path.walk(world) for name, path in PATHS.items()} == expected
