"""A payment provider and an organization that sells subscriptions through it."""

from collections.abc import Iterator

import pytest

from adapters.http.payments import HttpPayments
from adapters.postgres.engine.pool import Pool
from core.kernel.principals import Role
from entrypoints.http.app import Edge
from ports import Ports
from tests.billing.api.billing import Till, open_till
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.fakes.payments import SECRET, FakePayments
from tests.support.builders import make_edge, make_ports
from tests.support.tenants import Tenants


@pytest.fixture
def provider(clock: FakeClock) -> Iterator[FakePayments]:
    with FakePayments(now=lambda: clock.now().timestamp()) as payments:
        yield payments


@pytest.fixture
async def ports(pool: Pool, clock: FakeClock, sent: FakeMailTransport, metrics: FakeMetrics, provider: FakePayments) -> Ports:
    return await make_ports(pool, clock, sent, metrics, payments=HttpPayments(provider.settings, clock))


@pytest.fixture
def edge() -> Edge:
    return make_edge(billing_secrets=(SECRET,))


@pytest.fixture
async def till(tenants: Tenants, clock: FakeClock) -> Till:
    acme = await tenants.add("acme", cast={"owner": Role.OWNER, "member": Role.MEMBER})
    return await open_till(acme, clock)
