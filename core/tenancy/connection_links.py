"""Ending links between accounts and organizations' connections."""

from datetime import datetime
from uuid import UUID

from core.tenancy import events
from ports.storage import Transaction


async def remove(tx: Transaction, org_id: UUID, connection_id: UUID, user_id: UUID, now: datetime) -> bool:
    """Unlink a user from a connection, and end their sign-ins there. Return whether there was a link."""
    await tx.session_sign_ins.end_of_connection(org_id, connection_id, user_id, now)
    if not await tx.connection_identities.remove(org_id, connection_id, user_id):
        return False
    tx.record(events.connection_person_unlinked(org_id, connection_id, user_id))
    return True


async def remove_all(tx: Transaction, user_id: UUID, now: datetime) -> None:
    """Unlink a user from the connections in all organizations, and end their sign-ins there. The account is locked."""
    for link in await tx.connection_identities.of_user(user_id):
        await remove(tx, link.org_id, link.connection_id, user_id, now)
