"""An organization with roles that its groups can give."""

import pytest

from tests.support.tenants import Tenant
from tests.tenancy.api.groups.roles import KEEPER, Roles


@pytest.fixture
async def roles(acme: Tenant) -> Roles:
    roles = Roles(acme)
    await roles.define("auditor", ["audit.view"])
    await roles.define("keeper", KEEPER)
    return roles
