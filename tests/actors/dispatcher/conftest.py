"""Fixtures for the webhook dispatcher: a running receiver, and an organization without members."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

import actors.dispatching
from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.receiver import Receiver, receiving
from tests.support.builders import add_organization, with_loopback_sender
from tests.support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the poll interval longer than any test, so that polling does not do a message's work."""
    monkeypatch.setattr(actors.dispatching, "POLL", 10 * PATIENCE)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as opened:
        yield opened


@pytest.fixture
def ports(ports: Ports) -> Ports:
    """Ports that can send to the loopback interface, where the receiver listens."""
    return with_loopback_sender(ports)


@pytest.fixture
async def acme(pool: Pool) -> UUID:
    return await add_organization(pool, "acme")
