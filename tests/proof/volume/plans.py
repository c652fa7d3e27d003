"""Large databases, statement plans, and the rows that statements read."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, LiteralString, TypeVar

import psycopg
from psycopg import sql

from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.pool import Pool
from tests.support import database

T = TypeVar("T")

PLAN_MODES: Final = ("force_custom_plan", "force_generic_plan")


@contextmanager
def filled_database(server: str, inserts: LiteralString, parameters: Mapping[str, object], *tables: str) -> Iterator[str]:
    """Yield the connection string for a new database with the rows from `inserts`.

    Foreign keys are not checked. `tables` are vacuumed and analyzed, so that index-only scans are planned.
    """
    with database.Database(server) as own:
        with psycopg.ClientCursor(psycopg.connect(own.conninfo, autocommit=True)) as cursor, cursor.connection as connection:
            connection.execute("set session_replication_role = replica")
            with _indexes_built_at_the_end(connection, tables):
                cursor.execute(inserts, parameters)
            database.settle(connection, *tables)
        yield own.conninfo


@contextmanager
def _indexes_built_at_the_end(connection: psycopg.Connection, tables: Sequence[str]) -> Iterator[None]:
    """Build these tables' indexes at the end of the block, which costs less than updating them row by row.

    A superuser can mark an index as unfinished. `reindex` finishes it. Unlike a dropped index, it can have foreign keys.
    """
    connection.execute("update pg_index set indisready = false, indisvalid = false where indrelid = any(%s::regclass[])", [list(tables)])
    yield
    connection.execute("set max_parallel_maintenance_workers = 0")
    for table in tables:
        connection.execute(sql.SQL("reindex table {}").format(sql.Identifier(table)))
    unfinished = connection.execute("select indexrelid::regclass::text from pg_index where not (indisready and indisvalid)").fetchall()
    assert unfinished == []


@asynccontextmanager
async def without_foreign_keys(pool: Pool) -> AsyncIterator[Connection]:
    """Lease a connection that checks no foreign keys and runs no triggers, to insert many rows quickly."""
    async with pool.connection() as connection:
        await connection.run("set session_replication_role = replica")
        yield connection
        await connection.run("reset session_replication_role")


async def plan_nodes(pool: Pool, statement: str, parameters: Mapping[str, object], mode: str) -> list[dict[str, Any]]:
    """Execute the statement, and return every node in its plan.

    `mode` is the plan mode for prepared statements.
    """
    async with pool.connection() as connection:
        await connection.execute(f"set plan_cache_mode = {mode}")
        [[explained]] = await connection.rows("explain (analyze, format json) " + statement, parameters)
        await connection.execute("reset plan_cache_mode")
    plan = (json.loads(explained) if isinstance(explained, str) else explained)[0]["Plan"]

    def below(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield node
        for child in node.get("Plans", ()):
            yield from below(child)

    return [*below(plan)]


def rows_of(node: Mapping[str, Any]) -> float:
    """Return how many rows the node read."""
    rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float(rows * node["Actual Loops"])


@dataclass(frozen=True, slots=True)
class Reads:
    """Sequential scans and rows by table. Index-only reads are not counted."""

    scans: Counter[str]
    rows: Counter[str]


async def count_reads(connection: Connection, mode: str, act: Callable[[], Awaitable[T]]) -> tuple[T, Reads]:
    """Return what `act` returns, and the rows and pages read on this connection. The transaction is rolled back.

    `mode` is the plan mode for prepared statements.
    """
    connection.begin()
    await connection.execute(f"set local plan_cache_mode = {mode}")
    # The counters can include reads by earlier transactions.
    before = await _total_reads(connection)
    result = await act()
    after = await _total_reads(connection)
    await connection.rollback()
    return result, Reads(after.scans - before.scans, after.rows - before.rows)


async def _total_reads(connection: Connection) -> Reads:
    counters = """
        select relname::text, seq_scan, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables"""
    tables = await connection.rows(counters)
    return Reads(Counter({name: scans for name, scans, _ in tables}), Counter({name: rows for name, _, rows in tables}))
