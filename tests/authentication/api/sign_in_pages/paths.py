"""The path for forgotten passwords, and how many sessions are live."""

from adapters.postgres.engine.pool import Pool
from tests.support.builders import run_sql

FORGOT_PASSWORD = "/app/forgot-password"


async def count_sessions(pool: Pool) -> int:
    [(count,)] = await run_sql(pool, "select count(*) from sessions where ended_at is null")
    return int(count)
