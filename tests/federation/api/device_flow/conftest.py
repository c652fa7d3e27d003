"""A device, and the token for the user who approves it."""

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import DeviceClient
from tests.support.builders import sign_in
from tests.support.services import add_service, service_context
from tests.support.tenants import Tenant


@pytest.fixture
async def cli(acme: Tenant, pool: Pool, clock: FakeClock) -> DeviceClient:
    return DeviceClient(acme.api, pool, clock, await service_context(pool, await add_service(pool, acme.org, "shop")))


@pytest.fixture
async def mobile_cli(acme: Tenant, pool: Pool, clock: FakeClock) -> DeviceClient:
    """A device of a mobile application, a public client."""
    return DeviceClient(acme.api, pool, clock, await service_context(pool, await add_service(pool, acme.org, "till", "mobile")))


@pytest.fixture
async def token(ports: Ports, user: Account) -> str:
    """The user's access token."""
    return (await sign_in(ports, user)).access_token
