"""The housekeeper deletes obsolete rows and no valid rows, in a single process at a time."""

from datetime import timedelta

import pytest
import structlog
import trio
import trio.testing

from actors.mailbox import TimedMailbox
from actors.sweep_jobs import HOUSEKEEPING, sweeper
from adapters.postgres.engine.pool import Pool
from core.accounts import accounts
from core.accounts.model import email_queue
from core.accounts.model.email_queue import EmailKind, EmailOutcome, OneTimeToken, TokenPurpose
from core.kernel.causes import SYSTEM, Anonymous
from core.kernel.values import Email, digest, new_id
from core.maintenance import housekeeping
from core.maintenance.model import housekeeping as housekeeping_model
from core.maintenance.model import housekeeping as model_housekeeping
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import EMAIL, PASSWORD, add_account, add_organization, log_in, run_sql
from tests.support.waiting import eventually

OTHER = Email("grace@example.com")


async def count(pool: Pool, table: str) -> int:
    [(rows,)] = await run_sql(pool, f"select count(*) from {table}")  # noqa: S608
    return int(rows)


@pytest.mark.slow
async def test_expired_tokens_and_sessions_are_deleted(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    account = await add_account(ports)
    await log_in(ports)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for token, days in (("short", 1), ("long", 400)):
            expires_at = clock.now() + timedelta(days=days)
            await tx.one_time_tokens.add(
                OneTimeToken(
                    digest(token), TokenPurpose.VERIFY_EMAIL, account.id, account.email, created_at=clock.now(), expires_at=expires_at
                )
            )
    assert await housekeeping.sweep(ports, new_id()) == {}
    clock.advance(ports.policy.refresh_token_ttl + housekeeping_model.ENDED_SESSIONS_KEPT)
    holder = new_id()
    removed = await housekeeping.sweep(ports, holder)
    assert removed is not None
    assert removed["one_time_tokens"] == 1
    assert "sessions" not in removed  # not too early
    clock.advance(timedelta(microseconds=1))
    assert await housekeeping.sweep(ports, holder) == {"sessions": 1}
    assert await count(pool, "refresh_tokens") == 0
    assert await count(pool, "one_time_tokens") == 1
    assert await count(pool, "users") == 1
    assert await count(pool, "login_events") == 1  # kept forever


async def test_finished_emails_are_deleted_and_others_stay(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    finished_email, waiting_email = (email_queue.new_email(EmailKind.PASSWORD_CHANGED, Email(EMAIL), clock.now()) for _ in range(2))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.add(finished_email)
        await tx.email_queue.add(waiting_email)
        await tx.email_queue.finish(finished_email, EmailOutcome.GIVEN_UP, clock.now())
    clock.advance(housekeeping_model.FINISHED_MAILS_KEPT + timedelta(seconds=1))
    assert await housekeeping.sweep(ports, new_id()) == {"mails": 1}
    async with pool.connection() as connection:
        assert await connection.rows("select id from mails") == [(waiting_email.id,)]


async def test_accounts_that_were_never_verified_are_deleted(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    await accounts.register(ports, Anonymous(), Email(EMAIL), PASSWORD)
    await add_account(ports, OTHER)
    await add_account(ports, "scim@example.com", password=None, verified=False)
    clock.advance(ports.policy.unverified_purge + timedelta(seconds=1))
    removed = await housekeeping.sweep(ports, new_id())
    assert removed is not None
    assert removed["unverified_accounts"] == 1
    async with pool.connection() as connection:
        assert await connection.rows("select email from users order by email") == [(OTHER,), ("scim@example.com",)]


async def test_a_block_by_a_directory_does_not_keep_an_unverified_account(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    """The directory deleted the user, who never verified the address."""
    await accounts.register(ports, Anonymous(), Email(EMAIL), PASSWORD)
    org_id = await add_organization(pool, "acme")
    async with ports.storage.transaction(by=SYSTEM) as tx:
        account = await tx.accounts.by_email(Email(EMAIL))
        assert account is not None
        await tx.directory_blocks.add(org_id, account.id, clock.now())
    clock.advance(ports.policy.unverified_purge + timedelta(seconds=1))
    removed = await housekeeping.sweep(ports, new_id())
    assert removed is not None
    assert removed["unverified_accounts"] == 1
    assert await count(pool, "directory_blocks") == 0


async def test_a_backlog_is_deleted_in_batches(ports: Ports, pool: Pool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_housekeeping, "BATCH", 4)
    account = await add_account(ports)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for number in range(10):
            await tx.one_time_tokens.add(
                OneTimeToken(
                    digest(str(number)),
                    TokenPurpose.VERIFY_EMAIL,
                    account.id,
                    account.email,
                    created_at=clock.now(),
                    expires_at=clock.now(),
                )
            )
    clock.advance(timedelta(seconds=1))
    assert await housekeeping.sweep(ports, new_id()) == {"one_time_tokens": 10}


async def test_one_process_at_a_time_sweeps(ports: Ports, clock: FakeClock) -> None:
    one, other = new_id(), new_id()
    assert await housekeeping.sweep(ports, one) == {}
    assert await housekeeping.sweep(ports, other) is None
    clock.advance(housekeeping_model.LEASE - timedelta(seconds=1))
    assert await housekeeping.sweep(ports, one) == {}  # a living process keeps its lease
    clock.advance(timedelta(seconds=1))
    assert await housekeeping.sweep(ports, other) is None
    clock.advance(housekeeping_model.LEASE)
    assert await housekeeping.sweep(ports, other) == {}


async def test_the_actor_logs_the_deleted_rows(ports: Ports, pool: Pool, clock: FakeClock, metrics: FakeMetrics) -> None:
    await accounts.register(ports, Anonymous(), Email(EMAIL), PASSWORD)
    clock.advance(ports.policy.unverified_purge + timedelta(seconds=1))
    with structlog.testing.capture_logs() as log:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sweeper, ports, HOUSEKEEPING, TimedMailbox(), new_id())
            await eventually(lambda: log)
            nursery.cancel_scope.cancel()
    assert (log[0]["event"], log[0]["job"]) == ("swept", "housekeeping")
    assert log[0]["unverified_accounts"] == 1
    assert [job for job, _ in metrics.jobs] == ["housekeeping"]
