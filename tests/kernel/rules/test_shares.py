"""Places that all organizations share: turns, limits, full queues and cancellation (security N-11)."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from uuid import UUID

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from core.kernel.errors import Limited
from core.kernel.shares import FairPlaces, FairQueue, Share, current_share, of_organization, of_stranger, working_for

ACME, OTHER, THIRD = (of_organization(UUID(int=number)) for number in range(3))
STRANGERS = [of_stranger(f"198.51.100.{number}") for number in range(9)]


def drain(queue: FairQueue[str], may_run: Callable[[Share], bool] = lambda _: True) -> list[str]:
    items = []
    while (following := queue.pop(may_run)) is not None:
        items.append(following[1])
    return items


def test_organizations_and_strangers_have_turns() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(3):
        queue.add(ACME, f"acme {number}")
    queue.add(OTHER, "other")
    for number in range(3):
        queue.add(STRANGERS[number], f"stranger {number}")
    assert drain(queue) == ["acme 0", "stranger 0", "other", "stranger 1", "acme 1", "stranger 2", "acme 2"]
    assert not len(queue)


def test_a_share_that_may_not_run_keeps_its_items() -> None:
    queue: FairQueue[str] = FairQueue()
    for share in (ACME, OTHER):
        queue.add(share, str(share[1]))
    assert drain(queue, lambda share: share == OTHER) == [str(OTHER[1])]
    assert len(queue) == 1
    queue.remove(ACME, str(ACME[1]))
    assert drain(queue) == []


def test_a_full_queue_refuses_the_share_that_fills_it() -> None:
    queue: FairQueue[str] = FairQueue()
    assert [queue.add(ACME, f"acme {number}", 3) for number in range(4)] == [None, None, None, "acme 3"]
    assert queue.add(OTHER, "other", 3) == "acme 2"
    assert queue.add(STRANGERS[0], "stranger", 3) == "acme 1"
    assert queue.add(OTHER, "too many", 3) == "too many"
    assert drain(queue) == ["acme 0", "stranger", "other"]


def test_a_flood_from_many_addresses_refuses_no_organization() -> None:
    queue: FairQueue[str] = FairQueue()
    for number, share in enumerate(STRANGERS):
        queue.add(share, f"stranger {number}", 4)
    refused = queue.add(ACME, "acme", 4)
    assert refused is not None
    assert refused.startswith("stranger")
    assert "acme" in drain(queue)


@given(st.lists(st.tuples(st.sampled_from([ACME, OTHER, THIRD, *STRANGERS[:8]]), st.booleans()), max_size=60))
def test_nothing_is_lost_and_no_share_waits_twice_as_long_as_another(steps: list[tuple[Share, bool]]) -> None:
    queue: FairQueue[int] = FairQueue()
    kept: dict[int, Share] = {}
    for number, (share, is_taken) in enumerate(steps):
        before = Counter(kept.values())
        refused = queue.add(share, number, 12)
        kept[number] = share
        if refused is not None:
            loser = kept.pop(refused)
            assert before[loser] + (loser == share) == max(before[each] + (each == share) for each in before if each[0] == loser[0])
            assert refused != number or before[share], "one that had nothing waiting stays"
        if is_taken and (following := queue.pop()) is not None:
            assert kept.pop(following[1]) == following[0]
    assert len(queue) == len(kept) <= 12
    first_turns: list[Share] = []
    while (following := queue.pop()) is not None:
        assert kept.pop(following[1]) == following[0]
        first_turns.append(following[0])
    assert kept == {}
    for group in {group for group, _ in first_turns}:
        members = [share for share in first_turns if share[0] == group]
        assert len(set(members[: len(set(members))])) == len(set(members)), "each member had a turn before any had two"


def test_a_newcomer_is_not_refused_while_others_have_as_much() -> None:
    queue: FairQueue[str] = FairQueue()
    for number, share in enumerate(STRANGERS[:4]):
        queue.add(share, f"flood {number}", 4)
    assert queue.add(STRANGERS[4], "honest", 4) == "flood 3"
    assert queue.add(STRANGERS[0], "more", 4) == "more"
    assert drain(queue) == ["flood 0", "flood 1", "flood 2", "honest"]


async def hold(places: FairPlaces, share: Share, count: int, nursery: trio.Nursery, ended: trio.Event) -> list[Share]:
    """Start tasks that hold a place until `ended`. Return the growing list of tasks that have a place."""
    running: list[Share] = []

    async def run() -> None:
        with await places.take(share):
            running.append(share)
            await ended.wait()

    for _ in range(count):
        nursery.start_soon(run)
    await wait_all_tasks_blocked()
    return running


async def test_a_share_has_a_limit_and_leaves_places_for_others() -> None:
    places, ended = FairPlaces(trio.Event, 10, of_share=6), trio.Event()
    async with trio.open_nursery() as nursery:
        running = await hold(places, ACME, 20, nursery, ended)
        assert len(running) == 6
        with trio.fail_after(1):
            for share in (OTHER, THIRD):
                with await places.take(share):
                    pass
        ended.set()
        await wait_all_tasks_blocked()
        assert len(running) == 20
    assert places.is_idle


async def test_without_a_limit_a_share_uses_fewer_places_than_are_free() -> None:
    places, ended = FairPlaces(trio.Event, 16), trio.Event()
    async with trio.open_nursery() as nursery:
        running = [len(await hold(places, share, 20, nursery, ended)) for share in (ACME, OTHER, THIRD)]
        assert running == [8, 4, 2]
        with trio.fail_after(1):
            with await places.take(STRANGERS[0]):
                pass
        ended.set()


async def test_a_group_has_a_limit_beside_its_shares() -> None:
    places, ended = FairPlaces(trio.Event, 100, of_group=6, of_share=3), trio.Event()
    async with trio.open_nursery() as nursery:
        counts = [len(await hold(places, ("acme", connection), 20, nursery, ended)) for connection in range(3)]
        assert counts == [3, 3, 0]
        assert len(await hold(places, ("other", 1), 1, nursery, ended)) == 1
        ended.set()


async def test_a_canceled_task_gives_its_turn_and_its_place_back() -> None:
    places, scopes = FairPlaces(trio.Event, 1), [trio.CancelScope() for _ in range(3)]

    async def wait(scope: trio.CancelScope, share: Share) -> None:
        with scope, await places.take(share):
            pass

    async with trio.open_nursery() as nursery:
        place = ExitStack()
        place.enter_context(await places.take(ACME))
        for scope, share in zip(scopes, (ACME, OTHER, THIRD), strict=True):
            nursery.start_soon(wait, scope, share)
        await wait_all_tasks_blocked()
        scopes[0].cancel()
        await wait_all_tasks_blocked()
        place.close()
        scopes[1].cancel()  # it has its place, and has not run yet
    assert places.is_idle


async def test_the_task_that_a_full_queue_refuses_is_limited() -> None:
    places, refused = FairPlaces(trio.Event, 1, waiting=2), []

    async def wait(number: int) -> None:
        try:
            with await places.take(ACME):
                pass
        except Limited:
            refused.append(number)

    async with trio.open_nursery() as nursery:
        place = ExitStack()
        place.enter_context(await places.take(ACME))
        for number in range(4):
            nursery.start_soon(wait, number)
            await wait_all_tasks_blocked()
        assert refused == [2, 3]
        nursery.start_soon(places.take, OTHER)
        await wait_all_tasks_blocked()
        assert refused == [2, 3, 1]
        place.close()


async def test_a_thread_keeps_its_place_when_its_caller_is_canceled() -> None:
    places = FairPlaces(trio.Event, 1)
    with working_for(OTHER) as before:
        assert current_share.get() == OTHER
        await places.acquire_on_behalf_of("thread")
    assert current_share.get() == before
    with trio.move_on_after(0) as full:
        await places.take()
    assert full.cancelled_caught
    places.release_on_behalf_of("thread")
    assert places.is_idle
    with pytest.raises(KeyError):
        places.release_on_behalf_of("thread")
