"""The loop that all sweeping actors run. Only the process with the lease processes the rows that are due (security N-9)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NoReturn
from uuid import UUID

import structlog
import trio

from actors.mailbox import TimedMailbox, jittered
from actors.turns import sleep_between_turns
from core.maintenance.model.housekeeping import BACKED_OFF, FAILED
from ports import Ports

LONGEST_PAUSE: Final = 16  # periods
# The shortest time between two sweeps without a message: if a due row cannot be claimed, it is
# still due after a sweep.
SHORTEST_PAUSE: Final = timedelta(seconds=1)

log = structlog.get_logger("sweeper")

# How many items of every kind were processed, or None if another process holds the lease.
Sweep = Callable[[Ports, UUID], Awaitable[Mapping[str, int] | None]]
# When the next item falls due, or None if there is none.
NextDue = Callable[[Ports], Awaitable[datetime | None]]


@dataclass(frozen=True, slots=True)
class SweepJob:
    """A kind of sweep. `name` is the job's name in metrics and logs."""

    name: str
    sweep: Sweep
    period: float  # seconds
    next_due: NextDue | None = None  # None if it does not matter when a sweep runs


async def sweeper(ports: Ports, job: SweepJob, inbox: TimedMailbox, holder: UUID) -> NoReturn:
    """Sweep forever: when the next item is due, at the times in `inbox`, and about once per period.

    `holder` identifies this process in its leases. `holder` survives an actor's restart, after which the actor
    continues with the same leases.

    While an upstream service is down, messages do not wake the actor, and every pause is twice the previous pause, up
    to LONGEST_PAUSE periods.
    """
    pause = job.period
    while True:
        started = trio.current_time()
        counts = await job.sweep(ports, holder)
        if counts is not None:
            ports.metrics.job_done(job.name, trio.current_time() - started)
        if counts:
            log.info("swept", job=job.name, **counts)
        if counts and counts.get(BACKED_OFF):
            pause = min(pause * 2, job.period * LONGEST_PAUSE)
            log.warning("sweep_delayed", job=job.name, failed=counts.get(FAILED, 0), goes_on_in=pause)
            await sleep_between_turns(jittered(pause))
            continue
        pause = job.period
        # Without the lease this process cannot sweep. The process with the lease reads the next due
        # time itself.
        if counts is not None and job.next_due is not None and (due := await job.next_due(ports)) is not None:
            inbox.post(max(due, ports.clock.now() + SHORTEST_PAUSE))
        await inbox.wait(ports.clock, at_most=jittered(pause))
