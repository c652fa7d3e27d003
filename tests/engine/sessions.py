"""A database session for a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.driver import Connection
from tests.support.waiting import PATIENCE


@asynccontextmanager
async def session(conninfo: str, statement_timeout_ms: int = 0) -> AsyncIterator[Connection]:
    connection = await connect(conninfo, timeout=PATIENCE, statement_timeout_ms=statement_timeout_ms)
    try:
        yield connection
    finally:
        connection.finish()


async def count_prepared(connection: Connection) -> int:
    """Return how many prepared statements the server keeps for the session."""
    cursor = await connection.execute("select count(*) from pg_prepared_statements", prepare=False)
    (count,) = await cursor.fetchone() or (0,)
    return int(count)
