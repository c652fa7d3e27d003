"""A payment provider and an organization that sells subscriptions through it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest

from adapters.http.payments import HttpPayments
from adapters.postgres.engine.pool import Pool
from core.kernel.principals import Role
from entrypoints.http.app import create_app
from ports import Ports
from tests.billing.api.billing import Till, open_till
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.fakes.payments import SECRET, FakePayments
from tests.support.builders import Api, make_edge, make_ports
from tests.support.tenants import Tenants

if TYPE_CHECKING:
    from quart_trio.testing import TrioClient


@pytest.fixture
def provider(clock: FakeClock) -> Iterator[FakePayments]:
    with FakePayments(now=lambda: clock.now().timestamp()) as running:
        yield running


@pytest.fixture
async def ports(pool: Pool, clock: FakeClock, sent: FakeMailTransport, metrics: FakeMetrics, provider: FakePayments) -> Ports:
    return await make_ports(pool, clock, sent, metrics, payments=HttpPayments(provider.settings, clock))


@pytest.fixture
async def till(ports: Ports, pool: Pool, clock: FakeClock) -> Till:
    app = create_app(
        ports, make_edge(billing_secrets=(SECRET,)), observe=lambda _: None, exposition=lambda: b"", exposition_type="text/plain"
    )
    acme = await Tenants(Api(cast("TrioClient", app.test_client())), ports, pool).add(
        "acme", cast={"owner": Role.OWNER, "member": Role.MEMBER}
    )
    return await open_till(acme, clock)
