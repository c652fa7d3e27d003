"""Tidies up every few minutes; of all processes one at a time does (security.md N-9)."""

from typing import Final, NoReturn

import structlog
import trio

from actors.mailbox import jittered
from core import housekeeping
from core.values import new_id
from ports import Ports

log = structlog.get_logger("housekeeper")

PERIOD: Final = 180.0  # seconds


async def housekeeper(ports: Ports) -> NoReturn:
    """Sweep now and then for ever, saying how many rows went."""
    holder = new_id()
    while True:
        started = trio.current_time()
        removed = await housekeeping.sweep(ports, holder)
        if removed is not None:
            ports.metrics.job_done("housekeeping", trio.current_time() - started)
        if removed:
            log.info("swept", **removed)
        await trio.sleep(jittered(PERIOD))
