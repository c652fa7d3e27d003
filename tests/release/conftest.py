"""The files of this release and of the one before, and a Debian without a network."""

import os
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.release import bare_root
from tests.release.bare_root import BareRoot


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
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the present commit, for both kinds of machines."""
    return build(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the release before, built by the present script."""
    last = tomllib.loads((ROOT / "ops/releases.toml").read_text())["release"][-1]
    return build(tmp_path_factory.mktemp("previous"), "--revision", last["revision"], "--machine", "x86_64")


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareRoot]:
    """A Debian 12 with Python 3.11 and the user `app`."""
    folder = tmp_path_factory.mktemp("debian") / "root"
    bare_root.create(folder, "bookworm")
    root = BareRoot(folder)
    root.run("useradd", "--create-home", "app")
    yield root
    root.close()
