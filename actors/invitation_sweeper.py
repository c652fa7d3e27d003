"""The actor that marks invitations as expired, as soon as their time is over."""

from typing import Final, NoReturn
from uuid import UUID

from actors.mailbox import TimedMailbox
from actors.sweeper import SweepJob, sweeper
from core.tenancy import invitations
from ports import Ports

JOB: Final = SweepJob("invitation_expiry", invitations.sweep, period=60.0, next_due=invitations.next_expiry)


async def invitation_sweeper(ports: Ports, inbox: TimedMailbox, holder: UUID, job: SweepJob = JOB) -> NoReturn:
    """Expire invitations forever. `inbox` gets the times at which new invitations expire."""
    await sweeper(ports, job, inbox, holder)
