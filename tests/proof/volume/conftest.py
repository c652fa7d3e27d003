"""Fixtures for tests with large tables, which override the worker's fixtures: a database and connections per test."""

from collections.abc import AsyncIterator, Iterator

import pytest

from adapters.postgres.engine.pool import Pool
from tests.support import database
from tests.support.storage_fixtures import server, storage

__all__ = ["server", "storage"]


@pytest.fixture
def worker_database(server: str) -> Iterator[database.Database]:
    """A database for a single test, instead of the worker's.

    Many deleted rows in the worker's database would slow down later tests.
    """
    with database.Database(server) as own:
        yield own


@pytest.fixture
def conninfo(worker_database: database.Database) -> str:
    return worker_database.conninfo


@pytest.fixture
async def pool(conninfo: str) -> AsyncIterator[Pool]:
    """A pool with new connections.

    Kept connections have plans that were made for empty tables and scan whole tables.
    """
    opened = Pool(conninfo, size=database.POOL_SIZE)
    yield opened
    await opened.aclose()
