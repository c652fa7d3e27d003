"""The removal of external clients that no user agrees to any longer."""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.applications import services
from core.federation.oauth.model.external_clients import UnusedClient
from core.maintenance.housekeeping import process_in_batches
from core.programs import events
from ports import Ports
from ports.storage import Transaction

UNUSED_FOR: Final = timedelta(days=90)  # since its document was last fetched
LEASE_NAME: Final = "external_client_sweeper"
LEASE: Final = timedelta(minutes=5)


async def sweep(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Delete unused external clients, one in a transaction. Return their number, or None if another process holds the lease.

    A client is unused if it has no consent, no live session and no live code. A user who comes with it again stores it again.
    Its sign-ins stay in the logs.
    """

    last: UnusedClient | None = None

    async def process(tx: Transaction, now: datetime) -> int:
        nonlocal last
        client = await tx.external_clients.find_unused(last, now - UNUSED_FOR, now)
        if client is None:
            return 0
        last = client
        # Lock order: the organization, then the client. A code that is issued now waits for the lock on the client.
        await tx.organizations.lock(client.org_id)
        if await tx.external_clients.lock_unused(client, now - UNUSED_FOR, now):
            # A client that comes back has the same id. A deletion of its sign-ins later would take its new ones, too.
            await services.remove(tx, client.org_id, client.id, now, keeps_sign_ins=True)
            tx.record(events.external_client_removed(client.org_id, client.client_uri, client.id))
        return 1

    return await process_in_batches(ports, holder, LEASE_NAME, LEASE, 1, {"clients": process})
