"""Sweeps now and then: what is past its use, for one, and what is past its time. Of all processes one at a time does (security.md N-9)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn
from uuid import UUID

import structlog
import trio

from actors.mailbox import jittered
from core.values import new_id
from ports import Ports

log = structlog.get_logger("sweeper")

# How many of what were swept; None while another holder, of another process, is at it.
Sweep = Callable[[Ports, UUID], Awaitable[Mapping[str, int] | None]]


async def sweeper(ports: Ports, sweep: Sweep, *, job: str, period: float) -> NoReturn:
    """Sweep every `period` seconds, or so, for ever, saying how many of what it were. `job` is its name in metrics and logs."""
    holder = new_id()
    while True:
        started = trio.current_time()
        swept = await sweep(ports, holder)
        if swept is not None:
            ports.metrics.job_done(job, trio.current_time() - started)
        if swept:
            log.info("swept", job=job, **swept)
        await trio.sleep(jittered(period))
