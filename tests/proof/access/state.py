"""The rows of a database as values, to compare and to restore."""

from dataclasses import dataclass
from typing import Final

from adapters.postgres.engine.pool import Pool
from tests.support.builders import run_sql

# Side effects of requests that have nothing to do with access, and tables that every test fills.
UNWATCHED: Final = frozenset({"schema_migrations", "signing_keys", "rates", "guesses", "leases"})

State = frozenset[tuple[str, str]]  # table and content of each row, in JSON


@dataclass(slots=True)
class Table:
    """A compared table, and its rows at the last comparison."""

    name: str
    columns: str  # the writable ones: others are generated
    version: str | None = None
    rows: State = frozenset()


_tables: dict[str, Table] = {}


async def tables(pool: Pool) -> dict[str, Table]:
    """Return all compared tables by name."""
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
    """Return all rows.

    The database tells cheaply which row versions exist. Only tables that changed are read.
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
    """Restore the rows of `before`. Other rows stay untouched, so that this is fast."""
    changed = sorted({table for table, _ in now ^ wanted})
    if not changed:
        return
    known = await tables(pool)
    async with pool.connection() as connection:
        await connection.execute("begin")
        # A replica does not check foreign keys, so the order of tables does not matter.
        await connection.execute("set local session_replication_role = replica")
        for name in changed:
            columns = known[name].columns
            extra, missing = ([row for table, row in one - other if table == name] for one, other in ((now, wanted), (wanted, now)))
            await connection.execute(f"delete from {name} t where to_jsonb(t)::text = any(%s)", [extra])  # noqa: S608
            fill = f"insert into {name} ({columns}) select {columns} from jsonb_populate_recordset(null::{name}, %s::jsonb)"  # noqa: S608
            await connection.execute(fill, [f"[{','.join(missing)}]"])
        await connection.execute("commit")
