"""Two organizations' applications."""

import pytest

from tests.applications.api.end_users.applications import Applications
from tests.support.services import add_service
from tests.support.tenants import Tenant


@pytest.fixture
async def apps(acme: Tenant, other_tenant: Tenant) -> Applications:
    services = {
        "shop": await add_service(acme.pool, acme.org, "shop"),
        "wiki": await add_service(acme.pool, acme.org, "wiki"),
        "other": await add_service(acme.pool, other_tenant.org, "shop"),
    }
    return Applications(acme, other_tenant, services)
