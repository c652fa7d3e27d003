"""Bulk loading of generated rows into a database, with progress reports. Indexes are built at the end."""

import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from ops.bench.processes import MeasurementFailed

Report = Callable[[str], None]

FREE_TIER: Final = "00000000-0000-4000-8000-000000000001"
ROWS_AT_ONCE: Final = 5000
_PROGRESS_EVERY: Final = 15.0  # seconds


def new_uuid(draw: random.Random) -> str:
    return str(uuid.UUID(int=draw.getrandbits(128), version=4))


def copy(connection: psycopg.Connection[Any], statement: LiteralString, rows: Iterable[str], options: LiteralString = "") -> None:
    """Load rows, which are lines in the text format of COPY."""
    with connection.cursor().copy(f"{statement} from stdin {options}") as into:
        waiting: list[str] = []
        for row in rows:
            waiting.append(row)
            if len(waiting) == ROWS_AT_ONCE:
                into.write("".join(waiting))
                waiting.clear()
        into.write("".join(waiting))


def reporting(rows: Iterable[str], count: int, name: str, report: Report) -> Iterator[str]:
    """Yield the rows, and report the progress from time to time."""
    started = reported = time.monotonic()
    for number, row in enumerate(rows):
        if number % ROWS_AT_ONCE == 0 and (now := time.monotonic()) > reported + _PROGRESS_EVERY:
            reported = now
            report(f"  {number:,} of {count:,} {name} after {now - started:.0f} s ...")
        yield row


@contextmanager
def without_indexes(connection: psycopg.Connection[Any], table: LiteralString, report: Report) -> Iterator[None]:
    """Drop the table's indexes and build the same ones again at the end, which costs a tenth of updating them row by row."""
    before = _indexes(connection, table)
    name = sql.Identifier(table)
    for index, _, constraint in before:
        statement = sql.SQL("alter table {} drop constraint {}" if constraint else "drop index {1}")
        connection.execute(statement.format(name, sql.Identifier(index)))
    yield
    for index, definition, constraint in before:
        report(f"  index {index} ...")
        if constraint:
            connection.execute(sql.SQL("alter table {} add constraint {} {}").format(name, sql.Identifier(index), sql.SQL(constraint)))
        else:
            connection.execute(definition)
    if _indexes(connection, table) != before:
        raise MeasurementFailed(f"The indexes of {table} have changed.")


def _indexes(connection: psycopg.Connection[Any], table: str) -> list[tuple[Any, ...]]:
    """Return the name and definition of each index, and the definition of its constraint, if it has one."""
    return connection.execute(
        """
        select c.relname, pg_get_indexdef(i.indexrelid), pg_get_constraintdef(k.oid)
        from pg_index i join pg_class c on c.oid = i.indexrelid left join pg_constraint k on k.conindid = i.indexrelid
        where i.indrelid = %s::regclass order by c.relname""",
        [table],
    ).fetchall()
