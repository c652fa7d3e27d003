"""The platform's log: the audit entries that belong to no organization (docs/adr/0001), for platform owners."""

from collections.abc import Sequence
from uuid import UUID

from core.eventing.model.audit import EXPORT_BATCH, AuditEntry, PlatformAuditEntryNotFound, PlatformAuditFilter
from core.kernel.errors import refuse
from core.kernel.values import Batches, Page, PageResult
from ports import Ports


async def list_entries(ports: Ports, filter_: PlatformAuditFilter | None, page: Page) -> PageResult[AuditEntry]:
    """Return a page of the newest MAX_LISTED matching entries, newest first. A filter of None matches no entry."""
    if filter_ is None:
        return PageResult([], 0)
    async with ports.storage.reading() as read:
        return await read.platform_log.page(filter_, page)


async def get_entry(ports: Ports, entry_id: UUID) -> AuditEntry:
    """Return an entry. Raises: PlatformAuditEntryNotFound."""
    async with ports.storage.reading() as read:
        return await read.platform_log.by_id(entry_id) or refuse(PlatformAuditEntryNotFound)


def export(ports: Ports, filter_: PlatformAuditFilter | None) -> Batches[AuditEntry]:
    """Return all matching entries, newest first, without those that are written after the first batch was read."""

    async def load_next(last: AuditEntry | None, count: int) -> Sequence[AuditEntry]:
        if filter_ is None:
            return ()
        async with ports.storage.reading() as read:
            return await read.platform_log.batch(filter_, last, count)

    return Batches(load_next, size=EXPORT_BATCH)
