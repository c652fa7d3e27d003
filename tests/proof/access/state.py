"""The rows of a database as values: to compare, and to put back."""

from dataclasses import dataclass
from typing import Final

from adapters.postgres.engine.pool import Pool
from tests.support.builders import run_sql

# What a request leaves behind that is no matter of access, and what every test has of its own.
UNWATCHED: Final = frozenset({"schema_migrations", "signing_keys", "rates", "guesses", "leases"})

State = frozenset[tuple[str, str]]  # of each row its table, and what is in it, in JSON


@dataclass(slots=True)
class Table:
    """A table that matters here, and its rows when they were last looked at."""

    name: str
    columns: str  # those that can be written: others are made of them
    version: str | None = None
    rows: State = frozenset()


_tables: dict[str, Table] = {}


async def tables(pool: Pool) -> dict[str, Table]:
    """All tables that matter here, by name."""
    if not _tables:
        found = await run_sql(
            pool,
            """
            select table_name::text, string_agg(quote_ident(column_name), ', ' order by ordinal_position)
            from information_schema.columns natural join information_schema.tables
            where table_schema = 'public' and table_type = 'BASE TABLE' and is_generated = 'NEVER' group by 1 order by 1""",
        )
        _tables.update({name: Table(name, columns) for name, columns in found if name not in UNWATCHED})
    return _tables


async def state(pool: Pool) -> State:
    """All rows there are.

    Which version of each row is there, the database tells cheaply; only the tables are read where that has changed.
    """
    known = await tables(pool)
    versions = " union all ".join(f"select '{name}', string_agg(xmin::text || ctid::text, '') from {name}" for name in known)  # noqa: S608
    changed = {name: version for name, version in await run_sql(pool, versions) if known[name].version != (version or "")}
    if changed:
        every = " union all ".join(f"select '{name}', to_jsonb(t)::text from {name} t" for name in changed)  # noqa: S608
        rows = await run_sql(pool, every)
        for name, version in changed.items():
            known[name].version, known[name].rows = version or "", frozenset((table, row) for table, row in rows if table == name)
    return frozenset().union(*(table.rows for table in known.values()))


async def put_back(pool: Pool, now: State, wanted: State) -> None:
    """Turn the rows there are into those that are wanted; the others stay untouched, so that it takes no time."""
    changed = sorted({table for table, _ in now ^ wanted})
    if not changed:
        return
    known = await tables(pool)
    async with pool.connection() as connection:
        await connection.execute("begin")
        # As a replica, foreign keys are not looked at, so the order of tables does not matter.
        await connection.execute("set local session_replication_role = replica")
        for name in changed:
            columns = known[name].columns
            extra, missing = ([row for table, row in one - other if table == name] for one, other in ((now, wanted), (wanted, now)))
            await connection.execute(f"delete from {name} t where to_jsonb(t)::text = any(%s)", [extra])  # noqa: S608
            fill = f"insert into {name} ({columns}) select {columns} from jsonb_populate_recordset(null::{name}, %s::jsonb)"  # noqa: S608
            await connection.execute(fill, [f"[{','.join(missing)}]"])
        await connection.execute("commit")
