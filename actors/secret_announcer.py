"""The actor that announces secrets that expire soon to their owners."""

from typing import Final, NoReturn
from uuid import UUID

from actors.mailbox import TimedMailbox
from actors.sweeper import SweepJob, sweeper
from core.maintenance import expiring_secrets
from ports import Ports

JOB: Final = SweepJob("secret_announcement", expiring_secrets.announce, period=300.0)


async def secret_announcer(ports: Ports, holder: UUID, job: SweepJob = JOB) -> NoReturn:
    """Announce secrets forever. No message wakes this actor, because an announcement days ahead may be some minutes late."""
    await sweeper(ports, job, TimedMailbox(), holder)
