"""How queued emails are prepared: tokens, limits, and reasons not to send an email."""

from datetime import timedelta

import pytest

import actors.mailer
from adapters.postgres.engine.pool import Pool
from core.accounts import email_changes, email_queue
from core.accounts.model import email_queue as email_queue_model
from core.accounts.model.accounts import EmailChange
from core.accounts.model.email_queue import EmailKind, EmailOutcome, EmailResult, TokenPurpose
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from core.kernel.values import Email, digest
from core.mailing import preparation
from ports import Ports
from ports.outside import EmailMessage
from tests.actors.helpers import capture_log
from tests.actors.mailing import ADA, BOB, MIDDLE, all_finished, claim_one, mailing, prepared_one, queue, rows
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import add_account, deliver, fresh_sign_in, link, sign_in
from tests.support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the poll interval longer than any test, so that polling does not do a message's work."""
    monkeypatch.setattr(actors.mailer, "POLL", 10 * PATIENCE)


async def test_all_attempts_send_the_same_message(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    await add_account(ports, ADA, verified=False)
    await queue(ports, EmailKind.VERIFY_EMAIL, ADA)
    mail, first = await prepared_one(ports)
    due_at = await email_queue.record_failure(ports, mail, "refused", MIDDLE)
    assert due_at == clock.now() + timedelta(seconds=5)
    clock.advance(timedelta(seconds=5))
    _, second = await prepared_one(ports)
    assert second == first


async def test_a_token_is_encrypted_in_the_queue(ports: Ports, pool: Pool) -> None:
    await add_account(ports, ADA, verified=False)
    await queue(ports, EmailKind.VERIFY_EMAIL, ADA)
    mail, message = await prepared_one(ports)
    [row] = await rows(pool)
    assert mail.token == link(message)
    assert row["token"] is not None
    assert mail.token.encode() not in row["token"]
    await email_queue.record_sent(ports, mail)
    [row] = await rows(pool)
    assert row["token"] is None


@pytest.mark.parametrize("kind", [EmailKind.VERIFY_EMAIL, EmailKind.PASSWORD_CHANGED])
async def test_an_email_that_was_claimed_again_is_not_sent(ports: Ports, pool: Pool, clock: FakeClock, kind: EmailKind) -> None:
    await add_account(ports, ADA, verified=False)
    await queue(ports, kind, ADA)
    stale = await claim_one(ports)
    clock.advance(email_queue_model.LEASE)
    current = await claim_one(ports)
    assert await preparation.prepare(ports, stale) == EmailResult(EmailOutcome.DROPPED)
    [row] = await rows(pool)
    assert (row["outcome"], row["token"]) == (None, None)
    assert not isinstance(await preparation.prepare(ports, current), EmailResult)


@pytest.mark.parametrize("kind", [EmailKind.VERIFY_EMAIL, EmailKind.RESET_PASSWORD])
async def test_no_email_goes_to_an_address_without_an_account(ports: Ports, pool: Pool, sent: FakeMailTransport, kind: EmailKind) -> None:
    await queue(ports, kind, ADA)
    with capture_log() as log:
        async with mailing(ports):
            await all_finished(pool)
    assert sent.emails == []
    [row] = await rows(pool)
    assert (row["outcome"], row["token"], row["attempts"]) == ("dropped", None, 0)
    assert {entry["log_level"] for entry in log} == {"debug"}


async def test_no_email_goes_to_a_deactivated_account(ports: Ports) -> None:
    await add_account(ports, ADA, deactivated_at=ports.clock.now())
    await queue(ports, EmailKind.RESET_PASSWORD, ADA)
    assert await preparation.prepare(ports, await claim_one(ports)) == EmailResult(EmailOutcome.DROPPED)


async def test_a_verified_account_is_not_asked_to_verify(ports: Ports) -> None:
    await add_account(ports, ADA)
    await queue(ports, EmailKind.VERIFY_EMAIL, ADA)
    assert await preparation.prepare(ports, await claim_one(ports)) == EmailResult(EmailOutcome.DROPPED)


async def test_a_recipient_gets_five_emails_with_tokens_per_hour(
    ports: Ports, pool: Pool, sent: FakeMailTransport, clock: FakeClock
) -> None:
    await add_account(ports, ADA, verified=False)
    await add_account(ports, BOB, verified=False)
    await queue(ports, EmailKind.VERIFY_EMAIL, *[ADA] * 7, BOB)
    async with mailing(ports) as [inbox]:
        await all_finished(pool)
        assert sorted(message.to for message in sent.emails) == [ADA] * 5 + [BOB]
        clock.advance(timedelta(minutes=59))
        await queue(ports, EmailKind.RESET_PASSWORD, ADA)  # all kinds with a token count
        await queue(ports, EmailKind.PASSWORD_CHANGED, ADA)  # has no token
        inbox.post()
        await all_finished(pool)
        assert [message.subject for message in sent.emails[6:]] == ["Your password was changed - Gatehouse"]
        clock.advance(timedelta(minutes=1))
        await queue(ports, EmailKind.RESET_PASSWORD, ADA)
        inbox.post()
        await all_finished(pool)
    assert [message.subject for message in sent.emails[7:]] == ["Set a new password - Gatehouse"]


async def test_a_reset_link_invalidates_the_previous_one(ports: Ports, clock: FakeClock) -> None:
    await add_account(ports, ADA)
    await queue(ports, EmailKind.RESET_PASSWORD, ADA)
    mail, first = await prepared_one(ports)
    await email_queue.record_failure(ports, mail, "refused", MIDDLE)
    await queue(ports, EmailKind.RESET_PASSWORD, ADA)
    mail, second = await prepared_one(ports)
    await email_queue.record_sent(ports, mail)
    async with ports.storage.reading() as read:
        assert not await read.one_time_tokens.live_email(digest(link(first)), TokenPurpose.RESET_PASSWORD, clock.now())
        assert await read.one_time_tokens.live_email(digest(link(second)), TokenPurpose.RESET_PASSWORD, clock.now())
    clock.advance(timedelta(seconds=5))
    assert await preparation.prepare(ports, await claim_one(ports)) == EmailResult(EmailOutcome.DROPPED)  # its link would not be valid


async def test_an_email_with_an_expired_link_is_given_up(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    await add_account(ports, ADA)
    await queue(ports, EmailKind.RESET_PASSWORD, ADA)
    mail, _ = await prepared_one(ports)
    await email_queue.record_failure(ports, mail, "refused", MIDDLE)
    clock.advance(ports.policy.reset_ttl)
    ended = await preparation.prepare(ports, await claim_one(ports))
    assert ended == EmailResult(EmailOutcome.GIVEN_UP, "its link expired before it could be sent")
    [row] = await rows(pool)
    assert (row["outcome"], row["token"], row["last_failure"]) == ("given_up", None, "its link expired before it could be sent")


@pytest.fixture
async def change(ports: Ports) -> EmailChange:
    """A pending address change, with its two emails in the queue: the notice to ADA comes first."""
    account = await add_account(ports, ADA)
    person = Person(user_id=account.id, email=ADA, session_id=(await sign_in(ports, account)).session_id, sign_in=fresh_sign_in(ports))
    requested = await email_changes.request(ports, person, BOB)
    assert requested is not None
    return requested


async def prepare_both(ports: Ports) -> dict[Email, EmailMessage | EmailResult]:
    prepared = {mail.address: await preparation.prepare(ports, mail) for mail in await email_queue.claim_due(ports, 10)}
    return {address: result if isinstance(result, EmailResult) else result[1] for address, result in prepared.items()}


async def test_all_attempts_to_send_the_emails_about_a_change_of_address_have_the_same_links(
    ports: Ports, clock: FakeClock, change: EmailChange
) -> None:
    first = await prepare_both(ports)
    clock.advance(email_queue_model.LEASE)
    assert await prepare_both(ports) == first
    assert [type(message) for message in first.values()] == [EmailMessage] * 2


@pytest.mark.parametrize("attempts", [1, 2])
async def test_the_email_of_a_canceled_change_is_dropped_but_not_the_notice(
    ports: Ports, clock: FakeClock, change: EmailChange, attempts: int
) -> None:
    """The notice undoes later changes, too."""
    if attempts == 2:
        await prepare_both(ports)
        clock.advance(email_queue_model.LEASE)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.email_changes.cancel_pending(change.user_id, clock.now())
    results = await prepare_both(ports)
    assert results[BOB] == EmailResult(EmailOutcome.DROPPED)
    assert isinstance(results[ADA], EmailMessage)


async def test_emails_about_a_change_are_given_up_when_their_links_expire(ports: Ports, clock: FakeClock, change: EmailChange) -> None:
    given_up = EmailResult(EmailOutcome.GIVEN_UP, "its link expired before it could be sent")
    clock.advance(timedelta(hours=24))
    results = await prepare_both(ports)
    assert results[BOB] == given_up
    assert isinstance(results[ADA], EmailMessage)
    clock.advance(timedelta(hours=48))
    assert await prepare_both(ports) == {ADA: given_up}


async def test_a_requested_address_gets_five_emails_per_hour(
    ports: Ports, pool: Pool, sent: FakeMailTransport, change: EmailChange
) -> None:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for _ in range(6):
            mail = email_queue_model.new_email(EmailKind.CONFIRM_EMAIL_CHANGE, BOB, ports.clock.now(), email_change_id=change.id)
            await tx.email_queue.add(mail)
    await deliver(ports)
    assert [message.to for message in sent.emails].count(BOB) == 5


def test_delays_double_up_to_an_hour() -> None:
    assert [email_queue_model.compute_backoff(attempts, MIDDLE).total_seconds() for attempts in (1, 2, 3, 10, 11, 23)] == [
        5,
        10,
        20,
        2560,
        3600,
        3600,
    ]
    assert [email_queue_model.compute_backoff(1, spread).total_seconds() for spread in (0, 1)] == [3.75, 6.25]
