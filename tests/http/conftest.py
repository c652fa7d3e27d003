"""Organizations whose people call."""

from collections.abc import Mapping

import pytest

from adapters.postgres.pool import Pool
from core.access import Role
from ports import Ports
from tests.builders import Api
from tests.tenants import CAST, Tenant, Tenants


@pytest.fixture
def tenants(api: Api, ports: Ports, pool: Pool) -> Tenants:
    return Tenants(api, ports, pool)


@pytest.fixture
def cast() -> Mapping[str, Role]:
    """Who is in them; where more are needed, a test module overrides this."""
    return CAST


@pytest.fixture
async def acme(tenants: Tenants, cast: Mapping[str, Role]) -> Tenant:
    return await tenants.add("acme", cast=cast)


@pytest.fixture
async def twin(tenants: Tenants, cast: Mapping[str, Role]) -> Tenant:
    return await tenants.add("twin", cast=cast)
