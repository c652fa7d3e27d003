"""Migrations: the baseline and the numbered `.sql` files after it, applied in order, in separate transactions.

A file that begins with `-- concurrently` builds indexes, in separate statements outside a transaction, so that
concurrent processes can write to the table. A build that was interrupted is continued by the next call.

The baseline creates the schema for version 1.0.0. A database that was made before is refused.

Migrations cannot be undone. A migration is safe for the code in the release before, so processes from two releases may
use the same database. Therefore a database with newer migrations than this program's is accepted. A file that changed
after it was applied is refused.
"""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import trio
from psycopg import errors

from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.locks import MIGRATIONS_LOCK
from core.kernel.errors import StorageDown

# The directory that has the baseline in `schema/*.sql`, and `migrations/*.sql`.
SQL_FILES: Final = Path(__file__).parents[1]

BASELINE: Final = 1  # its number
BASELINE_NAME: Final = "0001_schema"

CREATE_TABLE: Final = """create table if not exists schema_migrations (
    number integer primary key, name text not null, sha256 text not null, applied_at timestamptz not null default now())"""
INSERT_MIGRATION: Final = "insert into schema_migrations (number, name, sha256) values (%(number)s, %(name)s, %(sha256)s)"

CONCURRENTLY: Final = b"-- concurrently\n"
_COMMENT: Final = re.compile(r"--.*")
_INDEX: Final = re.compile(r"\s*create (?:unique )?index concurrently if not exists (\w+) on [^;]+;\s*")
INVALID: Final = "select from pg_index where indexrelid = to_regclass(%(name)s) and not indisvalid"

_FOREIGN: Final = "the database has tables of another program: start with a new, empty database"
_CONNECT_TIMEOUT: Final = 5.0  # seconds
_LOCK_POLL: Final = 0.1  # seconds

_log = logging.getLogger(__name__)


class MigrationRefused(Exception):
    """The migration files do not fit the database. The message says how."""


@dataclass(frozen=True, slots=True)
class Migration:
    """The baseline or a migration file. `0002_add_plans.sql` has the number 2 and the name `0002_add_plans`."""

    number: int
    name: str
    sql: bytes  # for a transaction
    sha256: str
    # If not empty: the statements that build these indexes without a transaction, by name. `sql` builds
    # them in a new database, where no process waits.
    indexes: Mapping[str, str] = field(default_factory=dict)


async def migrate(conninfo: str, directory: Path = SQL_FILES, *, patience: float = 30.0) -> list[str]:
    """Apply the migrations that the database lacks, and return the names of migrations that this call applied.

    Any number of processes may call this at the same time. Wait up to `patience` seconds for a
    database that does not answer yet. Raises: StorageDown if it stays down; MigrationRefused if a
    file changed after it was applied, or the database was made before version 1.0.0.
    """
    migrations = read_migrations(directory)
    applied: list[str] = []
    async with await _connect(conninfo, patience) as connection:
        if not _missing(migrations, await _applied(connection)):
            return []
        await _lock(connection)
        present = await _applied(connection)  # another process may have been faster
        for migration in _missing(migrations, present):
            try:
                if migration.indexes and present:
                    await _build_indexes(connection, migration)
                else:
                    await _apply(connection, migration)
            except errors.Error as error:
                if migration.number == BASELINE and isinstance(error, errors.DuplicateTable):
                    raise MigrationRefused(_FOREIGN) from None
                error.add_note(f"in the migration {migration.name}")
                raise
            applied.append(migration.name)
    return applied


async def _lock(connection: Connection) -> None:
    """Wait until migrations in other processes end. The lock ends with the session, and a killed process has no session."""
    # A statement that waits for the lock would have a snapshot, for which a concurrent index build waits: the statement
    # and the build would wait forever.
    while True:
        if await connection.row("select where pg_try_advisory_lock(%(lock)s)", {"lock": MIGRATIONS_LOCK}) is not None:
            return
        await trio.sleep(_LOCK_POLL)


async def _apply(connection: Connection, migration: Migration) -> None:
    """Apply a migration in a transaction."""
    connection.begin()
    await connection.run(CREATE_TABLE)
    await connection.execute(migration.sql)
    if connection.is_idle:
        raise MigrationRefused(f"{migration.name} ends its own transaction: remove its commit or rollback")
    await _record(connection, migration)
    await connection.commit()


async def _build_indexes(connection: Connection, migration: Migration) -> None:
    """Build the indexes that do not exist yet. Writers do not wait for these builds."""
    for name, statement in migration.indexes.items():
        if await connection.row(INVALID, {"name": name}) is not None:  # from an interrupted build
            await connection.execute(f"drop index concurrently {name}".encode())
        _log.info("building the index %s", name)
        await connection.execute(statement.encode())
    await _record(connection, migration)


async def _record(connection: Connection, migration: Migration) -> None:
    await connection.run(INSERT_MIGRATION, {"number": migration.number, "name": migration.name, "sha256": migration.sha256})


async def pending(conninfo: str, directory: Path = SQL_FILES, *, patience: float = 0.0) -> list[str]:
    """Return the names of migrations that `migrate` would apply. Changes nothing."""
    async with await _connect(conninfo, patience) as connection:
        return [migration.name for migration in _missing(read_migrations(directory), await _applied(connection))]


def read_migrations(directory: Path) -> list[Migration]:
    """Return the baseline and all migrations, in order. Raises: MigrationRefused."""
    schema = b"".join(path.read_bytes() for path in sorted((directory / "schema").glob("*.sql")))
    migrations = [Migration(BASELINE, BASELINE_NAME, schema, _checksum_of_statements(schema))]
    for path in sorted((directory / "migrations").glob("*.sql")):
        number, _, title = path.stem.partition("_")
        if not (len(number) == 4 and number.isdecimal() and title):
            raise MigrationRefused(f"{path.name} is not named like 0002_title.sql")
        migrations.append(_parse(int(number), path.stem, path.read_bytes()))
    for one, next_one in pairwise(migrations):
        if one.number == next_one.number:
            raise MigrationRefused(f"{one.name} and {next_one.name} have the same number")
    return migrations


def _parse(number: int, name: str, sql: bytes) -> Migration:
    sha256 = hashlib.sha256(sql).hexdigest()
    if not sql.startswith(CONCURRENTLY):
        return Migration(number, name, sql, sha256)
    text = _COMMENT.sub("", sql.decode())
    indexes = {match[1]: match[0].strip() for match in _INDEX.finditer(text)}
    if _INDEX.sub("", text).strip() or not indexes:
        raise MigrationRefused(f"{name} is concurrent: it may only have statements `create index concurrently if not exists name on ...;`")
    return Migration(number, name, sql.replace(b" index concurrently ", b" index "), sha256, indexes)


def _checksum_of_statements(sql: bytes) -> str:
    """Return a checksum without comments and line breaks, so that comments in the baseline can change."""
    return hashlib.sha256(" ".join(_COMMENT.sub("", sql.decode()).split()).encode()).hexdigest()


async def _applied(connection: Connection) -> dict[int, tuple[str, str]]:
    """Return the names and checksums of applied migrations by number."""
    if await connection.row("select from pg_class where oid = to_regclass('schema_migrations')") is None:
        return {}
    try:
        rows = await connection.rows("select number, name, sha256 from schema_migrations order by number")
    except errors.UndefinedColumn:
        raise MigrationRefused(_FOREIGN) from None
    return {number: (name, sha256) for number, name, sha256 in rows}


def _missing(migrations: Sequence[Migration], applied: dict[int, tuple[str, str]]) -> list[Migration]:
    if applied and applied.get(BASELINE) != (BASELINE_NAME, migrations[0].sha256):
        raise MigrationRefused("the database was made before version 1.0.0, and cannot be upgraded: start with a new, empty database")
    latest = max(applied, default=0)
    for migration in migrations:
        if migration.number in applied:
            if applied[migration.number][1] != migration.sha256:
                raise MigrationRefused(f"{migration.name} was changed after it was applied: undo the change and write a new migration")
        elif migration.number < latest:
            raise MigrationRefused(f"{migration.name} comes before {applied[latest][0]}, which is already applied: give it a higher number")
    known = {migration.number for migration in migrations}
    if unknown := [name for number, (name, _) in sorted(applied.items()) if number not in known]:
        _log.info("the database is ahead of this release by %s", ", ".join(unknown))
    return [migration for migration in migrations if migration.number not in applied]


async def _connect(conninfo: str, patience: float) -> Connection:
    deadline = trio.current_time() + patience
    pause = 0.1
    while True:
        try:
            # No statement_timeout and no lock_timeout: a migration may move much data, or wait for
            # a process that does.
            return await connect(
                conninfo, timeout=_CONNECT_TIMEOUT, application_name="gatehouse migrate", idle_in_transaction_session_timeout_ms=60_000
            )
        except errors.OperationalError as error:
            if trio.current_time() + pause > deadline:
                raise StorageDown from error
            _log.warning("waiting for the database: %s", str(error).strip())
        await trio.sleep(pause)
        pause = min(pause * 2, 2.0)
