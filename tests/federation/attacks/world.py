"""A proof that an attack has changed nothing, and that it got no code."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg import sql

from adapters.postgres.engine.pool import Pool
from tests.proof.access.state import UNWATCHED
from tests.support.builders import Answer, run_sql

Rows = frozenset[tuple[str, str]]


async def rows(pool: Pool) -> Rows:
    """Return all watched rows, each with its table."""
    tables = [
        name
        for (name,) in await run_sql(
            pool,
            """
            select c.relname from pg_class c
            where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition""",
        )
    ]
    select = "select {name}::text, t::text from {table} t"
    selects = [
        sql.SQL(select).format(name=sql.Literal(table), table=sql.Identifier(table)) for table in sorted(tables) if table not in UNWATCHED
    ]
    async with pool.connection() as connection:
        cursor = await connection.execute(sql.SQL(" union all ").join(selects))
        return frozenset((str(table), str(row)) for table, row in await cursor.fetchall())


@asynccontextmanager
async def unchanged(pool: Pool) -> AsyncIterator[None]:
    """Check that no row changes within this block."""
    before = await rows(pool)
    yield
    after = await rows(pool)
    assert not after ^ before, sorted(after ^ before)


def is_code(answer: Answer) -> bool:
    """Return whether an answer brings a code to an application."""
    return "code=" in answer.headers.get("Location", "") or 'name="code"' in answer.text
