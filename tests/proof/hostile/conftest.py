"""The two organizations and their provider, over real HTTP."""

from collections.abc import Iterator

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.openid_issuers import OpenIdIssuers
from tests.fakes.outside import FakeClock
from tests.proof.hostile.world import DOMAIN, World, connect
from tests.support.builders import with_loopback_sender
from tests.support.tenants import Tenant


@pytest.fixture
def ports(ports: Ports) -> Ports:
    """Ports that also reach the tests' identity provider."""
    return with_loopback_sender(ports)


@pytest.fixture
def server(clock: FakeClock) -> Iterator[OpenIdIssuers]:
    with OpenIdIssuers(now=lambda: clock.now().timestamp()) as server:
        yield server


@pytest.fixture
async def world(app: QuartTrio, ports: Ports, pool: Pool, server: OpenIdIssuers, acme: Tenant, other_tenant: Tenant) -> World:
    """A has a.example, and B has b.example and a subdomain of A's."""
    issuer = server.add("okta")
    world = World(
        ports, app, pool, issuer, acme, other_tenant, await connect(ports, acme, issuer), await connect(ports, other_tenant, issuer)
    )
    for tenant, domain in ((acme, "a.example"), (other_tenant, "b.example"), (other_tenant, "eu.a.example")):
        await world.set(DOMAIN, tenant.org, domain)
    return world
