"""What all that sweeps has in common: how long it waits, and by what name it takes leases."""

from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import structlog
import trio
import trio.testing

from actors.supervisor import supervise
from actors.sweeper import sweeper
from core.kernel.errors import StorageDown
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.outside import FakeMetrics


async def test_after_an_outage_it_takes_leases_by_the_name_that_it_had(
    autojump_clock: trio.testing.MockClock, metrics: FakeMetrics
) -> None:
    holders: list[UUID] = []

    async def sweep(_: Ports, holder: UUID) -> None:
        holders.append(holder)
        if len(holders) < 3:
            raise StorageDown("away")
        scope.cancel()

    one = partial(sweeper, cast("Ports", SimpleNamespace(metrics=metrics)), sweep, new_id(), job="housekeeping", period=60.0)
    with trio.CancelScope() as scope:
        await supervise("housekeeper", one)
    assert len(holders) == 3
    assert len(set(holders)) == 1


async def test_the_less_it_helps_to_ask_the_longer_is_waited(autojump_clock: trio.testing.MockClock, metrics: FakeMetrics) -> None:
    """Though not for one thing alone that fails."""
    away = {"failed": 3, "held_up": 1}
    alone = {"failed": 2, "subscriptions": 5}
    outcomes: list[dict[str, int] | None] = [away, {**away, "subscriptions": 3}, away, {}, away, None, alone, {}]
    moments: list[float] = []

    async def sweep(_: Ports, __: UUID) -> dict[str, int] | None:
        moments.append(trio.current_time())
        if len(moments) > len(outcomes):
            scope.cancel()
        return outcomes[len(moments) - 1] if len(moments) <= len(outcomes) else None

    with structlog.testing.capture_logs() as log, trio.CancelScope() as scope:
        await sweeper(cast("Ports", SimpleNamespace(metrics=metrics)), sweep, new_id(), job="billing_reconciliation", period=60.0)
    waited = [later - sooner for sooner, later in pairwise(moments)]
    for pause, given in zip([120, 240, 480, 60, 120, 60, 60, 60], waited, strict=True):
        assert pause * 0.7 <= given <= pause * 1.3
    told = [(line["failed"], line["goes_on_in"]) for line in log if line["event"] == "sweep_held_up"]
    assert told == [(3, 120), (3, 240), (3, 480), (3, 120)]
