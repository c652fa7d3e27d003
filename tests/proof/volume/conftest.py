"""Fixtures of the tests with large tables: a database and connections for each test."""

from collections.abc import AsyncIterator, Iterator

import pytest

from adapters.postgres.engine.pool import Pool
from tests.support import database
from tests.support.storage_fixtures import server, storage

__all__ = ["server", "storage"]


@pytest.fixture
def worker_database(server: str) -> Iterator[database.Database]:
    """A database for one test.

    In that of the worker, the deleted rows would slow down the tests that follow.
    """
    with database.Database(server) as own:
        yield own


@pytest.fixture
def conninfo(worker_database: database.Database) -> str:
    return worker_database.conninfo


@pytest.fixture
async def pool(conninfo: str) -> AsyncIterator[Pool]:
    """A pool with connections of its own.

    The connections of earlier tests have plans for empty tables, which read whole tables.
    """
    opened = Pool(conninfo, size=database.POOL_SIZE)
    yield opened
    await opened.aclose()
