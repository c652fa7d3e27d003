"""Reading an organization's audit log, and the platform's log, whose entries belong to no organization (docs/adr/0001)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from core.eventing import descriptions
from core.eventing.model import audit
from core.eventing.model.sentences import DescribedEntry
from core.kernel import access, values
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.tenancy import organizations
from core.tenancy.model.organizations import Organization
from ports import Ports, storage


async def lock_organization_to_forward(tx: storage.Transaction, caller: OrganizationCaller, capability: Capability) -> Organization:
    """Lock the organization for a caller who has this right, and lets a receiver get what the audit log shows.

    So the caller may read the log, and their token has the scope.
    """
    organization, rights = await organizations.lock_organization_for(tx, caller, capability)
    access.require_right(rights, Capability.AUDIT_VIEW, organization.status)
    access.require_scopes_for(caller, frozenset({Capability.AUDIT_VIEW}))
    return organization


async def list_entries(
    ports: Ports, caller: OrganizationCaller, filter_: audit.AuditFilter | None, page: values.Page
) -> values.PageResult[DescribedEntry]:
    """Return a page with the matching entries, newest first. If the filter is None, no entry matches.

    With a filter by success, time or text, only the newest MAX_LISTED matching entries have pages.
    """
    org_id = caller.acts_in.id
    async with ports.storage.reading() as read:
        resolved = await _resolve(ports, read, org_id, filter_)
        if resolved is None:
            return values.PageResult([], 0)
        result = await read.audit.page(org_id, resolved, page)
        return values.PageResult(await descriptions.describe_entries(ports, partial(read.audit.names, org_id), result.items), result.total)


async def get_entry(ports: Ports, caller: OrganizationCaller, entry_id: UUID) -> DescribedEntry:
    """Return an entry from the organization's log."""
    org_id = caller.acts_in.id
    async with ports.storage.reading() as read:
        entry = await read.audit.by_id(org_id, entry_id) or refuse(audit.AuditEntryNotFound)
        return (await descriptions.describe_entries(ports, partial(read.audit.names, org_id), [entry]))[0]


async def export(ports: Ports, caller: OrganizationCaller, filter_: audit.AuditFilter | None) -> values.Batches[DescribedEntry]:
    """Return all matching entries, newest first, without entries that are written after the first batch was read.

    If the filter is None, no entry matches.
    """
    org_id = caller.acts_in.id
    async with ports.storage.reading() as read:
        resolved = await _resolve(ports, read, org_id, filter_)

    async def load_next(last: DescribedEntry | None, count: int) -> Sequence[DescribedEntry]:
        if resolved is None:
            return ()
        async with ports.storage.reading() as read:
            entries = await read.audit.batch(org_id, resolved, None if last is None else last.entry, count)
            return await descriptions.describe_entries(ports, partial(read.audit.names, org_id), entries)

    return values.Batches(load_next, size=audit.EXPORT_BATCH)


async def _resolve(ports: Ports, read: storage.Reading, org_id: UUID, filter_: audit.AuditFilter | None) -> audit.AuditFilter | None:
    return None if filter_ is None else await descriptions.resolve_search(ports, partial(read.audit.find_objects, org_id), filter_)


async def list_platform_entries(
    ports: Ports, filter_: audit.PlatformAuditFilter | None, page: values.Page
) -> values.PageResult[DescribedEntry]:
    """Return a page with the newest MAX_LISTED matching entries, newest first.

    If the filter is None, no entry matches.
    """
    async with ports.storage.reading() as read:
        resolved = await _resolve_platform(ports, read, filter_)
        if resolved is None:
            return values.PageResult([], 0)
        result = await read.platform_log.page(resolved, page)
        return values.PageResult(await descriptions.describe_entries(ports, read.platform_log.names, result.items), result.total)


async def get_platform_entry(ports: Ports, entry_id: UUID) -> DescribedEntry:
    """Return an entry."""
    async with ports.storage.reading() as read:
        entry = await read.platform_log.by_id(entry_id) or refuse(audit.PlatformAuditEntryNotFound)
        return (await descriptions.describe_entries(ports, read.platform_log.names, [entry]))[0]


async def export_platform(ports: Ports, filter_: audit.PlatformAuditFilter | None) -> values.Batches[DescribedEntry]:
    """Return all matching entries, newest first, without entries that are written after the first batch was read.

    If the filter is None, no entry matches.
    """
    async with ports.storage.reading() as read:
        resolved = await _resolve_platform(ports, read, filter_)

    async def load_next(last: DescribedEntry | None, count: int) -> Sequence[DescribedEntry]:
        if resolved is None:
            return ()
        async with ports.storage.reading() as read:
            entries = await read.platform_log.batch(resolved, None if last is None else last.entry, count)
            return await descriptions.describe_entries(ports, read.platform_log.names, entries)

    return values.Batches(load_next, size=audit.EXPORT_BATCH)


async def _resolve_platform(
    ports: Ports, read: storage.Reading, filter_: audit.PlatformAuditFilter | None
) -> audit.PlatformAuditFilter | None:
    if filter_ is None:
        return None
    entry = await descriptions.resolve_search(ports, read.platform_log.find_objects, filter_.entry)
    return None if entry is None else replace(filter_, entry=entry)
