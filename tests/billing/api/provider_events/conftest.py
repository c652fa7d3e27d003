"""The receiver for the payment provider's events, and a service with plans for sale."""

import pytest

from entrypoints.http.app import Edge
from tests.billing.api.billing import Till, open_till
from tests.fakes.outside import FakeClock
from tests.fakes.payments import SECRET
from tests.support.builders import make_edge
from tests.support.tenants import Tenant


@pytest.fixture
def edge(request: pytest.FixtureRequest) -> Edge:
    return make_edge(**{"billing_secrets": (SECRET,), **getattr(request, "param", {})})


@pytest.fixture
async def till(acme: Tenant, clock: FakeClock) -> Till:
    return await open_till(acme, clock)
