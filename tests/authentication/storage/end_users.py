"""The enrollment of accounts as users of a service."""

from uuid import UUID

from adapters.postgres.engine.storage import Postgres
from core.kernel.principals import SYSTEM
from tests.support.rows import NOW


async def enroll(storage: Postgres, service: UUID, *users: UUID) -> None:
    """Make these accounts users of the service."""
    async with storage.transaction(by=SYSTEM) as tx:
        for user in users:
            assert await tx.end_users.enroll(service, user, NOW)
