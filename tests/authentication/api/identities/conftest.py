"""A user with sessions at the platform and at two services."""

import pytest

from tests.authentication.api.identities.person import DESK, PLATFORM, SHOP, Person
from tests.support.builders import add_account, sign_in
from tests.support.services import add_service, sign_in_to
from tests.support.tenants import Tenant, Tenants


@pytest.fixture
async def user(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> Person:
    account = await add_account(tenants.ports, password=None)
    services = {SHOP: await add_service(tenants.pool, acme.org), DESK: await add_service(tenants.pool, other_tenant.org, "desk")}
    sessions = {name: await sign_in_to(tenants.ports, tenants.pool, service, account) for name, service in services.items()}
    return Person(tenants, account, services, {PLATFORM: await sign_in(tenants.ports, account), **sessions})
