"""Mailboxes: posting never blocks, several posts wake once, and waiting ends."""

from datetime import timedelta

import trio
import trio.testing

from actors.mailbox import Mailbox, TimedMailbox, jittered
from tests.actors.helpers import TrioClock


async def test_a_post_wakes_a_waiting_actor(autojump_clock: trio.testing.MockClock) -> None:
    mailbox = Mailbox()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.wait, 3600)
        await trio.testing.wait_all_tasks_blocked()
        mailbox.post()
    assert trio.current_time() < 1


async def test_a_post_before_the_wait_counts(autojump_clock: trio.testing.MockClock) -> None:
    mailbox = Mailbox()
    mailbox.post()
    assert await mailbox.wait(3600)
    assert trio.current_time() < 1


async def test_many_posts_cause_one_wake_up(autojump_clock: trio.testing.MockClock) -> None:
    mailbox = Mailbox()
    for _ in range(100):
        mailbox.post()
    assert await mailbox.wait(3600)
    assert trio.current_time() < 1
    assert not await mailbox.wait(60)
    assert trio.current_time() >= 60


async def test_waiting_ends_without_a_post(autojump_clock: trio.testing.MockClock) -> None:
    mailbox = Mailbox()
    assert not await mailbox.wait(30)
    assert trio.current_time() >= 30
    assert not await mailbox.wait(-1)
    assert trio.current_time() < 31


async def test_a_timed_mailbox_wakes_at_the_earliest_posted_time(autojump_clock: trio.testing.MockClock) -> None:
    mailbox, clock = TimedMailbox(), TrioClock()
    for seconds in (90, 40, 60):
        mailbox.post(clock.start + timedelta(seconds=seconds))
    await mailbox.wait(clock, 3600)
    assert round(trio.current_time()) == 40
    await mailbox.wait(clock, 3600)
    assert round(trio.current_time()) == 3640, "no old post is left"


async def test_a_post_shortens_a_wait_that_has_begun(autojump_clock: trio.testing.MockClock) -> None:
    mailbox, clock = TimedMailbox(), TrioClock()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.wait, clock, 3600)
        await trio.sleep(10)
        mailbox.post(clock.start + timedelta(seconds=500))
        await trio.sleep(10)
        mailbox.post(clock.start + timedelta(seconds=50))
    assert round(trio.current_time()) == 50


async def test_a_timed_mailbox_wakes_at_once_for_a_time_that_has_come(autojump_clock: trio.testing.MockClock) -> None:
    mailbox, clock = TimedMailbox(), TrioClock()
    mailbox.post(clock.start - timedelta(seconds=1))
    await mailbox.wait(clock, 3600)
    mailbox.post()
    await mailbox.wait(clock, 3600)
    assert trio.current_time() < 1


async def test_notifications_carry_the_time_in_their_payload(autojump_clock: trio.testing.MockClock) -> None:
    mailbox, clock = TimedMailbox(), TrioClock()
    mailbox.notify((clock.start + timedelta(seconds=70)).isoformat())
    await mailbox.wait(clock, 3600)
    assert round(trio.current_time()) == 70
    mailbox.notify("")
    await mailbox.wait(clock, 3600)
    assert round(trio.current_time()) == 70


def test_jitter_stays_within_a_quarter() -> None:
    values = [jittered(40) for _ in range(1000)]
    assert 30 <= min(values) < 32
    assert 48 < max(values) <= 50
