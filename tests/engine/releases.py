"""Earlier releases, which `ops/releases.toml` records. Their files come from the history of the repository."""

import hashlib
import io
import os
import subprocess
import tempfile
import tomllib
import zipfile
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from adapters.postgres.engine.migrate import CREATE_TABLE, INSERT_MIGRATION
from tests import ROOT


def kept_release(version: str) -> Path:
    """Return a folder with the files of a release. It is kept, because compiling the modules takes longer than running them."""
    folder = ROOT / ".venv/releases" / _revision(version)
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
            unpack_release(version, Path(partial, "files"))
            with suppress(OSError):  # another worker has put the same files there
                Path(partial, "files").rename(folder)
    return folder


def _revision(version: str) -> str:
    releases = tomllib.loads((ROOT / "ops/releases.toml").read_text())["release"]
    [revision] = [release["revision"] for release in releases if release["version"] == version]
    return str(revision)


def unpack_release(version: str, target: Path, *paths: str) -> None:
    """Write these files of a release to `target`. Without the history, skip the test, or fail it in CI."""
    revision = _revision(version)
    archive = subprocess.run(["git", "archive", "--format=zip", revision, "--", *paths], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode != 0:
        reason = f"the files of version {version} are missing: use a clone with the whole history ({archive.stderr.decode().strip()})"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with zipfile.ZipFile(io.BytesIO(archive.stdout)) as files:  # of tarfile, Python 3.11.2 has no safe filter
        files.extractall(target)


def migrate_to_0_9_0(conninfo: str, home: Path) -> None:
    """Create the schema of version 0.9.0 with its migrations."""
    unpack_release("0.9.0", home, "adapters/postgres/migrations")
    with psycopg.connect(conninfo) as connection:
        connection.execute(CREATE_TABLE)
        for path in sorted((home / "adapters/postgres/migrations").glob("*.sql")):
            sql = path.read_bytes()
            connection.execute(sql)
            sha256 = hashlib.sha256(sql).hexdigest()
            connection.execute(INSERT_MIGRATION, {"number": int(path.stem[:4]), "name": path.stem, "sha256": sha256})
