"""How generated rows get into a database: in bulk, the indexes afterwards, and with a line now and then that says how far they are."""

import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from ops.bench.processes import Unfit

Say = Callable[[str], None]

FREE_TIER: Final = "00000000-0000-4000-8000-000000000001"
ROWS_AT_ONCE: Final = 5000
_PROGRESS_EVERY: Final = 15.0  # seconds


def new_uuid(draw: random.Random) -> str:
    return str(uuid.UUID(int=draw.getrandbits(128), version=4))


def copy(connection: psycopg.Connection[Any], statement: LiteralString, rows: Iterable[str], options: LiteralString = "") -> None:
    """Rows as lines of the text format."""
    with connection.cursor().copy(f"{statement} from stdin {options}") as into:
        waiting: list[str] = []
        for row in rows:
            waiting.append(row)
            if len(waiting) == ROWS_AT_ONCE:
                into.write("".join(waiting))
                waiting.clear()
        into.write("".join(waiting))


def telling(rows: Iterable[str], count: int, what: str, say: Say) -> Iterator[str]:
    """The same rows, and now and then how far they are."""
    started = told = time.monotonic()
    for number, row in enumerate(rows):
        if number % ROWS_AT_ONCE == 0 and (now := time.monotonic()) > told + _PROGRESS_EVERY:
            told = now
            say(f"  {number:,} of {count:,} {what} after {now - started:.0f} s ...")
        yield row


@contextmanager
def without_indexes(connection: psycopg.Connection[Any], table: LiteralString, say: Say) -> Iterator[None]:
    """Take the table's indexes away and build exactly these again, which costs a tenth of keeping them up to date row by row."""
    before = _indexes(connection, table)
    name = sql.Identifier(table)
    for index, _, constraint in before:
        what = sql.SQL("alter table {} drop constraint {}" if constraint else "drop index {1}")
        connection.execute(what.format(name, sql.Identifier(index)))
    yield
    for index, definition, constraint in before:
        say(f"  index {index} ...")
        if constraint:
            connection.execute(sql.SQL("alter table {} add constraint {} {}").format(name, sql.Identifier(index), sql.SQL(constraint)))
        else:
            connection.execute(definition)
    if _indexes(connection, table) != before:
        raise Unfit(f"The indexes of {table} are not what they were.")


def _indexes(connection: psycopg.Connection[Any], table: str) -> list[tuple[Any, ...]]:
    """Each index: its name, its definition, and that of its constraint, if it belongs to one."""
    return connection.execute(
        """
        select c.relname, pg_get_indexdef(i.indexrelid), pg_get_constraintdef(k.oid)
        from pg_index i join pg_class c on c.oid = i.indexrelid left join pg_constraint k on k.conindid = i.indexrelid
        where i.indrelid = %s::regclass order by c.relname""",
        [table],
    ).fetchall()
