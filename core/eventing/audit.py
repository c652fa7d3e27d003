"""Reading the audit log of an organization."""

from collections.abc import Sequence
from uuid import UUID

from core.eventing.model.audit import EXPORT_BATCH, AuditEntry, AuditEntryNotFound, AuditFilter
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.values import Batches, Page, PageResult
from ports import Ports


async def list_entries(ports: Ports, caller: OrganizationCaller, filter_: AuditFilter | None, page: Page) -> PageResult[AuditEntry]:
    """Return a page of the matching entries, newest first. A filter of None matches no entry.

    With a filter by success or time, only the newest MAX_LISTED matching entries have pages.
    """
    if filter_ is None:
        return PageResult([], 0)
    async with ports.storage.reading() as read:
        return await read.audit.page(caller.acts_in.id, filter_, page)


async def get_entry(ports: Ports, caller: OrganizationCaller, entry_id: UUID) -> AuditEntry:
    """Return an entry of the organization's log. Raises: AuditEntryNotFound."""
    async with ports.storage.reading() as read:
        return await read.audit.by_id(caller.acts_in.id, entry_id) or refuse(AuditEntryNotFound)


def export(ports: Ports, caller: OrganizationCaller, filter_: AuditFilter | None) -> Batches[AuditEntry]:
    """Return all matching entries, newest first, without those that are written after the first batch was read.

    A filter of None matches no entry.
    """

    async def load_next(last: AuditEntry | None, count: int) -> Sequence[AuditEntry]:
        if filter_ is None:
            return ()
        async with ports.storage.reading() as read:
            return await read.audit.batch(caller.acts_in.id, filter_, last, count)

    return Batches(load_next, size=EXPORT_BATCH)
