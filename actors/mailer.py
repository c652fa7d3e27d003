"""Sends what is queued: claims due mails, prepares them, hands them over, and records what became of each."""

import heapq
import math
import random
from collections import Counter
from contextlib import AbstractContextManager
from typing import Final, NoReturn
from uuid import UUID

import structlog
import trio

from actors.grace import grace
from actors.mailbox import Mailbox, jittered
from actors.outages import retry_until_stored
from actors.supervisor import said
from core.accounts import email_queue
from core.accounts.email_queue_rules import Ended, HeldBack, Mail, Outcome
from core.kernel.errors import Outage
from ports import Ports
from ports.outside import Letter, MailRefused

log = structlog.get_logger("mailer")

SLOTS: Final = 8  # letters on their way at once, so that a slow recipient does not hold back others
# Of these, how many for letters through the servers of organizations, which may be as slow as they like; and for those of one of them.
OWN_SERVER_SLOTS: Final = 4
SLOTS_OF_ONE: Final = 2
POLL: Final = 30.0  # seconds
OUTAGE_PAUSE: Final = 5.0  # seconds
GRACE: Final = 5.0  # seconds that a handover which has begun is given to end when the process is stopped


async def mailer(ports: Ports, inbox: Mailbox, *, slots: int = SLOTS) -> NoReturn:
    """Send mails for ever; `inbox` is posted to when there may be some."""
    retries, turns = _Retries(), _Turns()
    async with trio.open_nursery() as attempts:
        while True:
            pause = POLL
            try:
                # Only when it can start now: a mail that is claimed and then waits would use up its lease. One at a time, since the server
                # that it goes through is known when it is prepared, and decides what may be claimed next.
                while len(attempts.child_tasks) < slots and (mail := await _claim(ports, turns)):
                    prepared = await _prepare(ports, mail, retries)
                    if prepared is not None:
                        turns.begin(prepared[0])
                        attempts.start_soon(_attempt, ports, *prepared, inbox, retries, turns)
            except Outage as outage:
                # Not for the supervisor, whose restart would cut off letters that are on their way.
                log.warning("mails_not_claimed", outage=said(outage))
                pause = OUTAGE_PAUSE
            await inbox.wait(at_most=min(jittered(pause), retries.next_in()))


class _Turns:
    """Whose mails may be claimed, among the organizations that have mail servers of their own.

    Organizations take turns: one whose mail was begun waits until all others with mails due have had one begun, too. By age alone, which
    is the order of the queue, the one with the longest backlog would come first until that is gone, and a slow server makes one.
    """

    def __init__(self) -> None:
        self._begun: Counter[UUID] = Counter()
        self._had: set[UUID] = set()  # a turn in this round

    def held_back(self) -> HeldBack:
        return HeldBack(frozenset(self._had | self._busy), self._is_full)

    def next_round(self) -> bool:
        """After nothing was found to claim: whether another round begins, in which there may be something."""
        if self._is_full or self._had <= self._busy:
            return False
        self._had.clear()
        return True

    @property
    def _is_full(self) -> bool:
        return self._begun.total() >= OWN_SERVER_SLOTS

    @property
    def _busy(self) -> set[UUID]:
        return {org_id for org_id, count in self._begun.items() if count >= SLOTS_OF_ONE}

    def begin(self, mail: Mail) -> None:
        if mail.server is not None:
            self._begun[mail.server.org_id] += 1
            self._had.add(mail.server.org_id)

    def end(self, mail: Mail) -> None:
        if mail.server is not None:
            self._begun[mail.server.org_id] -= 1
            self._begun += Counter()  # forgets those that have none any more


async def _claim(ports: Ports, turns: _Turns) -> Mail | None:
    """The next mail to send now, in the order in which they were asked for, since a later reset link cancels an earlier one."""
    claimed = await email_queue.claim_due(ports, 1, turns.held_back())
    if not claimed and turns.next_round():
        claimed = await email_queue.claim_due(ports, 1, turns.held_back())
    return claimed[0] if claimed else None


class _Retries:
    """When the mails that failed here fall due again, as far as that is sooner than the next look at the queue."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def add(self, delay: float | None) -> None:
        """In how many seconds one falls due, or None if none does."""
        if delay is not None and delay < POLL:
            # A moment later, so that the mail is due by then whatever the clocks' grain is.
            heapq.heappush(self._times, trio.current_time() + delay + 0.05)

    def next_in(self) -> float:
        """Seconds until the next one; those that are past are forgotten."""
        while self._times and self._times[0] <= trio.current_time():
            heapq.heappop(self._times)
        return self._times[0] - trio.current_time() if self._times else math.inf


def _job(mail: Mail) -> AbstractContextManager[object]:
    """What every log line about this mail says; never where it goes or what it holds (security.md L-3)."""
    return structlog.contextvars.bound_contextvars(job="mail", job_id=str(mail.id), kind=mail.kind.value)


async def _prepare(ports: Ports, mail: Mail, retries: _Retries) -> tuple[Mail, Letter] | None:
    """The mail with its token and the letter to send, or None where there is nothing to send now."""
    with _job(mail):
        try:
            prepared = await email_queue.prepare(ports, mail)
        except Outage as outage:
            log.warning("mail_not_prepared", outage=said(outage))  # its lease ends, and it falls due again
            return None
        except Exception as defect:
            log.exception("mail_not_prepared")
            retries.add(await _failed(ports, mail, f"it could not be prepared: {type(defect).__name__}"))
            return None
        if isinstance(prepared, Ended):
            _tell_end(mail, prepared)
            return None
    return prepared


async def _attempt(ports: Ports, mail: Mail, letter: Letter, inbox: Mailbox, retries: _Retries, turns: _Turns) -> None:
    started = trio.current_time()
    try:
        with _job(mail):
            async with grace(GRACE):
                retries.add(await _hand_over(ports, mail, letter))
    finally:
        ports.metrics.job_done("mail", trio.current_time() - started)
        turns.end(mail)
        inbox.post()  # a slot is free, and more may be due


async def _hand_over(ports: Ports, mail: Mail, letter: Letter) -> float | None:
    try:
        await ports.mail.send(letter, mail.server)
    except MailRefused as refusal:
        return await _failed(ports, mail, str(refusal))
    except Exception as defect:
        log.exception("mail_not_sent")
        return await _failed(ports, mail, f"it could not be sent: {type(defect).__name__}")
    # Outside of the `try`: what fails from here on must not make the letter count as not sent.
    await retry_until_stored(lambda: email_queue.sent(ports, mail), _not_recorded)
    _tell_end(mail, Ended(Outcome.SENT))
    return None


async def _failed(ports: Ports, mail: Mail, reason: str) -> float | None:
    spread = random.random()  # noqa: S311  (spreads load, guards nothing)
    due_at = await retry_until_stored(lambda: email_queue.failed(ports, mail, reason, spread), _not_recorded)
    if due_at is None:
        _tell_end(mail, Ended(Outcome.GIVEN_UP, reason))
        return None
    delay = (due_at - ports.clock.now()).total_seconds()
    log.warning("mail_attempt_failed", attempt=mail.attempts + 1, reason=reason, next_in=round(delay))
    return delay


def _not_recorded(outage: Outage) -> None:
    log.warning("mail_outcome_not_recorded", outage=said(outage))


def _tell_end(mail: Mail, end: Ended) -> None:
    """The end of a mail, in the log."""
    match end.outcome:
        case Outcome.SENT:
            log.info("mail_sent", failed_attempts=mail.attempts)
        case Outcome.DROPPED:
            log.debug("mail_dropped")
        case Outcome.GIVEN_UP:
            log.error("mail_given_up", reason=end.reason)
