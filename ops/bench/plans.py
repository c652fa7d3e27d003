"""A request's query plans: the service's statements are read from the server's log and explained."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from ops.bench.service import Service

# After a prepared statement was executed five times, the server decides whether a generic plan is
# as good as specific plans.
UNTIL_PLANNED: Final = 8
_PARAMETER: Final = re.compile(r"\$\d+ = (NULL|'(?:[^']|'')*')", re.S)
_ENTRY: Final = re.compile(r"^\S+ \S+ \S+ \[\d+\] (\w+):  ", re.M)
_EXECUTED: Final = re.compile(r"execute \S+:\s(.*)", re.S)


def plans_of(service: Service, ask: Callable[[], object], tables: Sequence[str]) -> list[str]:
    """Return the plans for statements with these tables that the service executes for a request."""
    with psycopg.connect(service.conninfo, autocommit=True) as connection:
        with _logging(connection) as log:
            begin = log.stat().st_size
            ask()
            with log.open(errors="replace") as file:
                file.seek(begin)
                output = file.read()
        return [
            _plan(connection, statement, values) for statement, values in executed(output) if any(table in statement for table in tables)
        ]


@contextmanager
def _logging(connection: psycopg.Connection[Any]) -> Iterator[Path]:
    """Let the server log the service's statements until the block ends, and yield the log file."""
    connection.execute("alter role current_user set log_statement = 'all'")
    connection.execute("alter role current_user set log_error_verbosity = 'default'")  # otherwise values are left out
    try:
        renew(connection)
        directory = connection.execute("show data_directory").fetchall()[0][0]
        yield Path(f"{directory}.log")
    finally:
        connection.execute("alter role current_user reset log_statement")
        connection.execute("alter role current_user reset log_error_verbosity")
        renew(connection)


def renew(connection: psycopg.Connection[Any]) -> None:
    """End the service's idle sessions. It opens new sessions, with the present settings and without plans. Sessions that LISTEN stay."""
    connection.execute(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
        "where backend_type = 'client backend' and state = 'idle' and pid <> pg_backend_pid() and query not ilike 'listen %%'"
    )


def executed(output: str) -> list[tuple[str, list[str]]]:
    """Return the distinct statements in a part of the log, and their values as literals."""
    statements: dict[str, list[str]] = {}
    statement = ""
    entries = _ENTRY.split(output)
    for level, text in zip(entries[1::2], entries[2::2], strict=True):
        if level == "LOG":
            executed = _EXECUTED.match(text)
            statement = executed[1].strip() if executed else ""
            if statement:
                statements[statement] = []
        elif level == "DETAIL" and statement:
            statements[statement] = _PARAMETER.findall(text)
    return list(statements.items())


def _plan(connection: psycopg.Connection[Any], statement: str, values: Sequence[str]) -> str:
    execute = sql.SQL("execute explained") + (sql.SQL(f"({', '.join(values)})") if values else sql.SQL(""))
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(sql.SQL("prepare explained as ") + sql.SQL(statement))
            for _ in range(UNTIL_PLANNED):
                connection.execute(execute)
            lines = connection.execute(sql.SQL("explain (analyze, buffers) ") + execute).fetchall()
    except psycopg.Error as error:
        return f"There is no plan, because the statement fails here: {error}"
    finally:
        connection.execute("deallocate all")
    return "\n".join(line for (line,) in lines)
