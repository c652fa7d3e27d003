"""This release's files, two releases that follow each other, and a Debian without a network."""

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from entrypoints.version import VERSION
from tests import ROOT
from tests.engine.releases import RECORDED, commit_of_next_release, next_version
from tests.release import bare_root
from tests.release.bare_root import BareRoot

Shared = Callable[[str, Callable[[Path], object]], Path]

# The longest tests by words in their names. A worker begins with the first group, and another worker with the second group. The chart's
# tests need no release, which the first worker builds in the meantime.
_LONGEST: Final = (("test_image", "wheel"), ("test_chart", "debian_service", "archive_starts", "debian_package"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest tests at the beginning of the halves that two workers get, so that no worker waits for the other at the end."""
    halves = [[item for word in words for item in items if word in item.nodeid] for words in _LONGEST]
    others = [item for item in items if item not in halves[0] + halves[1]]
    middle = max(0, len(items) // 2 - len(halves[0]))
    items[:] = [*halves[0], *others[:middle], *halves[1], *others[middle:]]


def build(output: Path, *arguments: str) -> None:
    """Run `./run release` for the present commit or another commit. If the machine allows it, its temporary files are in memory."""
    arguments = arguments if "--revision" in arguments else (*arguments, "--revision", "HEAD")
    command: list[str | Path] = [ROOT / "run", "release", "--output", output, *arguments]
    if bare_root.why_without_namespaces() is None:
        mount = f'mount -t tmpfs -o mode=1777 none {bare_root.MEMORY} && TMPDIR={bare_root.MEMORY} exec "$0" "$@"'
        command = ["unshare", "--mount", "sh", "-c", mount, *command]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Return a function that calls `make` with a new folder in a single worker, while the other workers wait for the folder."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make_once(name: str, make: Callable[[Path], object]) -> Path:
        folder = base / name
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                partial = base / f"{name}.partial"
                make(partial)
                partial.rename(folder)
        return folder

    return make_once


@pytest.fixture(scope="session")
def release(shared: Shared) -> Path:
    """The files from the present commit, for both kinds of machines."""
    return shared("release", build)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive in a new folder, without its top folder."""
    folder.mkdir()
    subprocess.run(["tar", "-xzf", archive, "--strip-components=1", "-C", folder], check=True)


@pytest.fixture(scope="session")
def rebuilt(shared: Shared, release: Path) -> Path:
    """The present commit's files for x86-64, from a second build that also makes the image if the machine allows it."""
    image = () if bare_root.why_without_namespaces() else ("--image",)
    return shared("rebuilt", lambda folder: build(folder, "--machine", "x86_64", *image))


class Files(NamedTuple):
    """A release's files."""

    version: str
    folder: Path


@pytest.fixture(scope="session")
def two_releases(shared: Shared, release: Path) -> tuple[Files, Files]:
    """Two releases that follow each other, as `tests.engine.releases` explains. `release` is the first or the second.

    The present script builds the missing release, with the wheels that the build of `release` has downloaded.
    """
    present, one_machine = Files(VERSION, release), ("--machine", "x86_64", "--revision")
    if RECORDED:
        before = shared("previous", lambda folder: build(folder, *one_machine, RECORDED[-1]["revision"]))
        return Files(RECORDED[-1]["version"], before), present
    return present, Files(next_version(), shared("next", lambda folder: build(folder, *one_machine, commit_of_next_release())))


@pytest.fixture
def debian(shared: Shared) -> Iterator[BareRoot]:
    """A Debian 12 with Python 3.11 and the user `app`."""
    root = BareRoot(shared("debian", lambda folder: bare_root.create(folder, "bookworm")))
    root.add_program(bare_root.QUICK_PYTHON, bare_root.QUICK_PYTHON_SCRIPT)
    yield root
    root.close()
