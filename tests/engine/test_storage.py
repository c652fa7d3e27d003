"""Transactions on the real database: commits, rollbacks and the lock order."""

from collections.abc import Awaitable
from uuid import uuid4

import psycopg
import pytest
import trio
import trio.testing

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts import accounts, email_changes
from core.accounts.model.accounts import EmailTaken
from core.accounts.model.attempt_limits import AttemptLimit, SecretKind
from core.authentication import callers, sessions
from core.authentication.model.dpop import PresentedToken
from core.kernel.access import Requirement
from core.kernel.causes import SYSTEM
from core.kernel.errors import Outage, Refusal, StorageDown
from core.kernel.values import Email
from core.maintenance import housekeeping
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import PASSWORD, add_account, deliver, link, log_in, make_vault, run_concurrently, run_sql
from tests.support.rows import ADA, EVE, HOUR, NOW, account, add


async def test_leaving_a_transaction_commits_and_an_error_rolls_back(storage: Postgres) -> None:
    await add(storage, account())
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the statements before the error matter)
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.accounts.add(account(EVE))
            assert await tx.accounts.by_email(EVE)
            raise ZeroDivisionError
    async with storage.reading() as read:
        assert await read.accounts.by_email(ADA)
        assert await read.accounts.by_email(EVE) is None


async def test_cancellation_rolls_back_and_leaves_the_pool_clean(storage: Postgres, pool: Pool) -> None:
    with trio.CancelScope() as scope:
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.accounts.add(account())
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    async with storage.reading() as read:
        assert await read.accounts.by_email(ADA) is None
    assert pool.stats.total == pool.stats.idle


async def test_a_transaction_that_failed_in_the_database_can_be_left(storage: Postgres) -> None:
    await add(storage, account())
    with pytest.raises(EmailTaken):
        await add(storage, account())
    await add(storage, account(EVE))


async def test_autocommit_statements_survive_the_refusal_that_follows(storage: Postgres, pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the statements before the error matter)
        async with storage.autocommit() as autocommit:
            await autocommit.attempt_limits.count_attempt(SecretKind.PASSWORD, b"x", AttemptLimit(10, HOUR), NOW)
            raise ZeroDivisionError
    assert await run_sql(pool, "select failures from guesses") == [(1,)]


async def test_a_database_that_is_down_raises_storage_down(clock: FakeClock) -> None:
    pool = Pool("host=127.0.0.1 port=1 dbname=nothing", size=1, acquire_timeout=0.2)
    storage = Postgres(pool, make_vault(), clock)
    for attempt in (storage.ping, lambda: add(storage, account())):
        with pytest.raises(StorageDown):
            await attempt()
    await pool.aclose()


async def test_ping_answers(storage: Postgres) -> None:
    await storage.ping()


# Lock order (security Z-6)


@pytest.mark.slow
async def test_concurrent_operations_on_two_accounts_do_not_deadlock(ports: Ports, sent: FakeMailTransport, pool: Pool) -> None:
    """A use case with a lock order that is not account, tokens, sessions raises StorageDown here, because it deadlocks."""
    people = [await add_account(ports), await add_account(ports, EVE)]
    pairs = [await log_in(ports, person.email) for person in people for _ in range(4)]
    signed_in = [await callers.authenticate(ports, SYSTEM, PresentedToken(pair.access_token), Requirement()) for pair in pairs]
    for person in people:
        await accounts.forgot_password(ports, SYSTEM, person.email)
    await deliver(ports)
    resets = [link(letter) for letter in sent.emails]
    holder = uuid4()

    def acts(person: int, number: int) -> Awaitable[object]:
        caller, pair = signed_in[4 * person + number % 4], pairs[4 * person + number % 4]
        match number % 9:
            case 0:
                return sessions.refresh(ports, SYSTEM, pair.refresh_token)
            case 1:
                return sessions.logout(ports, caller)
            case 2:
                return log_in(ports, people[person].email)
            case 3:
                return accounts.change_password(ports, caller, PASSWORD, f"another password {number}")
            case 4:
                return accounts.reset_password(ports, SYSTEM, resets[person], f"reset password {number}")
            case 5:
                return email_changes.request(ports, caller, Email(f"changed-{person}-{number}@example.com"))
            case 6:
                return accounts.forgot_password(ports, SYSTEM, people[person].email)
            case 7:
                return deliver(ports)
            case _:
                return housekeeping.sweep(ports, holder)

    async def act(number: int) -> BaseException | None:
        try:
            await acts(number % 2, number // 2)
        except (Refusal, Outage, psycopg.Error) as error:
            return error
        return None

    for _ in range(3):
        outcomes = await run_concurrently(36, act)
        assert [outcome for outcome in outcomes if outcome is not None and not isinstance(outcome, Refusal)] == []
    query = "select count(*) from refresh_tokens t join sessions s on s.id = t.session_id where rotated_at is null group by s.id"
    assert set(await run_sql(pool, query)) == {(1,)}
