"""Writing a running database's rows to files, and reading a backup's rows into an empty database, all or none."""

import gzip
import hashlib
import os
import time
import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from psycopg import errors, sql

from adapters.postgres.backup import catalog
from adapters.postgres.backup.manifest import FORMAT, TABLES, AppliedMigration, BackupError, Manifest, TableData, table_file
from adapters.postgres.engine import migrate
from adapters.postgres.engine.locks import MIGRATIONS_LOCK

CHUNK: Final = 1 << 20  # bytes
COMPRESSION: Final = 1  # gzip's fastest level; higher levels take a multiple of the time for few percent
MIGRATION_PATIENCE: Final = 60.0  # seconds


def export(conninfo: str, directory: Path, *, version: str, created_at: datetime, key_checks: dict[str, str]) -> Manifest:
    """Write all tables' rows to `directory`, as they are at a single moment, and return their description.

    The service can run during the export.

    Raises: BackupError; OSError.
    """
    deadline = time.monotonic() + MIGRATION_PATIENCE
    while True:
        with catalog.session(conninfo, sql.SQL("repeatable read, read only")) as connection:
            if _keep_schema(connection):
                return _export(connection, directory, version, created_at, key_checks)
        if time.monotonic() > deadline:
            raise BackupError("A migration of the database is running. Wait until it has ended, and try again.")
        time.sleep(0.2)


def _keep_schema(connection: catalog.Session) -> bool:
    """Keep migrations from starting until the transaction ends. Return False if a migration is running.

    LOCK TABLE takes no snapshot, so no migration can commit between it and the second statement, which takes the
    transaction's snapshot.
    """
    try:
        connection.execute("lock table schema_migrations in share mode")
    except errors.UndefinedTable:
        raise BackupError("This database has no tables of Gatehouse, so there is nothing to back up. Check SSO_DATABASE_URL.") from None
    return connection.execute("select pg_try_advisory_xact_lock_shared(%s)", [MIGRATIONS_LOCK]).fetchone() == (True,)


def _export(connection: catalog.Session, directory: Path, version: str, created_at: datetime, key_checks: dict[str, str]) -> Manifest:
    migrations = connection.execute("select number, name, sha256 from schema_migrations order by number")
    applied = [AppliedMigration(number, name, sha256) for number, name, sha256 in migrations]
    baseline = migrate.read_migrations(migrate.SQL_FILES)[0]
    if baseline.sha256 not in {each.sha256 for each in applied}:
        raise BackupError("This database was made before version 1.0.0. No release restores a backup of it, so none was made.")
    tables = catalog.tables(connection)
    left_out = sorted(name for name, table in tables.items() if table.unlogged or name in catalog.TABLES_LEFT_OUT)
    (directory / TABLES).mkdir(mode=0o700)
    data = {}
    for name, table in tables.items():
        if name not in left_out:
            columns = [column for column in table.columns if column not in catalog.COLUMNS_LEFT_OUT.get(name, ())]
            data[name] = _export_table(connection, name, columns, table_file(directory, name))
    return Manifest(FORMAT, version, created_at, applied, data, left_out, catalog.sequences(connection), key_checks)


def _export_table(connection: catalog.Session, name: str, columns: list[str], path: Path) -> TableData:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("copy {} ({}) to stdout").format(sql.Identifier(name), names)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w+b") as file, connection.cursor() as cursor:
        with gzip.GzipFile("", "wb", COMPRESSION, file, mtime=0) as compressed, cursor.copy(statement) as copy:
            rows: list[bytes] = []
            size = 0
            for row in copy:
                rows.append(bytes(row))
                size += len(row)
                if size > CHUNK:
                    compressed.write(b"".join(rows))
                    rows, size = [], 0
            compressed.write(b"".join(rows))
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        return TableData(columns, cursor.rowcount, hashlib.file_digest(file, "sha256").hexdigest())


def check_migrations(manifest: Manifest) -> list[migrate.Migration]:
    """Return the migrations that the backup's database had, starting with the baseline.

    Raises: BackupError if this release lacks such a migration, or the backup was made before version 1.0.0.
    """
    known = {migration.number: migration for migration in migrate.read_migrations(migrate.SQL_FILES)}
    if (migrate.BASELINE, known[migrate.BASELINE].sha256) not in {(applied.number, applied.sha256) for applied in manifest.migrations}:
        raise BackupError("The backup was made before version 1.0.0, and cannot be restored. Start with a new, empty database.")
    for applied in manifest.migrations:
        if applied.number not in known:
            raise BackupError(
                f"The backup was made by a newer release ({manifest.gatehouse}), with the migration {applied.name}. "
                "Install that release or a later one, and try again."
            )
        if known[applied.number].sha256 != applied.sha256:
            raise BackupError(
                f"The migration {applied.name} of the backup differs from the one of this release. Install the release again."
            )
    return [known[applied.number] for applied in manifest.migrations]


def load(conninfo: str, directory: Path, manifest: Manifest, migrations: Sequence[migrate.Migration]) -> None:
    """Apply `migrations` to an empty database, and insert the backup's rows, in a single transaction.

    Call `check_files` first. The tables get their statistics in a second transaction, without which
    the first statements would be slow.

    Raises: BackupError; OSError.
    """
    with catalog.session(conninfo, sql.SQL("read committed")) as connection:
        # A service that starts now waits for this lock before it creates tables.
        connection.execute("select pg_advisory_xact_lock(%s)", [MIGRATIONS_LOCK])
        if catalog.tables(connection):
            raise BackupError("The database is not empty, so nothing was changed. Restore into an empty database.")
        connection.execute(migrate.CREATE_TABLE)
        for migration in migrations:
            connection.execute(migration.sql)
            connection.execute(migrate.INSERT_MIGRATION, {"number": migration.number, "name": migration.name, "sha256": migration.sha256})
        _check_names(connection, manifest)
        # Without triggers, which belong to changes by the service, and without foreign keys, so that the table order
        # does not matter. Adding a key checks all rows.
        foreign_keys = _drop_foreign_keys(connection)
        for name, table in manifest.tables.items():
            identifier = sql.Identifier(name)
            connection.execute(sql.SQL("alter table {} disable trigger user").format(identifier))
            connection.execute(sql.SQL("delete from {}").format(identifier))  # rows from a migration
            _load_table(connection, name, table, table_file(directory, name))
            connection.execute(sql.SQL("alter table {} enable trigger user").format(identifier))
        for foreign_key in foreign_keys:
            connection.execute(foreign_key)
        for name, value in manifest.sequences.items():
            if value is not None:
                connection.execute("select setval(quote_ident(%s)::regclass, %s)", [name, value])
    with catalog.session(conninfo, sql.SQL("read committed")) as connection:
        for name in manifest.tables:
            connection.execute(sql.SQL("analyze {}").format(sql.Identifier(name)))


def _check_names(connection: catalog.Session, manifest: Manifest) -> None:
    tables = catalog.tables(connection)
    _check_equal("tables", tables, [*manifest.tables, *manifest.left_out])
    _check_equal("sequences", catalog.sequences(connection), manifest.sequences)
    for name, table in manifest.tables.items():
        if unknown := sorted(set(table.columns) - set(tables[name].columns)):
            raise BackupError(f"backup.json names columns that the table {name} does not have: {', '.join(unknown)}.")


def _check_equal(kind: str, expected: Iterable[str], found: Iterable[str]) -> None:
    if difference := sorted(set(expected) ^ set(found)):
        raise BackupError(f"backup.json and this release disagree about the {kind} {', '.join(difference)}. The file was changed.")


def _drop_foreign_keys(connection: catalog.Session) -> list[bytes]:
    """Drop all foreign keys and return the statements that add them again."""
    rows = connection.execute(
        """
        select format('alter table %I drop constraint %I', r.relname, k.conname),
               format('alter table %I add constraint %I %s', r.relname, k.conname, pg_get_constraintdef(k.oid))
        from pg_constraint k join pg_class r on r.oid = k.conrelid join pg_namespace n on n.oid = r.relnamespace
        where k.contype = 'f' and n.nspname = current_schema()"""
    ).fetchall()
    for drop, _ in rows:
        connection.execute(drop.encode())
    return [add.encode() for _, add in rows]


def _load_table(connection: catalog.Session, name: str, table: TableData, path: Path) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
    statement = sql.SQL("copy {} ({}) from stdin").format(sql.Identifier(name), columns)
    try:
        with gzip.open(path, "rb") as file, connection.cursor().copy(statement) as copy:
            while chunk := file.read(CHUNK):
                copy.write(chunk)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise BackupError(f"{path} cannot be unpacked. It was changed or is damaged. Use another backup.") from None
    count = connection.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(name))).fetchone()
    if count != (table.rows,):
        raise BackupError(f"{path} has {count and count[0]} rows, and backup.json says {table.rows}. Use another backup.")
