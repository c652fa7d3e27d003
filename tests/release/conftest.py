"""The files of this release and of the one before, and a Debian without a network."""

import fcntl
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from entrypoints.version import VERSION
from tests import ROOT
from tests.release import bare_root
from tests.release.bare_root import BareRoot

# The release before, as `ops/releases.toml` records it. The present version is there, too, when it is published.
PREVIOUS = [entry for entry in tomllib.loads((ROOT / "ops/releases.toml").read_text())["release"] if entry["version"] != VERSION][-1]
Shared = Callable[[str, Callable[[Path], object]], Path]


def build(output: Path, *arguments: str) -> Path:
    """Run `./run release` for the present commit or another one, and return the folder of the files."""
    arguments = arguments if "--revision" in arguments else (*arguments, "--revision", "HEAD")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(
        [ROOT / "run", "release", "--output", output, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return output


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Return a function that calls `make` with a new folder in one worker of the run, while the others wait for the folder."""
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
    """The files of the present commit, for both kinds of machines."""
    return shared("release", build)


@pytest.fixture(scope="session")
def archive(shared: Shared, release: Path) -> Path:
    """The unpacked archive of the present commit for x86-64."""
    return shared("archive", lambda folder: unpack(release / f"gatehouse-{VERSION}-linux-x86_64.tar.gz", folder))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive in a new folder, without its top folder."""
    folder.mkdir()
    subprocess.run(["tar", "-xzf", archive, "--strip-components=1", "-C", folder], check=True)


@pytest.fixture(scope="session")
def previous(shared: Shared, archive: Path) -> Path:
    """The files of the release before, built by the present script."""
    arguments = ("--revision", PREVIOUS["revision"], "--machine", "x86_64", "--wheels", str(archive / "wheels"))
    return shared("previous", lambda folder: build(folder, *arguments))


@pytest.fixture(scope="session")
def debian(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareRoot]:
    """A Debian 12 with Python 3.11 and the user `app`, of this worker."""
    installed = shared("debian", lambda folder: bare_root.create(folder, "bookworm"))
    folder = tmp_path_factory.mktemp("debian") / "root"
    subprocess.run(["cp", "--archive", installed, folder], check=True)
    root = BareRoot(folder)
    root.run("useradd", "--create-home", "app")
    yield root
    root.close()
    shutil.rmtree(folder)
