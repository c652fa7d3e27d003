"""A proof that an attack has changed nothing, and that it got no code."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg import sql

from adapters.postgres.engine.pool import Pool
from tests.proof.access.state import UNWATCHED
from tests.support.builders import Answer, run_sql

Rows = frozenset[tuple[str, str]]
# Every page can send a browser to an application's request, which begins a flow. It proves nothing.
BEGUN, CLOSED = "sign_in_flows that wait for a sign-in", "sign_in_flows that ended without one"
FLOWS = f"""
    select case when user_id is not null then 'sign_in_flows' when closed_at is null then '{BEGUN}' else '{CLOSED}' end, t::text
    from sign_in_flows t"""  # noqa: S608


async def rows(pool: Pool) -> Rows:
    """Return all watched rows, with their tables."""
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
        sql.SQL(select).format(name=sql.Literal(table), table=sql.Identifier(table))
        for table in sorted(tables)
        if table not in UNWATCHED | {"sign_in_flows", "login_events"}
    ]
    # The log with failed sign-ins has the attack.
    selects.append(sql.SQL("select 'login_events', t::text from login_events t where t.success").format())
    async with pool.connection() as connection:
        cursor = await connection.execute(sql.SQL(" union all ").join([*selects, sql.SQL(FLOWS)]))
        return frozenset((str(table), str(row)) for table, row in await cursor.fetchall())


@asynccontextmanager
async def unchanged(pool: Pool, *, ends_flow: bool = False) -> AsyncIterator[None]:
    """Check that no row changes within this block. Flows can begin, and end if an error answers their requests."""
    before = await rows(pool)
    yield
    after = await rows(pool)
    changed = {row for row in after - before if row[0] != BEGUN}
    if ends_flow:
        changed = {row for row in changed if row[0] != CLOSED}
        before = frozenset(row for row in before if row[0] != BEGUN)
    changed |= before - after
    assert not changed, sorted(changed)


def is_code(answer: Answer) -> bool:
    """Return whether an answer brings a code to an application."""
    return "code=" in answer.headers.get("Location", "") or 'type="hidden" name="code"' in answer.text
