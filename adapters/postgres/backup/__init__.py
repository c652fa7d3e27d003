"""Backups: a database's rows in files, and their way back into an empty database (docs/adr/0022)."""

from adapters.postgres.backup.manifest import BACKUP_FILE, BackupError, Manifest, check_files, new_directory, write_file
from adapters.postgres.backup.transfer import check_migrations, export, load

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
