"""A member with an account to anonymize."""

import pytest

from core.accounts.accounts_rules import Account
from ports import Ports
from tests.support.builders import EMAIL, add_account
from tests.support.tenants import Tenant


@pytest.fixture
async def user(ports: Ports, acme: Tenant) -> Account:
    """A confirmed member of one organization, and of no other."""
    account = await add_account(ports, EMAIL)
    await acme.join("ada", account)
    return account
