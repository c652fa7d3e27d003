"""The enrollment of a user."""

from datetime import datetime
from uuid import UUID

from adapters.postgres.engine.storage import Postgres
from core.kernel.principals import SYSTEM
from tests.support.rows import NOW


async def enroll(storage: Postgres, service: UUID, user: UUID, at: datetime = NOW, *, signed_in: bool = True) -> bool:
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.lock(user)
        return await tx.end_users.enroll(service, user, at, signed_in=signed_in)
