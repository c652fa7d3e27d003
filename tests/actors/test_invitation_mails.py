"""Invitation emails: their link, reasons not to send them, and their separate limit (security A-5, E-1, E-2, E-5, L-3)."""

from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts import accounts, email_queue
from core.accounts.model import email_queue as email_queue_model
from core.accounts.model.email_queue import EmailOutcome, EmailResult, QueuedEmail
from core.kernel.callers import Member, OrganizationContext, OrganizationStatus
from core.kernel.causes import SYSTEM, Anonymous
from core.kernel.roles import OWNER, rights_of
from core.kernel.values import Email, new_id
from core.mailing import preparation
from core.tenancy import invitations, inviting
from core.tenancy.model import invitations as invitations_model
from core.tenancy.model.organizations import Membership
from ports import Ports
from ports.outside import EmailMessage
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import BASE_URL, EMAIL, add_account, add_organization, deliver, link, run_concurrently, run_sql, sign_in

ADA = Email(EMAIL)
HOUR, WEEK = timedelta(hours=1), timedelta(days=7)


async def add_owner(ports: Ports, pool: Pool, slug: str) -> Member:
    """Add an organization and return its owner, who invites."""
    org = await add_organization(pool, slug)
    account = await add_account(ports, f"owner@{slug}.example", None)
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.members.add(Membership(id=new_id(), org_id=org, user_id=account.id, role=OWNER, created_at=now, confirmed_at=now))
    context = OrganizationContext(org, slug, OrganizationStatus.ACTIVE, OWNER, rights_of(OWNER))
    session = await sign_in(ports, account)
    return Member(user_id=account.id, email=account.email, email_verified=True, session_id=session.session_id, acts_in=context)


@pytest.fixture
async def owner(ports: Ports, pool: Pool) -> Member:
    return await add_owner(ports, pool, "acme")


async def invite(ports: Ports, owner: Member, email: Email = ADA) -> str:
    """Invite this address and return the invitation token."""
    return (await inviting.invite(ports, owner, email, "member"))[1]


async def claim(ports: Ports) -> QueuedEmail:
    [mail] = await email_queue.claim_due(ports, 10)
    return mail


async def prepared(ports: Ports, mail: QueuedEmail) -> tuple[QueuedEmail, EmailMessage]:
    """Return the prepared email."""
    result = await preparation.prepare(ports, mail)
    assert not isinstance(result, EmailResult)
    return result


async def row(pool: Pool) -> tuple[Any, ...]:
    """Return the only email's outcome, its reason, and the stored token."""
    [values] = await run_sql(pool, "select outcome, last_failure, token from mails")
    return values


async def test_the_email_contains_the_link_and_goes_to_the_invited_address(ports: Ports, owner: Member, sent: FakeMailTransport) -> None:
    token = await invite(ports, owner)
    await deliver(ports)
    [message] = sent.emails
    assert token not in message.text, "the inviter does not know the token of the email"
    token = link(message)
    assert message.to == ADA
    assert message.subject == "You are invited to Acme - Gatehouse"
    assert f"\n{BASE_URL}/invitations/accept?token={token}\n" in message.text
    for words in ("owner@acme.example", "a member", "Acme", "21 March 2026 at 15:09 UTC"):
        assert words in message.text


async def test_the_token_is_stored_encrypted_until_the_email_is_sent(ports: Ports, owner: Member, pool: Pool) -> None:
    token = await invite(ports, owner)
    _, _, stored = await row(pool)
    assert token.encode() not in stored
    await deliver(ports)
    assert await row(pool) == (EmailOutcome.SENT, None, None)


async def test_a_refused_invitation_sends_no_email(ports: Ports, owner: Member, pool: Pool) -> None:
    await invite(ports, owner)
    with pytest.raises(invitations_model.InvitationAlreadySent):
        await invite(ports, owner)
    assert await run_sql(pool, "select count(*) from mails") == [(1,)]


@pytest.mark.parametrize("end", ["accepted", "declined", "cancelled", "deleted"])
async def test_an_invitation_that_has_ended_is_not_emailed(
    ports: Ports, owner: Member, sent: FakeMailTransport, pool: Pool, end: str
) -> None:
    token = await invite(ports, owner)
    match end:
        case "accepted":
            await invitations.accept(ports, Anonymous(), token)
        case "declined":
            await invitations.decline(ports, Anonymous(), token)
        case "cancelled":
            [(id_,)] = await run_sql(pool, "select id from invitations")
            await invitations.cancel(ports, owner, id_)
        case "deleted":
            await run_sql(pool, "delete from organizations")
    await deliver(ports)
    assert sent.emails == []
    assert await row(pool) == (EmailOutcome.DROPPED, None, None)


@pytest.mark.parametrize("marked", [False, True])
async def test_an_invitation_that_expired_before_sending_is_given_up(
    ports: Ports, owner: Member, sent: FakeMailTransport, pool: Pool, clock: FakeClock, marked: bool
) -> None:
    await invite(ports, owner)
    clock.advance(WEEK)
    if marked:
        await invitations.sweep(ports, new_id())
    await deliver(ports)
    assert sent.emails == []
    assert await row(pool) == (EmailOutcome.GIVEN_UP, email_queue_model.LINK_EXPIRED, None)


async def test_an_unreadable_token_cannot_be_emailed(ports: Ports, owner: Member, sent: FakeMailTransport, pool: Pool) -> None:
    await invite(ports, owner)
    await run_sql(pool, "update mails set token = 'x'")
    await deliver(ports)
    assert sent.emails == []
    outcome, reason, _ = await row(pool)
    assert outcome == EmailOutcome.GIVEN_UP
    assert "link is lost" in reason


async def test_a_second_attempt_sends_the_same_message(ports: Ports, owner: Member, clock: FakeClock) -> None:
    await invite(ports, owner)
    first, message = await prepared(ports, await claim(ports))
    clock.advance(HOUR)
    assert await email_queue.record_failure(ports, first, "421 try later", 0.5)
    clock.advance(HOUR)
    _, again = await prepared(ports, await claim(ports))
    assert link(message) == link(again)
    assert message.message_id == again.message_id


# The limit per recipient


async def test_an_address_gets_a_limited_number_of_invitations_per_hour_from_all_senders(
    ports: Ports, pool: Pool, sent: FakeMailTransport, clock: FakeClock
) -> None:
    owners = [await add_owner(ports, pool, f"org-{number}") for number in range(8)]
    for owner in owners[:6]:
        await invite(ports, owner)
        clock.advance(timedelta(minutes=1))
    await deliver(ports)
    assert len(sent.emails) == 5
    await invite(ports, owners[0], Email("eve@example.com"))
    await deliver(ports)
    assert [message.to for message in sent.emails].count(Email("eve@example.com")) == 1
    # The sixth invitation still exists, and the invitee's list shows it.
    assert await run_sql(pool, "select count(*) from invitations where status = 'pending' and email = %s", ADA) == [(6,)]
    clock.advance(HOUR)
    await invite(ports, owners[6])
    await deliver(ports)
    assert len(sent.emails) == 7


async def test_invitations_do_not_count_towards_the_limit_of_account_emails(ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    await add_account(ports)
    for number in range(6):
        await invite(ports, await add_owner(ports, pool, f"org-{number}"))
    await deliver(ports)
    for _ in range(6):
        await accounts.forgot_password(ports, Anonymous(), ADA)
        await deliver(ports)
    subjects = [message.subject for message in sent.emails]
    assert subjects.count("Set a new password - Gatehouse") == 5
    assert sum(subject.startswith("You are invited") for subject in subjects) == 5


async def test_account_emails_do_not_count_towards_the_limit_of_invitations(ports: Ports, owner: Member, sent: FakeMailTransport) -> None:
    await add_account(ports)
    for _ in range(6):
        await accounts.forgot_password(ports, Anonymous(), ADA)
        await deliver(ports)
    await invite(ports, owner)
    await deliver(ports)
    assert sent.emails[-1].subject == "You are invited to Acme - Gatehouse"


async def test_an_email_within_the_limit_is_counted_once_and_stays_allowed(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    owners = [await add_owner(ports, pool, f"org-{number}") for number in range(6)]
    await invite(ports, owners[0])
    first, _ = await prepared(ports, await claim(ports))
    await email_queue.record_failure(ports, first, "421 try later", 0.5)
    for owner in owners[1:]:
        await invite(ports, owner)
    others = [await preparation.prepare(ports, mail) for mail in await email_queue.claim_due(ports, 10)]
    assert [isinstance(result, EmailResult) for result in others].count(True) == 1
    clock.advance(timedelta(seconds=10))
    await prepared(ports, await claim(ports))


@pytest.mark.slow
async def test_parallel_mailers_respect_the_limit(ports: Ports, pool: Pool) -> None:
    for number in range(12):
        await invite(ports, await add_owner(ports, pool, f"org-{number}"))
    claimed = await email_queue.claim_due(ports, 12)
    results = await run_concurrently(12, lambda number: preparation.prepare(ports, claimed[number]))
    assert sum(not isinstance(result, EmailResult) for result in results) == 5
