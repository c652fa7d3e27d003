"""The platform's log: the audit entries that belong to no organization (docs/adr/0001), for platform owners."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from core.eventing.descriptions import describe_entries, resolve_search
from core.eventing.model.audit import EXPORT_BATCH, PlatformAuditEntryNotFound, PlatformAuditFilter
from core.eventing.model.sentences import DescribedEntry
from core.kernel.errors import refuse
from core.kernel.values import Batches, Page, PageResult
from ports import Ports
from ports.storage import Reading


async def list_entries(ports: Ports, filter_: PlatformAuditFilter | None, page: Page) -> PageResult[DescribedEntry]:
    """Return a page with the newest MAX_LISTED matching entries, newest first.

    If the filter is None, no entry matches.
    """
    async with ports.storage.reading() as read:
        resolved = await _resolve(ports, read, filter_)
        if resolved is None:
            return PageResult([], 0)
        result = await read.platform_log.page(resolved, page)
        return PageResult(await describe_entries(ports, read.platform_log.names, result.items), result.total)


async def get_entry(ports: Ports, entry_id: UUID) -> DescribedEntry:
    """Return an entry."""
    async with ports.storage.reading() as read:
        entry = await read.platform_log.by_id(entry_id) or refuse(PlatformAuditEntryNotFound)
        return (await describe_entries(ports, read.platform_log.names, [entry]))[0]


async def export(ports: Ports, filter_: PlatformAuditFilter | None) -> Batches[DescribedEntry]:
    """Return all matching entries, newest first, without entries that are written after the first batch was read.

    If the filter is None, no entry matches.
    """
    async with ports.storage.reading() as read:
        resolved = await _resolve(ports, read, filter_)

    async def load_next(last: DescribedEntry | None, count: int) -> Sequence[DescribedEntry]:
        if resolved is None:
            return ()
        async with ports.storage.reading() as read:
            entries = await read.platform_log.batch(resolved, None if last is None else last.entry, count)
            return await describe_entries(ports, read.platform_log.names, entries)

    return Batches(load_next, size=EXPORT_BATCH)


async def _resolve(ports: Ports, read: Reading, filter_: PlatformAuditFilter | None) -> PlatformAuditFilter | None:
    if filter_ is None:
        return None
    entry = await resolve_search(ports, read.platform_log.find_objects, filter_.entry)
    return None if entry is None else replace(filter_, entry=entry)
