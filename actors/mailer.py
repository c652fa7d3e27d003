"""The actor that sends queued emails: it claims due emails, prepares and sends them, and stores the outcomes."""

import math
import random
from collections import Counter
from contextlib import AbstractContextManager
from typing import Final, NoReturn
from uuid import UUID

import structlog
import trio

from actors import dispatching, mailbox
from actors.supervisor import describe_error
from core.accounts import email_queue
from core.accounts.model.email_queue import CAUSED_BY_ORGANIZATIONS, BusyServers, EmailOutcome, EmailResult, QueuedEmail
from core.kernel.errors import Outage
from core.mailing import preparation
from core.mailing.model.emails import PreparedEmail
from ports import Ports, outside

log = structlog.get_logger("mailer")

SLOTS: Final = 40  # emails sent at the same time
PLATFORM_SLOTS: Final = 8  # through the platform's server
OWN_SERVER_SLOTS: Final = 32  # through the organizations' own mail servers, which may be slow
SLOTS_OF_ONE: Final = 2  # through a single organization's server
POLL: Final = 30.0  # seconds
OUTAGE_PAUSE: Final = 5.0  # seconds
GRACE: Final = 5.0  # seconds to finish sending an email when the process is stopped


async def mailer(ports: Ports, inbox: mailbox.Mailbox, *, slots: int = SLOTS) -> NoReturn:
    """Send emails forever. A message in `inbox` says that some may be due."""
    retries, rotation = _Retries(), _ServerRotation()
    async with trio.open_nursery() as attempts:
        while True:
            pause = POLL
            try:
                # Claim an email only when a slot is free, because a wait would use up its lease.
                # Claim only a single email: the preparation determines its mail server, and the
                # next claim depends on that.
                while len(attempts.child_tasks) < slots and (mail := await _claim(ports, rotation)):
                    prepared = await _prepare(ports, mail, retries)
                    if prepared is None:
                        rotation.take_turn(mail)
                    else:
                        rotation.begin(prepared[0])
                        attempts.start_soon(_attempt, ports, *prepared, inbox, retries, rotation)
            except Outage as outage:
                # Do not let this reach the supervisor: its restart would cancel the emails that are
                # being sent.
                log.warning("mails_not_claimed", outage=describe_error(outage))
                pause = OUTAGE_PAUSE
            await inbox.wait(at_most=min(mailbox.jittered(pause), retries.next_in()))


class _ServerRotation:
    """The rotation between organizations that send emails, through the platform's server or their own servers.

    In a round, an organization may start a single email. The next round begins when every organization with due emails
    has started an email. Without rounds, the queue would be ordered by age alone. Then the organization with the
    longest backlog would always come first, and a slow mail server or many invitations cause a long backlog. In a round
    on the platform's server, the accounts' emails have as many turns as organizations had, and at least one turn.
    """

    def __init__(self) -> None:
        self._active: Counter[UUID | None] = Counter()  # emails in progress; None counts emails at the platform's server
        self._served: set[UUID] = set()  # organizations that had their turn in this round
        self._served_by_platform: Counter[UUID | None] = Counter()  # None counts the accounts' emails

    def busy_servers(self) -> BusyServers:
        """Return the servers to leave out of the next claim."""
        served = set(self._served_by_platform)
        if self._served_by_platform[None] < len(served) - 1:
            served.discard(None)
        return BusyServers(frozenset(self._served | self._busy), self._is_full, self._active[None] >= PLATFORM_SLOTS, frozenset(served))

    def next_round(self) -> bool:
        """Start the next round after a claim found no email. Return whether the new round allows more emails."""
        begins_anew = bool(self._served_by_platform) and self._active[None] < PLATFORM_SLOTS
        ends_turns = not (self._is_full or self._served <= self._busy)
        if begins_anew:
            self._served_by_platform.clear()
        if ends_turns:
            self._served.clear()
        return begins_anew or ends_turns

    @property
    def _is_full(self) -> bool:
        return self._active.total() - self._active[None] >= OWN_SERVER_SLOTS

    @property
    def _busy(self) -> set[UUID]:
        return {org_id for org_id, count in self._active.items() if org_id is not None and count >= SLOTS_OF_ONE}

    def begin(self, mail: PreparedEmail) -> None:
        self._active[None if mail.server is None else mail.server.org_id] += 1
        if mail.server is None:
            self.take_turn(mail)
        else:
            self._served.add(mail.server.org_id)

    def take_turn(self, mail: QueuedEmail) -> None:
        """Count an email for the platform's server, or a dropped email. A flood may consist only of dropped emails."""
        self._served_by_platform[mail.org_id if mail.kind in CAUSED_BY_ORGANIZATIONS else None] += 1

    def end(self, mail: PreparedEmail) -> None:
        self._active[None if mail.server is None else mail.server.org_id] -= 1
        self._active += Counter()  # drops organizations that count zero


async def _claim(ports: Ports, rotation: _ServerRotation) -> QueuedEmail | None:
    """Return the next email to send. The oldest email comes first, because a newer reset link replaces an older link."""
    claimed = await email_queue.claim_due(ports, 1, rotation.busy_servers())
    if not claimed and rotation.next_round():
        claimed = await email_queue.claim_due(ports, 1, rotation.busy_servers())
    return claimed[0] if claimed else None


class _Retries:
    """The times at which emails that failed in this process fall due again, if that is before the next poll."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def add(self, delay: float | None) -> None:
        """Add an email that falls due in `delay` seconds, or none if `delay` is None."""
        if delay is not None and delay < POLL:
            self._times.append(trio.current_time() + delay + mailbox.CLOCK_GRAIN)

    def next_in(self) -> float:
        """Return the seconds until the next email falls due, and forget emails that are due already."""
        now = trio.current_time()
        self._times = [at for at in self._times if at > now]
        return min(self._times, default=math.inf) - now


def _log_fields(mail: QueuedEmail) -> AbstractContextManager[object]:
    """Add the email's id and kind to every log line in a block, but never its address or content (security L-3)."""
    return structlog.contextvars.bound_contextvars(job="mail", job_id=str(mail.id), kind=mail.kind.value)


async def _prepare(ports: Ports, mail: QueuedEmail, retries: _Retries) -> tuple[PreparedEmail, outside.EmailMessage] | None:
    """Return the queued email with its token and the message to send, or None if there is nothing to send now."""
    with _log_fields(mail):
        try:
            prepared = await preparation.prepare(ports, mail)
        except Outage as outage:
            log.warning("mail_not_prepared", outage=describe_error(outage))  # its lease expires, and it falls due again
            return None
        except Exception as defect:
            log.exception("mail_not_prepared")
            retries.add(await _record_failure(ports, mail, f"it could not be prepared: {type(defect).__name__}"))
            return None
        if isinstance(prepared, EmailResult):
            _record_end(ports, mail, prepared)
            return None
    return prepared


async def _attempt(
    ports: Ports, mail: PreparedEmail, message: outside.EmailMessage, inbox: mailbox.Mailbox, retries: _Retries, rotation: _ServerRotation
) -> None:
    started = trio.current_time()
    try:
        with _log_fields(mail):
            async with dispatching.shutdown_grace(GRACE):
                retries.add(await _send(ports, mail, message))
    finally:
        ports.metrics.job_done("mail", trio.current_time() - started)
        rotation.end(mail)
        inbox.post()  # a slot is free, and more emails may be due


async def _send(ports: Ports, mail: PreparedEmail, message: outside.EmailMessage) -> float | None:
    """Send the email and store the outcome. Return the seconds until a retry, or None if there is none."""
    try:
        await ports.mail.send(message, mail.server)
    except outside.MailRefused as refusal:
        return await _record_failure(ports, mail, str(refusal))
    except Exception as defect:
        log.exception("mail_not_sent")
        return await _record_failure(ports, mail, f"it could not be sent: {type(defect).__name__}")
    # Outside the `try`: an error from here on must not count a sent email as failed.
    await dispatching.retry_until_stored(lambda: email_queue.record_sent(ports, mail), _log_not_stored)
    _record_end(ports, mail, EmailResult(EmailOutcome.SENT))
    return None


async def _record_failure(ports: Ports, mail: QueuedEmail, reason: str) -> float | None:
    """Store a failed attempt. Return the seconds until a retry, or None after the last attempt."""
    spread = random.random()  # noqa: S311  (spreads load, guards nothing)
    due_at = await dispatching.retry_until_stored(lambda: email_queue.record_failure(ports, mail, reason, spread), _log_not_stored)
    ports.metrics.mail_attempt_failed()
    if due_at is None:
        _record_end(ports, mail, EmailResult(EmailOutcome.GIVEN_UP, reason))
        return None
    delay = (due_at - ports.clock.now()).total_seconds()
    log.warning("mail_attempt_failed", attempt=mail.attempts + 1, reason=reason, next_in=round(delay))
    return delay


def _log_not_stored(outage: Outage) -> None:
    log.warning("mail_outcome_not_recorded", outage=describe_error(outage))


def _record_end(ports: Ports, mail: QueuedEmail, end: EmailResult) -> None:
    """Count and log an email that left the queue."""
    ports.metrics.mail_ended(end.outcome)
    match end.outcome:
        case EmailOutcome.SENT:
            log.info("mail_sent", failed_attempts=mail.attempts)
        case EmailOutcome.DROPPED:
            log.debug("mail_dropped")
        case EmailOutcome.GIVEN_UP:
            log.error("mail_given_up", reason=end.reason)
