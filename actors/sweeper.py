"""Sweeps now and then: what is past its use, for one, and what is past its time. Of all processes one at a time does (security.md N-9)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NoReturn
from uuid import UUID

import structlog
import trio

from actors.mailbox import jittered
from core.maintenance.housekeeping_rules import FAILED, BACKED_OFF
from ports import Ports

LONGEST_PAUSE: Final = 16  # periods

log = structlog.get_logger("sweeper")

# How many of what were swept; None while another holder, of another process, is at it.
Sweep = Callable[[Ports, UUID], Awaitable[Mapping[str, int] | None]]


async def sweeper(ports: Ports, sweep: Sweep, holder: UUID, *, job: str, period: float) -> NoReturn:
    """Sweep every `period` seconds, or so, for ever, saying how many of what it were. `job` is its name in metrics and logs.

    `holder` is of the leases that it takes, and outlives it: one that is started again after an outage goes on with them.
    As long as others that it needs are away, each pause is twice the one before, and the longest is of sixteen periods.
    """
    pause = period
    while True:
        started = trio.current_time()
        swept = await sweep(ports, holder)
        if swept is not None:
            ports.metrics.job_done(job, trio.current_time() - started)
        if swept:
            log.info("swept", job=job, **swept)
        if swept and swept.get(BACKED_OFF):
            pause = min(pause * 2, period * LONGEST_PAUSE)
            log.warning("sweep_held_up", job=job, failed=swept.get(FAILED, 0), goes_on_in=pause)
        else:
            pause = period
        await trio.sleep(jittered(pause))
