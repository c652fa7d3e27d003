"""The services in acme and in another organization."""

import pytest

from tests.applications.api.service_users import Shop, open_shop
from tests.applications.api.services import Workshop
from tests.support.tenants import Tenant


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    return await open_shop(acme)


@pytest.fixture
async def foreign(other_tenant: Tenant) -> Shop:
    """A service in another organization."""
    return await open_shop(other_tenant)


@pytest.fixture
def shops(acme: Tenant) -> Workshop:
    return Workshop(acme)
