"""The mailbox: posting never blocks, posts fold, waiting ends."""

import trio
import trio.testing

from actors.mailbox import Mailbox, jittered


async def test_a_post_wakes_who_waits(autojump_clock: trio.testing.MockClock) -> None:
    mailbox = Mailbox()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.wait, 3600)
        await trio.testing.wait_all_tasks_blocked()
        mailbox.post()
    assert trio.current_time() < 1


async def test_a_post_before_the_wait_counts(autojump_clock: trio.testing.MockClock) -> None:
    mailbox = Mailbox()
    mailbox.post()
    await mailbox.wait(3600)
    assert trio.current_time() < 1


async def test_many_posts_fold_into_one_wake_up(autojump_clock: trio.testing.MockClock) -> None:
    mailbox = Mailbox()
    for _ in range(100):
        mailbox.post()
    await mailbox.wait(3600)
    assert trio.current_time() < 1
    await mailbox.wait(60)
    assert trio.current_time() >= 60


async def test_waiting_ends_without_a_post(autojump_clock: trio.testing.MockClock) -> None:
    mailbox = Mailbox()
    await mailbox.wait(30)
    assert trio.current_time() >= 30
    await mailbox.wait(-1)
    assert trio.current_time() < 31


def test_jitter_stays_within_a_quarter() -> None:
    values = [jittered(40) for _ in range(1000)]
    assert 30 <= min(values) < 32
    assert 48 < max(values) <= 50
