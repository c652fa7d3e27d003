"""Fixtures for PostgreSQL adapter tests: storage, two organizations, and databases without our schema."""

import os
from collections.abc import Iterator
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.kernel.callers import ServiceContext
from tests.fakes.outside import FakeClock
from tests.support import database
from tests.support.builders import add_organization, make_vault
from tests.support.services import add_service, service_context


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The connection string for the run's server, or for a new server if the run has none."""
    if conninfo := os.environ.get(database.SERVER_VARIABLE):
        yield conninfo
        return
    own = database.start_server()
    yield own.conninfo
    own.stop()


@pytest.fixture(scope="session")
def blank(server: str) -> Iterator[str]:
    """The connection string for a database without tables, for tests that leave none behind."""
    with database.Database(server, template="template1") as fresh:
        yield fresh.conninfo


@pytest.fixture
def fresh(server: str) -> Iterator[str]:
    """The connection string for a database without tables, for a single test."""
    with database.Database(server, template="template1") as fresh:
        yield fresh.conninfo


@pytest.fixture
def storage(pool: Pool, clock: FakeClock) -> Postgres:
    return Postgres(pool, make_vault(), clock)


@pytest.fixture
async def acme(pool: Pool) -> UUID:
    return await add_organization(pool, "acme")


@pytest.fixture
async def other_tenant(pool: Pool) -> UUID:
    return await add_organization(pool, "twin")


@pytest.fixture
async def shop(pool: Pool, acme: UUID) -> ServiceContext:
    return await service_context(pool, await add_service(pool, acme, "shop"))


@pytest.fixture
async def desk(pool: Pool, acme: UUID) -> ServiceContext:
    """A second service in the same organization."""
    return await service_context(pool, await add_service(pool, acme, "desk"))


@pytest.fixture
async def foreign(pool: Pool, other_tenant: UUID) -> ServiceContext:
    """A service with the same slug in another organization."""
    return await service_context(pool, await add_service(pool, other_tenant, "shop"))
