"""The connection pool: leases, the state of leased connections, and database outages."""

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from psycopg import errors

from adapters.postgres.engine import embedded
from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.pool import Pool, PoolStats, translated
from core.kernel.errors import Conflict, StorageDown
from tests.support.waiting import PATIENCE, eventually


@asynccontextmanager
async def pool_of(conninfo: str, size: int, **options: Any) -> AsyncIterator[Pool]:
    pool = Pool(conninfo, size=size, **options)
    try:
        yield pool
    finally:
        await pool.aclose()


@asynccontextmanager
async def session(conninfo: str) -> AsyncIterator[Connection]:
    connection = await connect(conninfo, timeout=PATIENCE)
    try:
        yield connection
    finally:
        connection.finish()


async def pid_of(connection: Connection) -> object:
    return await connection.row("select pg_backend_pid()")


async def test_the_connection_that_was_used_last_is_used_first(blank: str) -> None:
    async with pool_of(blank, 3) as pool, trio.open_nursery() as nursery:
        pids: dict[trio.Event, object] = {}
        leave = [trio.Event(), trio.Event()]
        both = trio.Event()

        async def use(event: trio.Event) -> None:
            async with pool.connection() as connection:
                pids[event] = await pid_of(connection)
                if len(pids) == len(leave):
                    both.set()
                await event.wait()

        assert pool.stats == PoolStats(total=0, idle=0, maximum=3)
        for event in leave:
            nursery.start_soon(use, event)
        await both.wait()
        assert pool.stats == PoolStats(total=2, idle=0, maximum=3)
        for event in leave:
            event.set()
            await trio.testing.wait_all_tasks_blocked()
        assert pool.stats == PoolStats(total=2, idle=2, maximum=3)
        async with pool.connection() as connection:
            assert await pid_of(connection) == pids[leave[1]]


async def test_a_connection_is_in_autocommit_mode_with_its_timeouts(blank: str) -> None:
    async with pool_of(blank, 1, statement_timeout=1.5) as pool, pool.connection() as connection:
        assert connection.autocommit
        assert await connection.row(
            """select current_setting('statement_timeout'), current_setting('lock_timeout'),
                current_setting('idle_in_transaction_session_timeout')"""
        ) == ("1500ms", "5s", "1min")


async def test_there_are_never_more_connections_than_the_limit(blank: str) -> None:
    most = 0

    async def use() -> None:
        nonlocal most
        async with pool.connection() as connection:
            most = max(most, pool.stats.total - pool.stats.idle)
            await connection.row("select pg_sleep(0.001)")

    async with pool_of(blank, 3) as pool:
        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(use)
        assert most == 3
        assert pool.stats == PoolStats(total=3, idle=3, maximum=3)


@pytest.mark.slow
async def test_waiting_too_long_for_a_connection_is_an_outage(blank: str) -> None:
    async with pool_of(blank, 1, acquire_timeout=1.0) as pool, trio.open_nursery() as nursery:
        connection_taken, finished = trio.Event(), trio.Event()

        async def hold() -> None:
            async with pool.connection():
                connection_taken.set()
                await finished.wait()

        nursery.start_soon(hold)
        await connection_taken.wait()
        with pytest.raises(StorageDown):
            async with pool.connection():
                raise AssertionError("there is no second connection")
        finished.set()
        await trio.testing.wait_all_tasks_blocked()
        async with pool.connection() as connection:
            assert await connection.row("select 1") == (1,)


async def test_tasks_that_wait_get_a_connection_in_their_order_and_a_canceled_one_gets_none(blank: str) -> None:
    served: list[int] = []
    waits = [trio.CancelScope() for _ in range(3)]

    async def use(number: int) -> None:
        with waits[number]:
            async with pool.connection():
                served.append(number)

    async with pool_of(blank, 1) as pool, trio.open_nursery() as nursery:
        async with pool.connection():
            for number in range(3):
                nursery.start_soon(use, number)
                await trio.testing.wait_all_tasks_blocked()
            waits[1].cancel()
            await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        assert served == [0, 2]
        assert pool.stats == PoolStats(total=1, idle=1, maximum=1)


@pytest.mark.parametrize("size", [1, 2])
async def test_a_task_that_holds_a_connection_may_not_take_another(blank: str, size: int) -> None:
    async with pool_of(blank, size) as pool:
        async with pool.connection() as connection:
            with pytest.raises(RuntimeError, match="opened inside another"):
                async with pool.connection():
                    raise AssertionError("the task would hold two connections")
            assert await connection.row("select 1") == (1,)
        async with pool.connection() as connection:  # allowed after the first connection was returned
            assert await connection.row("select 1") == (1,)


async def test_a_connection_in_a_transaction_is_not_used_again(fresh: str) -> None:
    async with pool_of(fresh, 1) as pool:
        async with pool.connection() as connection:
            await connection.run("create table t (n int)")
            connection.begin()
            await connection.run("insert into t values (1)")
        assert connection.closed
        async with pool.connection() as connection:
            assert await connection.rows("select n from t") == []


@pytest.mark.slow
async def test_canceled_queries_leave_the_pool_clean(blank: str) -> None:
    size = 5

    async def sleep_until_canceled() -> None:
        async with pool.connection() as connection:
            with trio.move_on_after(0.01):
                await connection.run("select pg_sleep(600)")

    async with pool_of(blank, size, acquire_timeout=PATIENCE) as pool:
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(sleep_until_canceled)
        assert pool.stats.total == 0
        async with session(blank) as observer:
            query = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"

            async def alone() -> bool:
                return await observer.row(query) == (0,)

            await eventually(alone, "the server's processes have ended")
            async with pool.connection() as connection:
                assert await connection.row("select 1") == (1,)
            assert await observer.row(query) == (1,)


async def test_a_connection_that_ended_while_idle_is_not_handed_out(blank: str) -> None:
    async with pool_of(blank, 2) as pool:
        async with pool.connection() as connection:
            first = await pid_of(connection)
        async with session(blank) as other:
            await other.row("select pg_terminate_backend(%(pid)s, 5000)", {"pid": connection.info.backend_pid})
        async with pool.connection() as connection:
            assert await pid_of(connection) != first
        assert pool.stats == PoolStats(total=1, idle=1, maximum=2)


async def test_a_statement_invalidated_by_a_migration_works_on_the_next_connection(fresh: str) -> None:
    async def ask() -> object:
        async with pool.connection() as connection:
            return await connection.row("select n from t")

    async with pool_of(fresh, 2) as pool, session(fresh) as other:
        await other.run("create table t (n int)")
        for _ in range(3):
            assert await ask() is None
        await other.run("alter table t alter n type bigint")
        with pytest.raises(errors.FeatureNotSupported):
            await ask()
        assert await ask() is None


async def test_a_connection_with_too_many_prepared_statements_is_not_used_again(blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.postgres.engine.pool.PREPARED_MAX", 1)
    async with pool_of(blank, 1) as pool:
        pids = []
        for text in ("select 1", "select 1", "select 2", "select 2"):
            async with pool.connection() as connection:
                await connection.row(text)
                pids.append(connection.server_process)
    assert pids[0] == pids[1] == pids[2] != pids[3]


async def test_closed_pool_keeps_nothing_open(blank: str) -> None:
    pool = Pool(blank, size=2)
    async with pool.connection() as connection:
        await pool.aclose()
        assert await connection.row("select 1") == (1,)
    assert connection.closed
    with pytest.raises(RuntimeError, match="closed"):
        async with pool.connection():
            raise AssertionError("the pool is closed")


# Database outages


@pytest.fixture
def data_dir() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="gatehouse-test-pool-"))
    home.chmod(0o711)
    yield home / "postgres"
    shutil.rmtree(home)


@pytest.mark.slow
async def test_pool_survives_a_restart_of_the_database(data_dir: Path) -> None:
    async def ask() -> None:
        async with pool.connection() as connection:
            await connection.row("select pg_sleep(0.01)")
            await connection.row("select 1")

    async def ask_all() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(ask)

    first = embedded.start(data_dir, durable=False)
    async with pool_of(first.conninfo, 4) as pool:
        try:
            await ask_all()
            assert pool.stats.idle == 4
        finally:
            first.stop()
        with pytest.raises(StorageDown):  # at once, and not after a timeout
            await ask()
        with embedded.start(data_dir, durable=False) as second:
            assert second.conninfo == first.conninfo
            await ask_all()
            await ask_all()
            assert pool.stats == PoolStats(total=4, idle=4, maximum=4)


async def test_absent_database_is_an_outage() -> None:
    async with pool_of("host=/nonexistent", 1) as pool:
        for _ in range(2):  # a failure releases its place
            with pytest.raises(StorageDown) as caught:
                async with pool.connection():
                    raise AssertionError("there is no database")
            assert isinstance(caught.value.__cause__, errors.OperationalError)


# Translation


class NameTaken(Conflict):
    """The name is taken."""


CONSTRAINTS = {"t_name_key": NameTaken}


@pytest.fixture
async def connection(fresh: str) -> AsyncIterator[Connection]:
    async with session(fresh) as new_session:
        await new_session.execute("create table t (name text unique, n int constraint t_n_key unique); insert into t values ('a', 1)")
        yield new_session


async def test_unique_violation_is_the_refusal_of_its_constraint(connection: Connection) -> None:
    connection.queue("insert into t values ('a', 2)", refusals=CONSTRAINTS)
    with pytest.raises(NameTaken) as caught, translated():
        await connection.send()
    assert isinstance(caught.value.__cause__, errors.UniqueViolation)


async def test_a_violation_of_another_constraint_is_not_translated(connection: Connection) -> None:
    connection.queue("insert into t values ('b', 1)", refusals=CONSTRAINTS)
    with pytest.raises(errors.UniqueViolation), translated():
        await connection.send()
    with pytest.raises(errors.UniqueViolation), translated():
        await connection.run("insert into t values ('a', 2)")


async def test_an_error_in_a_statement_is_not_translated(connection: Connection) -> None:
    connection.queue("select nothing", refusals=CONSTRAINTS)
    with pytest.raises(errors.UndefinedColumn), translated():
        await connection.send()


async def test_timeout_of_a_statement_is_an_outage(connection: Connection) -> None:
    await connection.run("set statement_timeout = 10")
    with pytest.raises(StorageDown) as caught, translated():
        await connection.run("select pg_sleep(60)")
    assert isinstance(caught.value.__cause__, errors.QueryCanceled)


async def test_a_lock_timeout_is_an_outage_before_the_statement_timeout(fresh: str, connection: Connection) -> None:
    connection.begin()
    await connection.run("update t set n = 2")
    async with pool_of(fresh, 1, lock_timeout=0.02) as pool, pool.connection() as other:
        with pytest.raises(StorageDown) as caught, translated():
            await other.run("update t set n = 3")
        assert isinstance(caught.value.__cause__, errors.LockNotAvailable)


async def test_shutdown_by_the_administrator_is_an_outage(connection: Connection) -> None:
    with pytest.raises(StorageDown), translated():
        await connection.run("select pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(StorageDown), translated():
        await connection.run("select 1")


def test_lost_network_is_an_outage() -> None:
    with pytest.raises(StorageDown), translated():
        raise ConnectionResetError


async def test_cancellation_passes_through(connection: Connection) -> None:
    with trio.move_on_after(0.02) as scope, translated():
        await connection.run("select pg_sleep(60)")
    assert scope.cancelled_caught


async def test_an_idle_connection_is_not_silent(blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.postgres.engine.pool.WATCH_INTERVAL", 0.01)
    async with pool_of(blank, 1) as pool:
        async with pool.connection() as connection:
            connection.answer_within = 0.2
            await connection.row("select 1")
            await trio.sleep(0.3)
            assert await connection.row("select 1") == (1,)
        await trio.sleep(0.1)
        assert pool.stats.idle == 1


@pytest.mark.slow
async def test_a_silent_server_counts_as_down(blank: str) -> None:
    """The server is frozen, or a firewall drops packets. Without a limit the task would wait forever."""
    pool = Pool(blank, size=2, statement_timeout=0.2)
    # The server is silent while the task waits for the answer, and while it sends.
    for text, message in (("", "did not answer in time"), ("x" * 9_000_000, "")):
        async with pool.connection() as connection:
            [(pid,)] = await connection.rows("select pg_backend_pid()")
            assert connection.answer_within > 0.2
            connection.answer_within = 0.3
            os.kill(pid, signal.SIGSTOP)
            try:
                with pytest.raises(StorageDown) as caught, translated():
                    await connection.rows("select length(%(text)s)", {"text": text})
            finally:
                os.kill(pid, signal.SIGCONT)
            assert message in str(caught.value.__cause__)
            assert connection.closed
    async with pool.connection() as connection:
        assert await connection.rows("select 1") == [(1,)]
    await pool.aclose()
