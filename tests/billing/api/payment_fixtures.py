"""Fixtures for purchases: the payment provider, and a service with plans for sale."""

from collections.abc import Iterator

import pytest

from adapters.http.payments import HttpPayments
from adapters.postgres.engine.pool import Pool
from entrypoints.http.app import Edge
from ports import Ports
from tests.billing.api.billing import Till, open_till
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.fakes.payments import SECRET, FakePayments
from tests.support.builders import make_edge, make_ports
from tests.support.tenants import Tenant


@pytest.fixture
def provider(clock: FakeClock) -> Iterator[FakePayments]:
    with FakePayments(now=lambda: clock.now().timestamp()) as running:
        yield running


@pytest.fixture
async def ports(pool: Pool, clock: FakeClock, sent: FakeMailTransport, metrics: FakeMetrics, provider: FakePayments) -> Ports:
    return await make_ports(pool, clock, sent, metrics, payments=HttpPayments(provider.settings, clock))


@pytest.fixture
def edge() -> Edge:
    return make_edge(billing_secrets=(SECRET,))


@pytest.fixture
async def till(acme: Tenant, clock: FakeClock) -> Till:
    return await open_till(acme, clock)
