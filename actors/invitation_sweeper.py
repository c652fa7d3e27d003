"""Marks invitations that are past their time; of all processes one at a time does (security.md N-9)."""

from typing import Final, NoReturn

import structlog
import trio

from actors.mailbox import jittered
from core import invitations
from core.values import new_id
from ports import Ports

log = structlog.get_logger("invitation_sweeper")

PERIOD: Final = 60.0  # seconds


async def invitation_sweeper(ports: Ports) -> NoReturn:
    """Sweep now and then for ever, saying how many invitations have expired."""
    holder = new_id()
    while True:
        started = trio.current_time()
        expired = await invitations.sweep(ports, holder)
        if expired is not None:
            ports.metrics.job_done("invitation_expiry", trio.current_time() - started)
        if expired:
            log.info("invitations_expired", count=expired)
        await trio.sleep(jittered(PERIOD))
