"""Writing a running database's rows to files."""

import gzip
import hashlib
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Final

from psycopg import errors, sql

from adapters.postgres.backup import catalog
from adapters.postgres.backup.contents import COLUMNS_LEFT_OUT, TABLES_LEFT_OUT
from adapters.postgres.backup.directory import TABLES, BackupError, table_file
from adapters.postgres.backup.manifest import FORMAT, AppliedMigration, Manifest, TableData
from adapters.postgres.engine.locks import MIGRATIONS_LOCK
from adapters.postgres.engine.migrate import SQL_FILES, read_migrations

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
    baseline = read_migrations(SQL_FILES)[0]
    if baseline.sha256 not in {each.sha256 for each in applied}:
        raise BackupError("This database was made before version 1.0.0. No release restores a backup of it, so none was made.")
    tables = catalog.tables(connection)
    left_out = sorted(name for name, table in tables.items() if table.unlogged or name in TABLES_LEFT_OUT)
    (directory / TABLES).mkdir(mode=0o700)
    data = {}
    for name, table in tables.items():
        if name not in left_out:
            columns = [column for column in table.columns if column not in COLUMNS_LEFT_OUT.get(name, ())]
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
