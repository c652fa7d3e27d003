"""A connection that turns hostile harms only its own organization (docs/adr/0046, 0047)."""

from collections.abc import Mapping

import pytest

from tests.proof.hostile.asserted import PEOPLE, Attack
from tests.proof.hostile.elsewhere import ELSEWHERE
from tests.proof.hostile.responses import RESPONSES
from tests.proof.hostile.sessions import SESSIONS
from tests.proof.hostile.world import World

pytestmark = pytest.mark.slow
TABLE: Mapping[str, tuple[Attack, str]] = {**PEOPLE, **SESSIONS, **RESPONSES, **ELSEWHERE}


async def test_a_hostile_provider_harms_its_own_organization_alone(world: World) -> None:
    """Every attack has its outcome, and the rows of the other organization, the account and the platform stay as they are."""
    wrong: list[str] = []
    prepared = {name: attack(world) for name, (attack, _) in TABLE.items()}
    for steps in prepared.values():
        await anext(steps)
    before = await world.rows()
    for name, steps in prepared.items():
        outcomes = [step async for step in steps]
        if set(outcomes) != {TABLE[name][1]}:
            wrong.append(f"{name}: {outcomes}, not {TABLE[name][1]}")
        after = await world.rows()
        wrong += [f"{name}: {change}" for change in world.harm(before, after)]
        before = after
    assert not wrong, "\n".join(wrong)
