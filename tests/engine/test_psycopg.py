"""psycopg's own features work on a connection: cursors, transactions, pipelines and COPY."""

import pytest
from psycopg import errors

from tests.engine.sessions import count_prepared, session


async def test_psycopgs_cursors_keep_the_prepared_statements(blank: str) -> None:
    async with session(blank) as connection:
        await connection.row("select 1")
        for text in ("create temporary table t (n int)", "drop table t", "begin", "rollback"):
            await connection.execute(text)
        assert await count_prepared(connection) == 1
        assert await connection.row("select 1") == (1,)


async def test_psycopgs_cursor_executes_a_text_of_several_statements(blank: str) -> None:
    async with session(blank) as connection:
        for _ in range(3):
            cursor = await connection.execute("select 1; select 2")
            assert await cursor.fetchone() == (1,)


async def test_psycopgs_transactions_nest(fresh: str) -> None:
    async with session(fresh) as connection:
        await connection.run("create table t (n int unique)")
        async with connection.transaction():
            await connection.run("insert into t values (1)")
            with pytest.raises(errors.UniqueViolation):
                async with connection.transaction():
                    await connection.run("insert into t values (1)")
            await connection.run("insert into t values (2)")
        assert await connection.rows("select n from t order by n") == [(1,), (2,)]


@pytest.mark.slow
async def test_pipelines_and_executemany(fresh: str) -> None:
    async with session(fresh) as connection:
        await connection.run("create table t (n int, filler text)")
        async with connection.cursor() as cursor:
            await cursor.executemany("insert into t values (%s, %s)", [(n, "x" * 100) for n in range(5000)])
            assert cursor.rowcount == 5000
        async with connection.pipeline():
            cursors = [await connection.execute("select %s::int", (n,)) for n in range(20)]
            assert [await cursor.fetchone() for cursor in cursors] == [(n,) for n in range(20)]


@pytest.mark.slow
async def test_copy_in_and_out(fresh: str) -> None:
    async with session(fresh) as connection:
        await connection.run("create table t (n int, filler text)")
        async with connection.cursor() as cursor:
            async with cursor.copy("copy t from stdin") as copy:
                for n in range(20_000):
                    await copy.write_row((n, "x" * 50))
            async with cursor.copy("copy t to stdout") as copy:
                assert sum([1 async for _ in copy.rows()]) == 20_000


async def test_server_side_cursors_and_streams(blank: str) -> None:
    async with session(blank) as connection:
        async with connection.transaction(), connection.cursor("named") as named_cursor:
            await named_cursor.execute("select generate_series(1, 500)")
            assert len(await named_cursor.fetchall()) == 500
        async with connection.cursor() as cursor:
            assert [row async for row in cursor.stream("select generate_series(1, 500)")] == [(n,) for n in range(1, 501)]
        assert await connection.row("select 1") == (1,)
