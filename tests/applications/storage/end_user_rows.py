"""Enrolling a user."""

from datetime import datetime
from uuid import UUID

from adapters.postgres.storage import Postgres
from core.applications.model.users import EnrollmentOrigin
from core.kernel.causes import SYSTEM
from tests.support.rows import NOW
from tests.support.services import enroll_user


async def enroll(storage: Postgres, service: UUID, user: UUID, at: datetime = NOW, *, signed_in: bool = True) -> bool:
    """Enroll a user who signs in, or that an API key creates."""
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.lock(user)
        if signed_in:
            return await enroll_user(tx, service, user, at)
        context = await tx.services.context_by_id(service)
        return context is not None and await tx.assignments.add(context.org_id, service, [user], EnrollmentOrigin.API_KEY, at)
