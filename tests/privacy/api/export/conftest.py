"""A user with data, and a service."""

from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.privacy.api.export.subject import Subject
from tests.support.builders import Api, add_account
from tests.support.services import add_service
from tests.support.tenants import Tenant


@pytest.fixture
async def user(api: Api, ports: Ports, pool: Pool) -> Subject:
    return Subject(api, ports, pool, await add_account(ports, "ada@example.com"))


@pytest.fixture
async def shop(acme: Tenant) -> UUID:
    return await add_service(acme.pool, acme.org)
