"""The id of a user who leaves."""

from uuid import UUID

import pytest

from tests.support.builders import PASSWORD, run_sql
from tests.support.scim import Directory
from tests.support.tenants import Tenant


@pytest.fixture
async def leaver_id(acme: Tenant, directory: Directory) -> str:
    """The id of a provisioned user with a password and no other membership."""
    user_id: str = (await directory.create_user())["id"]
    hashed = await acme.ports.passwords.hash(PASSWORD)
    await run_sql(acme.pool, "update users set password_hash = %s where id = %s", hashed, UUID(user_id))
    async with acme.ports.storage.reading() as read:
        account = await read.accounts.by_id(UUID(user_id))
    assert account is not None
    acme.people["grace"] = account
    await acme.sign_in("grace")
    return user_id
