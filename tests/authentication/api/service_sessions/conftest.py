"""A service with a user."""

import pytest

from tests.authentication.api.service_sessions.shop import Shop, open_shop
from tests.support.tenants import Tenant


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    return await open_shop(acme)
