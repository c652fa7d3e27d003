"""The actor that marks subscriptions as expired when their period ends, unless the payment provider manages them."""

from typing import Final, NoReturn
from uuid import UUID

from actors.mailbox import TimedMailbox
from actors.sweeper import SweepJob, sweeper
from core.billing import subscriptions
from ports import Ports

JOB: Final = SweepJob("subscription_expiry", subscriptions.sweep, period=60.0, next_due=subscriptions.next_expiry)


async def subscription_sweeper(ports: Ports, inbox: TimedMailbox, holder: UUID, job: SweepJob = JOB) -> NoReturn:
    """Expire subscriptions forever. `inbox` gets the ends of new periods."""
    await sweeper(ports, job, inbox, holder)
