"""The mailer on a real queue: every email is sent once, despite several mailers, crashes, outages and slow recipients."""

from dataclasses import replace
from datetime import timedelta

import pytest
import trio

import actors.mailer
from actors.mailbox import Mailbox
from actors.mailer import mailer
from adapters.clock import SystemClock
from adapters.email.transports import MailRouter, OrganizationSmtp, SmtpTransport
from adapters.http.guard import Guard
from adapters.postgres.engine.pool import Pool
from core.accounts import email_queue
from core.accounts.model import email_queue as email_queue_model
from core.accounts.model import email_queue as model_email_queue
from core.accounts.model.email_queue import EmailKind, TokenPurpose
from core.kernel.values import Email, digest
from core.mailing import preparation
from core.mailing.model.emails import PreparedEmail
from core.tenancy.model.settings import MailServer
from ports import Ports
from ports.outside import EmailMessage, MailRefused
from tests.actors.helpers import capture_log, is_idle, wait_until_idle
from tests.actors.mailing import (
    ADA,
    BOB,
    MIDDLE,
    ShakyStorage,
    all_finished,
    claim_one,
    mailing,
    prepared_one,
    queue,
    rows,
)
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.fakes.smtp_sink import SmtpSink
from tests.support.builders import add_account, link
from tests.support.waiting import PATIENCE, eventually


@pytest.fixture(autouse=True)
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the poll interval longer than any test, so that polling does not do a message's work."""
    monkeypatch.setattr(actors.mailer, "POLL", 10 * PATIENCE)


async def test_a_queued_email_is_sent_and_its_token_deleted(
    ports: Ports, pool: Pool, sent: FakeMailTransport, metrics: FakeMetrics
) -> None:
    await add_account(ports, ADA, verified=False)
    [mail] = await queue(ports, EmailKind.VERIFY_EMAIL, ADA)
    with capture_log() as log:
        async with mailing(ports):
            [email_message] = await sent.arrived(1)
            await all_finished(pool)
    assert email_message.to == ADA
    [row] = await rows(pool)
    assert (row["outcome"], row["attempts"], row["claims"], row["token"]) == ("sent", 1, 1, None)
    async with ports.storage.reading() as read:
        assert await read.one_time_tokens.live_email(digest(link(email_message)), TokenPurpose.VERIFY_EMAIL, ports.clock.now())
    assert [job for job, _ in metrics.jobs] == ["mail"]
    [entry] = log
    assert (entry["event"], entry["job_id"], entry["kind"]) == ("mail_sent", str(mail.id), "verify_email")
    assert ADA not in str(log)
    assert link(email_message) not in str(log)


async def test_a_post_wakes_the_mailer(ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    async with mailing(ports) as [inbox]:
        await queue(ports, EmailKind.PASSWORD_CHANGED, ADA)
        inbox.post()
        await sent.arrived(1)
        await all_finished(pool)


async def test_two_mailers_with_few_slots_send_each_email_once(ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    addresses = [Email(f"person{number}@example.com") for number in range(30)]
    await queue(ports, EmailKind.PASSWORD_CHANGED, *addresses)
    async with mailing(ports, count=2, slots=3):
        await all_finished(pool)
    assert sorted(email_message.to for email_message in sent.emails) == sorted(addresses)
    assert {(row["outcome"], row["claims"]) for row in await rows(pool)} == {("sent", 1)}


async def test_only_emails_that_can_start_are_claimed(ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    await queue(ports, EmailKind.PASSWORD_CHANGED, *[ADA] * 5)
    sent.gates[ADA] = trio.Event()
    async with mailing(ports, slots=2) as [inbox]:

        async def two_claimed() -> bool:
            return [row["claims"] for row in await rows(pool)].count(1) == 2

        await eventually(two_claimed)
        inbox.post()
        await wait_until_idle(inbox)
        assert await two_claimed()
        sent.gates[ADA].set()
        await all_finished(pool)


async def test_a_slow_recipient_does_not_delay_others(ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    others = [Email(f"person{number}@example.com") for number in range(10)]
    await queue(ports, EmailKind.PASSWORD_CHANGED, ADA, *others)
    sent.gates[ADA] = trio.Event()
    async with mailing(ports, slots=2):
        assert {email_message.to for email_message in await sent.arrived(10)} == set(others)
        sent.gates[ADA].set()
        await all_finished(pool)


async def test_an_outage_of_the_mail_server_delays_emails_but_loses_none(
    ports: Ports, pool: Pool, sent: FakeMailTransport, clock: FakeClock
) -> None:
    await add_account(ports, ADA, verified=False)
    [mail] = await queue(ports, EmailKind.VERIFY_EMAIL, ADA)
    sent.refusal = "mail.example.com port 25: Connection refused"
    with capture_log() as log:
        async with mailing(ports) as [inbox]:
            for attempt in range(1, 4):

                async def attempted(attempt: int = attempt) -> bool:
                    return bool((await rows(pool))[0]["attempts"] == attempt)

                await eventually(attempted)
                [row] = await rows(pool)
                assert row["last_failure"] == sent.refusal
                wait = (row["due_at"] - clock.now()).total_seconds()
                assert 0.75 <= wait / (5 * 2 ** (attempt - 1)) <= 1.25
                clock.advance(timedelta(seconds=wait - 0.001))
                inbox.post()
                await wait_until_idle(inbox)
                assert (await rows(pool))[0]["claims"] == attempt  # not too early
                if attempt == 3:
                    sent.refusal = None
                clock.advance(timedelta(milliseconds=1))
                inbox.post()
            await all_finished(pool)
    [email_message] = sent.emails
    assert email_message.message_id.startswith(f"<{mail.id}@")
    assert [entry["event"] for entry in log] == ["mail_attempt_failed"] * 3 + ["mail_sent"]
    assert ADA not in str(log)


@pytest.mark.slow
async def test_a_mail_server_that_comes_back_gets_the_mail(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    with SmtpSink() as down:
        transport = MailRouter(SmtpTransport(down.url, "Gatehouse <gatehouse@example.com>"), OrganizationSmtp(Guard()))
    await add_account(ports, ADA)
    [mail] = await queue(ports, EmailKind.RESET_PASSWORD, ADA)
    async with mailing(replace(ports, mail=transport)) as [inbox]:

        async def attempted() -> bool:
            return bool((await rows(pool))[0]["attempts"] == 1)

        await eventually(attempted)
        [row] = await rows(pool)
        assert row["last_failure"] == f"127.0.0.1 port {down.port}: Connection refused"
        with SmtpSink(port=down.port) as restarted:
            clock.advance(row["due_at"] - clock.now())
            inbox.post()
            await all_finished(pool)
    [message] = restarted.messages
    assert message["Message-ID"] == f"<{mail.id}@gatehouse.test>"
    body = message.get_body(("plain",))
    assert body is not None
    assert "/auth/reset-password?token=" in body.get_content()


async def test_the_mailer_wakes_by_itself_for_a_retry(
    ports: Ports, pool: Pool, sent: FakeMailTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    class RefusesOnce(FakeMailTransport):
        refused = 0

        async def send(self, email_message: EmailMessage, server: MailServer | None = None) -> None:
            if not self.refused:
                self.refused += 1
                raise MailRefused("not now")
            await sent.send(email_message)

    monkeypatch.setattr(model_email_queue, "compute_backoff", lambda attempts, spread: timedelta(milliseconds=20))
    # With the system clock, because the mailer sleeps in real time.
    ports = replace(ports, mail=RefusesOnce(), clock=SystemClock())
    await queue(ports, EmailKind.PASSWORD_CHANGED, ADA)
    async with mailing(ports):
        await sent.arrived(1)  # without a post
        await all_finished(pool)
    assert [row["attempts"] for row in await rows(pool)] == [2]


async def test_giving_up_an_email_is_logged_and_counted(
    ports: Ports, pool: Pool, sent: FakeMailTransport, clock: FakeClock, metrics: FakeMetrics
) -> None:
    await add_account(ports, ADA, verified=False)
    [mail] = await queue(ports, EmailKind.VERIFY_EMAIL, ADA)
    for _ in range(email_queue_model.MAX_ATTEMPTS - 1):
        claimed, _ = await prepared_one(ports)
        due_at = await email_queue.record_failure(ports, claimed, "refused", MIDDLE)
        assert due_at is not None
        clock.advance(due_at - clock.now())
    assert timedelta(hours=12) < clock.now() - mail.created_at < timedelta(hours=20)
    sent.refusal = "refused permanently"
    with capture_log() as log:
        async with mailing(ports):
            await all_finished(pool)
    [row] = await rows(pool)
    assert (row["outcome"], row["attempts"], row["token"], row["last_failure"]) == (
        "given_up",
        email_queue_model.MAX_ATTEMPTS,
        None,
        "refused permanently",
    )
    [entry] = log
    assert (entry["event"], entry["log_level"], entry["reason"]) == ("mail_given_up", "error", "refused permanently")
    assert (entry["job_id"], entry["kind"]) == (str(mail.id), "verify_email")
    assert ADA not in str(log)
    assert (metrics.mail_attempt_failures, metrics.mail_outcomes) == (1, {"given_up": 1})


async def test_a_defect_in_one_email_does_not_affect_others(ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    class EmailTemplates:
        def compose(self, mail: PreparedEmail) -> EmailMessage:
            if mail.address == ADA:
                raise RuntimeError("a template is broken")
            return ports.email_templates.compose(mail)

    await queue(ports, EmailKind.PASSWORD_CHANGED, ADA, BOB)
    with capture_log() as log:
        async with mailing(replace(ports, email_templates=EmailTemplates())):
            await sent.arrived(1)

            async def both_ended() -> bool:
                return [row["attempts"] for row in await rows(pool)] == [1, 1]

            await eventually(both_ended)
    by_outcome = {row["outcome"]: row for row in await rows(pool)}
    assert by_outcome["sent"]["claims"] == 1
    assert by_outcome[None]["last_failure"] == "it could not be prepared: RuntimeError"
    assert "mail_not_prepared" in [entry["event"] for entry in log if entry["log_level"] == "error"]


async def test_an_outcome_is_stored_once_the_database_is_back(ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    shaky = ShakyStorage(ports.storage)
    sent.gates[ADA] = trio.Event()
    await queue(ports, EmailKind.PASSWORD_CHANGED, ADA)
    with capture_log() as log:
        async with mailing(replace(ports, storage=shaky)) as [inbox]:
            await sent.wait_for_attempt(ADA)
            await wait_until_idle(inbox)
            shaky.outages = 1
            sent.gates[ADA].set()
            await all_finished(pool)
    assert len(sent.emails) == 1
    assert "mail_outcome_not_recorded" in [entry["event"] for entry in log]


async def test_an_outage_of_the_database_interrupts_no_email(ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    shaky = ShakyStorage(ports.storage)
    sent.gates[ADA] = trio.Event()
    await queue(ports, EmailKind.PASSWORD_CHANGED, ADA)
    with capture_log() as log:
        async with mailing(replace(ports, storage=shaky)) as [inbox]:
            await sent.wait_for_attempt(ADA)
            shaky.outages = 1
            inbox.post()
            await eventually(lambda: shaky.outages == 0)
            sent.gates[ADA].set()
            await all_finished(pool)
    assert "mails_not_claimed" in [entry["event"] for entry in log]
    assert [row["claims"] for row in await rows(pool)] == [1]


# Stopping and crashing


async def test_an_email_that_is_being_sent_is_finished_when_the_process_stops(ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    sent.gates[ADA] = trio.Event()
    await queue(ports, EmailKind.PASSWORD_CHANGED, ADA)
    async with trio.open_nursery() as nursery:
        stopping = trio.CancelScope()
        inbox = Mailbox()

        async def run() -> None:
            with stopping:
                await mailer(ports, inbox)

        nursery.start_soon(run)
        with trio.fail_after(PATIENCE):
            await sent.wait_for_attempt(ADA)
        await wait_until_idle(inbox)
        stopping.cancel()
        await eventually(lambda: not is_idle(inbox), "the mailer has stopped waiting")
        sent.gates[ADA].set()
    assert [row["outcome"] for row in await rows(pool)] == ["sent"]


async def test_an_idle_mailer_stops_at_once(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors.mailer, "GRACE", 2 * PATIENCE)  # longer than the limit in `mailing`
    async with mailing(ports) as [inbox]:
        await wait_until_idle(inbox)


async def test_a_crash_between_sending_and_storing_the_outcome_causes_one_duplicate(
    ports: Ports, pool: Pool, sent: FakeMailTransport, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.mailer, "GRACE", 0.01)
    await add_account(ports, ADA, verified=False)
    await queue(ports, EmailKind.VERIFY_EMAIL, ADA)
    sent.stuck_after.add(ADA)
    async with mailing(ports):
        await sent.arrived(1)
    assert [row["outcome"] for row in await rows(pool)] == [None]
    sent.stuck_after.clear()
    async with mailing(ports) as [inbox]:
        await wait_until_idle(inbox)
        assert len(sent.emails) == 1  # as long as the lease lasts
        clock.advance(email_queue_model.LEASE)
        inbox.post()
        await all_finished(pool)
        clock.advance(timedelta(days=1))
        inbox.post()
        await wait_until_idle(inbox)
    first, second = sent.emails
    assert first == second


@pytest.mark.parametrize("step", ["claimed", "prepared"])
async def test_a_crash_before_sending_loses_nothing(ports: Ports, pool: Pool, sent: FakeMailTransport, clock: FakeClock, step: str) -> None:
    await add_account(ports, ADA, verified=False)
    await queue(ports, EmailKind.VERIFY_EMAIL, ADA)
    mail = await claim_one(ports)
    if step == "prepared":
        await preparation.prepare(ports, mail)
    assert await email_queue.claim_due(ports, 10) == []
    clock.advance(email_queue_model.LEASE)
    async with mailing(ports):
        await all_finished(pool)
    assert [email_message.to for email_message in sent.emails] == [ADA]
    [row] = await rows(pool)
    assert (row["outcome"], row["attempts"], row["claims"]) == ("sent", 1, 2)


async def test_an_email_that_crashes_every_process_is_given_up(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    await queue(ports, EmailKind.PASSWORD_CHANGED, ADA)
    for _ in range(email_queue_model.MAX_LOST_CLAIMS):
        await prepared_one(ports)
        clock.advance(email_queue_model.LEASE)
    with capture_log() as log:
        async with mailing(ports):
            await all_finished(pool)
    [row] = await rows(pool)
    assert (row["outcome"], row["last_failure"]) == ("given_up", "it was claimed too often without an outcome")
    assert [(entry["event"], entry["log_level"]) for entry in log] == [("mail_given_up", "error")]
