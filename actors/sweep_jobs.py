"""Sweeping actors: their loop and their jobs. Messages wake only jobs that have a `next_due`: jobs without it may be some minutes late."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NoReturn
from uuid import UUID

import structlog
import trio

from actors import mailbox
from actors.turns import sleep_between_turns
from core.accounts import passkey_waits
from core.applications import figures
from core.billing import reconciliation, subscriptions
from core.billing.model import provider_events
from core.federation.connections import health
from core.federation.oauth import external_clients
from core.maintenance import housekeeping
from core.maintenance.model.housekeeping import BACKED_OFF, FAILED
from core.privacy import personal_data
from core.programs import service_accounts
from core.tenancy import invitations, platform_sign_in_policy
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


async def sweeper(ports: Ports, job: SweepJob, inbox: mailbox.TimedMailbox, holder: UUID) -> NoReturn:
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
            await sleep_between_turns(mailbox.jittered(pause))
            continue
        pause = job.period
        # Without the lease this process cannot sweep. The process with the lease reads the next due
        # time itself.
        if counts is not None and job.next_due is not None and (due := await job.next_due(ports)) is not None:
            inbox.post(max(due, ports.clock.now() + SHORTEST_PAUSE))
        await inbox.wait(ports.clock, at_most=mailbox.jittered(pause))


# Refreshes identity providers' metadata and keys, and announces certificates that end.
CONNECTION_REFRESH: Final = SweepJob("connection_refresh", health.refresh_due, period=300.0, next_due=health.next_due)
# Erases accounts that their users deleted, when the time to undo that is over.
ERASURE: Final = SweepJob("erasure", personal_data.erase_due, period=300.0)
# Deletes external clients that no user agrees to any longer.
EXTERNAL_CLIENTS: Final = SweepJob("external_client_removal", external_clients.sweep_unused, period=3600.0)
# Counts the figures for charts. The present hour is counted again every time.
FIGURES: Final = SweepJob("figures", figures.count, period=180.0)
# Deletes obsolete rows.
HOUSEKEEPING: Final = SweepJob("housekeeping", housekeeping.sweep, period=180.0)
# Marks invitations as expired, as soon as their time is over.
INVITATION_EXPIRY: Final = SweepJob("invitation_expiry", invitations.sweep, period=60.0, next_due=invitations.next_expiry)
# Tells users that they can remove their lost passkeys now.
PASSKEY_WAITS: Final = SweepJob("passkey_waits", passkey_waits.sweep, period=60.0)
# Reminds platform owners that they need a second factor soon.
POLICY_REMINDER: Final = SweepJob("policy_reminder", platform_sign_in_policy.remind, period=300.0)
# Ends the roles that service accounts gave, after their owner left and the accounts ended.
PROGRAM_ENDS: Final = SweepJob("program_ends", service_accounts.end_due, period=300.0)
# Announces secrets that expire soon to their owners.
SECRET_ANNOUNCEMENT: Final = SweepJob("secret_announcement", housekeeping.announce_expiring_secrets, period=300.0)
# Marks subscriptions as expired when their period ends, unless the payment provider manages them.
SUBSCRIPTION_EXPIRY: Final = SweepJob("subscription_expiry", subscriptions.sweep, period=60.0, next_due=subscriptions.next_expiry)


reconciliation_log = structlog.get_logger("billing")


async def reconcile_subscriptions(ports: Ports, holder: UUID) -> Mapping[str, int] | None:
    """Run a single reconciliation and log every effect that an operator should know."""
    return await reconciliation.reconcile(ports, holder, _log_effect)


SUBSCRIPTION_RECONCILIATION: Final = SweepJob(
    "billing_reconciliation", reconcile_subscriptions, period=60.0, next_due=reconciliation.next_due
)


def _log_effect(subscription: str, org_id: UUID | None, effect: provider_events.Effect) -> None:
    write = reconciliation_log.warning if effect in provider_events.NEEDS_ATTENTION else reconciliation_log.info
    write("billing_checked", subscription=subscription, org_id=org_id and str(org_id), effect=effect.value)
