"""Reading a backup's rows into an empty database, all or none."""

import gzip
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from psycopg import sql

from adapters.postgres.backup import catalog
from adapters.postgres.backup.directory import BackupError, table_file
from adapters.postgres.backup.manifest import Manifest, TableData
from adapters.postgres.engine.locks import MIGRATIONS_LOCK
from adapters.postgres.engine.migrate import BASELINE, CREATE_TABLE, INSERT_MIGRATION, SQL_FILES, Migration, read_migrations

CHUNK: Final = 1 << 20  # bytes


def check_migrations(manifest: Manifest) -> list[Migration]:
    """Return the migrations that the backup's database had, starting with the baseline.

    Raises: BackupError if this release lacks such a migration, or the backup was made before version 1.0.0.
    """
    known = {migration.number: migration for migration in read_migrations(SQL_FILES)}
    if (BASELINE, known[BASELINE].sha256) not in {(applied.number, applied.sha256) for applied in manifest.migrations}:
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


def load(conninfo: str, directory: Path, manifest: Manifest, migrations: Sequence[Migration]) -> None:
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
        connection.execute(CREATE_TABLE)
        for migration in migrations:
            connection.execute(migration.sql)
            connection.execute(INSERT_MIGRATION, {"number": migration.number, "name": migration.name, "sha256": migration.sha256})
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
