"""Two consecutive releases: a database, a backup and processes from the first release meet the second release.

The first release is the newest release in `ops/releases.toml`, with files from the repository's history. The second release is the present
revision. Before a release is recorded, the first release is the present revision. The second release then differs in its version and in a
migration.
"""

import io
import os
import shutil
import subprocess
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from adapters.postgres.engine.migrate import SQL_FILES, read_migrations
from entrypoints.version import VERSION
from tests import ROOT

RECORDED: Final = [
    entry for entry in tomllib.loads((ROOT / "ops/releases.toml").read_text()).get("release", []) if entry["version"] != VERSION
]
# Safe for processes from the previous release, which do not know the column and the table.
MIGRATION: Final = """
    alter table sessions add column synthetic text;
    create table synthetic (session_id uuid primary key references sessions on delete cascade);
"""
_PROGRAM: Final = ("core", "ports", "adapters", "actors", "entrypoints", "docs")


class Release(NamedTuple):
    """A release with its module folder."""

    version: str
    folder: Path


def two_releases(folder: Path) -> tuple[Release, Release]:
    """Return two consecutive releases. `folder` is new, and may get a release's files."""
    present = Release(VERSION, ROOT)
    if RECORDED:
        return Release(RECORDED[-1]["version"], _kept_files(RECORDED[-1]["revision"])), present
    for name in _PROGRAM:
        shutil.copytree(ROOT / name, folder / name)  # with the times and the compiled modules
    for path, text in next_files().items():
        (folder / path).write_text(text)
    return present, Release(next_version(), folder)


def next_version() -> str:
    """Return the patch release's version after the present revision."""
    major, minor, patch = VERSION.split(".")
    return f"{major}.{minor}.{int(patch) + 1}"


def next_files() -> Mapping[str, str]:
    """Return the files in which a next release differs from the present revision, by path."""
    number = read_migrations(SQL_FILES)[-1].number + 1
    versioned = {path: (ROOT / path).read_text() for path in ("pyproject.toml", "entrypoints/version.py")}
    changelog = (ROOT / "CHANGELOG.md").read_text()
    return {
        **{path: text.replace(f'"{VERSION}"', f'"{next_version()}"', 1) for path, text in versioned.items()},
        "CHANGELOG.md": changelog.replace("\n## ", f"\n## {next_version()}\n\n- A column, and a table.\n\n## ", 1),
        f"adapters/postgres/migrations/{number:04}_synthetic.sql": MIGRATION,
    }


def commit_of_next_release() -> str:
    """Return a commit that `next_files` make from the present commit. No branch and no checkout has it."""
    with tempfile.TemporaryDirectory() as name:
        index = {**os.environ, "GIT_INDEX_FILE": f"{name}/index"}
        _git("read-tree", "HEAD", environment=index)
        for path, text in next_files().items():
            blob = _git("hash-object", "-w", "--stdin", typed=text)
            _git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", environment=index)
        tree = _git("write-tree", environment=index)
    author = {f"GIT_{role}_{field}": "tests@gatehouse.invalid" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    return _git("commit-tree", tree, "-p", "HEAD", "-m", "A next release", environment={**os.environ, **author})


def _git(*arguments: str, typed: str = "", environment: Mapping[str, str] | None = None) -> str:
    process = subprocess.run(["git", *arguments], cwd=ROOT, env=environment, input=typed, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def _kept_files(revision: str) -> Path:
    """Return a folder with a recorded release's files. The folder is kept, because compiling the modules takes longer than running them."""
    folder = ROOT / ".venv/releases" / revision
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
            _unpack(revision, Path(partial, "files"))
            with suppress(OSError):  # another worker has put the same files there
                Path(partial, "files").rename(folder)
    return folder


def _unpack(revision: str, target: Path) -> None:
    """Write a revision's files. If the clone does not have it, skip the test, or fail it in CI."""
    archive = subprocess.run(["git", "archive", "--format=zip", revision], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode != 0:
        reason = f"the revision {revision} of a release is missing: fetch its tag ({archive.stderr.decode().strip()})"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with zipfile.ZipFile(io.BytesIO(archive.stdout)) as files:  # in tarfile, Python 3.11.2 has no safe filter
        files.extractall(target)
