"""Failing actors are restarted: after which pause, and how often."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog
import trio
import trio.testing

from actors.supervisor import ActorEnded, RestartPolicy, describe_error, supervise
from core.kernel.errors import PaymentsFailed, StorageDown
from tests.fakes.outside import FakeMetrics

POLICY = RestartPolicy(first_delay=1, longest_delay=8, longest_outage_delay=4, healthy_after=60, restarts=5)


class Broken(Exception):
    """A defect."""


class Scripted:
    """An actor that runs the list's next function per start, and then works forever. It records when it was started."""

    def __init__(self, *runs: Callable[[], Awaitable[object]]) -> None:
        self.runs = list(runs)
        self.starts: list[float] = []
        self.works = trio.Event()

    async def __call__(self) -> None:
        self.starts.append(trio.current_time())
        if self.runs:
            await self.runs.pop(0)()
            return
        self.works.set()
        await trio.sleep_forever()

    @property
    def delays(self) -> list[float]:
        return [after - before for before, after in zip(self.starts, self.starts[1:], strict=False)]


def fails(error: Exception, after: float = 0) -> Callable[[], Awaitable[object]]:
    async def run() -> None:
        await trio.sleep(after)
        raise error

    return run


def fails_in_a_nursery(*errors: Exception) -> Callable[[], Awaitable[object]]:
    async def fail_at_once(error: Exception) -> None:  # without a checkpoint, so that no failure cancels the remaining work
        raise error

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for error in errors:
                nursery.start_soon(fail_at_once, error)

    return run


async def until_it_works(actor: Scripted, policy: RestartPolicy = POLICY) -> list[Any]:
    """Supervise until the actor works, and return the log."""
    with structlog.testing.capture_logs() as entries:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervise, "scripted", actor, policy)
            await actor.works.wait()
            nursery.cancel_scope.cancel()
    return entries


async def test_each_restart_waits_longer_than_the_last(autojump_clock: trio.testing.MockClock) -> None:
    actor = Scripted(*[fails(Broken("no")) for _ in range(5)])
    log = await until_it_works(actor)
    for delay, planned in zip(actor.delays, [1, 2, 4, 8, 8], strict=True):
        assert 0.75 * planned <= delay <= 1.25 * planned
    assert [(entry["event"], entry["actor"], entry["failures"]) for entry in log] == [("actor_failed", "scripted", n) for n in range(1, 6)]
    assert all(entry["log_level"] == "error" and entry["exc_info"] for entry in log)


async def test_too_many_failures_in_a_row_are_raised(autojump_clock: trio.testing.MockClock) -> None:
    actor = Scripted(*[fails(Broken(str(number))) for number in range(6)])
    with structlog.testing.capture_logs() as log, pytest.raises(Broken, match="5"):
        await supervise("scripted", actor, POLICY)
    assert len(actor.starts) == 6
    assert (log[-1]["event"], log[-1]["log_level"]) == ("actor_given_up", "critical")


async def test_a_healthy_run_resets_the_count(autojump_clock: trio.testing.MockClock) -> None:
    actor = Scripted(*[fails(Broken("now and then"), after=61) for _ in range(50)])
    await until_it_works(actor)
    assert len(actor.starts) == 51
    assert max(actor.delays) <= 61 + 1.3


async def test_slow_failures_count_too(autojump_clock: trio.testing.MockClock) -> None:
    actor = Scripted(*[fails(Broken("soon"), after=59) for _ in range(50)])
    with structlog.testing.capture_logs(), pytest.raises(Broken):
        await supervise("scripted", actor, POLICY)
    assert len(actor.starts) == 6


async def test_an_outage_never_counts(autojump_clock: trio.testing.MockClock) -> None:
    actor = Scripted(*[fails(StorageDown("gone")) for _ in range(100)])
    log = await until_it_works(actor)
    assert len(actor.starts) == 101
    assert 0.75 <= actor.delays[0] <= 1.25
    assert max(actor.delays) <= 4 * 1.25
    assert {(entry["event"], entry["log_level"]) for entry in log} == {("actor_met_outage", "warning")}


async def test_a_group_of_outages_alone_is_an_outage(autojump_clock: trio.testing.MockClock) -> None:
    actor = Scripted(*[fails_in_a_nursery(StorageDown("gone"), PaymentsFailed("too")) for _ in range(20)])
    await until_it_works(actor)
    assert len(actor.starts) == 21


async def test_a_group_with_another_failure_counts(autojump_clock: trio.testing.MockClock) -> None:
    actor = Scripted(*[fails_in_a_nursery(StorageDown("gone"), Broken("really")) for _ in range(20)])
    with structlog.testing.capture_logs(), pytest.raises(ExceptionGroup) as caught:
        await supervise("scripted", actor, POLICY)
    assert caught.value.subgroup(Broken) is not None
    assert len(actor.starts) == 6


async def test_restarts_are_counted_by_their_reason(autojump_clock: trio.testing.MockClock) -> None:
    actor, metrics = Scripted(fails(Broken("no")), fails(StorageDown("gone")), fails(Broken("again"))), FakeMetrics()
    with structlog.testing.capture_logs():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervise, "mailer", actor, POLICY, metrics.actor_restarted)
            await actor.works.wait()
            nursery.cancel_scope.cancel()
    assert metrics.restarts == {("mailer", "failure"): 2, ("mailer", "outage"): 1}


async def test_an_actor_that_returns_has_failed(autojump_clock: trio.testing.MockClock) -> None:
    async def returns() -> None:
        await trio.lowlevel.checkpoint()

    with structlog.testing.capture_logs(), pytest.raises(ActorEnded, match="scripted"):
        await supervise("scripted", Scripted(*[returns] * 10), POLICY)


async def test_cancellation_ends_the_actor_and_the_supervision(autojump_clock: trio.testing.MockClock) -> None:
    actor = Scripted()
    with trio.move_on_after(5) as scope, structlog.testing.capture_logs() as log:
        await supervise("scripted", actor, POLICY)
    assert scope.cancelled_caught
    assert len(actor.starts) == 1
    assert log == []


async def test_cancellation_ends_the_wait_for_a_restart(autojump_clock: trio.testing.MockClock) -> None:
    with trio.move_on_after(0.5) as scope, structlog.testing.capture_logs():
        await supervise("scripted", Scripted(fails(Broken("no"))), POLICY)
    assert scope.cancelled_caught


async def test_a_failure_during_a_cancellation_is_only_logged(autojump_clock: trio.testing.MockClock) -> None:
    async def fails_when_canceled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise Broken("while leaving")

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails_when_canceled)
            nursery.start_soon(trio.sleep_forever)

    with structlog.testing.capture_logs() as log, trio.move_on_after(5) as scope:
        await supervise("scripted", run, POLICY)
    assert scope.cancelled_caught
    assert [(entry["event"], entry["log_level"]) for entry in log] == [("actor_failed_while_stopping", "error")]
    assert isinstance(log[0]["exc_info"], BaseExceptionGroup)


def test_an_error_is_described_in_one_line_with_its_cause() -> None:
    error = StorageDown()
    error.__cause__ = OSError("connection\nrefused")
    assert describe_error(error) == "StorageDown (OSError: connection refused)"
    assert describe_error(ExceptionGroup("both", [error, error])) == describe_error(error)
