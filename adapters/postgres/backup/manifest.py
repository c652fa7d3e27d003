"""A backup's description, in its file `backup.json`."""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from adapters.postgres.backup.directory import BackupError, table_file

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
    (`adapters.crypto.key_checks`).
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
