"""Every statement about the email queue: fields, conditions, and that two claims never return the same email."""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.locks import RECIPIENTS
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres, Transaction
from core.accounts.model.email_queue import NO_BUSY_SERVERS, BusyServers, EmailKind, EmailOutcome, QueuedEmail
from core.kernel.causes import SYSTEM
from core.kernel.values import Email
from core.tenancy.model.settings import MailServer
from tests.support.builders import add_organization, mail_server, run_concurrently, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, MICROSECOND, NOW, SECOND, in_another_task, mail, queue, within
from tests.tables import table


async def claim(storage: Postgres, limit: int = 10, now: datetime = NOW, lease: timedelta = HOUR) -> list[QueuedEmail]:
    return await within(storage, lambda tx: tx.email_queue.claim(now, now + lease, limit))


@table("kind", list(EmailKind))
async def test_every_field_of_an_email_is_stored(storage: Postgres, kind: EmailKind) -> None:
    queued = mail(kind=kind, org_id=uuid4())
    await queue(storage, queued)
    await within(storage, lambda tx: tx.email_queue.save_token(queued, "the token", NOW))
    assert await claim(storage) == [replace(queued, claims=1, due_at=NOW + HOUR, token="the token", token_at=NOW)]


async def test_due_emails_are_claimed_oldest_first_up_to_the_limit(storage: Postgres) -> None:
    mails = [mail(created_at=NOW - age * SECOND, due_at=NOW - age * SECOND) for age in (3, 9, 1, 7, 5, 0)]
    later = mail(created_at=NOW - DAY, due_at=NOW + MICROSECOND)
    await queue(storage, *mails, later)
    ages = [(NOW - email.created_at) // SECOND for email in await claim(storage, 4)]
    assert ages == [9, 7, 5, 3]
    assert [(NOW - email.created_at) // SECOND for email in await claim(storage)] == [1, 0]
    assert await claim(storage) == []


async def test_an_expired_lease_makes_an_email_due_again(storage: Postgres) -> None:
    await queue(storage, mail())
    [first] = await claim(storage)
    assert await claim(storage, now=NOW + HOUR - MICROSECOND) == []
    [second] = await claim(storage, now=NOW + HOUR)
    assert (first.claims, second.claims, second.attempts) == (1, 2, 0)


async def test_no_two_claims_return_the_same_email(storage: Postgres) -> None:
    await queue(storage, *(mail() for _ in range(40)))
    claims = await run_concurrently(8, lambda _: claim(storage, 7))
    ids = [email.id for emails in claims for email in emails]
    assert len(ids) == len(set(ids)) == 40
    assert max(len(emails) for emails in claims) <= 7


async def test_a_claim_does_not_wait_for_another(storage: Postgres) -> None:
    await queue(storage, mail(), mail())
    async with storage.transaction(by=SYSTEM) as tx:
        assert len(await tx.email_queue.claim(NOW, NOW + HOUR, 1)) == 1
        assert len(await in_another_task(lambda: claim(storage))) == 1


async def put(server: MailServer, tx: Transaction) -> None:
    await tx.smtp.put(server, NOW)


async def test_only_emails_of_busy_servers_are_not_claimed(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant, without_server = [await add_organization(pool, slug) for slug in ("acme", "twin", "plain")]
    for org in (acme, other_tenant):
        await within(storage, partial(put, mail_server(org)))
    for org in (acme, other_tenant, without_server):
        sql = """
            insert into invitations (id, org_id, email, role, invited_by, status, token_hash, expires_at, created_at)
            values (%s, %s, %s, 'member', %s, 'pending', %s, %s, %s)"""
        await run_sql(pool, sql, uuid4(), org, ADA, uuid4(), org.bytes, NOW, NOW)
    invitations = {org: mail(kind=EmailKind.INVITATION, org_id=org) for org in (acme, other_tenant, without_server, None)}
    resets = {org: mail(kind=EmailKind.RESET_PASSWORD, org_id=org) for org in (acme, None)}
    member_reset = mail(kind=EmailKind.MEMBER_RESET, org_id=acme)
    await queue(storage, *invitations.values(), *resets.values(), member_reset)

    async def claim_ids(busy: BusyServers) -> set[UUID]:
        """Return the email ids that a claim returns. The lease ends at once."""
        emails = await within(storage, lambda tx: tx.email_queue.claim(NOW, NOW, 10, busy))
        return {email.id for email in emails}

    all_ids = {one.id for one in (*invitations.values(), *resets.values(), member_reset)}
    assert await claim_ids(NO_BUSY_SERVERS) == all_ids
    assert await claim_ids(BusyServers(frozenset({acme}))) == all_ids - {invitations[acme].id}
    assert await claim_ids(BusyServers(served=frozenset({acme}))) == all_ids - {invitations[acme].id, member_reset.id}
    assert await claim_ids(BusyServers(served=frozenset({None}))) == {
        member_reset.id,
        *(invitations[org].id for org in (acme, other_tenant, without_server)),
    }
    await run_sql(pool, "update invitations set inviter_token_hash = 'x' where org_id = %s", other_tenant)
    assert await claim_ids(BusyServers(platform=True)) == {invitations[acme].id}, "a hidden token goes through the server of the platform"
    await run_sql(pool, "update invitations set inviter_token_hash = null where org_id = %s", other_tenant)
    assert await claim_ids(BusyServers(frozenset({acme}), platform=True)) == {invitations[other_tenant].id}
    # The platform's server sends the emails for an organization without a mail server.
    assert await claim_ids(BusyServers(every_own_server=True)) == all_ids - {invitations[acme].id, invitations[other_tenant].id}
    assert await claim_ids(BusyServers(frozenset({acme, without_server}), every_own_server=True)) == {
        invitations[None].id,
        member_reset.id,
        *(reset.id for reset in resets.values()),
    }


async def test_tokens_are_stored_sealed(storage: Postgres, pool: Pool) -> None:
    queued, other = mail(), mail()
    await queue(storage, queued, other)
    await within(storage, lambda tx: tx.email_queue.save_token(queued, "the token", NOW))
    sealed_tokens = dict(await run_sql(pool, "select id, token from mails"))
    assert b"the token" not in sealed_tokens[queued.id]
    assert sealed_tokens[other.id] is None
    # The seal does not open in another row.
    await run_sql(pool, "update mails set token = %s where id = %s", sealed_tokens[queued.id], other.id)
    tokens = {email.id: email.token for email in await claim(storage)}
    assert tokens == {queued.id: "the token", other.id: None}


@pytest.mark.parametrize(("outcome", "attempts"), [(EmailOutcome.SENT, 1), (EmailOutcome.GIVEN_UP, 1), (EmailOutcome.DROPPED, 0)])
async def test_a_finished_email_has_no_token_and_is_not_claimed_again(
    storage: Postgres, pool: Pool, outcome: EmailOutcome, attempts: int
) -> None:
    queued, other = mail(), mail()
    await queue(storage, queued, other)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.save_token(queued, "t", NOW)
        await tx.email_queue.save_token(other, "t", NOW)
        await tx.email_queue.finish(queued, outcome, NOW, reason="because")
        await tx.email_queue.finish(queued, EmailOutcome.SENT, NOW + HOUR)  # the first outcome stands
    query = "select finished_at, outcome, token, attempts, last_failure from mails where id = %s"
    assert await run_sql(pool, query, queued.id) == [(NOW, outcome, None, attempts, "because")]
    [remaining] = await claim(storage)
    assert (remaining.id, remaining.token) == (other.id, "t")


async def test_a_failed_attempt_is_counted_and_postponed(storage: Postgres, pool: Pool) -> None:
    await queue(storage, mail(), other := mail(due_at=NOW + HOUR))
    [email] = await claim(storage)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.postpone(email, NOW + 5 * SECOND, "421 try later")
    query = "select attempts, due_at, last_failure, finished_at from mails where id = %s"
    assert await run_sql(pool, query, email.id) == [(1, NOW + 5 * SECOND, "421 try later", None)]
    assert await run_sql(pool, query, other.id) == [(0, NOW + HOUR, None, None)]
    [second_claim] = await claim(storage, now=NOW + 5 * SECOND)
    assert (second_claim.attempts, second_claim.claims) == (1, 2)


async def test_a_stale_claim_postpones_nothing(storage: Postgres, pool: Pool) -> None:
    await queue(storage, mail())
    [stale] = await claim(storage)
    [current] = await claim(storage, now=NOW + HOUR)
    await within(storage, lambda tx: tx.email_queue.postpone(stale, NOW + DAY, "late news"))
    assert await run_sql(pool, "select due_at, attempts from mails") == [(current.due_at, 0)]


async def test_a_withdrawn_email_is_dropped_and_gets_no_token(storage: Postgres, pool: Pool) -> None:
    org, other = uuid4(), uuid4()
    withdrawn_email = mail(kind=EmailKind.WELCOME, address=ADA, org_id=org)
    remaining_emails = [
        mail(kind=EmailKind.INVITATION, address=ADA, org_id=org),
        mail(kind=EmailKind.WELCOME, address=EVE, org_id=org),
        mail(kind=EmailKind.WELCOME, address=ADA, org_id=other),
        mail(kind=EmailKind.WELCOME, address=ADA),
    ]
    sent = mail(kind=EmailKind.WELCOME, address=ADA, org_id=org)
    await queue(storage, withdrawn_email, sent, *remaining_emails)
    await claim(storage)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.finish(replace(sent, claims=1), EmailOutcome.SENT, NOW)
        assert await tx.email_queue.is_waiting(EmailKind.WELCOME, ADA, org)
        await tx.email_queue.withdraw(EmailKind.WELCOME, ADA, org, NOW + SECOND)
        assert not await tx.email_queue.is_waiting(EmailKind.WELCOME, ADA, org)
        await tx.email_queue.save_token(replace(withdrawn_email, claims=1), "the token", NOW + SECOND)
        is_claimed = tx.email_queue.is_claimed(replace(withdrawn_email, claims=1))
    assert not await is_claimed
    rows = await run_sql(pool, "select id, outcome, finished_at, token from mails where finished_at is not null order by finished_at")
    assert rows == [(sent.id, "sent", NOW, None), (withdrawn_email.id, "dropped", NOW + SECOND, None)]


async def test_a_stale_claim_saves_no_token_and_can_only_record_sent(storage: Postgres, pool: Pool) -> None:
    await queue(storage, mail())
    [stale] = await claim(storage)
    [current] = await claim(storage, now=NOW + HOUR)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.save_token(current, "current", NOW)
        await tx.email_queue.save_token(stale, "stale", NOW)
        claims = [tx.email_queue.is_claimed(email) for email in (current, stale)]
        for outcome in (EmailOutcome.DROPPED, EmailOutcome.GIVEN_UP):
            await tx.email_queue.finish(stale, outcome, NOW)
    assert [await is_claimed for is_claimed in claims] == [True, False]
    assert await run_sql(pool, "select outcome, finished_at from mails") == [(None, None)]
    [third] = await claim(storage, now=NOW + 2 * HOUR)
    assert third.token == "current"
    await within(storage, lambda tx: tx.email_queue.finish(stale, EmailOutcome.SENT, NOW))
    assert await run_sql(pool, "select outcome, finished_at from mails") == [("sent", NOW)]


async def test_an_email_added_with_a_token_is_not_counted_yet(storage: Postgres, pool: Pool) -> None:
    queued = mail(kind=EmailKind.INVITATION, token="the token")
    await queue(storage, queued)
    [(token,)] = await run_sql(pool, "select token from mails")
    assert b"the token" not in token
    [email] = await claim(storage)
    assert (email.token, email.token_at) == ("the token", None)
    assert await within(storage, lambda tx: tx.email_queue.count_since(ADA, list(EmailKind), NOW - DAY)) == 0


async def test_the_limit_per_recipient_counts_prepared_emails(storage: Postgres) -> None:
    mails = [mail(), mail(), mail(), mail(address=EVE)]
    await queue(storage, *mails)
    reset = {EmailKind.RESET_PASSWORD}
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.save_token(mails[0], "t", NOW - HOUR)
        await tx.email_queue.save_token(mails[1], "t", NOW - HOUR + MICROSECOND)
        await tx.email_queue.save_token(mails[3], "t", NOW)
        await tx.email_queue.finish(mails[1], EmailOutcome.SENT, NOW)  # sent emails count as well
        assert await tx.email_queue.count_since(ADA, reset, NOW - HOUR) == 1
        assert await tx.email_queue.count_since(ADA, reset, NOW - HOUR - MICROSECOND) == 2
        assert await tx.email_queue.count_since(EVE, reset, NOW - HOUR) == 1
        assert await tx.email_queue.count_since(Email("unknown@example.com"), reset, NOW - HOUR) == 0


async def test_the_nth_newest_email_of_a_kind_counts_before_it_is_prepared(storage: Postgres) -> None:
    times = [NOW - 2 * HOUR, NOW, NOW - HOUR]
    await queue(storage, *(mail(created_at=at) for at in times), mail(address=EVE), mail(kind=EmailKind.INVITATION))
    async with storage.transaction(by=SYSTEM) as tx:
        found = [await tx.email_queue.nth_newest_at(ADA, EmailKind.RESET_PASSWORD, n) for n in (1, 2, 3, 4)]
    assert found == [NOW, NOW - HOUR, NOW - 2 * HOUR, None]


async def test_the_limit_per_recipient_counts_the_given_kinds(storage: Postgres) -> None:
    mails = {kind: mail(kind=kind) for kind in EmailKind}
    await queue(storage, *mails.values())
    async with storage.transaction(by=SYSTEM) as tx:
        for one in mails.values():
            await tx.email_queue.save_token(one, "t", NOW)
        for kind in EmailKind:
            assert await tx.email_queue.count_since(ADA, {kind}, NOW - HOUR) == 1
        assert await tx.email_queue.count_since(ADA, list(EmailKind), NOW - HOUR) == len(EmailKind)
        assert await tx.email_queue.count_since(ADA, [], NOW - HOUR) == 0


async def test_the_lock_of_a_recipient_is_exclusive(storage: Postgres, pool: Pool) -> None:
    async def is_free(address: Email) -> bool:
        [(free,)] = await run_sql(pool, "select pg_try_advisory_xact_lock(%s, hashtext(%s))", RECIPIENTS, address)
        return bool(free)

    async with storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.lock_recipient(ADA)
        assert not await in_another_task(lambda: is_free(ADA))
        assert await in_another_task(lambda: is_free(EVE))
    assert await is_free(ADA)


async def test_mailers_are_notified_when_the_transaction_commits(storage: Postgres, conninfo: str) -> None:
    listening = await connect(conninfo, timeout=5.0)
    try:
        await listening.execute("listen mails")
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the statements before the error matter)
            async with storage.transaction(by=SYSTEM) as tx:
                await tx.email_queue.add(mail())
                raise ZeroDivisionError
        await queue(storage, mail(), mail())
        channels = [note.channel async for note in listening.notifies(timeout=1.0, stop_after=1)]
        assert channels == ["mails"]
    finally:
        await listening.close()


async def test_emails_of_a_directory_are_spread_over_days_and_only_due_ones_notify(storage: Postgres, conninfo: str) -> None:
    org_id, other = uuid4(), uuid4()

    async def queue_of_directory(*mails: QueuedEmail) -> None:
        for each in mails:
            await within(storage, partial(_queue_within, each))

    async def _queue_within(each: QueuedEmail, tx: Transaction) -> None:
        await tx.email_queue.add_within(each, 2)

    def to(number: int, of: UUID = org_id) -> QueuedEmail:
        return mail(address=Email(f"p{number}@example.com"), org_id=of, due_at=NOW)

    first, second, third, fourth, fifth = (to(number) for number in range(5))
    await queue(storage, *(mail(org_id=org_id) for _ in range(2)))  # not counted
    await queue_of_directory(first, second, to(0, other))
    listening = await connect(conninfo, timeout=5.0)
    try:
        await listening.execute("listen mails")
        await queue_of_directory(third, fourth, fifth)
        assert [note.channel async for note in listening.notifies(timeout=0.05)] == []
        await queue_of_directory(to(1, other))
        assert [note.channel async for note in listening.notifies(timeout=5.0, stop_after=1)] == ["mails"]
    finally:
        await listening.close()

    async def due(now: datetime) -> set[UUID]:
        ours = {each.id for each in (first, second, third, fourth, fifth)}
        return ours & {each.id for each in await claim(storage, now=now, lease=100 * DAY)}

    assert await due(NOW) == {first.id, second.id}
    assert await due(NOW + DAY - MICROSECOND) == set()
    assert await due(NOW + DAY) == {third.id, fourth.id}
    assert await due(NOW + 2 * DAY) == {fifth.id}


async def test_claims_and_outcomes_leave_the_connection_synchronous(storage: Postgres, pool: Pool) -> None:
    await run_sql(pool, "set synchronous_commit = on")  # it is off in the tests
    try:
        await queue(storage, mail())
        [claimed] = await claim(storage)
        assert await run_sql(pool, "show synchronous_commit") == [("on",)]
        await within(storage, lambda tx: tx.email_queue.finish(claimed, EmailOutcome.SENT, NOW))
        assert await run_sql(pool, "show synchronous_commit") == [("on",)]
    finally:
        await run_sql(pool, "reset synchronous_commit")
