"""Helpers for tests about SCIM users."""

from typing import Any
from uuid import UUID

from tests.support.builders import PASSWORD, add_account, add_member, run_sql
from tests.support.scim import GRACE
from tests.support.tenants import Tenant

FULL: dict[str, Any] = {
    "externalId": "00u1",
    "name": {"formatted": "Grace Brewster Hopper", "givenName": "Grace", "familyName": "Hopper"},
    "displayName": "Amazing Grace",
}


async def load_accounts(acme: Tenant, email: str = GRACE) -> list[tuple[Any, ...]]:
    return await run_sql(
        acme.pool,
        """
        select u.id, u.origin, u.origin_org_id, u.email_verified_at is not null, u.deactivated_at is not null, m.role,
               m.confirmed_at is not null
        from users u left join memberships m on m.user_id = u.id where u.email = %s""",
        email,
    )


async def set_password(acme: Tenant, user_id: object) -> None:
    """Give the account a password, so that the user can sign in."""
    hashed = await acme.ports.passwords.hash(PASSWORD)
    await run_sql(acme.pool, "update users set password_hash = %s where id = %s", hashed, UUID(str(user_id)))


async def add_own_account(acme: Tenant, email: str = "ada@example.com", *, confirmed: bool = True, password: str | None = PASSWORD) -> str:
    """Add a member with an account that the user created. Return the id."""
    account = await add_account(acme.ports, email, password)
    await add_member(acme.pool, acme.org, account.id, confirmed=confirmed)
    return str(account.id)


async def account_of(acme: Tenant, user_id: object) -> Any:
    async with acme.ports.storage.reading() as read:
        return await read.accounts.by_id(UUID(str(user_id)))
