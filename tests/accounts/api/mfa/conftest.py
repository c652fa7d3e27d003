"""A signed-in user, and an organization."""

from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.accounts.api.mfa.mfa_user import MfaUser
from tests.support.builders import Api, add_account, add_organization, sign_in


@pytest.fixture
async def user(api: Api, ports: Ports) -> MfaUser:
    account = await add_account(ports, password=None)
    return MfaUser(api, ports, account, (await sign_in(ports, account)).access_token)


@pytest.fixture
async def acme_id(pool: Pool) -> UUID:
    return await add_organization(pool, "acme")
