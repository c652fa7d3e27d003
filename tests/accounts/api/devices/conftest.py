"""Two users with devices, and a user's sign-ins."""

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.accounts.api.devices.owner import Logins, Owner, TrustedUser
from tests.fakes.outside import FakeClock
from tests.support.builders import EMAIL, Api, add_account, sign_in
from tests.support.mfa import add_mfa


async def owner(api: Api, ports: Ports, pool: Pool, email: str) -> Owner:
    account = await add_account(ports, email, None)
    return Owner(api, ports, pool, account, await sign_in(ports, account))


@pytest.fixture
async def user(api: Api, ports: Ports, pool: Pool) -> Owner:
    return await owner(api, ports, pool, EMAIL)


@pytest.fixture
async def other_user(api: Api, ports: Ports, pool: Pool) -> Owner:
    return await owner(api, ports, pool, "eve@example.com")


@pytest.fixture
async def logins(api: Api, ports: Ports, pool: Pool) -> Logins:
    await add_account(ports)
    return Logins(api, pool)


@pytest.fixture
async def trusted_user(api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> TrustedUser:
    account = await add_account(ports)
    return TrustedUser(Logins(api, pool), account, await add_mfa(ports, account), clock)
