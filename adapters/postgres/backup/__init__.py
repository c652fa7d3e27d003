"""Backups: a database's rows in files, and their way back into an empty database (docs/adr/0022)."""

from adapters.postgres.backup.directory import BACKUP_FILE, BackupError, new_directory, write_file
from adapters.postgres.backup.manifest import Manifest, check_files
from adapters.postgres.backup.reader import check_migrations, load
from adapters.postgres.backup.writer import export

__all__ = [
    "BACKUP_FILE",
    "BackupError",
    "Manifest",
    "check_files",
    "check_migrations",
    "export",
    "load",
    "new_directory",
    "write_file",
]
