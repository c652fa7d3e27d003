"""Sign-in through the identity provider `provider`, into acme's service."""

from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.connections import PlatformCredentials
from tests.fakes.provider import FakeProvider
from tests.support.services import add_service
from tests.support.tenants import Tenant


@pytest.fixture
def providers(provider: FakeProvider) -> list[PlatformCredentials]:
    return [provider.connection()]


@pytest.fixture
async def shop(pool: Pool, acme: Tenant) -> UUID:
    return await add_service(pool, acme.org)
