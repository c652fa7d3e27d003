"""A database's rows as values, and a journal of their changes.

Triggers write every changed row into a table. So a test reads a request's changes with a short statement. Undoing them
costs as much as the changes, not as much as the database.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import psycopg

from adapters.postgres.engine.pool import Pool
from tests.support import database
from tests.support.builders import run_sql

# Side effects that have nothing to do with access, and tables that every test fills.
UNWATCHED: Final = frozenset(
    {
        "schema_migrations",
        "signing_keys",
        "rates",
        "guesses",
        "scim_requests",
        "traffic_figures",
        "leases",
        "dpop_proofs",
        "dpop_nonce_keys",
        "sign_in_charges",
    }
)
# The unwatched tables that tests fill.
FORGOTTEN: Final = UNWATCHED - {"schema_migrations"}

Row = tuple[str, str]  # table and content, in JSON
State = frozenset[Row]

# `undo` restores the rows that were there at a mark. A content that was written and then overwritten counts for
# nothing, so the order of entries does not matter: in a statement whose trigger changes the same row again, the later
# change's trigger runs first.
_JOURNAL: Final = """
create schema journal;
create table journal.tables (name text primary key, columns text not null, key text not null);
create unlogged table journal.entries (number bigint generated always as identity primary key, name text, lost jsonb, got jsonb);

create function journal.record() returns trigger language plpgsql as $$
begin
    insert into journal.entries (name, lost, got)
    values (tg_table_name, case when tg_op <> 'INSERT' then to_jsonb(old) end, case when tg_op <> 'DELETE' then to_jsonb(new) end);
    return null;
end $$;

create function journal.undo(mark bigint) returns void language plpgsql as $$
declare
    changed record;
begin
    if not exists (select from journal.entries where number > mark) then
        return;
    end if;
    for changed in
        with net as (
            select e.name, v.content, sum(v.sign) as sign
            from journal.entries e cross join lateral (values (1, e.lost), (-1, e.got)) v (sign, content)
            where e.number > mark and v.content is not null group by e.name, v.content having sum(v.sign) <> 0)
        select name, coalesce(jsonb_agg(content) filter (where sign > 0), '[]') as lost,
               coalesce(jsonb_agg(content) filter (where sign < 0), '[]') as got
        from net group by name
    loop
        execute format('select journal.%I($1, $2)', 'restore_' || changed.name) using changed.lost, changed.got;
    end loop;
    delete from journal.entries where number > mark;
end $$;
"""
# PostgreSQL keeps the plans for statements in a function, but not for a dynamic statement. So every table has a function.
_RESTORE: Final = """
create function journal.restore_{name}(lost jsonb, got jsonb) returns void language plpgsql as $$
begin
    delete from {name} where ({key}) in (select {key} from jsonb_populate_recordset(null::{name}, got));
    insert into {name} ({columns}) select {columns} from jsonb_populate_recordset(null::{name}, lost);
end $$;
create trigger journal after insert or update or delete on {name} for each row execute function journal.record()"""
# The session that undoes changes is a replica: it runs no triggers and checks no foreign keys, so the order of tables does not matter. The
# service has its own sessions, because changing the role makes a session forget all its plans.
_BECOME_REPLICA: Final = "set session_replication_role = replica; set lock_timeout = '5s'"


@dataclass(frozen=True, slots=True)
class Changes:
    """The rows that have gone, and the new rows. A changed row is in the two lists."""

    lost: State = frozenset()
    got: State = frozenset()

    def __bool__(self) -> bool:
        return bool(self.lost or self.got)


class JournaledPool(database.PoolOfKept):
    """A pool for a database with a journal. `journal` is the replica's connection."""

    def __init__(self, kept: database.KeptConnections, journal: psycopg.Connection) -> None:
        super().__init__(kept)
        self.journal = journal
        self.undone = 0


@contextmanager
def journaled_database() -> Iterator[psycopg.Connection]:
    """Yield a replica's connection to a new database that records all changes to watched tables."""
    with database.Database(os.environ[database.SERVER_VARIABLE]) as own:
        own.plan_once()
        with psycopg.connect(own.conninfo, autocommit=True) as connection:
            connection.execute(_BECOME_REPLICA)
            _keep_journal(connection)
            yield connection


def _keep_journal(connection: psycopg.Connection) -> None:
    connection.execute(_JOURNAL)
    connection.execute(
        """
        insert into journal.tables (name, columns, key)
        select t.table_name::text, c.names, k.names
        from information_schema.tables t
        cross join lateral (
            select string_agg(quote_ident(column_name), ', ' order by ordinal_position) as names from information_schema.columns c
            where c.table_schema = 'public' and c.table_name = t.table_name and is_generated = 'NEVER') c
        cross join lateral (
            select string_agg(quote_ident(a.attname), ', ') as names
            from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey)
            where i.indisprimary and i.indrelid = quote_ident(t.table_name)::regclass) k
        where table_schema = 'public' and table_type = 'BASE TABLE' and not table_name = any(%s)
              and not exists (select from pg_class p where p.oid = quote_ident(t.table_name)::regclass and p.relispartition)""",
        [list(UNWATCHED)],
    )
    for name, columns, key in connection.execute("select name, columns, key from journal.tables").fetchall():
        connection.execute(_RESTORE.format(name=name, columns=columns, key=key))


def forget_test(connection: psycopg.Connection) -> None:
    """Undo all changes since the journal began, and empty the unwatched tables and the journal."""
    connection.execute("; ".join(["select journal.undo(0)", *(f"delete from {name}" for name in sorted(FORGOTTEN))]))  # noqa: S608
    connection.execute("vacuum journal.entries")  # every look at the journal would read the deleted entries again


async def begin_journal(pool: Pool) -> None:
    """Forget the changes until now. All tests begin with the rows at this moment."""
    await run_sql(pool, "delete from journal.entries")


async def mark(pool: Pool) -> int:
    """Return a mark for `changes_since` and `undo`."""
    [(number,)] = _journal_of(pool).execute("select coalesce(max(number), 0) from journal.entries")
    return int(number)


async def changes_since(pool: Pool, number: int) -> Changes:
    """Return the difference between the rows now and the rows at the mark."""
    lost: set[Row] = set()
    got: set[Row] = set()
    entries = "select name, lost::text, got::text from journal.entries where number > %s order by number"
    for name, old, new in _journal_of(pool).execute(entries, [number]):
        for row, gone, back in ((old, lost, got), (new, got, lost)):
            if row is None:
                continue
            if (name, row) in back:
                back.discard((name, row))
            else:
                gone.add((name, row))
    return Changes(frozenset(lost), frozenset(got))


async def keys_of_tables(pool: Pool) -> Mapping[str, tuple[str, ...]]:
    """Return the primary key columns of every watched table."""
    rows = await run_sql(pool, "select name, key from journal.tables")
    return {name: tuple(column.strip('"') for column in key.split(", ")) for name, key in rows}


async def undo(pool: Pool, number: int = 0) -> None:
    """Restore the rows at the mark, or at the journal's beginning."""
    connection = _journal_of(pool)
    connection.execute("select journal.undo(%s)", [number])
    assert isinstance(pool, JournaledPool)
    pool.undone += 1
    if pool.undone % 50 == 0:  # otherwise every look at the journal would read all deleted entries again
        connection.execute("vacuum journal.entries")


async def state(pool: Pool) -> State:
    """Return all rows in the watched tables."""
    names = [name for (name,) in await run_sql(pool, "select name from journal.tables order by 1")]
    rows = await run_sql(pool, " union all ".join(f"select '{name}', to_jsonb(t)::text from {name} t" for name in names))  # noqa: S608
    return frozenset((name, row) for name, row in rows)


async def fill(pool: Pool, rows: Iterable[Row]) -> None:
    """Insert rows, in any table order. A row with a key that exists is left out.

    New rows get higher numbers than these rows.
    """
    by_table: dict[str, list[str]] = {}
    for name, row in rows:
        by_table.setdefault(name, []).append(row)
    connection = _journal_of(pool)
    columns: dict[str, str] = dict(connection.execute("select name, columns from journal.tables").fetchall())
    with connection.transaction():
        for name, contents in sorted(by_table.items()):
            insert = f"""
                with added as (
                    insert into {name} ({columns[name]})
                    select {columns[name]} from jsonb_populate_recordset(null::{name}, %s::jsonb) on conflict do nothing returning *)
                insert into journal.entries (name, got) select '{name}', to_jsonb(a) from added a"""  # noqa: S608
            connection.execute(insert, [f"[{','.join(contents)}]"])
        sequences = "select setval(oid::regclass, 1000000) from pg_class where relkind = 'S' and relnamespace = 'public'::regnamespace"
        connection.execute(sequences)


def _journal_of(pool: Pool) -> psycopg.Connection:
    """Return the journal's connection. Its statements do not wait in Trio: the service is idle while a test looks."""
    assert isinstance(pool, JournaledPool)
    return pool.journal
