"""The permissions and roles in acme's shop."""

import pytest

from tests.applications.api.authorization.store import DOCUMENT, KEY_PERMISSIONS, Store
from tests.support.services import add_api_key, add_service
from tests.support.tenants import Tenant


@pytest.fixture
async def store(acme: Tenant) -> Store:
    """Acme's shop, without permissions and roles."""
    service = await add_service(acme.pool, acme.org)
    key = await add_api_key(acme.pool, service, KEY_PERMISSIONS)
    return Store(acme, service, key)


@pytest.fixture
async def declared(store: Store) -> Store:
    """Acme's shop with DOCUMENT."""
    assert (await store.put(DOCUMENT)).status == 200
    return store
