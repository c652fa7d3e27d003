"""Services that manage subscriptions with their API keys."""

from collections.abc import Mapping

import pytest

from core.kernel.roles import OWNER, RoleName
from tests.billing.api.subscriptions.shop import Shop, add_shop
from tests.support.tenants import Tenant


@pytest.fixture
def cast() -> Mapping[str, RoleName]:
    """Organizations have only an owner, because the callers are API keys."""
    return {"owner": OWNER}


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    return await add_shop(acme)


@pytest.fixture
async def other(acme: Tenant) -> Shop:
    """Another service in the same organization."""
    return await add_shop(acme, "other")


@pytest.fixture
async def foreign(other_tenant: Tenant) -> Shop:
    """A service in another organization."""
    return await add_shop(other_tenant)
