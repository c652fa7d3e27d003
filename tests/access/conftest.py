"""The world as a fixture."""

import pytest

from adapters.postgres.pool import Pool
from ports import Ports
from tests.access.state import put_back, state
from tests.access.world import World, make_world

_made: list[World] = []


@pytest.fixture
async def world(ports: Ports, pool: Pool) -> World:
    """The world, in the database as it was when it was made."""
    if not _made:
        _made.append(await make_world(ports, pool))
    else:
        await put_back(pool, await state(pool), _made[0].state)
    return _made[0]
