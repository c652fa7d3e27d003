"""Directories with and without an embedded database."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.postgres.engine.embedded import start
from tests.support.database import reachable_directory


@pytest.fixture
def home() -> Iterator[Path]:
    with reachable_directory() as path:
        yield path


@pytest.fixture
def data(home: Path) -> Path:
    """The directory for a new database."""
    return home / "postgres"


@pytest.fixture(scope="module")
def stopped() -> Iterator[Path]:
    with reachable_directory() as path:
        start(path / "postgres", durable=False).stop()
        yield path / "postgres"


@pytest.fixture
def initialized(stopped: Path, data: Path) -> Path:
    """An existing database that does not run. It is a copy, because creating a database takes ten times as long."""
    subprocess.run(["cp", "-a", stopped, data], check=True)
    return data
