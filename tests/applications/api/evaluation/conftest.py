"""Acme's shop, which asks about its users' permissions."""

from typing import Any

import pytest

from core.kernel.roles import Permission
from tests.applications.api.authorization.store import DOCUMENT, Store
from tests.applications.api.evaluation.asking import Asking
from tests.support.services import add_api_key, add_service
from tests.support.tenants import Tenant

EVERYTHING: list[Any] = [*Permission]


@pytest.fixture
async def shop(acme: Tenant) -> Asking:
    """Acme's shop with DOCUMENT. The member is a viewer there."""
    service = await add_service(acme.pool, acme.org)
    store = Store(acme, service, await add_api_key(acme.pool, service, EVERYTHING))
    assert (await store.put(DOCUMENT)).status == 200
    await store.give("viewer", acme.id("member"))
    return Asking(store, await add_api_key(acme.pool, service, [Permission.EVALUATE_ACCESS]))
