"""What the tests of the PostgreSQL adapter share: the service's storage, two organizations, and databases without its schema."""

import os
from collections.abc import Iterator
from uuid import UUID

import pytest

from adapters.postgres.pool import Pool
from adapters.postgres.storage import Postgres
from tests import database
from tests.builders import add_organization, make_vault
from tests.fakes.outside import FakeClock


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


@pytest.fixture
def storage(pool: Pool, clock: FakeClock) -> Postgres:
    return Postgres(pool, make_vault(), clock)


@pytest.fixture
async def acme(pool: Pool) -> UUID:
    return await add_organization(pool, "acme")


@pytest.fixture
async def twin(pool: Pool) -> UUID:
    return await add_organization(pool, "twin")
