"""A service without plans."""

import pytest

from tests.applications.api.services import Workshop
from tests.support.services import add_service
from tests.support.tenants import Tenant


@pytest.fixture
async def shops(acme: Tenant) -> Workshop:
    """A service named shop, without plans."""
    await add_service(acme.pool, acme.org)
    return Workshop(acme)
