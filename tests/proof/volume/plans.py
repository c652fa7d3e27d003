"""The plans of statements and the rows they read, and quick inserts into large tables."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.pool import Pool


@asynccontextmanager
async def without_foreign_keys(pool: Pool) -> AsyncIterator[Connection]:
    """Lease a connection that checks no foreign keys and runs no triggers, to insert many rows
    quickly."""
    async with pool.connection() as connection:
        await connection.run("set session_replication_role = replica")
        yield connection
        await connection.run("reset session_replication_role")


async def plan_nodes(pool: Pool, statement: str, parameters: Mapping[str, object], mode: str) -> list[dict[str, Any]]:
    """Execute the statement, and return every node of its plan.

    `mode` is the plan mode of prepared statements.
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
    seen = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float(seen * node["Actual Loops"])


async def rows_looked_at(pool: Pool, table: str, mode: str, act: Callable[[Connection], Awaitable[object]]) -> tuple[Any, float]:
    """Return the result of `act`, and how many rows of the table it read.

    The transaction is rolled back.

    Rows that are read from an index only are not counted.
    """
    counted = "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables where relname = %(table)s"
    async with pool.connection() as connection:
        connection.begin()
        await connection.execute(f"set local plan_cache_mode = {mode}")
        # The counters can include reads of earlier transactions.
        [(before,)] = await connection.rows(counted, {"table": table})
        given = await act(connection)
        [(after,)] = await connection.rows(counted, {"table": table})
        await connection.rollback()
    return given, float(after - before)
