"""The accounts behind a service's users."""

from datetime import timedelta

from core.accounts.model.accounts import Account
from tests.applications.api.service_users import Shop

SECOND = timedelta(seconds=1)


async def account_of(shop: Shop, email: str) -> Account | None:
    async with shop.tenant.ports.storage.reading() as read:
        return await read.accounts.by_email(email)  # type: ignore[arg-type]
