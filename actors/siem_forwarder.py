"""Forwards audit logs to the SIEMs of their organizations: claims one that is due, sends from its queue, records what came of it."""

import random
from typing import Final, NoReturn

import structlog
import trio

from actors.grace import grace
from actors.mailbox import Mailbox, jittered
from actors.outages import retry_until_stored
from actors.supervisor import said
from core.eventing import siem
from core.eventing.siem_rules import SiemAttempt, ClaimedSiemQueue, SiemResult
from core.kernel.errors import Outage
from ports import Ports

log = structlog.get_logger("siem_forwarder")

SLOTS: Final = 32  # organizations at once
# Of these, how many for those that were slow or failed the last time: a SIEM may take as long as it likes, and the others need not wait.
STRUGGLING_SLOTS: Final = 24
SLOW: Final = 1.0  # seconds
# Also how soon after it is due something is tried again, or goes on where a process died: a look costs one short statement.
POLL: Final = 5.0  # seconds
GRACE: Final = 5.0  # seconds that an attempt which has begun is given to end when the process is stopped


async def siem_forwarder(ports: Ports, inbox: Mailbox, *, slots: int = SLOTS, struggling_slots: int = STRUGGLING_SLOTS) -> NoReturn:
    """Forward for ever; `inbox` is posted to when something was queued."""
    struggling: set[ClaimedSiemQueue] = set()
    async with trio.open_nursery() as attempts:

        async def attempt(claimed: ClaimedSiemQueue) -> None:
            started = trio.current_time()
            try:
                with structlog.contextvars.bound_contextvars(job="siem_forwarding", organization=str(claimed.org_id)):
                    async with grace(GRACE):
                        await _forward(ports, claimed)
            finally:
                ports.metrics.job_done("siem_forwarding", trio.current_time() - started)
                struggling.discard(claimed)
                inbox.post()  # a slot is free, and more may wait

        while True:
            try:
                # One at a time, and only when it can start now: each is leased from here on.
                while len(attempts.child_tasks) < slots:
                    claimed = await siem.claim_queue(ports, struggling=len(struggling) < struggling_slots)
                    if claimed is None:
                        break
                    if claimed.is_struggling:
                        struggling.add(claimed)
                    attempts.start_soon(attempt, claimed)
            except Outage as outage:
                # Not for the supervisor, whose restart would cut off what is under way.
                log.warning("siem_not_claimed", outage=said(outage))
            await inbox.wait(at_most=jittered(POLL))


async def _forward(ports: Ports, claimed: ClaimedSiemQueue) -> None:
    started = trio.current_time()
    try:
        done = await siem.attempt(ports, claimed)
    except Outage as outage:
        log.warning("siem_not_read", outage=said(outage))  # the lease ends, and its turn comes again
        return
    except Exception:
        log.exception("siem_not_sent")
        done = SiemAttempt(SiemResult.NOT_SENT)
    if done is None:
        log.warning("siem_lease_lost")
        return
    spread = random.random()  # noqa: S311  (spreads load, guards nothing)
    slow = trio.current_time() - started > SLOW
    # Outside of the `try`: what fails from here on does not mean that nothing arrived.
    due_at = await retry_until_stored(lambda: siem.settle(ports, claimed, done, slow=slow, spread=spread), _not_recorded)
    if due_at is not None:
        ports.metrics.siem_failed(done.result.name.lower())
        wait = round((due_at - ports.clock.now()).total_seconds())
        log.warning("siem_failed", reason=done.result.name.lower(), failures=claimed.failures + 1, next_in=wait)
    elif claimed.failures:
        log.info("siem_recovered", failures=claimed.failures, entries=done.sent)
    else:
        log.debug("siem_forwarded", entries=done.sent)


def _not_recorded(outage: Outage) -> None:
    log.warning("siem_outcome_not_recorded", outage=said(outage))
