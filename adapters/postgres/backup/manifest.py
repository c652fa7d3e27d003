"""A backup's files, readable by their owner only, and its description in the file `backup.json`."""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

FORMAT: Final = 1

# Names become file names before the database confirms them.
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class TableData:
    """A table's rows. `sha256` is the compressed file's checksum, in hexadecimal."""

    columns: list[str]
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    """A migration that the database had at the time of the backup."""

    number: int
    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A backup's contents.

    `left_out` has the tables without data, `sequences` the sequences' last values, None if a sequence was not used.
    `key_checks` has a value per encryption key, by key id, which tells whether the same key is at hand
    (`adapters.crypto.vault`).
    """

    format: int
    gatehouse: str  # the program's version
    created_at: datetime
    migrations: list[AppliedMigration]
    tables: dict[str, TableData]
    left_out: list[str]
    sequences: dict[str, int | None]
    key_checks: dict[str, str]

    @property
    def rows(self) -> int:
        """How many rows all tables have."""
        return sum(table.rows for table in self.tables.values())


def check_files(directory: Path, manifest: Manifest) -> None:
    """Check all files: the format, the names and the checksums. Raises: BackupError; OSError."""
    if manifest.format != FORMAT:
        raise BackupError(
            f"The backup in {directory} has the format {manifest.format}, and this release reads format {FORMAT}. "
            "Restore it with the release that made it."
        )
    for name in manifest.tables:
        if not _NAME.fullmatch(name):
            raise BackupError(f"backup.json names a table {name!r}, which cannot be the name of a table. The file was changed.")
    for name, table in manifest.tables.items():
        path = table_file(directory, name)
        try:
            with path.open("rb") as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            raise BackupError(f"The backup is incomplete: {path} is missing.") from None
        if checksum != table.sha256:
            raise BackupError(f"{path} was changed or is damaged: its checksum differs from the one in backup.json. Use another backup.")


BACKUP_FILE: Final = "backup.json"
TABLES: Final = "tables"


class BackupError(Exception):
    """A backup cannot be made or used. The message is a sentence for the operator."""


def table_file(directory: Path, table: str) -> Path:
    """Return the file with a table's rows: PostgreSQL's COPY text format, compressed with gzip."""
    return directory / TABLES / f"{table}.copy.gz"


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Yield a directory that becomes `target` when the block ends. After an error, the directory is removed.

    A killed process leaves `.NAME.partial-...` beside the target. Raises: BackupError; OSError.
    """
    if os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir())):
        raise BackupError(f"{target} already exists and is not an empty directory. Choose another directory.")
    if not target.absolute().parent.is_dir():
        raise BackupError(f"The directory {target.absolute().parent} does not exist. Create it first.")
    partial = Path(tempfile.mkdtemp(dir=target.absolute().parent, prefix=f".{target.absolute().name}.partial-"))  # mode 0700
    try:
        yield partial
        for path in (*(path for path in partial.rglob("*") if path.is_dir()), partial):
            _sync(path)
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _sync(target.absolute().parent)


def write_file(path: Path, content: bytes) -> None:
    """Write a new file with mode 0600, and wait until it is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
