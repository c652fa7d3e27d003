"""What the tests of the PostgreSQL adapter share. They need a server and empty databases, but not the service's schema."""

import os
from collections.abc import Iterator

import pytest

from tests import database


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The connection string of the run's server, or of one of our own when the run has none."""
    if conninfo := os.environ.get(database.SERVER_VARIABLE):
        yield conninfo
        return
    own = database.start_server()
    yield own.conninfo
    own.stop()


@pytest.fixture(scope="session")
def blank(server: str) -> Iterator[str]:
    """The connection string of a database without tables, for tests that leave none behind."""
    with database.Database(server, template="template1") as fresh:
        yield fresh.conninfo


@pytest.fixture
def fresh(server: str) -> Iterator[str]:
    """The connection string of a database without tables, for one test."""
    with database.Database(server, template="template1") as fresh:
        yield fresh.conninfo
