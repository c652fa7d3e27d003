"""A backup's files. Backup files are readable by their owner only, and appear all at once."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

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
