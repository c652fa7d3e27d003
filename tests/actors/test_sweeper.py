"""The loop in all sweepers: leases, pauses, and the next time that something falls due."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, cast
from uuid import UUID

import structlog
import trio
import trio.testing

from actors.mailbox import TimedMailbox
from actors.supervisor import supervise
from actors.sweep_jobs import SweepJob, sweeper
from core.kernel.errors import StorageDown
from core.kernel.values import new_id
from ports import Ports
from tests.actors.helpers import TrioClock
from tests.fakes.outside import FakeMetrics


@dataclass
class SweepPorts:
    """The ports that a sweeper uses."""

    clock: TrioClock = field(default_factory=TrioClock)
    metrics: FakeMetrics = field(default_factory=FakeMetrics)


def sweep_ports() -> Ports:
    return cast("Ports", SweepPorts())


async def test_a_sweeper_keeps_its_lease_holder_after_an_outage(autojump_clock: trio.testing.MockClock) -> None:
    holders: list[UUID] = []

    async def sweep(_: Ports, holder: UUID) -> None:
        holders.append(holder)
        if len(holders) < 3:
            raise StorageDown("down")
        scope.cancel()

    inbox, holder = TimedMailbox(), new_id()
    job = SweepJob("housekeeping", sweep, 60.0)
    with trio.CancelScope() as scope:
        await supervise("housekeeper", lambda: sweeper(sweep_ports(), job, inbox, holder))
    assert holders == [holder] * 3


async def test_pauses_double_while_the_upstream_service_is_down(autojump_clock: trio.testing.MockClock) -> None:
    """When a single item fails, the pause does not become longer."""
    down = {"failed": 3, "held_up": 1}
    one_failure = {"failed": 2, "subscriptions": 5}
    outcomes: list[dict[str, int] | None] = [down, {**down, "subscriptions": 3}, down, {}, down, None, one_failure, {}]
    times: list[float] = []

    async def sweep(_: Ports, __: UUID) -> dict[str, int] | None:
        times.append(trio.current_time())
        if len(times) > len(outcomes):
            scope.cancel()
        return outcomes[len(times) - 1] if len(times) <= len(outcomes) else None

    with structlog.testing.capture_logs() as log, trio.CancelScope() as scope:
        await sweeper(sweep_ports(), SweepJob("billing_reconciliation", sweep, 60.0), TimedMailbox(), new_id())
    pauses = [later - sooner for sooner, later in pairwise(times)]
    for expected, pause in zip([120, 240, 480, 60, 120, 60, 60, 60], pauses, strict=True):
        assert expected * 0.7 <= pause <= expected * 1.3
    assert [(line["failed"], line["goes_on_in"]) for line in log if line["event"] == "sweep_delayed"] == [
        (3, 120),
        (3, 240),
        (3, 480),
        (3, 120),
    ]


async def run_sweeper(
    posts: list[float], due: list[float | None], *, period: float = 1000.0, outcome: Any = None, until: float = 500.0
) -> list[float]:
    """Return when the sweeps ran, in seconds. Messages for the times in `posts` arrive at the start.

    After a sweep, the next entry in `due` is the next due time in the database.
    """
    ports, inbox, started = SweepPorts(), TimedMailbox(), trio.current_time()
    beginning = ports.clock.now()
    times: list[float] = []

    async def sweep(_: Ports, __: UUID) -> Any:
        times.append(round(trio.current_time() - started))
        return outcome

    async def next_due(_: Ports) -> datetime | None:
        seconds = due.pop(0) if due else None
        return None if seconds is None else beginning + timedelta(seconds=seconds)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweeper, cast("Ports", ports), SweepJob("expiry", sweep, period, next_due), inbox, new_id())
        await trio.testing.wait_all_tasks_blocked()
        for post in posts:
            inbox.post(beginning + timedelta(seconds=post))
        await trio.sleep(until)
        nursery.cancel_scope.cancel()
    return times


async def test_a_sweeper_sweeps_when_something_falls_due(autojump_clock: trio.testing.MockClock) -> None:
    results = {
        "a message names the time": await run_sweeper([40], []) == [0, 40],
        "the earliest message counts": await run_sweeper([90, 40, 60], []) == [0, 40],
        "the database names the time": await run_sweeper([], [70, 90, None], outcome={}) == [0, 70, 90],
        "a message comes before the time in the database": await run_sweeper([30], [70, 70], outcome={}) == [0, 30, 70],
        "a row that stays due is looked at once per second": await run_sweeper([], [0, 0, 0], outcome={}) == [0, 1, 2, 3],
        "a process without the lease does not ask for the time": await run_sweeper([], [70]) == [0],
    }
    assert [name for name, holds in results.items() if not holds] == []
