"""The rows of a database as values: to compare, and to put back."""

from typing import Final

from adapters.postgres.pool import Pool
from tests.builders import run_sql

# What a request leaves behind that is no matter of access, and what every test has of its own.
UNWATCHED: Final = frozenset({"schema_migrations", "signing_keys", "rates", "guesses", "leases"})

State = frozenset[tuple[str, str]]  # of each row its table, and what is in it, in JSON

_tables: list[str] = []


async def tables(pool: Pool) -> list[str]:
    """All tables that matter here."""
    if not _tables:
        found = await run_sql(pool, "select tablename::text from pg_tables where schemaname = 'public' order by 1")
        _tables.extend(name for (name,) in found if name not in UNWATCHED)
    return _tables


async def state(pool: Pool) -> State:
    """All rows there are."""
    every = " union all ".join(f"select '{name}', to_jsonb(t)::text from {name} t" for name in await tables(pool))  # noqa: S608
    return frozenset(await run_sql(pool, every))


async def put_back(pool: Pool, now: State, wanted: State) -> None:
    """Turn the rows there are into those that are wanted; the others stay untouched, so that it takes no time."""
    changed = sorted({table for table, _ in now ^ wanted})
    if not changed:
        return
    async with pool.connection() as connection:
        await connection.begin()
        # As a replica, foreign keys are not looked at, so the order of tables does not matter.
        await connection.execute("set local session_replication_role = replica")
        for name in changed:
            extra, missing = ([row for table, row in one - other if table == name] for one, other in ((now, wanted), (wanted, now)))
            await connection.execute(f"delete from {name} t where to_jsonb(t)::text = any(%s)", [extra])  # noqa: S608
            fill = f"insert into {name} select * from jsonb_populate_recordset(null::{name}, %s::jsonb)"  # noqa: S608
            await connection.execute(fill, [f"[{','.join(missing)}]"])
        await connection.commit()
