"""Reading an organization's audit log, and the platform's log, whose entries belong to no organization (docs/adr/0001).

Without a caller, the functions read the platform's log.
"""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from core.eventing import descriptions
from core.eventing.model import audit
from core.eventing.model.sentences import DescribedEntry
from core.kernel import access, values
from core.kernel.callers import OrganizationCaller, organization_of
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
    ports: Ports, caller: OrganizationCaller | None, filter_: audit.AuditFilter | None, page: values.Page
) -> values.PageResult[DescribedEntry]:
    """Return a page with the matching entries, newest first. If the filter is None, no entry matches.

    In the platform's log, and with a filter by success, time or text, only the newest MAX_LISTED matching entries have pages.
    """
    org_id = organization_of(caller)
    async with ports.storage.reading() as read:
        resolved = await _resolve(ports, read, org_id, filter_)
        if resolved is None:
            return values.PageResult([], 0)
        result = await read.audit.page(org_id, resolved, page)
        return values.PageResult(await descriptions.describe_entries(ports, partial(read.audit.names, org_id), result.items), result.total)


async def get_entry(ports: Ports, caller: OrganizationCaller | None, entry_id: UUID) -> DescribedEntry:
    """Return an entry."""
    org_id = organization_of(caller)
    not_found = audit.PlatformAuditEntryNotFound if org_id is None else audit.AuditEntryNotFound
    async with ports.storage.reading() as read:
        entry = await read.audit.by_id(org_id, entry_id) or refuse(not_found)
        return (await descriptions.describe_entries(ports, partial(read.audit.names, org_id), [entry]))[0]


async def export(ports: Ports, caller: OrganizationCaller | None, filter_: audit.AuditFilter | None) -> values.Batches[DescribedEntry]:
    """Return all matching entries, newest first, without entries that are written after the first batch was read.

    If the filter is None, no entry matches.
    """
    org_id = organization_of(caller)
    async with ports.storage.reading() as read:
        resolved = await _resolve(ports, read, org_id, filter_)

    async def load_next(last: DescribedEntry | None, count: int) -> Sequence[DescribedEntry]:
        if resolved is None:
            return ()
        async with ports.storage.reading() as read:
            entries = await read.audit.batch(org_id, resolved, None if last is None else last.entry, count)
            return await descriptions.describe_entries(ports, partial(read.audit.names, org_id), entries)

    return values.Batches(load_next, size=audit.EXPORT_BATCH)


async def _resolve(ports: Ports, read: storage.Reading, org_id: UUID | None, filter_: audit.AuditFilter | None) -> audit.AuditFilter | None:
    return None if filter_ is None else await descriptions.resolve_search(ports, partial(read.audit.find_objects, org_id), filter_)
