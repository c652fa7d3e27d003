"""A member with an account to anonymize."""

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.support.builders import EMAIL, add_account, mark_created_by
from tests.support.tenants import Tenant


@pytest.fixture
async def user(ports: Ports, pool: Pool, acme: Tenant) -> Account:
    """A confirmed member in the organization that created the account, and in no other organization."""
    account = await add_account(ports, EMAIL)
    await acme.join("ada", account)
    await mark_created_by(pool, acme.org, account.id)
    return account
