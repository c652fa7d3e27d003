"""A step that has begun may finish after a cancellation, but not forever."""

import pytest
import trio
import trio.testing

from actors.dispatching import shutdown_grace


async def test_without_a_cancellation_a_block_has_no_limit(autojump_clock: trio.testing.MockClock) -> None:
    async with shutdown_grace(5):
        await trio.sleep(1000)
    assert trio.current_time() >= 1000


async def test_a_canceled_block_finishes_in_time(autojump_clock: trio.testing.MockClock) -> None:
    reached = []
    with trio.CancelScope() as scope:
        scope.cancel()
        async with shutdown_grace(5):
            await trio.sleep(4)
            reached.append("in time")
        reached.append("after the block")
    assert reached == ["in time"]
    assert scope.cancelled_caught


async def test_a_canceled_block_that_takes_too_long_is_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    with trio.move_on_after(10) as scope:
        async with shutdown_grace(5):
            await trio.sleep(60)
            pytest.fail("was not cut off")
    assert scope.cancelled_caught
    assert 15 <= trio.current_time() < 16
