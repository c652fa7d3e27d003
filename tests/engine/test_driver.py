"""Connections: statements, transactions and cancellation."""

import pytest
import trio
import trio.testing
from psycopg import errors
from psycopg.conninfo import make_conninfo

from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.driver import Connection
from tests.engine.sessions import count_prepared, session
from tests.support.waiting import PATIENCE, eventually


async def test_session_has_the_settings_it_was_opened_with(blank: str) -> None:
    connection = await connect(
        blank,
        timeout=PATIENCE,
        application_name="a name",
        statement_timeout_ms=1234,
        lock_timeout_ms=234,
        idle_in_transaction_session_timeout_ms=5678,
    )
    async with connection:
        assert await connection.row(
            """select current_setting('TimeZone'), current_setting('statement_timeout'), current_setting('application_name'),
                current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'),
                current_setting('client_encoding')"""
        ) == ("UTC", "1234ms", "a name", "234ms", "5678ms", "UTF8")
        assert connection.autocommit
    assert connection.closed


async def test_options_of_the_url_win(blank: str) -> None:
    conninfo = make_conninfo(blank, options="-c statement_timeout=42 -c work_mem=8MB", application_name="mine")
    async with session(conninfo, statement_timeout_ms=1000) as connection:
        assert await connection.row(
            "select current_setting('statement_timeout'), current_setting('work_mem'), current_setting('application_name')"
        ) == ("42ms", "8MB", "mine")


async def test_rows_row_and_run(blank: str) -> None:
    async with session(blank) as connection:
        assert await connection.rows("select n, n * 2 from generate_series(1, %(top)s) n", {"top": 3}) == [(1, 2), (2, 4), (3, 6)]
        assert await connection.row("select 1 where false") is None
        assert await connection.row("select 'x', null, true") == ("x", None, True)
        assert await connection.run("create temporary table t (n int)") == -1
        assert await connection.run("insert into t select generate_series(1, 7)") == 7


async def test_a_statement_is_prepared_at_its_first_execution(blank: str) -> None:
    async with session(blank) as connection:
        for _ in range(3):
            assert await connection.row("select %(n)s::int, '%%', %(m)s::text, %(n)s::int", {"m": "x", "n": 5}) == (5, "%", "x", 5)
            assert await count_prepared(connection) == connection.prepared_count == 1


async def test_a_text_is_prepared_once_for_each_combination_of_types(blank: str) -> None:
    async with session(blank) as connection:
        for _ in range(2):
            for value, type_name in ((1, "smallint"), (2**40, "bigint"), (True, "boolean"), ([1], "smallint[]")):
                assert await connection.row("select %(value)s, pg_typeof(%(value)s)::text", {"value": value}) == (value, type_name)
        assert await count_prepared(connection) == 4


async def test_a_statement_that_cannot_be_prepared_raises_its_own_error_each_time(fresh: str) -> None:
    async with session(fresh) as connection:
        for _ in range(2):
            with pytest.raises(errors.UndefinedTable):
                await connection.row("select n from t")
        await connection.run("create table t (n int)")
        assert await connection.row("select n from t") is None


async def test_a_text_of_several_statements_is_refused(blank: str) -> None:
    async with session(blank) as connection:
        with pytest.raises(errors.SyntaxError):
            await connection.row("select 1; select 2")
        assert await connection.row("select 1") == (1,)


async def test_copy_is_refused_outside_of_a_cursor(fresh: str) -> None:
    async with session(fresh) as connection:
        await connection.run("create table t (n int)")
        with pytest.raises(errors.NotSupportedError):
            await connection.run("copy t to stdout")
        assert connection.closed


async def test_rollback_keeps_prepared_statements(blank: str) -> None:
    async with session(blank) as connection:
        for _ in range(3):
            connection.begin()
            await connection.row("select %(n)s::int", {"n": 5})
            await connection.rollback()
        assert await count_prepared(connection) == 3  # this statement, `begin` and `rollback`


async def test_a_statement_sent_ahead_runs_before_the_next_one(fresh: str) -> None:
    async with session(fresh) as connection, session(fresh) as other:
        await connection.run("create table t (n int primary key)")
        for _ in range(3):  # not prepared, being prepared, and prepared
            connection.begin()
            connection.queue("insert into t values (%(n)s)", {"n": 1})
            connection.queue("update t set n = n + %(more)s", {"more": 10})
            assert await connection.rows("select n from t") == [(11,)]
            connection.queue("update t set n = n + 1")
            assert await other.rows("select n from t") == []
            assert await connection.run("update t set n = n * 2") == 1
            connection.queue("insert into t values (5)")
            await connection.commit()
            assert connection.is_idle
            assert await other.rows("select n from t order by n") == [(5,), (24,)]
            assert await other.run("delete from t") == 2


async def test_the_next_statement_raises_the_error_of_one_that_was_sent_ahead(fresh: str) -> None:
    async with session(fresh) as connection, session(fresh) as other:
        await connection.run("create table t (n int constraint t_key primary key)")
        await connection.run("insert into t values (1)")

        async def commit() -> None:
            await connection.commit()

        async def ask() -> None:
            await connection.rows("select n from t")

        for next_statement in (ask, commit):
            connection.begin()
            connection.queue("insert into t values (2)")
            connection.queue("insert into t values (1)")
            connection.queue("insert into t values (3)")
            with pytest.raises(errors.UniqueViolation) as violated:
                await next_statement()
            assert violated.value.diag.constraint_name == "t_key"
            await connection.rollback()
            assert connection.is_idle
            assert await other.rows("select n from t") == [(1,)]
            assert await connection.rows("select n from t") == [(1,)]  # no statement is left to be sent


async def test_the_rows_of_a_queued_statement_are_set_after_the_next_one(blank: str) -> None:
    async with session(blank) as connection:
        for _ in range(3):
            connection.begin()
            some = connection.queue("select %(n)s::int, 'a'", {"n": 1})
            connection.queue("select 2")
            none = connection.queue("select 3 where false")
            assert await connection.row("select 4") == (4,)
            assert (some.rows, none.rows) == ([(1, "a")], [])
            await connection.rollback()


async def test_pending_statements_can_be_sent_without_another_one(blank: str) -> None:
    async with session(blank) as connection:
        for _ in range(3):
            connection.begin()
            some = connection.queue("select %(n)s::int, 'a'", {"n": 1})
            await connection.send()
            assert some.rows == [(1, "a")]
            await connection.send()  # nothing is left to send
            connection.queue("select 1 / 0")
            with pytest.raises(errors.DivisionByZero):
                await connection.send()
            await connection.rollback()


async def test_statements_queued_outside_of_a_transaction_are_one(fresh: str) -> None:
    async with session(fresh) as connection:
        await connection.run("create table t (n int primary key)")
        connection.queue("insert into t values (1)")
        connection.queue("insert into t values (1)")
        with pytest.raises(errors.UniqueViolation):
            await connection.send()
        assert await connection.rows("select n from t") == []
        connection.queue("insert into t values (1)")
        assert not connection.in_transaction
        assert await connection.rows("select n from t") == [(1,)]
        assert connection.is_idle


async def test_a_dropped_statement_has_no_answer(blank: str) -> None:
    async with session(blank) as connection:
        statement = connection.queue("select 1")
        connection.forget_queue()
        with pytest.raises(RuntimeError, match="never sent"):
            await connection.send(statement)


async def test_a_statement_skipped_after_an_error_does_not_count_as_prepared(blank: str) -> None:
    async with session(blank) as connection:
        for _ in range(3):
            connection.begin()
            connection.queue("select 1 / 0")
            with pytest.raises(errors.DivisionByZero):
                await connection.row("select 3")
            await connection.rollback()
            assert await connection.row("select 3") == (3,)
            assert await connection.row("select 3") == (3,)


async def test_a_parameter_without_a_type_leaves_the_connection_usable(blank: str) -> None:
    async with session(blank) as connection:
        for _ in range(3):
            connection.begin()
            connection.queue("select 1")
            with pytest.raises(errors.ProgrammingError):
                await connection.row("select %(it)s", {"it": object()})
            await connection.rollback()
            assert connection.is_idle
            assert await connection.row("select 2") == (2,)


async def test_a_failing_statement_raises_its_own_error_after_one_that_was_sent_ahead(fresh: str) -> None:
    async with session(fresh) as connection:
        await connection.run("create table t (n int primary key)")
        connection.begin()
        connection.queue("insert into t values (1)")
        with pytest.raises(errors.UniqueViolation):
            await connection.run("insert into t values (1)")
        await connection.rollback()
        assert await connection.rows("select n from t") == []


async def test_statements_sent_with_the_commit_are_one_transaction(fresh: str) -> None:
    async with session(fresh) as connection:
        await connection.run("create table t (n int primary key, at timestamptz default now())")
        for n in (1, 2):
            connection.begin()
            connection.queue("insert into t (n) values (%(n)s)", {"n": n})
            connection.queue("insert into t (n) values (%(n)s)", {"n": 3})
            if n == 1:
                await connection.commit()
            else:
                with pytest.raises(errors.UniqueViolation):
                    await connection.commit()
            assert connection.is_idle
        assert await connection.rows("select n, at = min(at) over () from t order by n") == [(1, True), (3, True)]


async def test_a_transaction_without_statements_does_not_begin(blank: str) -> None:
    async with session(blank) as connection:
        for end in (connection.commit, connection.rollback):
            connection.begin()
            await end()
            assert connection.is_idle
        assert await connection.row("select 1") == (1,)
        assert connection.is_idle


async def test_a_cancellation_with_a_statement_sent_ahead_closes_the_connection(blank: str) -> None:
    async with session(blank) as connection:
        connection.begin()
        connection.queue("select 1")
        with trio.move_on_after(0.1) as scope:
            await connection.row("select pg_sleep(30)")
        assert scope.cancelled_caught
        assert connection.closed


async def test_transaction_is_committed_or_rolled_back(fresh: str) -> None:
    async with session(fresh) as connection, session(fresh) as other:
        await connection.run("create table t (n int)")
        connection.begin()
        await connection.run("insert into t values (1)")
        assert await other.rows("select n from t") == []
        await connection.commit()
        assert await other.rows("select n from t") == [(1,)]
        connection.begin()
        await connection.run("insert into t values (2)")
        await connection.rollback()
        await connection.rollback()  # there is nothing left to roll back
        assert await other.rows("select n from t") == [(1,)]
        assert connection.is_idle


async def test_statement_timeout_ends_a_query(blank: str) -> None:
    async with session(blank, statement_timeout_ms=20) as connection:
        with pytest.raises(errors.QueryCanceled):
            await connection.run("select pg_sleep(60)")
        assert await connection.row("select 1") == (1,)


async def test_a_canceled_query_ends_on_the_server_and_closes_its_connection(blank: str) -> None:
    async with session(blank) as connection, session(blank) as observer:
        pid = connection.info.backend_pid
        with trio.move_on_after(0.05) as scope:
            await connection.run("select pg_sleep(60)")
        assert scope.cancelled_caught
        assert connection.closed

        async def has_ended() -> bool:
            return await observer.row("select 1 from pg_stat_activity where pid = %(pid)s", {"pid": pid}) is None

        await eventually(has_ended)
        with pytest.raises(errors.OperationalError):
            await connection.run("select 1")


async def test_a_canceled_query_ends_even_if_the_server_cannot_be_reached(blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreachable(self: Connection, *, timeout: float = 0) -> None:  # noqa: ASYNC109
        raise errors.OperationalError("no route to host")

    async with session(blank) as connection:
        monkeypatch.setattr(Connection, "cancel_safe", unreachable)
        with trio.move_on_after(0.05) as scope:
            await connection.run("select pg_sleep(0.5)")
        assert scope.cancelled_caught
        assert connection.closed


async def test_a_task_that_is_already_canceled_sends_nothing(blank: str) -> None:
    async with session(blank) as connection:
        with trio.CancelScope() as scope:
            scope.cancel()
            await connection.run("select 1")
        assert scope.cancelled_caught
        assert await connection.row("select 2") == (2,)


async def test_a_cancellation_between_two_statements_leaves_the_connection_open(blank: str) -> None:
    async with session(blank) as connection:
        with trio.CancelScope() as scope:
            connection.begin()
            await connection.run("select 1")
            scope.cancel()
            await connection.run("select 2")
        assert not connection.closed
        assert not connection.is_idle
        await connection.rollback()
        assert connection.is_idle


async def test_a_second_task_on_a_connection_is_refused(blank: str) -> None:
    async with session(blank) as connection:
        await connection.row("select 1")
        for text in ("select 1", "select 2"):  # prepared, and not prepared
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.row, "select pg_sleep(0.05)")
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(RuntimeError, match="another task"):
                    await connection.row(text)
            assert await connection.row(text) is not None


async def test_closing_wakes_a_waiting_task(blank: str) -> None:
    async with session(blank) as connection, trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(errors.OperationalError):
                await connection.run("select pg_sleep(60)")

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        connection.finish()


async def test_connection_notices_that_the_server_ended_it(blank: str) -> None:
    async with session(blank) as connection, session(blank) as other:
        assert not connection.has_ended
        await other.row("select pg_terminate_backend(%(pid)s)", {"pid": connection.info.backend_pid})

        async def has_ended() -> bool:
            return connection.has_ended

        await eventually(has_ended)
        with pytest.raises(errors.OperationalError):
            await connection.run("select 1")


# Large values


@pytest.mark.slow
async def test_large_values_go_both_ways(blank: str) -> None:
    # More than the socket buffers hold, so that the driver has to wait while it sends.
    large = "äöü" * 3_000_000
    async with session(blank) as connection:
        row = await connection.row("select %(text)s::text, length(%(text)s)", {"text": large})
        assert row == (large, len(large))
        connection.begin()
        connection.queue("select %(text)s::text", {"text": large})
        other = connection.queue("select %(text)s::text", {"text": large})
        assert await connection.row("select %(text)s::text", {"text": large}) == (large,)
        assert other.rows == [(large,)]


async def test_sending_a_large_value_can_be_canceled(blank: str) -> None:
    async with session(blank) as connection:
        with trio.CancelScope() as scope:

            async def cancel_soon() -> None:
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_soon)
                await connection.row("select length(%(text)s), pg_sleep(60)", {"text": "x" * 9_000_000})
        assert scope.cancelled_caught
        assert connection.closed
