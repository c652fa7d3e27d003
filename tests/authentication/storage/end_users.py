"""Enrolling accounts as a service's users."""

from uuid import UUID

from adapters.postgres.storage import Postgres
from core.kernel.causes import SYSTEM
from tests.support.rows import NOW
from tests.support.services import enroll_user


async def enroll(storage: Postgres, service: UUID, *users: UUID) -> None:
    """Make these accounts users in the service."""
    async with storage.transaction(by=SYSTEM) as tx:
        for user in users:
            assert await enroll_user(tx, service, user, NOW)
