"""Claims on a SIEM queue."""

from core.eventing import siem
from core.eventing.model.siem import MAX_BYTES, ClaimedSiemQueue, QueuedEntry
from ports import Ports


async def claim(ports: Ports, *, struggling: bool = True) -> ClaimedSiemQueue | None:
    return await siem.claim_queue(ports, struggling=struggling)


async def claim_existing(ports: Ports) -> ClaimedSiemQueue:
    queue = await claim(ports)
    assert queue is not None
    return queue


async def queued_entries(ports: Ports, queue: ClaimedSiemQueue, limit: int = 500, most_bytes: int = MAX_BYTES) -> list[QueuedEntry]:
    async with ports.storage.reading() as read:
        return await read.siem.waiting(queue.org_id, queue.id, limit, most_bytes)
