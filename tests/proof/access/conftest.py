"""The world, in a separate database with a change journal."""

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.policy import Policy
from core.tenancy.model.domains import RECORD_PREFIX, VALUE_PREFIX
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics, FakeTxtRecords
from tests.fakes.payments import SuccessfulPayments
from tests.proof.access.state import JournaledPool, begin_journal, forget_test, journaled_database
from tests.proof.access.world import SLUGS, World, challenge_of, make_world
from tests.support.builders import make_ports
from tests.support.database import KeptConnections

_made: list[World] = []


@pytest.fixture(scope="session")
def world_database() -> Iterator[psycopg.Connection]:
    """The world's database, which this worker creates once."""
    with journaled_database() as connection:
        yield connection


@pytest.fixture
def conninfo(world_database: psycopg.Connection) -> str:
    """The world's database, without changes from earlier tests."""
    forget_test(world_database)
    return world_database.info.dsn


@pytest.fixture(scope="session")
def kept_connections(world_database: psycopg.Connection) -> Iterator[KeptConnections]:
    """The connections to the world that this worker's tests pass on."""
    kept = KeptConnections(world_database.info.dsn)
    yield kept
    kept.close()


@pytest.fixture
async def pool(conninfo: str, kept_connections: KeptConnections, world_database: psycopg.Connection) -> AsyncIterator[Pool]:
    """A pool for the world, whose changes the journal has."""
    opened = JournaledPool(kept_connections, world_database)
    yield opened
    await opened.aclose()


@pytest.fixture
async def ports(pool: Pool, clock: FakeClock, sent: FakeMailTransport, metrics: FakeMetrics, dns: FakeTxtRecords) -> Ports:
    """Ports with all providers, and without guess limits.

    Users call more often here than they may guess.
    """
    policy = Policy(account_guess_limit=1_000_000, mfa_guess_limit=1_000_000, email_sign_in=True)
    return await make_ports(
        pool,
        clock,
        sent,
        metrics,
        policy,
        dns=dns,
        payments=SuccessfulPayments(),
    )


@pytest.fixture
def dns() -> FakeTxtRecords:
    """The DNS records that prove all tenants' domains."""
    records = FakeTxtRecords()
    records.published |= {f"{RECORD_PREFIX}.{slug}.example": [f"{VALUE_PREFIX}{challenge_of(slug)}"] for slug in SLUGS}
    return records


@pytest.fixture
async def world(ports: Ports, pool: Pool) -> World:
    """The world, in the same state for every test."""
    if not _made:
        _made.append(await make_world(ports, pool))
        await begin_journal(pool)
    return _made[0]
