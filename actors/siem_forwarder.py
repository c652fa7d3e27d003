"""The actor that forwards audit logs to SIEMs: it claims a due queue, sends its entries, and stores the outcome."""

import random
from typing import Final, NoReturn

import structlog
import trio

from actors import dispatching, mailbox
from actors.supervisor import describe_error
from core.eventing import siem
from core.eventing.model.siem import ClaimedSiemQueue, SiemAttempt, SiemResult
from core.kernel import shares
from core.kernel.errors import Outage
from ports import Ports

log = structlog.get_logger("siem_forwarder")

SLOTS: Final = 32  # organizations served at the same time
# The most slots for SIEMs that were slow or failed the last time, so that healthy SIEMs do not wait
# for them.
STRUGGLING_SLOTS: Final = 24
SLOW: Final = 1.0  # seconds
# Seconds. A retry is late by at most this time, and so is the takeover after another process's
# crash. A poll costs a short statement.
POLL: Final = 5.0
GRACE: Final = 5.0  # seconds to finish an attempt that is running when the process is stopped


async def siem_forwarder(ports: Ports, inbox: mailbox.Mailbox, *, slots: int = SLOTS, struggling_slots: int = STRUGGLING_SLOTS) -> NoReturn:
    """Forward audit logs forever. A message in `inbox` says that entries were queued."""
    struggling: set[ClaimedSiemQueue] = set()
    async with trio.open_nursery() as attempts:

        async def attempt(claimed: ClaimedSiemQueue) -> None:
            started = trio.current_time()
            try:
                with (
                    structlog.contextvars.bound_contextvars(job="siem_forwarding", organization=str(claimed.org_id)),
                    shares.working_for(shares.of_organization(claimed.org_id)),
                ):
                    async with dispatching.shutdown_grace(GRACE):
                        await _forward(ports, claimed)
            finally:
                ports.metrics.job_done("siem_forwarding", trio.current_time() - started)
                struggling.discard(claimed)
                inbox.post()  # a slot is free, and more queues may be due

        while True:
            try:
                # Claim a single queue, and only when a slot is free, because its lease starts with
                # the claim.
                while len(attempts.child_tasks) < slots:
                    claimed = await siem.claim_queue(ports, struggling=len(struggling) < struggling_slots)
                    if claimed is None:
                        break
                    if claimed.is_struggling:
                        struggling.add(claimed)
                    attempts.start_soon(attempt, claimed)
            except Outage as outage:
                # Do not let this reach the supervisor: its restart would cancel the attempts in
                # flight.
                log.warning("siem_not_claimed", outage=describe_error(outage))
            await inbox.wait(at_most=mailbox.jittered(POLL))


async def _forward(ports: Ports, claimed: ClaimedSiemQueue) -> None:
    started = trio.current_time()
    try:
        outcome = await siem.attempt(ports, claimed)
    except Outage as outage:
        log.warning("siem_not_read", outage=describe_error(outage))  # the lease expires, and the queue falls due again
        return
    except Exception:
        log.exception("siem_not_sent")
        outcome = SiemAttempt(SiemResult.NOT_SENT)
    if outcome is None:
        log.warning("siem_lease_lost")
        return
    spread = random.random()  # noqa: S311  (spreads load, guards nothing)
    slow = trio.current_time() - started > SLOW
    # Outside the `try`: an error from here on does not mean that the SIEM received nothing.
    due_at = await dispatching.retry_until_stored(lambda: siem.settle(ports, claimed, outcome, slow=slow, spread=spread), _log_not_stored)
    if due_at is not None:
        ports.metrics.siem_failed(outcome.result.name.lower())
        wait = round((due_at - ports.clock.now()).total_seconds())
        log.warning("siem_failed", reason=outcome.result.name.lower(), failures=claimed.failures + 1, next_in=wait)
    elif claimed.failures:
        log.info("siem_recovered", failures=claimed.failures, entries=outcome.sent)
    else:
        log.debug("siem_forwarded", entries=outcome.sent)


def _log_not_stored(outage: Outage) -> None:
    log.warning("siem_outcome_not_recorded", outage=describe_error(outage))
