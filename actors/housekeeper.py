"""The actor that deletes obsolete rows."""

from typing import Final, NoReturn
from uuid import UUID

from actors.mailbox import TimedMailbox
from actors.sweeper import SweepJob, sweeper
from core.maintenance import housekeeping
from ports import Ports

JOB: Final = SweepJob("housekeeping", housekeeping.sweep, period=180.0)


async def housekeeper(ports: Ports, holder: UUID, job: SweepJob = JOB) -> NoReturn:
    """Clean up forever. No message wakes this actor, because nothing depends on when a row is removed."""
    await sweeper(ports, job, TimedMailbox(), holder)
