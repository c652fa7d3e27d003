"""The enrollment of accounts as users of a service."""

from uuid import UUID

from adapters.postgres.engine.storage import Postgres
from core.kernel.causes import SYSTEM
from tests.support.rows import NOW
from tests.support.services import enroll_user


async def enroll(storage: Postgres, service: UUID, *users: UUID) -> None:
    """Make these accounts users of the service."""
    async with storage.transaction(by=SYSTEM) as tx:
        for user in users:
            assert await enroll_user(tx, service, user, NOW)
