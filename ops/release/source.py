"""A revision's files, as the release gets them."""

import hashlib
import io
import subprocess
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


class ReleaseError(Exception):
    """A release cannot be built. The message is a sentence for the person who started it."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A revision's files in a folder."""

    folder: Path
    revision: str  # 40 hexadecimal digits
    committed_at: int  # in seconds since 1970, the time that all files in the release get

    @property
    def version(self) -> str:
        """Return the version in `pyproject.toml`."""
        return str(tomllib.loads((self.folder / "pyproject.toml").read_text())["project"]["version"])

    @property
    def locks(self) -> Path:
        """Return the folder with the lock files."""
        return self.folder / "ops/requirements"


def export(revision: str | None, folder: Path) -> Source:
    """Write a revision's files to the folder, or the checkout's, which must not be changed.

    Raises: ReleaseError if the checkout is changed, or has no such revision.
    """
    if revision is None and _git("status", "--porcelain"):
        raise ReleaseError("The checkout has changes that are not committed. Commit them, or name a revision with --revision.")
    name = _git("rev-parse", "--verify", "--end-of-options", f"{revision or 'HEAD'}^{{commit}}").decode().strip()
    committed_at = int(_git("show", "--no-patch", "--format=%ct", name))
    # tarfile in Python 3.11.2 has no safe filter. The archive is unpacked at once, so it is not compressed.
    with zipfile.ZipFile(io.BytesIO(_git("archive", "--format=zip", "-0", name))) as files:
        files.extractall(folder)
    return Source(folder=folder, revision=name, committed_at=committed_at)


def sha256(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _git(*arguments: str) -> bytes:
    process = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if process.returncode != 0:
        raise ReleaseError(f"git {arguments[0]} failed: {process.stderr.decode().strip()}")
    return process.stdout
