"""A service with a user."""

import pytest

from tests.authentication.api.service_sessions.shop import Shop
from tests.support.builders import add_account
from tests.support.services import add_service, service_context
from tests.support.tenants import Tenant, Tenants


@pytest.fixture
async def shop(acme: Tenant, tenants: Tenants) -> Shop:
    id_ = await add_service(tenants.pool, acme.org, "shop")
    context = await service_context(tenants.pool, id_)
    return Shop(acme, id_, context.client_id, await add_account(tenants.ports))
