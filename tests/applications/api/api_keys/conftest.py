"""A service, and members that manage its API keys."""

import pytest

from tests.applications.api.api_keys.shop import Shop, open_shop
from tests.support.tenants import Tenant


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    return await open_shop(acme)
