"""The identity providers, all behind the adapter."""

from collections.abc import Iterator

import pytest

from core.kernel.connections import CODEHOST, OFFICESUITE, PLATFORM_CONNECTIONS, WEBSUITE, ConnectionSlug
from tests.contracts.identity_providers.case import Case, make_providers
from tests.fakes.outside import FakeClock
from tests.fakes.provider import FakeProvider

OPENID = (WEBSUITE, OFFICESUITE)


def run_provider(provider: ConnectionSlug, clock: FakeClock) -> Iterator[Case]:
    with FakeProvider(provider, now=lambda: clock.now().timestamp()) as server:
        yield Case(server, make_providers(clock), clock)


@pytest.fixture(params=list(PLATFORM_CONNECTIONS))
def case(request: pytest.FixtureRequest, clock: FakeClock) -> Iterator[Case]:
    yield from run_provider(request.param, clock)


@pytest.fixture(params=OPENID)
def openid(request: pytest.FixtureRequest, clock: FakeClock) -> Iterator[Case]:
    yield from run_provider(request.param, clock)


@pytest.fixture
def websuite(clock: FakeClock) -> Iterator[Case]:
    yield from run_provider(WEBSUITE, clock)


@pytest.fixture
def codehost(clock: FakeClock) -> Iterator[Case]:
    yield from run_provider(CODEHOST, clock)
