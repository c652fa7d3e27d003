"""A server for several OpenID providers, and the adapter."""

from collections.abc import Callable, Iterator

import pytest

from ports import Ports
from tests.fakes.openid_issuers import OpenIdIssuers
from tests.fakes.outside import FakeClock
from tests.federation.connections.openid.case import Case, make_adapter
from tests.support.builders import with_loopback_sender


@pytest.fixture
def server(clock: FakeClock) -> Iterator[OpenIdIssuers]:
    with OpenIdIssuers(now=lambda: clock.now().timestamp()) as server:
        yield server


@pytest.fixture
def connection_ports(ports: Ports) -> Ports:
    """The ports, which can reach the server."""
    return with_loopback_sender(ports)


@pytest.fixture
def new_case(server: OpenIdIssuers, clock: FakeClock) -> Callable[[], Case]:
    """Return a function that adds a provider. All cases share an adapter, as connections do."""
    providers = make_adapter(clock)
    return lambda: Case(server, clock, server.add(f"issuer-{len(server.issuers)}"), providers)


@pytest.fixture
def case(new_case: Callable[[], Case]) -> Case:
    return new_case()
