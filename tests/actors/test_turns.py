"""Which actors are stuck: actors in a turn without progress, and not actors that wait for work, time or the database."""

from collections.abc import Awaitable, Callable
from typing import Final

import pytest
import trio
import trio.testing

from actors.mailbox import Mailbox, TimedMailbox
from actors.supervisor import supervise
from actors.turns import STUCK_AFTER, Turns, record_progress, sleep_between_turns
from core.kernel.errors import StorageDown
from tests.fakes.outside import FakeClock

DAY: Final = 86400.0
QUERY: Final = 20.0  # seconds until a statement to a frozen server fails


async def wait_for_work() -> None:
    while True:
        await Mailbox().wait(DAY)


async def wait_for_time() -> None:
    while True:
        await TimedMailbox().wait(FakeClock(), DAY)


async def sleep() -> None:
    while True:
        await sleep_between_turns(DAY)


async def use_a_frozen_database() -> None:
    """As the pool reports it: every use begins and ends."""
    while True:
        record_progress()
        await trio.sleep(QUERY)
        record_progress()


async def meet_outages() -> None:
    await trio.sleep(QUERY)
    raise StorageDown


async def wait_while_a_task_hangs() -> None:
    """An actor's tasks may take long: its own loop decides."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        await wait_for_work()


async def hang() -> None:
    record_progress()
    await trio.Event().wait()


async def hang_after_work() -> None:
    await Mailbox().wait(60)
    await trio.Event().wait()


HEALTHY: Final = (wait_for_work, wait_for_time, sleep, use_a_frozen_database, meet_outages, wait_while_a_task_hangs)


@pytest.mark.parametrize("actor", HEALTHY)
async def test_an_actor_that_waits_is_not_stuck(autojump_clock: trio.testing.MockClock, actor: Callable[[], Awaitable[None]]) -> None:
    turns = Turns()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: supervise("actor", actor, turns=turns))
        for _ in range(20):
            await trio.sleep(STUCK_AFTER / 3)
            assert turns.find_stuck() is None
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("actor", [hang, hang_after_work])
async def test_an_actor_that_hangs_is_stuck(autojump_clock: trio.testing.MockClock, actor: Callable[[], Awaitable[None]]) -> None:
    turns = Turns()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: supervise("hanging", actor, turns=turns))
        nursery.start_soon(lambda: supervise("other", sleep, turns=turns))
        await trio.sleep(STUCK_AFTER - 1)
        assert turns.find_stuck() is None
        await trio.sleep(62)
        assert turns.find_stuck() == "These actors are stuck: hanging."
        nursery.cancel_scope.cancel()
