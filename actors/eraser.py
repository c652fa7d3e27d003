"""The actor that erases accounts that their users deleted, when the time to undo that is over."""

from typing import Final, NoReturn
from uuid import UUID

from actors.mailbox import TimedMailbox
from actors.sweeper import SweepJob, sweeper
from core.privacy import personal_data
from ports import Ports

JOB: Final = SweepJob("erasure", personal_data.erase_due, period=300.0)


async def eraser(ports: Ports, holder: UUID, job: SweepJob = JOB) -> NoReturn:
    """Erase accounts forever. No message wakes this actor, because an erasure days later may be some minutes late."""
    await sweeper(ports, job, TimedMailbox(), holder)
