"""Users who leave an organization."""

from uuid import UUID

from tests.accounts.email_changes import change_email
from tests.support.builders import Answer, run_sql, sign_in
from tests.support.tenants import Tenant

PRIVATE_EMAIL = "grace@home.example"


async def change_own_email(acme: Tenant, user_id: str, email: str = PRIVATE_EMAIL) -> None:
    """Change an account's email address, as its user, and let the days pass in which the old address is reserved."""
    answer = await try_change_own_email(acme, user_id, email)
    assert answer.status == 200, answer.text
    await run_sql(acme.pool, "delete from email_changes")


async def try_change_own_email(acme: Tenant, user_id: str, email: str) -> Answer:
    async with acme.ports.storage.reading() as read:
        account = await read.accounts.by_id(UUID(user_id))
    assert account is not None
    session = await sign_in(acme.ports, account)
    return await change_email(acme.api, acme.ports, session.access_token, email)


async def leave(tenant: Tenant, user_id: str) -> None:
    answer = await tenant.api.post(f"{tenant.path}/members/{user_id}", token=tenant.token("owner"))
    assert answer.status == 200, answer.text


async def unblock(tenant: Tenant, user_id: str) -> None:
    answer = await tenant.api.delete(f"{tenant.path}/directory-blocks/{user_id}", token=tenant.token("owner"))
    assert answer.status == 204, answer.text
